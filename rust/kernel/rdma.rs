// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs and connection management.
//!
//! The parts of `ib_core` and `rdma_cm` that an upper-layer protocol needs: devices, protection
//! domains, queue pairs with completion callbacks, fast registration of a scatter list behind one
//! handle, and connections.
//!
//! Ownership is one-way. A [`qp::Qp`] keeps alive everything that a posted work request can access:
//! its message memory, its memory regions, its protection domain and its device registration; it
//! drains before it releases them. So no posted request outlives its resources, whatever the caller
//! drops first.
//!
//! # How to make a connection
//!
//! The main modules have examples, which `ci/lint.sh doc` compiles.
//!
//! 1. The RDMA core calls a [client] for every device. The client allocates a protection domain,
//!    [`pd::Pd`], for all objects below.
//! 2. Messages are in [`dma::Chunk`]s of a [`dma::Pool`], mapped for the device for the lifetime of
//!    the pool.
//! 3. Memory that the peer reads or writes directly is described by a [`mr::Handle`], one for each
//!    request.
//! 4. A [`qp::Qp`] owns the pools and regions, and has a [`qp::Handler`] for completions.
//! 5. [`qp::Qp::create`] makes the queue pair, on an identifier of a connection manager that then
//!    connects it: a [`cm::Id`], which resolves IP addresses, or an [`ib_cm::Id`], on a path that a
//!    [`lookup::Lookup`] has found.
//! 6. Messages are sent, and memory is registered and invalidated, with a [`qp::LiveQp`].
//! 7. [`qp::Qp::hang_up`] tells the peer that the connection ends, [`qp::Qp::shutdown`] drains,
//!    [`qp::Qp::destroy`] destroys the queue pair. Step 5 may follow again.
//!
//! [Events of the device](device_event) tell when a connection is worth trying.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h).

#[cfg(SRP_BENCH)]
pub(crate) mod bench;
pub mod client;
pub mod cm;
pub mod cm_id;
mod cq;
pub mod device;
pub mod device_event;
pub mod dma;
pub mod ib_cm;
mod iova;
mod kept;
pub mod limits;
pub mod lookup;
pub mod mr;
pub mod path;
pub mod pd;
pub mod qp;
mod query;
mod reports;
mod roce;
mod sa;
pub mod timeout;
mod users;
pub mod wc;
mod wr;

#[cfg(any(SRP_KUNIT, SRP_BENCH))]
pub(crate) mod tests;

use kernel::str::CStr;

/// The owner of verbs objects in `rdma resource`: the name of the module, `KBUILD_MODNAME` in C.
pub(crate) const CALLER: &CStr = match CStr::from_bytes_with_nul(crate::__LOG_PREFIX) {
    Ok(name) => name,
    // Unreachable: the only NUL is at the end.
    Err(_) => panic!(),
};
