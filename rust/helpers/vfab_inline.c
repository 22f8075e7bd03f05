// SPDX-License-Identifier: GPL-2.0
/* Functions to inline into the test device's Rust code. */
#define __rust_helper __always_inline
#include <linux/refcount.h>
#include <linux/spinlock.h>
#ifdef CONFIG_RUST
#include "helpers/atomic.c"
#include "helpers/atomic_ext.c"
#include "helpers/barrier.c"
#include "helpers/refcount.c"
#include "helpers/spinlock.c"
#else
#include "../standalone/helpers.c"
#include "../standalone/shims.c"
#endif

/* LLVM considers the flags of C and Rust incompatible for inlining. */
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#include "vfab_helpers.c"
#pragma clang attribute pop
