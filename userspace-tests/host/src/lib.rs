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

/// The connection manager's, of the verbs.
#[path = "../../../rust/rdma"]
pub mod rdma {
    /// Its events.
    pub mod ib_cm {
        pub mod state;
    }
    pub mod timeout;
}

pub use srp::{logic, proto};
