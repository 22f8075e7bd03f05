// SPDX-License-Identifier: GPL-2.0

//! An SRP target that exports files and block devices.
//!
//! [`wire`] parses and builds messages, [`scsi`] executes commands on a [`disk`], [`target`]
//! manages sessions, tasks and credits. These modules are independent of RDMA: [`target`] emits
//! [`target::Action`]s, and [`fabric`] carries them out on the connections of a [`reactor`].

#![deny(missing_docs, unsafe_code, unreachable_pub)]

/// The message formats of the driver.
#[path = "../../../rust/ib_srp/srp"]
pub mod srp {
    pub mod proto;
}

pub mod acl;
pub mod auth;
pub mod config;
pub mod disk;
pub mod fabric;
pub mod log;
pub mod options;
mod pool;
pub mod program;
pub mod reactor;
pub mod results;
pub mod scsi;
pub mod sense;
pub mod status;
pub mod store;
pub mod target;
mod threads;
pub mod values;
mod wake;
pub mod wire;
pub mod workers;

pub use srp::proto;
