// SPDX-License-Identifier: GPL-2.0

//! The clocks, and times that threads share.

pub use crate::clock::{
    ktime::Ktime,
    ktime_get,
    real_seconds,
    AtomicKtime, //
};
