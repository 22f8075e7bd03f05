// SPDX-License-Identifier: GPL-2.0

//! Allocation, which never fails.

use crate::{
    error::{code::ENOMEM, Error},
    init::PinInit,
};
use core::{
    ops::{Deref, DerefMut},
    pin::Pin,
};

/// Flags of an allocation.
#[derive(Clone, Copy)]
pub struct Flags;

/// `kernel::alloc::flags`.
pub mod flags {
    /// An allocation that may sleep.
    pub const GFP_KERNEL: super::Flags = super::Flags;
}

/// Out of memory.
#[derive(Debug)]
pub struct AllocError;

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        ENOMEM
    }
}

/// A box.
pub type KBox<T> = Box<T>;

/// The functions of the kernel's boxes.
pub trait KBoxExt<T> {
    /// A pinned box, initialised by `init`.
    fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Pin<KBox<T>>, Error>
    where
        Error: From<E>;
}

impl<T> KBoxExt<T> for Box<T> {
    fn pin_init<E>(init: impl PinInit<T, E>, _: Flags) -> Result<Pin<KBox<T>>, Error>
    where
        Error: From<E>,
    {
        Ok(Box::pin(init.make()?))
    }
}

/// A vector.
pub struct KVec<T>(Vec<T>);

/// A vector, as [`KVec`].
pub type KVVec<T> = KVec<T>;

impl<T> KVec<T> {
    /// An empty vector.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// An empty vector with room for `count` items.
    pub fn with_capacity(count: usize, _: Flags) -> Result<Self, AllocError> {
        Ok(Self(Vec::with_capacity(count)))
    }

    /// A vector of `count` copies of `item`.
    pub fn from_elem(item: T, count: usize, _: Flags) -> Result<Self, AllocError>
    where
        T: Clone,
    {
        Ok(Self(vec![item; count]))
    }

    /// Appends an item.
    pub fn push(&mut self, item: T, _: Flags) -> Result<(), AllocError> {
        self.0.push(item);
        Ok(())
    }

    /// Appends copies of `items`.
    pub fn extend_from_slice(&mut self, items: &[T], _: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.0.extend_from_slice(items);
        Ok(())
    }

    /// Appends `count` copies of `item`.
    pub fn extend_with(&mut self, count: usize, item: T, _: Flags) -> Result<(), AllocError>
    where
        T: Clone,
    {
        self.0.resize(self.0.len() + count, item);
        Ok(())
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }
}

impl<T> Default for KVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> IntoIterator for KVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a KVec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
