// SPDX-License-Identifier: GPL-2.0

//! The provider side of the verbs: what a module needs to be an RDMA device.
//!
//! [`Provider`] is a device, [`Registration`] makes it known to `ib_core`. The functions of
//! `struct ib_device_ops` are called with the objects of the device (completion queues, queue
//! pairs, memory regions), which are `Arc`s beside those of `ib_core`. This module relies on what
//! the verbs demand of their caller: a posted request is valid until the call returns, its memory
//! until its completion was polled, an object until it is destroyed.
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
