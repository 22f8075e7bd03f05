// SPDX-License-Identifier: GPL-2.0

//! The driver's files that have atomic protocols, unchanged, and stand-ins for the rest.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    clippy::new_ret_no_self,
    clippy::wrong_self_convention
)]

// Replaces `core` in the driver's files.
extern crate srp_loom_core as core;

/// Runs `test` in every interleaving with at most `preemptions` preemptions.
pub fn model(name: &str, preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    kernel::model::model(name, preemptions, move || {
        test();
        bindings::forget();
    });
}

pub mod bindings;
mod lock;
mod rest;
pub mod scsi;
pub mod stand;

pub use rest::{compat, errno, params, random, ratelimit, topology, trace, workqueue};

#[path = "../../../../rust/kernel/dma.rs"]
pub mod dma;

#[path = "../../../../rust/kernel/clock"]
pub mod clock {
    pub mod ktime;
}

#[path = "../../../../rust/kernel/sync"]
pub mod sync {
    pub mod completion;
    pub mod grace_period;
    pub mod noio;
    pub mod state_cell;
    pub mod wait_queue;

    pub(crate) use crate::lock::new_spinlock_bh;
    pub use crate::lock::{SpinLockBh, SpinLockBhGuard};
    pub use crate::rest::count::Count;
    pub use completion::Completion;
    pub use grace_period::GracePeriod;
    pub use kernel::atomic::{smp_rmb, smp_wmb};
    pub use kernel::rcu::synchronize_rcu;
    pub use noio::noio;
    pub use state_cell::StateCell;
    pub use wait_queue::WaitQueue;
}

#[path = "../../../../rust/kernel/rdma"]
pub mod rdma {
    mod kept;
    pub mod limits;
    pub mod mr;
    pub mod pd;

    // Next to this file.
    #[path = "../../../userspace-tests/host/loom/src/rdma/device.rs"]
    pub mod device;
    #[path = "../../../userspace-tests/host/loom/src/rdma/memory.rs"]
    pub mod dma;
    #[path = "../../../userspace-tests/host/loom/src/rdma/qp.rs"]
    pub mod qp;
    #[path = "../../../userspace-tests/host/loom/src/rdma/test.rs"]
    pub mod test;

    pub use device::{cm, wc, CALLER};
}

#[path = "../../../../rust/ib_srp/srp"]
pub mod srp {
    pub mod bounce;
    pub mod channel;
    pub mod channels;
    pub mod error;
    pub mod logic;
    pub mod mapping;
    pub mod port;
    pub mod proto;
    pub mod sizes;
    pub mod slot;
    pub mod statistics;
    pub mod status;

    pub use crate::rest::{ktime, log};
}
