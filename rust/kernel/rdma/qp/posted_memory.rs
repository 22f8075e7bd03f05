// SPDX-License-Identifier: GPL-2.0

//! The memory that posted requests can access.

use super::{
    cqe::Cqe,
    done::{
        ControlSent,
        Invalidate,
        LastSent,
        Receive,
        Sent, //
    },
    end::{
        Flushes,
        ROUNDS, //
    },
};
use crate::{
    bindings,
    rdma::{
        dma::Pool,
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

/// The completion entries, pools and regions of the requests posted on a [`Qp`](super::Qp). They do
/// not change, and are dropped after the queue pair.
pub(super) struct PostedMemory {
    pub(super) sent: Cqe<Sent>,
    pub(super) control_sent: Cqe<ControlSent>,
    pub(super) last_sent: Cqe<LastSent>,
    /// The drain requests.
    pub(super) flushes: [Flushes; ROUNDS],
    /// The invalidations, indexed by handle number.
    pub(super) invalidates: KVVec<Cqe<Invalidate>>,
    pub(super) receives: KVVec<Cqe<Receive>>,
    pub(super) messages: Arc<Pool>,
    pub(super) data: Option<Arc<Pool>>,
    pub(super) regions: Arc<Regions>,
    pub(super) fixed: Option<FixedMr>,
    /// The local key of message memory.
    pub(super) lkey: u32,
}

impl PostedMemory {
    /// The SGE for `length` bytes of message memory at `addr`.
    #[inline(always)]
    pub(super) fn sge(&self, (addr, length): (u64, u32)) -> bindings::ib_sge {
        bindings::ib_sge {
            addr,
            length,
            lkey: self.lkey,
        }
    }
}
