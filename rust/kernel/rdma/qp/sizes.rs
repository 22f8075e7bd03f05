// SPDX-License-Identifier: GPL-2.0

//! The sizes and the memory of a queue pair.

use super::PollContext;
use crate::rdma::{
    dma::{
        Chunk,
        Pool, //
    },
    mr::{
        FixedMr,
        Regions, //
    }, //
};
use kernel::{
    alloc::KVVec,
    sync::Arc, //
};

/// The sizes of a [`Qp`](super::Qp).
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Maximum number of outstanding send work requests, including the one for draining.
    pub send: u32,
    /// Maximum number of SGEs per message, 1 or 2.
    pub send_sge: u32,
    /// Number of posted receives.
    pub receive: u32,
    /// Completion vector, below
    /// [`Limits::num_comp_vectors`](crate::rdma::device::Limits::num_comp_vectors).
    pub vector: u32,
    /// The context of the callbacks.
    pub context: PollContext,
    /// Number of memory handles.
    pub handles: usize,
}

/// The memory of a [`Qp`](super::Qp).
pub struct Memory {
    /// Chunks of one pool for incoming messages.
    pub receives: KVVec<Chunk>,
    /// The pool of the outgoing messages.
    pub messages: Arc<Pool>,
    /// The pool of data that may follow a message.
    pub data: Option<Arc<Pool>>,
    /// The regions for data.
    pub regions: Arc<Regions>,
    /// The region that is registered once per connection.
    pub fixed: Option<FixedMr>,
}
