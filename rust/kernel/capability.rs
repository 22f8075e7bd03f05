// SPDX-License-Identifier: GPL-2.0

//! Capabilities of tasks.
//!
//! The kernel crate's `cred` has no capabilities.
//!
//! C header: [`include/linux/capability.h`](srctree/include/linux/capability.h)

use crate::bindings;
use kernel::prelude::*;

/// A capability that a task may have.
#[derive(Clone, Copy)]
pub struct Capability(c_int);

/// Permission to administer the system.
// CAST: The number is 21.
pub const CAP_SYS_ADMIN: Capability = Capability(bindings::CAP_SYS_ADMIN as c_int);

/// Returns whether the current task has `cap` in the initial user namespace. Process context.
pub fn capable(cap: Capability) -> bool {
    // SAFETY: `cap` can only be one of the constants above.
    unsafe { bindings::capable(cap.0) }
}
