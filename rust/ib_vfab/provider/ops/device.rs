// SPDX-License-Identifier: GPL-2.0

//! The device and its ports.

use super::{
    errno,
    Ops, //
};
use crate::{
    bindings,
    errno::EOPNOTSUPP,
    provider::{
        object::provider,
        verbs::{
            Mad,
            MadResult, //
        },
        Provider, //
    }, //
};
use core::ffi::c_int;

/// Converts a count that is an `int` in some kernels and a `u32` in others.
fn number<T: TryFrom<u32> + Default>(n: u32) -> T {
    n.try_into().unwrap_or_default()
}

// See the documentation of `ops` for the guarantees of `ib_core`.
impl<P: Provider> Ops<P> {
    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `device` is valid.
        let ours = unsafe { provider::<P>(device) }.device_attr();
        // SAFETY: `attr` is valid.
        let attr = unsafe { &mut *attr };
        attr.fw_ver = 1 << 32;
        attr.sys_image_guid = ours.sys_image_guid.to_be();
        attr.max_mr_size = ours.max_mr_size;
        attr.page_size_cap = ours.page_sizes;
        attr.max_qp = number(ours.max_qp);
        attr.max_qp_wr = number(ours.max_qp_wr);
        // CAST: A set of bits.
        attr.device_cap_flags = (bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID
            | bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT
            | bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN)
            as u64;
        if ours.max_pages > 0 {
            attr.device_cap_flags |=
                bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
        }
        if ours.local_dma_lkey {
            attr.kernel_cap_flags = u64::from(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
        }
        if ours.gaps {
            attr.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
        }
        attr.max_send_sge = number(ours.send_sge);
        attr.max_recv_sge = number(ours.recv_sge);
        attr.max_sge_rd = number(ours.read_sge);
        attr.max_cq = number(ours.max_cq);
        attr.max_cqe = number(ours.max_cqe);
        attr.max_mr = number(ours.max_mr);
        attr.max_pd = number(1 << 16);
        attr.max_ah = number(1 << 16);
        attr.max_qp_rd_atom = number(ours.max_reads);
        attr.max_qp_init_rd_atom = number(ours.max_reads);
        attr.max_res_rd_atom = number(ours.max_reads.saturating_mul(ours.max_qp));
        attr.max_fast_reg_page_list_len = number(ours.max_pages);
        attr.max_pkeys = ours.max_pkeys;
        attr.max_mcast_grp = number(ours.max_members);
        attr.max_mcast_qp_attach = number(ours.max_members);
        attr.max_total_mcast_qp_attach = number(ours.max_members);
        attr.local_ca_ack_delay = 12;
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        // SAFETY: `device` is valid.
        let ours = match unsafe { provider::<P>(device) }.port_attr(port) {
            Ok(ours) => ours,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: `attr` is valid.
        let attr = unsafe { &mut *attr };
        attr.state = u32::from(ours.state);
        attr.phys_state = ours.phys_state;
        attr.max_mtu = bindings::ib_mtu_IB_MTU_4096;
        attr.active_mtu = bindings::ib_mtu_IB_MTU_4096;
        attr.gid_tbl_len = ours.gids as c_int;
        attr.port_cap_flags = ours.capabilities;
        attr.max_msg_sz = 1 << 31;
        attr.pkey_tbl_len = ours.pkeys;
        attr.lid = u32::from(ours.lid);
        attr.sm_lid = u32::from(ours.sm_lid);
        attr.sm_sl = ours.sm_sl;
        attr.subnet_timeout = ours.subnet_timeout;
        attr.max_vl_num = 4;
        // CAST: A number below 256.
        attr.active_width = bindings::ib_port_width_IB_WIDTH_4X as u8;
        // CAST: A number below 65536.
        attr.active_speed = bindings::ib_port_speed_IB_SPEED_QDR as u16;
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        // SAFETY: `device` is valid.
        match unsafe { provider::<P>(device) }.pkey(port, index) {
            Ok(found) => {
                // SAFETY: `pkey` is valid.
                unsafe { *pkey = found };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        // SAFETY: `device` is valid.
        match unsafe { provider::<P>(device) }.gid(port, index) {
            Ok(found) => {
                // SAFETY: `gid` has 16 bytes.
                unsafe { gid.cast::<[u8; 16]>().write(found) };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn modify_port(
        device: *mut bindings::ib_device,
        port: u32,
        _mask: c_int,
        change: *mut bindings::ib_port_modify,
    ) -> c_int {
        // SAFETY: `change` is valid.
        let change = unsafe { &*change };
        // SAFETY: `device` is valid.
        let provider = unsafe { provider::<P>(device) };
        errno(provider.set_capabilities(port, change.set_port_cap_mask, change.clr_port_cap_mask))
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn modify_device(
        device: *mut bindings::ib_device,
        mask: c_int,
        change: *mut bindings::ib_device_modify,
    ) -> c_int {
        // CAST: A set of bits.
        if mask as u32 & !bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC != 0 {
            return EOPNOTSUPP.to_errno();
        }
        // SAFETY: `change` is valid.
        let text = unsafe { (*change).node_desc };
        // SAFETY: `device` is valid, and `ib_core` serialises the calls.
        unsafe { (*device).node_desc = text };
        // SAFETY: `device` is valid.
        unsafe { provider::<P>(device) }.set_description(&text);
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: `device` is valid.
        let ours = match unsafe { provider::<P>(device) }.port_attr(port) {
            Ok(ours) => ours,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: `immutable` is valid.
        let immutable = unsafe { &mut *immutable };
        immutable.pkey_tbl_len = c_int::from(ours.pkeys as i16);
        // CAST: A small number.
        immutable.gid_tbl_len = ours.gids as c_int;
        immutable.core_cap_flags = bindings::RDMA_CORE_CAP_PROT_IB
            | bindings::RDMA_CORE_CAP_IB_MAD
            | bindings::RDMA_CORE_CAP_IB_SMI
            | bindings::RDMA_CORE_CAP_IB_CM
            | bindings::RDMA_CORE_CAP_IB_SA
            | bindings::RDMA_CORE_CAP_AF_IB;
        immutable.max_mad_size = 256;
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn process_mad(
        device: *mut bindings::ib_device,
        _flags: c_int,
        port: u32,
        wc: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        mad: *const bindings::ib_mad,
        reply: *mut bindings::ib_mad,
        size: *mut usize,
        _pkey_index: *mut u16,
    ) -> c_int {
        // SAFETY: `device` is valid.
        let provider = unsafe { provider::<P>(device) };
        // SAFETY: `mad` has 256 bytes.
        let mad = unsafe { &*mad.cast::<Mad>() };
        // SAFETY: `reply` has 256 bytes, and nothing else uses it.
        let reply = unsafe { &mut *reply.cast::<Mad>() };
        // SAFETY: `wc` is null or valid. A LID has 16 bits.
        let slid = unsafe { wc.as_ref() }.map_or(0xffff, |wc| wc.slid as u16);
        // SAFETY: `size` is valid.
        unsafe { *size = 256 };
        let result = match provider.process_mad(port, slid, mad, reply) {
            MadResult::Reply => bindings::ib_mad_result_IB_MAD_RESULT_REPLY,
            MadResult::Consumed => bindings::ib_mad_result_IB_MAD_RESULT_CONSUMED,
            MadResult::Ignored => 0,
        };
        // CAST: Bits 0 to 2.
        (bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS | result) as c_int
    }
}
