// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic`, on loom.
//!
//! - Relaxed, Acquire and Release have the C11 semantics. The kernel's orderings also order
//!   dependent accesses; C11's do not.
//! - Full is an operation with Acquire and Release, followed by a sequentially consistent fence;
//!   the fence before it is omitted. Loom makes fences synchronise with each other, so they can
//!   hide a race of plain accesses, but nothing else.
//! - A `cmpxchg` that fails orders nothing, as in the kernel.

use crate::site::{self, Kind};
use loom::sync::atomic as inner;
use std::{panic::Location, sync::atomic::Ordering};

/// `kernel::sync::atomic::ordering`.
pub mod ordering {
    pub use super::{Acquire, Full, Relaxed, Release};
}

macro_rules! orders {
    ($($name:ident)*) => {$(
        /// A memory ordering.
        #[derive(Clone, Copy)]
        pub struct $name;
        impl Order for $name {
            const KIND: Kind = Kind::$name;
        }
    )*};
}

/// A memory ordering.
pub trait Order: Copy {
    /// The ordering as a value.
    const KIND: Kind;
}
/// An ordering for loads.
pub trait LoadOrder: Order {}
/// An ordering for stores.
pub trait StoreOrder: Order {}

orders!(Relaxed Acquire Release Full);
impl LoadOrder for Relaxed {}
impl LoadOrder for Acquire {}
impl StoreOrder for Relaxed {}
impl StoreOrder for Release {}

fn c11(kind: Kind) -> Ordering {
    match kind {
        Kind::Relaxed => Ordering::Relaxed,
        Kind::Acquire => Ordering::Acquire,
        Kind::Release => Ordering::Release,
        Kind::Full => Ordering::AcqRel,
        Kind::Nothing | Kind::Barrier => panic!("not an order of an operation"),
    }
}

fn after(kind: Kind) {
    if kind == Kind::Full {
        inner::fence(Ordering::SeqCst);
    }
}

/// A type that an [`Atomic`] can hold.
pub trait AtomicType: Copy {
    /// The atomic type of loom.
    type Inner;
    #[doc(hidden)]
    fn make(self) -> Self::Inner;
    #[doc(hidden)]
    fn load(from: &Self::Inner, order: Ordering) -> Self;
    #[doc(hidden)]
    fn store(self, to: &Self::Inner, order: Ordering);
    #[doc(hidden)]
    fn swap(self, with: &Self::Inner, order: Ordering) -> Self;
    #[doc(hidden)]
    fn replace(self, by: Self, of: &Self::Inner, order: Ordering) -> Result<Self, Self>;
}

macro_rules! atomic_type {
    ($([$($generic:tt)*] $type:ty, $inner:ty;)*) => {$(
        impl $($generic)* AtomicType for $type {
            type Inner = $inner;
            #[track_caller]
            fn make(self) -> $inner {
                <$inner>::new(self)
            }
            #[track_caller]
            fn load(from: &$inner, order: Ordering) -> Self {
                from.load(order)
            }
            #[track_caller]
            fn store(self, to: &$inner, order: Ordering) {
                to.store(self, order)
            }
            #[track_caller]
            fn swap(self, with: &$inner, order: Ordering) -> Self {
                with.swap(self, order)
            }
            #[track_caller]
            fn replace(self, by: Self, of: &$inner, order: Ordering) -> Result<Self, Self> {
                of.compare_exchange(self, by, order, Ordering::Relaxed)
            }
        }
    )*};
}

atomic_type! {
    [] bool, inner::AtomicBool;
    [] i32, inner::AtomicI32;
    [] u32, inner::AtomicU32;
    [] i64, inner::AtomicI64;
    [] u64, inner::AtomicU64;
    [<T>] *mut T, inner::AtomicPtr<T>;
}

