// SPDX-License-Identifier: GPL-2.0

// Abstractions of kernel interfaces that the `kernel` crate of Linux 7.3 lacks. If that crate has
// part of one, the module says what is missing. `ib_srp` includes this file at its root, so that a
// path is `crate::rdma` here and `kernel::rdma` upstream. An abstraction must not refer to a module
// of a driver.

pub mod capability;
#[cfg(any(SRP_KUNIT, SRP_BENCH))]
mod check;
pub mod clock;
pub mod compat;
pub mod dma;
pub mod module_param;
pub mod net;
pub mod pm;
pub mod random;
pub mod ratelimit;
pub mod rdma;
pub mod scsi;
pub mod sync;
pub mod sysfs;
pub mod topology;
pub mod tracepoint;
pub mod workqueue;

pub use compat::errno;
