/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included first where clang compiles helpers for a gcc-built kernel: clang drops the segment of an inline assembly
 * operand, and would access per-CPU variables without it.
 */
#include <linux/kconfig.h>
#undef CONFIG_CC_HAS_NAMED_AS
#undef CONFIG_USE_X86_SEG_SUPPORT
#undef CONFIG_CC_IS_GCC
