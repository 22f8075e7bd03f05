// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the verbs and RDMA/CM of rdma-core, for targets and their peers, and of the few
//! system calls that the standard library lacks. For an InfiniBand CM in user space, [`ib_cm`] has
//! the messages, and [`Gsi`] sends and receives them.
//!
//! A [`Buffer`] is memory that a device may access. Posting it transfers ownership, and the
//! completion returns it, so no code reads memory that the device writes. An [`Arena`] is memory
//! that peers may access at any time, so it is only copied. No call blocks except [`os::wait`] and
//! [`Connection::connect`].

#![deny(missing_docs, unsafe_op_in_unsafe_fn, unreachable_pub)]
#![deny(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]

mod cm;
mod connection;
mod ffi;
mod gsi;
pub mod ib_cm;
mod memory;
pub mod os;
mod slots;

pub use cm::{CmEvent, Events, Incoming, Key, Listener, Outgoing};
pub use connection::{Completion, Connection, Op, Piece, Post};
pub use gsi::{Gsi, Sender};
pub use memory::{Arena, Buffer, Device, Mapped, Trouble};
pub use slots::Slots;

use std::io;

/// Converts the result of a shim function: 0 or more, or a negative errno.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

/// Converts a pointer returned by the shim. For NULL the error is in errno.
fn made<T>(pointer: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}
