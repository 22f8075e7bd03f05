// SPDX-License-Identifier: GPL-2.0

//! What a queue pair is made of.

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
    /// Send work requests that may be outstanding, the one for draining included.
    pub send: u32,
    /// Parts of a message, 1 or 2.
    pub send_sge: u32,
    /// Receives that are posted.
    pub receive: u32,
    /// Completion vector, below [`Limits::num_comp_vectors`](crate::rdma::device::Limits::num_comp_vectors).
    pub vector: u32,
    /// What takes the completions.
    pub context: PollContext,
    /// Memory handles.
    pub handles: usize,
}

/// The memory of a [`Qp`](super::Qp).
pub struct Memory {
    /// Chunks of one pool for incoming messages.
    pub receives: KVVec<Chunk>,
    /// The pool of the outgoing messages.
    pub messages: Arc<Pool>,
    /// The pool of what may follow a message.
    pub data: Option<Arc<Pool>>,
    /// What data is registered with.
    pub regions: Arc<Regions>,
    /// What is registered once for each connection.
    pub fixed: Option<FixedMr>,
}
