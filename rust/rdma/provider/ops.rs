// SPDX-License-Identifier: GPL-2.0

//! The functions of `struct ib_device_ops`, for a [`Provider`].
//!
//! `ib_core` grants for all of them: an object is one of this device, and was created and not destroyed; nobody else
//! creates, changes or destroys it meanwhile.

use super::{
    attr::{
        Address,
        Kind,
        Mask,
        PdName,
        QpAttr,
        Sizes, //
    },
    notify::CqHandle,
    object::{
        address,
        cq,
        provider,
        qp,
        AhObject,
        CqObject,
        MrObject,
        QpObject, //
    },
    pages::{
        pages_of,
        MrHead, //
    },
    verbs::{
        Mad,
        MadResult,
        Provider,
        QpInit, //
    },
    wc::{
        QpName,
        Room,
        Wc, //
    },
    wr::{
        Datagrams,
        RecvWr,
        SendWr, //
    }, //
};
use crate::{
    bindings,
    compat::THIS_MODULE,
    errno::EOPNOTSUPP, //
};
use core::{
    ffi::{
        c_int,
        c_uint, //
    },
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A count that C keeps in an `int` in one kernel and in a `u32` in another.
fn number<T: TryFrom<u32> + Default>(n: u32) -> T {
    n.try_into().unwrap_or_default()
}

fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// The functions for one kind of device.
pub(super) struct Ops<P>(PhantomData<P>);

// What `ib_core` grants for each function is at the top of this file.
impl<P: Provider> Ops<P> {
    pub(super) const OPS: &'static bindings::ib_device_ops = &bindings::ib_device_ops {
        owner: THIS_MODULE.as_ptr(),
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        query_pkey: Some(Self::query_pkey),
        query_gid: Some(Self::query_gid),
        modify_port: Some(Self::modify_port),
        modify_device: Some(Self::modify_device),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        process_mad: Some(Self::process_mad),
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_ah: Some(Self::create_ah),
        query_ah: Some(Self::query_ah),
        destroy_ah: Some(Self::destroy_ah),
        create_cq: Some(Self::create_cq),
        destroy_cq: Some(Self::destroy_cq),
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        attach_mcast: Some(Self::attach_mcast),
        detach_mcast: Some(Self::detach_mcast),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        alloc_mr: Some(Self::alloc_mr),
        map_mr_sg: Some(Self::map_mr_sg),
        dereg_mr: Some(Self::dereg_mr),
        size_ib_pd: size_of::<bindings::ib_pd>(),
        size_ib_ah: size_of::<AhObject>(),
        size_ib_cq: size_of::<CqObject<P::Cq>>(),
        size_ib_qp: size_of::<QpObject<P::Qp>>(),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let ours = unsafe { provider::<P>(device) }.device_attr();
        // SAFETY: As above.
        let attr = unsafe { &mut *attr };
        attr.fw_ver = 1 << 32;
        attr.sys_image_guid = ours.sys_image_guid.to_be();
        attr.max_mr_size = u64::MAX;
        // Pages of 4 KiB to 2 GiB.
        attr.page_size_cap = 0xffff_f000;
        attr.max_qp = number(ours.max_qp);
        attr.max_qp_wr = number(ours.max_qp_wr);
        // CAST: A set of bits.
        attr.device_cap_flags = (bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS
            | bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID
            | bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT
            | bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN)
            as u64;
        attr.kernel_cap_flags = u64::from(bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
        attr.max_send_sge = number(ours.max_sge);
        attr.max_recv_sge = number(ours.max_sge);
        attr.max_sge_rd = number(ours.max_sge);
        attr.max_cq = number(ours.max_cq);
        attr.max_cqe = number(ours.max_cqe);
        attr.max_mr = number(ours.max_mr);
        attr.max_pd = number(1 << 16);
        attr.max_ah = number(1 << 16);
        attr.max_qp_rd_atom = number(ours.max_reads);
        attr.max_qp_init_rd_atom = number(ours.max_reads);
        attr.max_res_rd_atom = number(ours.max_reads * ours.max_qp);
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
    /// `ib_core` calls it.
    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let ours = match unsafe { provider::<P>(device) }.port_attr(port) {
            Ok(ours) => ours,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: As above.
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
    /// `ib_core` calls it.
    unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        match unsafe { provider::<P>(device) }.pkey(port, index) {
            Ok(found) => {
                // SAFETY: As above.
                unsafe { *pkey = found };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn query_gid(
        device: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        match unsafe { provider::<P>(device) }.gid(port, index) {
            Ok(found) => {
                // SAFETY: As above; it has 16 bytes.
                unsafe { gid.cast::<[u8; 16]>().write(found) };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn modify_port(
        device: *mut bindings::ib_device,
        port: u32,
        _mask: c_int,
        change: *mut bindings::ib_port_modify,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let change = unsafe { &*change };
        // SAFETY: As above.
        let provider = unsafe { provider::<P>(device) };
        errno(provider.set_capabilities(port, change.set_port_cap_mask, change.clr_port_cap_mask))
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn modify_device(
        device: *mut bindings::ib_device,
        mask: c_int,
        change: *mut bindings::ib_device_modify,
    ) -> c_int {
        // CAST: A set of bits.
        if mask as u32 & !bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC != 0 {
            return EOPNOTSUPP.to_errno();
        }
        // SAFETY: `ib_core` grants it.
        let text = unsafe { (*change).node_desc };
        // SAFETY: As above; who changes it one at a time.
        unsafe { (*device).node_desc = text };
        // SAFETY: As above.
        unsafe { provider::<P>(device) }.set_description(&text);
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let ours = match unsafe { provider::<P>(device) }.port_attr(port) {
            Ok(ours) => ours,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: As above.
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
    /// `ib_core` calls it.
    unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn process_mad(
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
        // SAFETY: `ib_core` grants it.
        let provider = unsafe { provider::<P>(device) };
        // SAFETY: It has 256 bytes.
        let mad = unsafe { &*mad.cast::<Mad>() };
        // SAFETY: As above, and nobody else uses it.
        let reply = unsafe { &mut *reply.cast::<Mad>() };
        // SAFETY: It is null, or valid. A LID has 16 bits.
        let slid = unsafe { wc.as_ref() }.map_or(0xffff, |wc| wc.slid as u16);
        // SAFETY: `ib_core` grants it.
        unsafe { *size = 256 };
        let result = match provider.process_mad(port, slid, mad, reply) {
            MadResult::Reply => bindings::ib_mad_result_IB_MAD_RESULT_REPLY,
            MadResult::Consumed => bindings::ib_mad_result_IB_MAD_RESULT_CONSUMED,
            MadResult::Ignored => 0,
        };
        // CAST: Bits 0 to 2.
        (bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS | result) as c_int
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn alloc_pd(_pd: *mut bindings::ib_pd, _: *mut bindings::ib_udata) -> c_int {
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn dealloc_pd(
        _pd: *mut bindings::ib_pd,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let attr = unsafe { &*(*init).ah_attr };
        // SAFETY: As above; it has the size of this.
        unsafe { (*ah.cast::<AhObject>()).address = Address::from_raw(attr) };
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let raw = unsafe { address(ah) }.to_raw();
        // SAFETY: As above.
        unsafe { *attr = raw };
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn destroy_ah(_ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn create_cq(
        raw: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        _: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        let Some(handle) = NonNull::new(raw) else {
            return EINVAL.to_errno();
        };
        // SAFETY: `ib_core` grants it.
        let attr = unsafe { &*attr };
        // SAFETY: As above.
        let provider = unsafe { provider::<P>((*raw).device) };
        let created = provider.create_cq(attr.cqe, CqHandle(handle));
        let new = match created {
            Ok(new) => new,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: It is valid until it is destroyed.
        unsafe { P::cq_target(&new).set(handle) };
        // CAST: It is at most the device's limit.
        let cqe = P::cqe(&new) as c_int;
        // SAFETY: `ib_core` grants it.
        unsafe { (*raw).cqe = cqe };
        // SAFETY: As above; it has the size of this, and `None` in it.
        unsafe { (*raw.cast::<CqObject<P::Cq>>()).cq = Some(new) };
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn destroy_cq(
        raw: *mut bindings::ib_cq,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        if let Some(cq) = unsafe { (*raw.cast::<CqObject<P::Cq>>()).cq.take() } {
            P::destroy_cq(&cq);
            P::notify(&cq).stop();
            P::cq_target(&cq).forget();
        }
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn poll_cq(
        raw: *mut bindings::ib_cq,
        count: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(cq) = (unsafe { cq::<P::Cq>(raw) }) else {
            return 0;
        };
        // SAFETY: There is room for `count`, which is laid out as what it wraps.
        let room = unsafe { slice::from_raw_parts_mut(wc.cast::<Wc>(), count.max(0) as usize) };
        // CAST: It is at most `count`.
        P::poll_cq(cq, &mut Room(room)) as c_int
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn req_notify_cq(
        raw: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(cq) = (unsafe { cq::<P::Cq>(raw) }) else {
            return 0;
        };
        let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
            == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
        let there = P::arm_cq(cq, solicited);
        c_int::from(there && flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0)
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn create_qp(
        raw: *mut bindings::ib_qp,
        init: *mut bindings::ib_qp_init_attr,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        errno(unsafe { Self::new_qp(raw, init) })
    }

    /// # Safety
    ///
    /// As for `create_qp`.
    unsafe fn new_qp(raw: *mut bindings::ib_qp, init: *mut bindings::ib_qp_init_attr) -> Result {
        let handle = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: By this function's contract.
        let init = unsafe { &mut *init };
        if init.create_flags != 0 || !init.srq.is_null() {
            return Err(EOPNOTSUPP);
        }
        if init.send_cq.is_null() || init.recv_cq.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: As above.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: As above.
        let pd = unsafe { (*raw).pd };
        // SAFETY: The queue is one of this device.
        let send_cq = unsafe { cq::<P::Cq>(init.send_cq) }.ok_or(EINVAL)?;
        // SAFETY: The queue is one of this device.
        let recv_cq = unsafe { cq::<P::Cq>(init.recv_cq) }.ok_or(EINVAL)?;
        let (new, number) = P::create_qp(
            provider,
            &QpInit {
                kind: Kind::from_raw(init.qp_type)?,
                port: init.port_num,
                pd: PdName::of(pd),
                sizes: Sizes {
                    send: init.cap.max_send_wr,
                    recv: init.cap.max_recv_wr,
                    send_sge: init.cap.max_send_sge,
                    recv_sge: init.cap.max_recv_sge,
                },
                all_signaled: init.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                send_cq,
                recv_cq,
                name: QpName(raw),
            },
        )?;
        init.cap.max_inline_data = 0;
        // SAFETY: It is valid until it is destroyed.
        unsafe { P::qp_target(&new).set(handle) };
        // SAFETY: By this function's contract.
        unsafe { (*raw).qp_num = number };
        // SAFETY: As above; it has the size of this, and `None` in it.
        unsafe { (*raw.cast::<QpObject<P::Qp>>()).qp = Some(new) };
        Ok(())
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn modify_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: As above.
        let provider = unsafe { provider::<P>((*raw).device) };
        // CAST: A set of bits.
        let mask = Mask(mask as u32);
        // SAFETY: As above.
        let attr = QpAttr::from_raw(unsafe { &*attr }, mask);
        errno(attr.and_then(|attr| provider.modify_qp(qp, &attr, mask)))
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn query_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        let (ours, sizes) = P::query_qp(qp);
        let cap = || bindings::ib_qp_cap {
            max_send_wr: sizes.send,
            max_recv_wr: sizes.recv,
            max_send_sge: sizes.send_sge,
            max_recv_sge: sizes.recv_sge,
            ..Default::default()
        };
        let mut filled = ours.to_raw();
        filled.cap = cap();
        // SAFETY: As above.
        unsafe { *attr = filled };
        // SAFETY: As above.
        unsafe { (*init).cap = cap() };
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn destroy_qp(
        raw: *mut bindings::ib_qp,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: As above.
        if let Some(qp) = unsafe { (*raw.cast::<QpObject<P::Qp>>()).qp.take() } {
            P::qp_target(&qp).forget();
            provider.destroy_qp(&qp);
        }
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn attach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        errno(unsafe { Self::member(raw, gid, |provider, qp, gid| provider.attach(qp, gid, lid)) })
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn detach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        errno(unsafe { Self::member(raw, gid, |provider, qp, gid| provider.detach(qp, gid, lid)) })
    }

    /// # Safety
    ///
    /// As for `attach_mcast`.
    unsafe fn member(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        change: impl FnOnce(&P, &Arc<P::Qp>, [u8; 16]) -> Result,
    ) -> Result {
        // SAFETY: By this function's contract.
        let qp = unsafe { qp::<P::Qp>(raw) }.ok_or(EINVAL)?;
        // SAFETY: As above.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: As above; it has 16 bytes.
        change(provider, qp, unsafe { gid.cast::<[u8; 16]>().read() })
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn post_send(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The caller grants it.
        let Some(first) = (unsafe { SendWr::<P::Mr>::from_raw(wr) }) else {
            return 0;
        };
        // SAFETY: `ib_core` grants it; the field is constant.
        let rc = unsafe { (*raw).qp_type } == bindings::ib_qp_type_IB_QPT_RC;
        let datagrams = (!rc).then_some(Datagrams(()));
        match P::post_send(qp, first, datagrams.as_ref()) {
            Ok(()) => 0,
            Err((wr, e)) => {
                // SAFETY: `ib_core` grants it.
                unsafe { *bad = wr.as_raw() };
                e.to_errno()
            }
        }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn post_recv(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The caller grants it.
        let Some(first) = (unsafe { RecvWr::from_raw(wr) }) else {
            return 0;
        };
        match P::post_recv(qp, first) {
            Ok(()) => 0,
            Err((wr, e)) => {
                // SAFETY: `ib_core` grants it.
                unsafe { *bad = wr.as_raw() };
                e.to_errno()
            }
        }
    }

    /// # Safety
    ///
    /// The domain is one of this device.
    unsafe fn new_mr(
        pd: *mut bindings::ib_pd,
        pages: Option<u32>,
        access: u32,
    ) -> *mut bindings::ib_mr {
        // SAFETY: By this function's contract.
        let provider = unsafe { provider::<P>((*pd).device) };
        let created = provider
            .create_mr(PdName::of(pd), pages, access)
            .and_then(|(mr, key)| {
                // INVARIANT: The pages are those of `mr`.
                let head = MrHead::new(key, P::pages(&mr));
                KBox::new(MrObject::<P::Mr> { head, mr }, GFP_KERNEL).map_err(Error::from)
            });
        match created {
            Ok(object) => KBox::into_raw(object).cast(),
            Err(e) => e.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // CAST: A set of bits.
        // SAFETY: `ib_core` grants it.
        unsafe { Self::new_mr(pd, None, access as u32) }
    }

    /// Nobody in user space gets as far as this: there are no user verbs.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn reg_user_mr(
        _pd: *mut bindings::ib_pd,
        _start: u64,
        _len: u64,
        _iova: u64,
        _access: c_int,
        _dmah: *mut bindings::ib_dmah,
        _udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        EOPNOTSUPP.to_ptr()
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        pages: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: `ib_core` grants it.
        unsafe { Self::new_mr(pd, Some(pages), 0) }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn map_mr_sg(
        raw: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        count: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: `ib_core` grants it.
        match unsafe { pages_of(raw) } {
            // SAFETY: As above; the caller has the region for itself.
            Some(pages) => unsafe { pages.describe(raw, sg, count, offset) },
            None => EINVAL.to_errno(),
        }
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    unsafe extern "C" fn dereg_mr(raw: *mut bindings::ib_mr, _: *mut bindings::ib_udata) -> c_int {
        // SAFETY: `ib_core` grants it.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: It came from `KBox::into_raw`.
        let object = unsafe { KBox::from_raw(raw.cast::<MrObject<P::Mr>>()) };
        provider.destroy_mr(&object.mr);
        0
    }
}
