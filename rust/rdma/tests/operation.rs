// SPDX-License-Identifier: GPL-2.0

//! What a test puts into the operations of a device.

/// A field of a device's operations. It has its own value again when this is dropped.
///
/// # Invariants
///
/// `place` is valid, and nobody else changes it.
pub(super) struct Operation<T: Copy> {
    place: *mut T,
    before: T,
}

impl<T: Copy> Operation<T> {
    /// # Safety
    ///
    /// `place` is valid until the drop, and nobody else changes it or minds another value there.
    pub(super) unsafe fn new(place: *mut T) -> Self {
        Self {
            place,
            // SAFETY: By this function's contract.
            before: unsafe { place.read() },
        }
    }

    /// The device's own value.
    pub(super) fn before(&self) -> T {
        self.before
    }

    /// Puts another value there.
    pub(super) fn set(&mut self, value: T) {
        // SAFETY: By the type invariant.
        unsafe { self.place.write(value) };
    }
}

impl<T: Copy> Drop for Operation<T> {
    fn drop(&mut self) {
        self.set(self.before);
    }
}
