// SPDX-License-Identifier: GPL-2.0

//! Memory regions: fast registration of a whole scatter list behind one handle, and of memory for
//! the life of a connection ([`FixedMr`]).
//!
//! A [`Handle`] owns the object that has the memory, from the time it is attached until the peer
//! cannot reach the memory. The peer's access begins when the queue pair posts the registration. It
//! ends when the invalidation has completed, or when all queue pairs of the protection domain are
//! in error and drained, as a key is valid on each of them. Until then [`Handle::detach`] fails.
//!
//! The idea of one handle for many scattered pages is `kpmMLockV` of Kernel PM2.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! # Examples
//!
//! ```
//! use ib_srp::{
//!     dma::{DataDirection, ScatterList},
//!     random::random_u64,
//!     rdma::mr::{Handle, Segment},
//! };
//! use kernel::prelude::*;
//!
//! /// Lets a peer write to the memory of `object`: the segment goes into the message.
//! fn lend<T: ScatterList>(handle: &mut Handle<T>, object: T) -> Result<Segment> {
//!     handle.attach(object).map_err(|_| EBUSY)?;
//!     handle.map(DataDirection::FromDevice, random_u64())?;
//!     handle.segment().ok_or(E2BIG)
//! }
//!
//! /// After the handle is invalidated, or the queue pair drained; `EBUSY` before.
//! fn take_back<T: ScatterList>(handle: &mut Handle<T>) -> Result<T> {
//!     handle.detach()?.ok_or(EINVAL)
//! }
//! ```

mod bound;
mod exposure;
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
    Exposed,
    Region,
    Register, //
};
pub use regions::{
    Regions,
    MAX_PER_HANDLE, //
};

/// The parameters with which a peer accesses one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address to use with the key. If the driver allows it, the upper half is random and
    /// reveals nothing.
    pub addr: u64,
    /// The remote key.
    pub key: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Segment {
    /// An empty segment.
    const NONE: Self = Self {
        addr: 0,
        key: 0,
        len: 0,
    };
}
