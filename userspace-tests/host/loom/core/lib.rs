// SPDX-License-Identifier: GPL-2.0

//! `core`, with cells whose accesses loom sees.

pub use ::core::*;

/// `core::cell`.
pub mod cell {
    pub use ::core::cell::*;

    /// Two accesses that nothing orders fail the test, whatever is in the cell.
    pub struct UnsafeCell<T> {
        accesses: loom::cell::UnsafeCell<()>,
        data: ::core::cell::UnsafeCell<T>,
    }

    impl<T> UnsafeCell<T> {
        /// With this in it.
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

        /// An access that only reads, of which there may be several at once.
        #[track_caller]
        pub fn look(&self) {
            self.accesses.with(|_| ());
        }

        /// Of a cell that is not shared.
        pub fn get_mut(&mut self) -> &mut T {
            self.data.get_mut()
        }
    }
}
