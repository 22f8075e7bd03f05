// SPDX-License-Identifier: GPL-2.0

//! Overrides of a device's operations.

/// A field of a device's operations. Dropping this restores its value.
///
/// # Invariants
///
/// `place` is valid, and nothing else modifies it.
pub(super) struct Operation<T: Copy> {
    place: *mut T,
    before: T,
}

impl<T: Copy> Operation<T> {
    /// # Safety
    ///
    /// `place` is valid until the drop. Nothing else modifies it, and any value that is set is
    /// acceptable to its users.
    pub(super) unsafe fn new(place: *mut T) -> Self {
        Self {
            place,
            // SAFETY: `place` is valid.
            before: unsafe { place.read() },
        }
    }

    /// The device's original value.
    pub(super) fn before(&self) -> T {
        self.before
    }

    pub(super) fn set(&mut self, value: T) {
        // SAFETY: `place` is valid, and nothing else modifies it.
        unsafe { self.place.write(value) };
    }
}

impl<T: Copy> Drop for Operation<T> {
    fn drop(&mut self) {
        self.set(self.before);
    }
}
