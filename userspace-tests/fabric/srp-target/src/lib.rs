// SPDX-License-Identifier: GPL-2.0

//! An SRP target that exports files and block devices.
//!
//! [`wire`] reads and writes messages, [`scsi`] carries out commands on a [`disk`], [`target`] has sessions, tasks and
//! credits. None of them knows RDMA: [`target`] tells what is to be done by [`target::Action`]. [`fabric`] does it, on
//! the connections of a [`hub`].

#![deny(missing_docs, unsafe_code, unreachable_pub)]

/// The driver's own messages, of which the target has the other half.
#[path = "../../../../rust/srp"]
pub mod srp {
    pub mod proto;
}

pub mod disk;
pub mod fabric;
pub mod hub;
pub mod options;
pub mod program;
pub mod scsi;
pub mod sense;
pub mod target;
pub mod wire;
pub mod workers;

pub use srp::proto;
