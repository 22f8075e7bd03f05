// SPDX-License-Identifier: GPL-2.0

//! Memory regions: fast registration of a whole scatter list behind one handle, and of memory for the life of a
//! connection ([`FixedMr`]).
//!
//! A [`Handle`] owns the object whose memory it describes from the moment it is attached until the
//! peer can reach that memory no more. The peer's access begins when the queue pair posts the
//! registration and ends when the invalidation has completed, or when the queue pair is in error
//! and drained; [`Handle::detach`] refuses in between.
//!
//! The idea of one handle for many scattered pages is `kpmMLockV` of Kernel PM2.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

mod bound;
mod fixed;
mod handle;
mod raw;
mod regions;

pub(super) use bound::Bound;
pub use fixed::{
    FixedMr,
    FixedPart, //
};
pub use handle::Handle;
pub(super) use regions::{
    Region,
    Register, //
};
pub use regions::{
    Regions,
    MAX_PER_HANDLE, //
};

/// What a peer needs to reach one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address to use with the key. Where the driver can do it, its upper half is random and tells nothing.
    pub addr: u64,
    /// The remote key.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}
