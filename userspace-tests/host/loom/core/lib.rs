// SPDX-License-Identifier: GPL-2.0

//! `core`, with cells that report their accesses to loom.

pub use ::core::*;

/// `core::cell`.
pub mod cell {
    pub use ::core::cell::*;

    /// A cell whose accesses loom checks: two unordered accesses fail the test unless both only
    /// read.
    pub struct UnsafeCell<T> {
        accesses: loom::cell::UnsafeCell<()>,
        data: ::core::cell::UnsafeCell<T>,
    }

    impl<T> UnsafeCell<T> {
        /// Creates a cell with this content.
        #[track_caller]
        pub fn new(data: T) -> Self {
            Self {
                accesses: loom::cell::UnsafeCell::new(()),
                data: ::core::cell::UnsafeCell::new(data),
            }
        }

        /// An access that may write.
        #[track_caller]
        pub fn get(&self) -> *mut T {
            self.accesses.with_mut(|_| ());
            self.data.get()
        }

        /// An access that only reads. Concurrent reads are allowed.
        #[track_caller]
        pub fn look(&self) {
            self.accesses.with(|_| ());
        }

        /// Access to a cell that is not shared.
        pub fn get_mut(&mut self) -> &mut T {
            self.data.get_mut()
        }
    }
}
