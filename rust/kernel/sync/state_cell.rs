// SPDX-License-Identifier: GPL-2.0

//! Data that one context at a time may access, with one atomic word for its state and its
//! ownership.
//!
//! An I/O slot passes from the submitter to the completion callback to the error handler without a
//! lock: the context that advances the state word owns the data until it changes the word again.
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::StateCell;
//!
//! const FREE: u64 = 0;
//! const SENT: u64 = 1;
//! const ENDED: u64 = 2;
//!
//! /// Sends the buffer if it is free.
//! fn send(cell: &StateCell<[u8; 8]>, bytes: [u8; 8]) -> bool {
//!     let Some(mut buffer) = cell.acquire(FREE, SENT) else {
//!         return false;
//!     };
//!     *buffer = bytes;
//!     true
//! }
//!
//! /// If a response and a timeout race, only one of them gets the buffer.
//! fn end(cell: &StateCell<[u8; 8]>) -> Option<[u8; 8]> {
//!     let buffer = cell.acquire(SENT, ENDED)?;
//!     let bytes = *buffer;
//!     buffer.release(FREE);
//!     Some(bytes)
//! }
//! ```

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    }, //
};
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Release, //
};

/// The bit of the word that is set while a [`Guard`] exists.
const OWNED: u64 = 1 << 63;

/// A value of type `T` and a 63-bit state word.
///
/// The user defines the meaning of the word. A context takes the data by naming the expected word
/// and the new one, and gives the data back by naming the next word. No call waits: if the word
/// differs or the data is taken, the call fails and the context must decide what to do.
///
/// # Invariants
///
/// At most one [`Guard`] of the cell exists at a time. One exists if and only if [`OWNED`] is set.
pub struct StateCell<T> {
    word: Atomic<u64>,
    data: UnsafeCell<T>,
}

// SAFETY: The cell owns its `T`, which may be sent.
unsafe impl<T: Send> Send for StateCell<T> {}

// SAFETY: A shared reference gives access to the data only through a `Guard`, of which there is one
// at a time by the type invariant, so sharing the cell only ever moves `T` between contexts.
unsafe impl<T: Send> Sync for StateCell<T> {}

impl<T> StateCell<T> {
    /// Creates a cell with its data not taken. Bit 63 of `word` is ignored.
    pub fn new(word: u64, data: T) -> Self {
        // INVARIANT: `OWNED` is clear and there is no guard.
        Self {
            word: Atomic::new(word & !OWNED),
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the state word, which may be stale at once, and whether the data is taken.
    pub fn load(&self) -> (u64, bool) {
        let word = self.word.load(Acquire);
        (word & !OWNED, word & OWNED != 0)
    }

    /// Takes the data and sets the word to `new`, if the word is `expected` and the data is not
    /// taken.
    ///
    /// Any context. Pairs with [`Guard::release`]: the writes of the last holder are visible.
    #[inline]
    pub fn acquire(&self, expected: u64, new: u64) -> Option<Guard<'_, T>> {
        self.word
            .cmpxchg(expected & !OWNED, new | OWNED, Acquire)
            .ok()?;
        // INVARIANT: `OWNED` was clear, so there was no guard; it is set now, and this is the
        // guard.
        Some(Guard {
            cell: self,
            word: new & !OWNED,
            _data: PhantomData,
        })
    }

    /// Changes the word from `expected` to `new` without taking the data. Fails if the data is
    /// taken.
    ///
    /// Any context. Returns whether the word was changed.
    #[inline]
    pub fn transition(&self, expected: u64, new: u64) -> bool {
        self.word
            .cmpxchg(expected & !OWNED, new & !OWNED, Full)
            .is_ok()
    }

    /// Gives access to the data of a cell that is not shared.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

/// Exclusive access to the data of a [`StateCell`].
///
/// Dropping it leaves the word as [`StateCell::acquire`] set it; [`Guard::release`] sets another.
///
/// Sharing a guard shares the data, which must be [`Sync`]:
///
/// ```compile_fail,E0277
/// use core::cell::Cell;
/// use ib_srp::sync::state_cell::Guard;
///
/// fn share<T: Sync>(_: &T) {}
///
/// fn look(guard: &Guard<'_, Cell<u32>>) {
///     share(guard);
/// }
/// ```
pub struct Guard<'a, T> {
    cell: &'a StateCell<T>,
    word: u64,
    // The cell is `Sync` even if `T` is only `Send`; this makes the guard `Sync` only if `T` is.
    _data: PhantomData<&'a mut T>,
}

impl<T> Guard<'_, T> {
    /// Gives the data back with `word` as the cell's next state.
    #[inline]
    pub fn release(self, word: u64) {
        let this = ManuallyDrop::new(self);
        // INVARIANT: The guard is gone, and `OWNED` is clear.
        this.cell.word.store(word & !OWNED, Release);
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.cell.word.store(self.word, Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariant of `StateCell` this is the only guard, so there is no
        // mutable reference to the data.
        unsafe { &*self.cell.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariant of `StateCell` this is the only guard, and it is borrowed
        // mutably, so there is no other reference to the data.
        unsafe { &mut *self.cell.data.get() }
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
