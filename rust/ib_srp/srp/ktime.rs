// SPDX-License-Identifier: GPL-2.0

//! The monotonic clock, and times that threads share.

pub use crate::clock::{
    ktime::Ktime,
    ktime_get,
    AtomicKtime, //
};
