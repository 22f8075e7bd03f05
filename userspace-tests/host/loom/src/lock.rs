// SPDX-License-Identifier: GPL-2.0

//! Replaces `rust/kernel/sync/bh_lock.rs`: a spinlock is a loom mutex.

use kernel::init::{By, PinInit};
use loom::sync::{Mutex, MutexGuard};

pub struct SpinLockBh<T>(Mutex<T>);

pub type SpinLockBhGuard<'a, T> = MutexGuard<'a, T>;

impl<T> SpinLockBh<T> {
    pub fn new(data: T) -> impl PinInit<Self> {
        By(|| Ok(Self(Mutex::new(data))))
    }

    pub fn lock(&self) -> SpinLockBhGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<SpinLockBhGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

macro_rules! new_spinlock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::SpinLockBh::new($inner)
    };
}
pub(crate) use new_spinlock_bh;
