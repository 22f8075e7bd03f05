// SPDX-License-Identifier: GPL-2.0

//! Verbs and RDMA/CM of rdma-core for targets and for what talks to them, and the few calls of the system that the standard library lacks, all
//! safe to use.
//!
//! Memory that a device may reach is a [`Buffer`]. Who posts it gives it away, and gets it back with its completion, so
//! nobody looks at memory that the device writes. What others may reach at any time is an [`Arena`], which is copied only.
//! No call waits but [`os::wait`].

#![deny(missing_docs, unsafe_op_in_unsafe_fn, unreachable_pub)]
#![deny(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]

mod cm;
mod connection;
mod ffi;
mod memory;
pub mod os;

pub use cm::{CmEvent, Events, Incoming, Key, Listener, Outgoing};
pub use connection::{Completion, Connection, Op, Piece};
pub use memory::{Arena, Buffer, Device, Mapped};

use std::io;

/// What the shim says: 0 or more, or a negative errno.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

/// A pointer that the shim made, or errno.
fn made<T>(pointer: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}
