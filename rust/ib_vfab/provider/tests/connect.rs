// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair, from RESET to ERROR.

use super::{
    User,
    ALL, //
};
use crate::{
    bindings,
    provider::attr::Address, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The variable parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) access: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) reads: u8,
}

/// The default parameters: retries after 16 ms (ACK timeout) or 10 us (RNR NAK).
pub(crate) const USUAL: How = How {
    access: ALL,
    timeout: 12,
    retries: 2,
    rnr_retries: 7,
    rnr_timer: 1,
    reads: 4,
};

impl User {
    pub(crate) fn modify(&self, attr: &mut bindings::ib_qp_attr, mask: u32) -> Result {
        // CAST: A set of bits.
        // SAFETY: The queue pair is valid.
        to_result(unsafe { bindings::ib_modify_qp(self.qp, attr, mask as i32) })
    }

    pub(crate) fn init(&self, access: u32) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            port_num: 1,
            qp_access_flags: access as i32,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | bindings::ib_qp_attr_mask_IB_QP_PORT
                | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
        )
    }

    pub(super) fn address(dlid: u16) -> bindings::rdma_ah_attr {
        Address {
            dlid,
            port: 1,
            ..Default::default()
        }
        .to_raw()
    }

    pub(crate) fn rtr(&self, dlid: u16, peer: u32, psn: u32, how: &How) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTR,
            path_mtu: bindings::ib_mtu_IB_MTU_2048,
            dest_qp_num: peer,
            rq_psn: psn,
            max_dest_rd_atomic: how.reads,
            min_rnr_timer: how.rnr_timer,
            ah_attr: Self::address(dlid),
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_AV
                | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
                | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
                | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
                | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        )
    }

    pub(crate) fn rts(&self, psn: u32, how: &How) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTS,
            sq_psn: psn,
            timeout: how.timeout,
            retry_cnt: how.retries,
            rnr_retry: how.rnr_retries,
            max_rd_atomic: how.reads,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
                | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
                | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
                | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Moves the queue pair to RTS for datagrams with this Q_Key.
    pub(crate) fn datagrams(&self, qkey: u32) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            port_num: 1,
            qkey,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | bindings::ib_qp_attr_mask_IB_QP_PORT
                | bindings::ib_qp_attr_mask_IB_QP_QKEY,
        )?;
        self.state(bindings::ib_qp_state_IB_QPS_RTR)?;
        attr.qp_state = bindings::ib_qp_state_IB_QPS_RTS;
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN,
        )
    }

    /// Modifies only the state.
    pub(crate) fn state(&self, to: bindings::ib_qp_state) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: to,
            ..Default::default()
        };
        self.modify(&mut attr, bindings::ib_qp_attr_mask_IB_QP_STATE)
    }

    pub(crate) fn reset(&self) -> Result {
        self.state(bindings::ib_qp_state_IB_QPS_RESET)
    }

    /// Moves the queue pair to the error state.
    pub(crate) fn fail(&self) -> Result {
        self.state(bindings::ib_qp_state_IB_QPS_ERR)
    }

    /// The state of the queue pair, as the device reports it.
    pub(crate) fn queried(&self) -> Result<u32> {
        let mut attr = bindings::ib_qp_attr::default();
        let mut init = bindings::ib_qp_init_attr::default();
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as i32;
        // SAFETY: The queue pair is valid.
        to_result(unsafe { bindings::ib_query_qp(self.qp, &mut attr, mask, &mut init) })?;
        Ok(attr.qp_state)
    }
}
