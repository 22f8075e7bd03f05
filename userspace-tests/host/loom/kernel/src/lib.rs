// SPDX-License-Identifier: GPL-2.0

//! The parts of the kernel crate that the driver's files use, on top of loom: atomics, RCU,
//! waiting. The rest is as simple as possible.

#![feature(coerce_unsized, dispatch_from_dyn, unsize)]

pub mod alloc;
mod arc;
pub mod atomic;
pub mod error;
pub mod init;
pub mod model;
pub mod rcu;
pub mod site;

/// `kernel::ffi`.
pub mod ffi {
    pub use core::ffi::*;
}

/// `kernel::dma`.
pub mod dma {
    /// The direction of a transfer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u32)]
    pub enum DataDirection {
        /// The CPU and the device write.
        Bidirectional,
        /// The CPU writes.
        ToDevice,
        /// The device writes.
        FromDevice,
        /// No transfer.
        None,
    }

    impl From<DataDirection> for u32 {
        fn from(direction: DataDirection) -> Self {
            direction as Self
        }
    }
}

/// `kernel::page`.
pub mod page {
    /// Size of a page, in bytes.
    pub const PAGE_SIZE: usize = 4096;
}

/// `kernel::str`.
pub mod str {
    pub use core::ffi::CStr;
}

/// `kernel::sync`.
pub mod sync {
    pub use crate::{
        arc::{Arc, ArcBorrow},
        atomic, rcu,
    };
    use std::sync::OnceLock;

    /// `kernel::sync::SetOnce`, which does not change in a test.
    #[derive(Default)]
    pub struct SetOnce<T>(OnceLock<T>);

    impl<T: Copy> SetOnce<T> {
        /// No value yet.
        pub fn new() -> Self {
            Self(OnceLock::new())
        }

        /// The value, if it is set.
        pub fn copy(&self) -> Option<T> {
            self.0.get().copied()
        }

        /// Sets the value, once.
        pub fn populate(&self, value: T) -> bool {
            self.0.set(value).is_ok()
        }
    }
}

/// `kernel::time`. Time does not advance, so a loop ends only by its condition.
pub mod time {
    /// A time in milliseconds.
    pub type Msecs = core::ffi::c_uint;

    /// Jiffies, here milliseconds.
    pub fn msecs_to_jiffies(msecs: Msecs) -> usize {
        msecs as usize
    }

    /// A span of time.
    #[derive(Clone, Copy)]
    pub struct Delta;

    impl Delta {
        /// A span; its length is ignored.
        pub const fn from_micros(_: i64) -> Self {
            Self
        }

        /// A span; its length is ignored.
        pub const fn from_millis(_: i64) -> Self {
            Self
        }
    }

    /// `kernel::time::delay`.
    pub mod delay {
        /// Lets other threads run.
        pub fn fsleep(_: super::Delta) {
            loom::thread::yield_now();
        }
    }
}

/// `kernel::types`.
pub mod types {
    pub use crate::init::Opaque;

    /// Marks a type that stays on its thread.
    pub type NotThreadSafe = core::marker::PhantomData<*mut ()>;
    /// Marks a type that stays on its thread.
    #[allow(non_upper_case_globals)]
    pub const NotThreadSafe: NotThreadSafe = core::marker::PhantomData;
}

/// `kernel::prelude`.
pub mod prelude {
    pub use crate::{
        alloc::{flags::*, KBox, KBoxExt, KVVec, KVec},
        error::{code::*, Error, Result},
        init::PinInit,
        pin_init, pr_err, pr_info, pr_warn,
    };
    pub use core::{
        ffi::{c_int, c_long, c_uint},
        pin::Pin,
    };
    pub use srp_loom_macros::pin_data;
}

/// `pr_err!`.
#[macro_export]
macro_rules! pr_err {
    ($($text:tt)*) => { eprint!($($text)*) };
}

/// `pr_info!`.
#[macro_export]
macro_rules! pr_info {
    ($($text:tt)*) => {{ let _ = format_args!($($text)*); }};
}

/// `pr_warn!`.
#[macro_export]
macro_rules! pr_warn {
    ($($text:tt)*) => { eprint!($($text)*) };
}
