/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Before all else where clang compiles helpers for a kernel that gcc has built: clang forgets the segment
 * of an operand of inline assembly, and would use per-CPU variables without it.
 */
#include <linux/kconfig.h>
#undef CONFIG_CC_HAS_NAMED_AS
#undef CONFIG_USE_X86_SEG_SUPPORT
#undef CONFIG_CC_IS_GCC
