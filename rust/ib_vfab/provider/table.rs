// SPDX-License-Identifier: GPL-2.0

//! A table of reference-counted objects with lockless readers. Taking an object out waits for its
//! users.
//!
//! The kernel crate's `XArray` takes its lock for a load.

use core::{
    hint::spin_loop,
    ops::Deref,
    ptr::null_mut, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// An entry of a [`Table`].
///
/// # Invariants
///
/// `item` is null or came from `Arc::into_raw` and owns that reference. The reference is taken back
/// only after `users` was 0 while `item` was null.
struct Slot<T> {
    users: Atomic<i32>,
    item: Atomic<*mut T>,
}

/// Entries for objects, numbered from 0.
pub struct Table<T> {
    slots: KVVec<Slot<T>>,
}

// SAFETY: A table owns references to `T`s and gives out shared ones.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: A table gives out shared references to `T`s; its fields are atomic.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// An object of a [`Table`] in use. Its holder must not take a lock or sleep, because
/// [`Table::quiesce`] spins until it is dropped.
pub struct Use<'a, T> {
    users: &'a Atomic<i32>,
    item: &'a T,
}

impl<T> Table<T> {
    /// Creates a table with `count` entries. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(count: usize) -> Result<Self> {
        let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            // INVARIANT: `item` is null.
            let slot = Slot {
                users: Atomic::new(0),
                item: Atomic::new(null_mut()),
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        Ok(Self { slots })
    }

    /// Whether an entry has an object now.
    pub fn has(&self, number: usize) -> bool {
        self.slots
            .get(number)
            .is_some_and(|s| !s.item.load(Relaxed).is_null())
    }

    /// Puts an object into an empty entry. Callers must serialise this.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the entry is in use, `EINVAL` if it does not exist.
    pub fn set(&self, number: usize, item: Arc<T>) -> Result {
        let slot = self.slots.get(number).ok_or(EINVAL)?;
        if !slot.item.load(Relaxed).is_null() {
            return Err(EBUSY);
        }
        // INVARIANT: The reference passes to the entry.
        slot.item.store(Arc::into_raw(item).cast_mut(), Release);
        Ok(())
    }

    /// The object of an entry. Any context.
    #[inline]
    pub fn get(&self, number: usize) -> Option<Use<'_, T>> {
        let slot = self.slots.get(number)?;
        slot.users.fetch_add(1, Full);
        let item = slot.item.load(Acquire);
        if item.is_null() {
            slot.users.fetch_sub(1, Release);
            return None;
        }
        // SAFETY: `item` is valid until `users` was 0 with a null `item`.
        let item = unsafe { &*item };
        Some(Use {
            users: &slot.users,
            item,
        })
    }

    /// Waits until all earlier uses have ended. Spins; any context, but the caller must not hold a
    /// use.
    pub fn quiesce(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            while slot.users.fetch_add(0, Full) != 0 {
                spin_loop();
            }
        }
    }

    /// Takes an object out, after waiting for its users as [`Self::quiesce`] does.
    pub fn take(&self, number: usize) -> Option<Arc<T>> {
        let slot = self.slots.get(number)?;
        let item = slot.item.xchg(null_mut(), Full);
        self.quiesce(number);
        if item.is_null() {
            return None;
        }
        // SAFETY: `item` owns a reference, and no user is left.
        Some(unsafe { Arc::from_raw(item) })
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        for number in 0..self.slots.len() {
            self.take(number);
        }
    }
}

impl<T> Deref for Use<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.item
    }
}

impl<T> Drop for Use<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.users.fetch_sub(1, Release);
    }
}
