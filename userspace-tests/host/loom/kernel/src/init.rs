// SPDX-License-Identifier: GPL-2.0

//! Initialisers. The objects may move here.

use core::{cell::UnsafeCell, convert::Infallible, mem::MaybeUninit};

/// Creates a `T`.
pub trait PinInit<T, E = Infallible>: Sized {
    /// Creates the object.
    fn make(self) -> Result<T, E>;
}

/// An initialiser that calls a function.
pub struct By<F>(pub F);

impl<T, E, F: FnOnce() -> Result<T, E>> PinInit<T, E> for By<F> {
    fn make(self) -> Result<T, E> {
        self.0()
    }
}

/// `pin_init!`.
#[macro_export]
macro_rules! pin_init {
    ($type:tt { $($field:ident <- $init:expr),* $(,)? }) => {
        $crate::init::By(|| Ok($type { $($field: $crate::init::PinInit::make($init)?),* }))
    };
}

/// A C object.
pub struct Opaque<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Opaque<T> {
    /// Creates an uninitialised object.
    pub fn uninit() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// An initialiser that calls a C function.
    pub fn ffi_init(init: impl FnOnce(*mut T)) -> impl PinInit<Self> {
        By(|| {
            let this = Self::uninit();
            init(this.get());
            Ok(this)
        })
    }

    /// A pointer to the object.
    pub fn get(&self) -> *mut T {
        self.0.get().cast()
    }
}
