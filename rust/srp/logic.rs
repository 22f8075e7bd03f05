// SPDX-License-Identifier: GPL-2.0

//! Decisions of the driver as pure functions and tables: no kernel types, no allocation, no clock.
//!
//! The driver keeps the words and counters that these functions compute in atomics or under locks.
//! The same files are built and tested in user space.

pub mod backoff;
pub mod channels;
pub mod credit;
pub mod geometry;
pub mod keep_alive;
pub mod ktime;
pub mod probe;
pub mod recovery;
pub mod redirect;
pub mod registration;
pub mod removal;
pub mod send_queue;
pub mod session;
pub mod slot;
pub mod starving;
pub mod tag;
pub mod task;
pub mod view;
pub mod window;
