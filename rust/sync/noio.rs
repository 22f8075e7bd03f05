// SPDX-License-Identifier: GPL-2.0

//! A scope in which allocations do not start I/O.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::NoIo;
//! use kernel::prelude::*;
//!
//! /// Makes a connection again, for which a disk waits.
//! fn reconnect(connect: impl FnOnce() -> Result) -> Result {
//!     let _noio = NoIo::enter();
//!     connect()
//! }
//! ```

use crate::bindings;
use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

/// While it exists, every allocation of this task is made as if with `GFP_NOIO`, in C code that it
/// calls as well.
///
/// Needed wherever a disk can wait for the result: memory that is being reclaimed by writing to
/// that very disk would never come. Scopes nest; drop them in the reverse order.
///
/// # Invariants
///
/// `flags` is what `memalloc_noio_save` returned in this task.
#[must_use = "the scope ends when this is dropped"]
pub struct NoIo {
    flags: c_uint,
    _not_send: NotThreadSafe,
}

impl NoIo {
    /// Begins a scope; it ends with the value. Process context only.
    #[inline]
    pub fn enter() -> Self {
        // INVARIANT: The value cannot leave this task, because it is not `Send`.
        Self {
            // SAFETY: It only changes the flags of the current task.
            flags: unsafe { bindings::srp_helper_memalloc_noio_save() },
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for NoIo {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant this ends the scope that the matching save began.
        unsafe { bindings::srp_helper_memalloc_noio_restore(self.flags) }
    }
}
