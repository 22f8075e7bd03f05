// SPDX-License-Identifier: GPL-2.0

//! The functions of `shim.c`.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub(crate) struct $name { _private: [u8; 0] }
    )* };
}
opaque!(EventChannel, CmId, Context, Pd, CompChannel, Mr, Cq);

/// `struct cm_event`.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) what: u32,
    pub(crate) len: u32,
    pub(crate) depth: u32,
    pub(crate) data: [u8; 256],
}

/// `struct completion`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) len: u32,
}

extern "C" {
    pub(crate) fn shim_events() -> *mut EventChannel;
    pub(crate) fn shim_events_fd(events: *mut EventChannel) -> c_int;
    pub(crate) fn shim_events_free(events: *mut EventChannel);
    pub(crate) fn shim_listen(
        events: *mut EventChannel,
        address: *const c_char,
        port: *const c_char,
        backlog: c_int,
    ) -> *mut CmId;
    pub(crate) fn shim_resolve(
        events: *mut EventChannel,
        address: *const c_char,
        port: *const c_char,
        ms: c_int,
    ) -> *mut CmId;
    pub(crate) fn shim_route(id: *mut CmId, ms: c_int) -> c_int;
    pub(crate) fn shim_connect(id: *mut CmId, data: *const c_void, len: u8) -> c_int;
    pub(crate) fn shim_next(events: *mut EventChannel, out: *mut CmEvent) -> c_int;
    pub(crate) fn shim_device(id: *mut CmId) -> *mut Context;
    pub(crate) fn shim_accept(id: *mut CmId, data: *const c_void, len: u8, depth: u8) -> c_int;
    pub(crate) fn shim_reject(id: *mut CmId, data: *const c_void, len: u8) -> c_int;
    pub(crate) fn shim_disconnect(id: *mut CmId) -> c_int;
    pub(crate) fn shim_id_free(id: *mut CmId);
    pub(crate) fn shim_pd(device: *mut Context) -> *mut Pd;
    pub(crate) fn shim_pd_free(pd: *mut Pd);
    pub(crate) fn shim_wakeups(device: *mut Context) -> *mut CompChannel;
    pub(crate) fn shim_wakeups_fd(wakeups: *mut CompChannel) -> c_int;
    pub(crate) fn shim_wakeups_free(wakeups: *mut CompChannel);
    pub(crate) fn shim_wakeup(wakeups: *mut CompChannel, token: *mut u64) -> c_int;
    pub(crate) fn shim_register(
        pd: *mut Pd,
        memory: *mut c_void,
        len: usize,
        remote: c_int,
    ) -> *mut Mr;
    pub(crate) fn shim_lkey(mr: *mut Mr) -> u32;
    pub(crate) fn shim_rkey(mr: *mut Mr) -> u32;
    pub(crate) fn shim_deregister(mr: *mut Mr);
    pub(crate) fn shim_cq(
        device: *mut Context,
        wakeups: *mut CompChannel,
        entries: c_int,
        token: u64,
    ) -> *mut Cq;
    pub(crate) fn shim_arm(cq: *mut Cq) -> c_int;
    pub(crate) fn shim_poll(cq: *mut Cq, out: *mut Completion) -> c_int;
    pub(crate) fn shim_status(status: u32) -> *const c_char;
    pub(crate) fn shim_cq_free(cq: *mut Cq);
    pub(crate) fn shim_qp(
        id: *mut CmId,
        pd: *mut Pd,
        cq: *mut Cq,
        sends: u32,
        receives: u32,
    ) -> c_int;
    pub(crate) fn shim_qp_free(id: *mut CmId);
    pub(crate) fn shim_receive(
        id: *mut CmId,
        wr_id: u64,
        memory: *mut c_void,
        len: u32,
        lkey: u32,
    ) -> c_int;
    pub(crate) fn shim_send(
        id: *mut CmId,
        wr_id: u64,
        op: c_int,
        memory: *mut c_void,
        len: u32,
        lkey: u32,
        va: u64,
        rkey: u32,
    ) -> c_int;
    pub(crate) fn shim_signals() -> c_int;
    pub(crate) fn shim_wait(fds: *const c_int, ready: *mut u8, n: u32, ms: c_int) -> c_int;
    pub(crate) fn shim_punch(fd: c_int, at: u64, len: u64) -> c_int;
    pub(crate) fn shim_lock(fd: c_int) -> c_int;
}
