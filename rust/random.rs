// SPDX-License-Identifier: GPL-2.0

//! The random number generator of the kernel.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::bindings;

/// Returns 16 bits of the kernel's random number generator, which take a quarter of the time of 64. Callable
/// in any context.
pub fn random_u16() -> u16 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u16() }
}

/// Returns 32 bits of the kernel's random number generator. Callable in any context.
pub fn random_u32() -> u32 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u32() }
}

/// Returns 64 bits of the kernel's random number generator. Callable in any context.
pub fn random_u64() -> u64 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::get_random_u64() }
}
