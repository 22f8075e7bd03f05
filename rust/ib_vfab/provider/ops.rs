// SPDX-License-Identifier: GPL-2.0

//! The functions of `struct ib_device_ops`, for a [`Provider`].
//!
//! `ib_core` guarantees for all functions: pointers are valid; an object belongs to this device,
//! and is not created or destroyed concurrently. Two threads of a process may modify an object
//! concurrently.

mod context;
mod device;
mod region;

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
        QpObject, //
    },
    verbs::{
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
    compat::{
        user_mr::reg_user_mr,
        THIS_MODULE, //
    },
    errno::EOPNOTSUPP, //
};
use core::{
    ffi::c_int,
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// The functions for one kind of device.
pub(super) struct Ops<P>(PhantomData<P>);

// See the documentation of this module for the guarantees of `ib_core`.
impl<P: Provider> Ops<P> {
    pub(super) const OPS: &'static bindings::ib_device_ops = &bindings::ib_device_ops {
        owner: THIS_MODULE.as_ptr(),
        uverbs_abi_ver: 1,
        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        query_pkey: Some(Self::query_pkey),
        query_gid: Some(Self::query_gid),
        modify_port: Some(Self::modify_port),
        modify_device: Some(Self::modify_device),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        process_mad: Some(Self::process_mad),
        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_ah: Some(Self::create_ah),
        create_user_ah: Some(Self::create_ah),
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
        reg_user_mr: Some(reg_user_mr::<Self>),
        alloc_mr: Some(Self::alloc_mr),
        map_mr_sg: Some(Self::map_mr_sg),
        dereg_mr: Some(Self::dereg_mr),
        size_ib_ucontext: size_of::<bindings::ib_ucontext>(),
        size_ib_pd: size_of::<bindings::ib_pd>(),
        size_ib_ah: size_of::<AhObject>(),
        size_ib_cq: size_of::<CqObject<P::Cq>>(),
        size_ib_qp: size_of::<QpObject<P::Qp>>(),
        ..pin_init::zeroed()
    };

    /// The additional functions of a device that drains queue pairs itself.
    pub(super) const DRAIN: &'static bindings::ib_device_ops = &bindings::ib_device_ops {
        drain_sq: Some(Self::drain_sq),
        drain_rq: Some(Self::drain_rq),
        ..pin_init::zeroed()
    };

    /// The additional function of a device that moderates completion interrupts.
    pub(super) const MODERATE: &'static bindings::ib_device_ops = &bindings::ib_device_ops {
        modify_cq: Some(Self::modify_cq),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `init` is valid.
        let attr = unsafe { &*(*init).ah_attr };
        // SAFETY: `ib_core` allocates `ah` with the size of an `AhObject` (`size_ib_ah`).
        unsafe { (*ah.cast::<AhObject>()).address = Address::from_raw(attr) };
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: `ah` is valid.
        let raw = unsafe { address(ah) }.to_raw();
        // SAFETY: `attr` is valid.
        unsafe { *attr = raw };
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn destroy_ah(_ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn create_cq(
        raw: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        _: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        let Some(handle) = NonNull::new(raw) else {
            return EINVAL.to_errno();
        };
        // SAFETY: `attr` is valid.
        let attr = unsafe { &*attr };
        if attr.flags != 0 {
            return EOPNOTSUPP.to_errno();
        }
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        let created = provider.create_cq(attr.cqe, CqHandle(handle));
        let new = match created {
            Ok(new) => new,
            Err(e) => return e.to_errno(),
        };
        // SAFETY: `raw` is valid until `destroy_cq`, which calls `forget`.
        unsafe { P::cq_target(&new).set(handle) };
        // CAST: The capacity is at most the device's limit.
        let cqe = P::cqe(&new) as c_int;
        // SAFETY: `raw` is valid.
        unsafe { (*raw).cqe = cqe };
        // SAFETY: `ib_core` allocates `raw` zeroed and with the size of a `CqObject`
        // (`size_ib_cq`), so its `cq` field is a valid `None`.
        unsafe { (*raw.cast::<CqObject<P::Cq>>()).cq = Some(new) };
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn destroy_cq(
        raw: *mut bindings::ib_cq,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        if let Some(cq) = unsafe { (*raw.cast::<CqObject<P::Cq>>()).cq.take() } {
            P::destroy_cq(&cq);
            P::notify(&cq).stop();
            P::cq_target(&cq).forget();
        }
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn poll_cq(
        raw: *mut bindings::ib_cq,
        count: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let Some(cq) = (unsafe { cq::<P::Cq>(raw) }) else {
            return 0;
        };
        // SAFETY: `wc` has room for `count` completions, and a `Wc` has the layout of an `ib_wc`.
        let room = unsafe { slice::from_raw_parts_mut(wc.cast::<Wc>(), count.max(0) as usize) };
        // CAST: The number is at most `count`.
        P::poll_cq(cq, &mut Room(room)) as c_int
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn req_notify_cq(
        raw: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        // SAFETY: `raw` is valid.
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
    /// Only `ib_core` may call this.
    unsafe extern "C" fn modify_cq(raw: *mut bindings::ib_cq, count: u16, period: u16) -> c_int {
        // SAFETY: `raw` is valid.
        if let Some(cq) = unsafe { cq::<P::Cq>(raw) } {
            P::moderate_cq(cq, count, period);
        }
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn create_qp(
        raw: *mut bindings::ib_qp,
        init: *mut bindings::ib_qp_init_attr,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: The arguments are valid.
        errno(unsafe { Self::new_qp(raw, init) })
    }

    /// # Safety
    ///
    /// `raw` and `init` are valid arguments of `create_qp`.
    unsafe fn new_qp(raw: *mut bindings::ib_qp, init: *mut bindings::ib_qp_init_attr) -> Result {
        let handle = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: `init` is valid.
        let init = unsafe { &mut *init };
        if init.create_flags != 0 || !init.srq.is_null() {
            return Err(EOPNOTSUPP);
        }
        if init.send_cq.is_null() || init.recv_cq.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: `raw` is valid.
        let pd = unsafe { PdName::of((*raw).pd) };
        // SAFETY: The queue belongs to this device.
        let send_cq = unsafe { cq::<P::Cq>(init.send_cq) }.ok_or(EINVAL)?;
        // SAFETY: The queue belongs to this device.
        let recv_cq = unsafe { cq::<P::Cq>(init.recv_cq) }.ok_or(EINVAL)?;
        let (new, number) = P::create_qp(
            provider,
            &QpInit {
                kind: Kind::from_raw(init.qp_type)?,
                port: init.port_num,
                pd,
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
        // SAFETY: `raw` is valid until `destroy_qp`, which calls `forget`.
        unsafe { P::qp_target(&new).set(handle) };
        // SAFETY: `raw` is valid.
        unsafe { (*raw).qp_num = number };
        // SAFETY: `ib_core` allocates `raw` zeroed and with the size of a `QpObject`
        // (`size_ib_qp`), so its `qp` field is a valid `None`.
        unsafe { (*raw.cast::<QpObject<P::Qp>>()).qp = Some(new) };
        Ok(())
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn modify_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        // CAST: A set of bits.
        let mask = Mask(mask as u32);
        // SAFETY: `attr` is valid.
        let attr = QpAttr::from_raw(unsafe { &*attr }, mask);
        errno(attr.and_then(|attr| provider.modify_qp(qp, &attr, mask)))
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn query_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: `raw` is valid.
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
        // SAFETY: `attr` is valid.
        unsafe { *attr = filled };
        // SAFETY: `init` is valid.
        unsafe { (*init).cap = cap() };
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn destroy_qp(
        raw: *mut bindings::ib_qp,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: `raw` is a valid `QpObject`. Only this function and `create_qp` change its `qp`
        // field, never concurrently.
        let place = unsafe { &mut (*raw.cast::<QpObject<P::Qp>>()).qp };
        if let Some(qp) = place {
            if let Err(e) = provider.destroy_qp(qp) {
                return e.to_errno();
            }
            P::qp_target(qp).forget();
        }
        *place = None;
        // `ib_mad_port_close()` frees queue pairs 0 and 1 while its work item may still process a
        // completion of them.
        // SAFETY: `raw` is valid.
        let (kind, cq) = unsafe { ((*raw).qp_type, (*raw).recv_cq) };
        if kind == bindings::ib_qp_type_IB_QPT_SMI || kind == bindings::ib_qp_type_IB_QPT_GSI {
            // SAFETY: A completion queue outlives its queue pairs, and its work item does not
            // destroy them.
            unsafe { bindings::srp_vfab_wait_for_work(cq) };
        }
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn drain_sq(raw: *mut bindings::ib_qp) {
        // SAFETY: `raw` is valid.
        unsafe { Self::drain(raw, false) };
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn drain_rq(raw: *mut bindings::ib_qp) {
        // SAFETY: `raw` is valid.
        unsafe { Self::drain(raw, true) };
    }

    /// # Safety
    ///
    /// `raw` is a valid queue pair of this device.
    unsafe fn drain(raw: *mut bindings::ib_qp, recv: bool) {
        // SAFETY: `raw` is valid.
        if let Some(qp) = unsafe { qp::<P::Qp>(raw) } {
            let dead = P::draining(qp, true);
            // SAFETY: `raw` is valid.
            unsafe { bindings::srp_vfab_drain(raw, recv, dead) };
            P::draining(qp, false);
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn attach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: The arguments are valid.
        errno(unsafe { Self::member(raw, gid, |provider, qp, gid| provider.attach(qp, gid, lid)) })
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn detach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        // SAFETY: The arguments are valid.
        errno(unsafe { Self::member(raw, gid, |provider, qp, gid| provider.detach(qp, gid, lid)) })
    }

    /// # Safety
    ///
    /// `raw` is a valid queue pair of this device, and `gid` is valid.
    unsafe fn member(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        change: impl FnOnce(&P, &Arc<P::Qp>, [u8; 16]) -> Result,
    ) -> Result {
        // SAFETY: `raw` is valid.
        let qp = unsafe { qp::<P::Qp>(raw) }.ok_or(EINVAL)?;
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: `gid` is valid; it has 16 bytes.
        change(provider, qp, unsafe { gid.cast::<[u8; 16]>().read() })
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn post_send(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The caller passes a valid chain of requests, or null.
        let Some(first) = (unsafe { SendWr::<P::Mr>::from_raw(wr) }) else {
            return 0;
        };
        // SAFETY: `raw` is valid; the field is constant.
        let rc = unsafe { (*raw).qp_type } == bindings::ib_qp_type_IB_QPT_RC;
        let datagrams = (!rc).then_some(Datagrams(()));
        match P::post_send(qp, first, datagrams.as_ref()) {
            Ok(()) => 0,
            Err((wr, e)) => {
                // SAFETY: `bad` is valid.
                unsafe { *bad = wr.as_raw() };
                e.to_errno()
            }
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    unsafe extern "C" fn post_recv(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let Some(qp) = (unsafe { qp::<P::Qp>(raw) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The caller passes a valid chain of requests, or null.
        let Some(first) = (unsafe { RecvWr::from_raw(wr) }) else {
            return 0;
        };
        match P::post_recv(qp, first) {
            Ok(()) => 0,
            Err((wr, e)) => {
                // SAFETY: `bad` is valid.
                unsafe { *bad = wr.as_raw() };
                e.to_errno()
            }
        }
    }
}
