// SPDX-License-Identifier: GPL-2.0

//! The functions of `shim.c` and `ib.c`.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub(crate) struct $name { _private: [u8; 0] }
    )* };
}
opaque!(EventChannel, CmId, Context, Pd, CompChannel, Mr, Cq, Qp, Ah);

/// `struct cm_event`.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listener: *mut CmId,
    pub(crate) what: u32,
    pub(crate) len: u32,
    pub(crate) depth: u32,
    pub(crate) data: [u8; 256],
}

/// `SENDS_AT_ONCE`.
pub(crate) const SENDS_AT_ONCE: usize = 32;

/// `struct send`.
#[repr(C)]
pub(crate) struct Send {
    pub(crate) memory: *mut c_void,
    pub(crate) id: u64,
    pub(crate) va: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) op: u32,
}

/// `struct completion`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) len: u32,
}

/// `struct async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) text: *const c_char,
    pub(crate) token: u64,
    pub(crate) what: u32,
    pub(crate) number: u32,
}

/// `struct rc_peer`.
#[repr(C)]
pub(crate) struct RcPeer {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) lid: u16,
    pub(crate) sl: u8,
    pub(crate) mtu: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) reads: u8,
}

/// `struct datagram`.
#[repr(C)]
pub(crate) struct Datagram {
    pub(crate) id: u64,
    pub(crate) back: *mut Ah,
    pub(crate) qpn: u32,
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
    pub(crate) fn shim_migrate(id: *mut CmId, events: *mut EventChannel) -> c_int;
    pub(crate) fn shim_hold(events: *mut EventChannel, id: *mut CmId) -> *mut CmId;
    pub(crate) fn shim_name(device: *mut Context) -> *const c_char;
    pub(crate) fn shim_depth(device: *mut Context) -> c_int;
    pub(crate) fn shim_close(device: *mut Context);
    pub(crate) fn shim_async_fd(device: *mut Context) -> c_int;
    pub(crate) fn shim_async(device: *mut Context, out: *mut AsyncEvent) -> c_int;
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
    #[cfg(test)]
    pub(crate) fn shim_access(transport: c_int, remote: c_int) -> c_int;
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
    pub(crate) fn shim_qp_of(id: *mut CmId) -> *mut Qp;
    pub(crate) fn shim_qp_free(id: *mut CmId);
    pub(crate) fn shim_open(name: *const c_char) -> *mut Context;
    pub(crate) fn shim_port(device: *mut Context, lid: *mut u16, gid: *mut u8) -> c_int;
    pub(crate) fn shim_partition(device: *mut Context, pkey: u16) -> c_int;
    pub(crate) fn shim_rc(
        pd: *mut Pd,
        cq: *mut Cq,
        sends: u32,
        receives: u32,
        partition: c_int,
    ) -> *mut Qp;
    pub(crate) fn shim_rc_connect(qp: *mut Qp, peer: *const RcPeer) -> c_int;
    pub(crate) fn shim_rc_end(qp: *mut Qp) -> c_int;
    pub(crate) fn shim_rc_free(qp: *mut Qp);
    pub(crate) fn shim_qpn(qp: *mut Qp) -> u32;
    pub(crate) fn shim_gsi(pd: *mut Pd, cq: *mut Cq, depth: u32) -> *mut Qp;
    pub(crate) fn shim_datagram(
        cq: *mut Cq,
        pd: *mut Pd,
        buffers: *const *mut c_void,
        receives: u64,
        out: *mut Datagram,
    ) -> c_int;
    pub(crate) fn shim_datagram_send(
        qp: *mut Qp,
        wr_id: u64,
        memory: *mut c_void,
        len: u32,
        lkey: u32,
        to: *mut Ah,
        qpn: u32,
    ) -> c_int;
    pub(crate) fn shim_ah_free(ah: *mut Ah);
    pub(crate) fn shim_receive(
        qp: *mut Qp,
        wr_id: u64,
        memory: *mut c_void,
        len: u32,
        lkey: u32,
    ) -> c_int;
    pub(crate) fn shim_send(qp: *mut Qp, list: *const Send, n: u32) -> c_int;
    pub(crate) fn shim_signals() -> c_int;
    pub(crate) fn shim_wait(fds: *const c_int, ready: *mut u8, n: u32, ms: c_int) -> c_int;
    pub(crate) fn shim_punch(fd: c_int, at: u64, len: u64) -> c_int;
    pub(crate) fn shim_lock(fd: c_int) -> c_int;
}
