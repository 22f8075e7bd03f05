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
//! /// Makes a connection again, for which a disk waits.
//! fn reconnect(connect: impl FnOnce() -> Result) -> Result {
//!     noio(connect)
//! }
//! ```

use crate::bindings;

/// Calls `f`, in which every allocation of this task is made as if with `GFP_NOIO`, in C code that
/// it calls as well. Process context. Calls nest.
///
/// Needed wherever a disk can wait for the result: memory that is being reclaimed by writing to
/// that very disk would never come.
#[inline]
pub fn noio<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: It only changes the flags of the current task, which are put back below.
    let flags = unsafe { bindings::srp_helper_memalloc_noio_save() };
    let result = f();
    // SAFETY: This ends the scope that began above; those that `f` has begun have ended.
    unsafe { bindings::srp_helper_memalloc_noio_restore(flags) };
    result
}
