// SPDX-License-Identifier: GPL-2.0
/* Code to inline into Rust: our helpers, and those helpers of the kernel crate that every command uses. */
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>
#define __rust_helper __always_inline
#ifdef CONFIG_RUST
#include "helpers/atomic.c"
#include "helpers/atomic_ext.c"
#include "helpers/barrier.c"
#include "helpers/rcu.c"
#include "helpers/scatterlist.c"
#else
#include "../standalone/helpers.c"
#include "../standalone/shims.c"
#endif

/* LLVM considers the flags of C and Rust incompatible for inlining. */
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#include "helpers.c"
#pragma clang attribute pop
