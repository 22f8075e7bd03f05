// SPDX-License-Identifier: GPL-2.0

//! Decisions of the driver as pure functions and tables: no kernel types, no allocation, no clock.
//!
//! The driver keeps the words and counters that these functions compute in atomics or under locks.
//! The same files are built and tested in user space.

pub mod backoff;
pub mod credit;
pub mod data_path;
pub mod exchange;
pub mod geometry;
pub mod recovery;
pub mod send_queue;
pub mod slot_state;
pub mod state;
pub mod tag;
pub mod time;
pub mod watch;
pub mod window;
