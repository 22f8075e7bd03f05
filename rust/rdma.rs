// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs and connection management.
//!
//! What an upper-layer protocol needs of `ib_core` and `rdma_cm`: devices, protection domains,
//! queue pairs whose completions are callbacks, fast registration of a scatter list behind one
//! handle, and connections.
//!
//! Ownership runs one way. A [`qp::Qp`] keeps alive all that a posted work request can reach: its
//! message memory, its memory regions, its protection domain and its device registration; it drains
//! before it lets go. So no posted request outlives what it names, whatever the caller drops first.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h).

#[cfg(SRP_BENCH)]
pub(crate) mod bench;
pub mod client;
pub mod cm;
mod cq;
pub mod device;
pub mod device_event;
pub mod dma;
pub mod ib_cm;
mod iova;
pub mod link;
pub mod lookup;
pub mod mr;
pub mod path;
pub mod pd;
pub mod qp;
mod roce;
mod sa;
pub mod timeout;
pub mod wc;
mod wr;

#[cfg(any(SRP_KUNIT, SRP_BENCH))]
pub(crate) mod tests;

use kernel::str::CStr;

/// The name under which verbs objects appear in `rdma resource`: that of the module, `KBUILD_MODNAME` in C.
pub(crate) const CALLER: &CStr = match CStr::from_bytes_with_nul(crate::__LOG_PREFIX) {
    Ok(name) => name,
    // It ends with its only NUL.
    Err(_) => panic!(),
};
