// SPDX-License-Identifier: GPL-2.0

//! Reference counts. Loom does not see the counter, because it orders nothing that a test needs.

use crate::alloc::{AllocError, Flags};
use core::{
    marker::Unsize,
    ops::{CoerceUnsized, Deref, DispatchFromDyn},
};

/// `kernel::sync::Arc`.
pub struct Arc<T: ?Sized>(std::sync::Arc<T>);

/// `kernel::sync::ArcBorrow`.
pub type ArcBorrow<'a, T> = &'a T;

impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<Arc<U>> for Arc<T> {}
impl<T: ?Sized + Unsize<U>, U: ?Sized> DispatchFromDyn<Arc<U>> for Arc<T> {}

impl<T> Arc<T> {
    /// Allocates an object. Never fails.
    pub fn new(data: T, _: Flags) -> Result<Self, AllocError> {
        Ok(Self(std::sync::Arc::new(data)))
    }
}

impl<T: ?Sized> Arc<T> {
    /// Whether both point to one object.
    pub fn ptr_eq(one: &Self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&one.0, &other.0)
    }

    /// Borrows the reference.
    pub fn as_arc_borrow(&self) -> ArcBorrow<'_, T> {
        &self.0
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
