// SPDX-License-Identifier: GPL-2.0

//! The random number generator of the kernel.
//!
//! The kernel crate has no random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::bindings;

/// Returns a random 16-bit number of the kernel's generator. It takes a third of the instructions
/// of a 64-bit number. Callable in any context.
pub fn random_u16() -> u16 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::get_random_u16() }
}

/// Returns a random 32-bit number of the kernel's generator. Callable in any context.
pub fn random_u32() -> u32 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::get_random_u32() }
}

/// Returns a random 64-bit number of the kernel's generator. Callable in any context.
pub fn random_u64() -> u64 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::get_random_u64() }
}
