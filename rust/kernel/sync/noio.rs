// SPDX-License-Identifier: GPL-2.0

//! A scope in which allocations do not start I/O.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::noio;
//! use kernel::prelude::*;
//!
//! /// Reestablishes a connection that I/O of a disk waits for.
//! fn reconnect(connect: impl FnOnce() -> Result) -> Result {
//!     noio(connect)
//! }
//! ```

use crate::bindings;

/// Calls `f`. Meanwhile every allocation of this task, also in C code, is made as if with
/// `GFP_NOIO`. Process context. Calls nest.
///
/// Needed wherever I/O of a disk waits for the result: reclaim that writes to that disk would
/// deadlock.
#[inline]
pub fn noio<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: The call only changes the flags of the current task, which are restored below.
    let flags = unsafe { bindings::srp_helper_memalloc_noio_save() };
    let result = f();
    // SAFETY: This ends the scope begun above; scopes that `f` has begun have ended.
    unsafe { bindings::srp_helper_memalloc_noio_restore(flags) };
    result
}
