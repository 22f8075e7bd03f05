// SPDX-License-Identifier: GPL-2.0

//! The parts of the driver that need no kernel, as a crate for tests and fuzzers.

#![no_std]
#![deny(unsafe_code, missing_docs, unreachable_pub)]

/// The driver's own files.
#[path = "../../../rust/ib_srp/srp"]
pub mod srp {
    pub mod logic;
    pub mod proto;
}

/// The driver's files for the clocks.
#[path = "../../../rust/kernel/clock"]
pub mod clock {
    pub mod ktime;
}

/// The driver's files for the verbs.
#[path = "../../../rust/kernel/rdma"]
pub mod rdma {
    /// Events of the connection manager.
    pub mod ib_cm {
        pub mod state;
    }
    pub mod limits;
    pub mod timeout;
}

/// The driver's files for the midlayer.
#[path = "../../../rust/kernel/scsi"]
pub mod scsi {
    pub mod limits;
}

/// Subnet management of the software adapter.
#[path = "../../../rust/ib_vfab/vfab"]
pub mod vfab {
    pub mod agent;
    pub mod ca;
    pub mod changes;
    pub mod forwarding;
    pub mod gmp;
    pub mod link;
    pub mod mad;
    pub mod mkey;
    pub mod node;
    pub mod port;
    pub mod switch;
    pub mod traps;
}

pub use srp::{logic, proto};
