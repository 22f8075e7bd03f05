// SPDX-License-Identifier: GPL-2.0

//! In the place of the kernel crate's `mm`: what `task` names.

use crate::{
    bindings,
    types::Opaque, //
};

/// A `struct mm_struct` that has users.
#[repr(transparent)]
pub struct MmWithUser(Opaque<bindings::mm_struct>);

impl MmWithUser {
    /// From C's.
    ///
    /// # Safety
    ///
    /// It must have users as long as the reference lives.
    pub(crate) unsafe fn from_raw<'a>(mm: *const bindings::mm_struct) -> &'a Self {
        // SAFETY: By the type's layout and this function's requirements.
        unsafe { &*mm.cast() }
    }
}
