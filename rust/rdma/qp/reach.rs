// SPDX-License-Identifier: GPL-2.0

//! What posted requests can reach.

use crate::{
    bindings,
    rdma::{
        dma::{
            Chunk,
            Pool, //
        },
        mr::{
            FixedMr,
            Regions, //
        }, //
    }, //
};
use kernel::{
    alloc::KVVec,
    sync::Arc, //
};

/// A posted receive.
#[repr(C)]
pub(super) struct Receive {
    pub(super) cqe: bindings::ib_cqe,
    pub(super) chunk: Chunk,
}

/// What the requests that are posted on a [`Qp`](super::Qp) can reach, on the device or by their completion. It does not
/// change, and goes after the queue pair.
pub(super) struct Reach {
    /// For requests whose success nobody waits for.
    pub(super) send_cqe: bindings::ib_cqe,
    pub(super) control_cqe: bindings::ib_cqe,
    pub(super) last_cqe: bindings::ib_cqe,
    /// One for each handle, by number.
    pub(super) invalidate_cqes: KVVec<bindings::ib_cqe>,
    pub(super) receives: KVVec<Receive>,
    pub(super) messages: Arc<Pool>,
    pub(super) data: Option<Arc<Pool>>,
    pub(super) regions: Arc<Regions>,
    pub(super) fixed: Option<FixedMr>,
    /// The key of message memory.
    pub(super) lkey: u32,
}

impl Reach {
    /// The entry for `addr` and `length` of message memory.
    #[inline(always)]
    pub(super) fn sge(&self, (addr, length): (u64, u32)) -> bindings::ib_sge {
        bindings::ib_sge {
            addr,
            length,
            lkey: self.lkey,
        }
    }
}