/// A type with addition and subtraction.
pub trait Sum: AtomicType {
    #[doc(hidden)]
    fn sum(self, to: &Self::Inner, order: Ordering) -> Self;
    #[doc(hidden)]
    fn difference(self, to: &Self::Inner, order: Ordering) -> Self;
}

macro_rules! sums {
    ($($type:ty)*) => {$(
        impl Sum for $type {
            #[track_caller]
            fn sum(self, to: &Self::Inner, order: Ordering) -> Self {
                to.fetch_add(self, order)
            }
            #[track_caller]
            fn difference(self, to: &Self::Inner, order: Ordering) -> Self {
                to.fetch_sub(self, order)
            }
        }
    )*};
}
sums!(i32 u32 i64 u64);

/// `kernel::sync::atomic::Atomic`.
///
/// Loom remembers only the last access to an atomic, and does not order two loads. So it sees no
/// race between a load in one thread and a load followed by a store in another, and never tries the
/// store before the first load. The operation on `turn` before each access gives all accesses an
/// order, which loom varies. It orders nothing else.
pub struct Atomic<T: AtomicType> {
    inner: T::Inner,
    turn: inner::AtomicUsize,
}

#[track_caller]
fn kind<O: Order>(what: &str) -> Kind {
    site::order(Location::caller(), what, O::KIND)
}

impl<T: AtomicType> Atomic<T> {
    /// Creates an atomic with this value.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self {
            inner: value.make(),
            turn: inner::AtomicUsize::new(0),
        }
    }

    fn turn(&self) -> &T::Inner {
        self.turn.fetch_add(0, Ordering::Relaxed);
        &self.inner
    }

    /// The value.
    #[track_caller]
    pub fn load<O: LoadOrder>(&self, _: O) -> T {
        T::load(self.turn(), c11(kind::<O>("load")))
    }

    /// Sets the value.
    #[track_caller]
    pub fn store<O: StoreOrder>(&self, value: T, _: O) {
        value.store(self.turn(), c11(kind::<O>("store")));
    }

    /// Sets the value and returns the old one.
    #[track_caller]
    pub fn xchg<O: Order>(&self, value: T, _: O) -> T {
        let kind = kind::<O>("xchg");
        let old = value.swap(self.turn(), c11(kind));
        after(kind);
        old
    }

    /// Sets the value if it is `old`.
    #[track_caller]
    pub fn cmpxchg<O: Order>(&self, old: T, new: T, _: O) -> Result<T, T> {
        let kind = kind::<O>("cmpxchg");
        let result = old.replace(new, self.turn(), c11(kind));
        if result.is_ok() {
            after(kind);
        }
        result
    }
}

impl<T: Sum> Atomic<T> {
    /// Adds to the value.
    #[track_caller]
    pub fn add(&self, value: T, _: Relaxed) {
        value.sum(self.turn(), Ordering::Relaxed);
    }

    /// Adds to the value and returns the old one.
    #[track_caller]
    pub fn fetch_add<O: Order>(&self, value: T, _: O) -> T {
        let kind = kind::<O>("fetch_add");
        let old = value.sum(self.turn(), c11(kind));
        after(kind);
        old
    }

    /// Subtracts from the value and returns the old one.
    #[track_caller]
    pub fn fetch_sub<O: Order>(&self, value: T, _: O) -> T {
        let kind = kind::<O>("fetch_sub");
        let old = value.difference(self.turn(), c11(kind));
        after(kind);
        old
    }
}

/// `smp_rmb()`. Here it also keeps loads before later stores.
#[track_caller]
pub fn smp_rmb() {
    if site::order(Location::caller(), "smp_rmb", Kind::Barrier) == Kind::Barrier {
        inner::fence(Ordering::Acquire);
    }
}

/// `smp_wmb()`. Here it also keeps loads before later stores.
#[track_caller]
pub fn smp_wmb() {
    if site::order(Location::caller(), "smp_wmb", Kind::Barrier) == Kind::Barrier {
        inner::fence(Ordering::Release);
    }
}
