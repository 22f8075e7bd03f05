// SPDX-License-Identifier: GPL-2.0

//! The parts of the driver that need no kernel, as a crate for tests and fuzzers.

#![no_std]
#![deny(unsafe_code, missing_docs, unreachable_pub)]

/// The driver's own files.
#[path = "../../../rust/srp"]
pub mod srp {
    pub mod logic;
    pub mod proto;
}

pub use srp::{logic, proto};
