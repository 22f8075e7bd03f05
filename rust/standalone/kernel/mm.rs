// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `mm`: the name that `task` uses.

use crate::{
    bindings,
    types::Opaque, //
};

/// A `struct mm_struct` that has users.
#[repr(transparent)]
pub struct MmWithUser(Opaque<bindings::mm_struct>);

impl MmWithUser {
    /// Converts C's pointer.
    ///
    /// # Safety
    ///
    /// `mm` must have users as long as the reference lives.
    pub(crate) unsafe fn from_raw<'a>(mm: *const bindings::mm_struct) -> &'a Self {
        // SAFETY: By the type's layout and this function's requirements.
        unsafe { &*mm.cast() }
    }
}
