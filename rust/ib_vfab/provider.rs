// SPDX-License-Identifier: GPL-2.0

//! The provider side of the verbs: the interface by which a module implements an RDMA device.
//!
//! [`Provider`] is a device, [`Registration`] makes it known to `ib_core`. `ib_core` calls the
//! functions of `struct ib_device_ops` with its objects (completion queues, queue pairs, memory
//! regions); each is followed by an `Arc` of the device's own object. This module relies on the
//! guarantees that the verbs demand of their caller: a posted request is valid until the call
//! returns, its memory until its completion was polled, an object until it is destroyed.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub mod attr;
pub mod device;
pub mod dma;
pub mod event;
pub mod notify;
mod object;
mod ops;
pub mod pages;
pub mod params;
pub mod queue;
pub mod table;
#[cfg(SRP_KUNIT)]
pub(crate) mod tests;
pub mod timer;
pub mod umem;
pub mod verbs;
pub mod wc;
pub mod wr;

pub use device::Registration;
pub use verbs::Provider;
