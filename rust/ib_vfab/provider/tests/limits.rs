// SPDX-License-Identifier: GPL-2.0

//! The capabilities that a device reports, and their enforcement.

use super::{
    User,
    DEPTH, //
};
use crate::{
    bindings,
    provider::{
        attr::Driver,
        device::Registration,
        verbs::Provider, //
    }, //
};
use core::ptr::null_mut;
use kernel::{
    error::from_err_ptr,
    prelude::*, //
};

/// The capabilities that a user of the device reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) driver: Driver,
    pub(crate) qp_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) read_sge: u32,
    pub(crate) cqe: u32,
    pub(crate) pages: u32,
    pub(crate) page_sizes: u64,
    pub(crate) gaps: bool,
    pub(crate) local_dma_lkey: bool,
    pub(crate) vectors: u32,
    pub(crate) drains: bool,
    pub(crate) moderates: bool,
    pub(crate) registers: bool,
}

/// Converts a count that is an `int` in some kernels and a `u32` in others.
fn number<T: TryInto<u32>>(n: T) -> u32 {
    n.try_into().unwrap_or(u32::MAX)
}

impl Seen {
    pub(crate) fn of<P: Provider>(registration: &Registration<P>) -> Self {
        // SAFETY: The device is registered, and nothing changes the fields read here.
        let device = unsafe { registration.device.as_ref() };
        let attrs = &device.attrs;
        let has = |flag: u32| attrs.kernel_cap_flags & u64::from(flag) != 0;
        let extensions = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
        Self {
            driver: Driver(device.ops.driver_id),
            qp_wr: number(attrs.max_qp_wr),
            send_sge: number(attrs.max_send_sge),
            recv_sge: number(attrs.max_recv_sge),
            read_sge: number(attrs.max_sge_rd),
            cqe: number(attrs.max_cqe),
            pages: number(attrs.max_fast_reg_page_list_len),
            page_sizes: attrs.page_size_cap,
            gaps: has(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG),
            local_dma_lkey: has(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY),
            vectors: number(device.num_comp_vectors),
            drains: device.ops.drain_sq.is_some() && device.ops.drain_rq.is_some(),
            moderates: device.ops.modify_cq.is_some() && device.use_cq_dim() != 0,
            registers: attrs.device_cap_flags & extensions != 0,
        }
    }
}

/// Exceeds each maximum by one, and returns the errors: completions in a queue, SGEs in a send and
/// in a receive request, requests in a queue, pages in a region.
pub(crate) fn refusals<P: Provider>(
    registration: &Registration<P>,
    user: &User,
    seen: &Seen,
) -> [Option<Error>; 5] {
    let attr = bindings::ib_cq_init_attr {
        cqe: seen.cqe + 1,
        ..Default::default()
    };
    // SAFETY: The device is registered, the name is static; there is no queue if the device refuses
    // it.
    let cq = from_err_ptr(unsafe {
        bindings::__ib_create_cq(
            registration.device.as_ptr(),
            None,
            None,
            null_mut(),
            &attr,
            c"vfab".as_char_ptr(),
        )
    });
    let qp = |requests: u32, send_sge: u32, recv_sge: u32| {
        let mut init = bindings::ib_qp_init_attr {
            send_cq: user.cq,
            recv_cq: user.cq,
            cap: bindings::ib_qp_cap {
                max_send_wr: requests,
                max_recv_wr: DEPTH,
                max_send_sge: send_sge,
                max_recv_sge: recv_sge,
                ..Default::default()
            },
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The domain and the queues are valid; there is no queue pair if the device refuses
        // it.
        from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(user.pd, &mut init, c"vfab".as_char_ptr())
        })
        .err()
    };
    // SAFETY: The domain is valid; there is no region if the device refuses it.
    let mr = from_err_ptr(unsafe {
        bindings::ib_alloc_mr(
            user.pd,
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
            seen.pages + 1,
        )
    });
    [
        cq.err(),
        qp(1, seen.send_sge + 1, 1),
        qp(1, 1, seen.recv_sge + 1),
        qp(seen.qp_wr + 1, 1, 1),
        mr.err(),
    ]
}
