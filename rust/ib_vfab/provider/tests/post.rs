// SPDX-License-Identifier: GPL-2.0

//! Posting of receive requests, send requests and datagrams.

use super::{
    wr::{
        Request,
        Wr, //
    },
    User, //
};
use crate::bindings;
use core::ptr::{
    null,
    null_mut, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

impl User {
    fn sges(&self, pieces: &[(usize, usize, u32)]) -> [bindings::ib_sge; 4] {
        core::array::from_fn(|n| {
            pieces
                .get(n)
                .map_or_else(Default::default, |(at, len, key)| {
                    bindings::ib_sge {
                        // The addresses of the user's region are those of its memory.
                        addr: self.addr(*at),
                        length: *len as u32,
                        lkey: *key,
                    }
                })
        })
    }

    /// Posts a receive request for pieces of the user's memory: offset, length, key.
    pub(crate) fn recv(&self, id: u64, pieces: &[(usize, usize, u32)]) -> Result {
        let mut sges = self.sges(pieces);
        let mut wr = bindings::ib_recv_wr {
            sg_list: sges.as_mut_ptr(),
            num_sge: pieces.len() as i32,
            ..Default::default()
        };
        let place = (&raw mut wr.__bindgen_anon_1).cast::<u64>();
        // SAFETY: The union has room for a `u64`.
        unsafe { place.write(id) };
        let mut bad = null();
        // SAFETY: The device is valid.
        let post = unsafe { (*self.device).ops.post_recv }.ok_or(EINVAL)?;
        // SAFETY: The request is valid for the call, its memory longer.
        to_result(unsafe { post(self.qp, &wr, &mut bad) })
    }

    /// Posts a chain of send requests, each with the same pieces. Returns the number accepted.
    pub(crate) fn send(
        &self,
        id: u64,
        requests: &[Request],
        pieces: &[(usize, usize, u32)],
        flags: i32,
    ) -> (usize, Result) {
        let mut sges = self.sges(pieces);
        let mut wrs: [Wr; 8] = core::array::from_fn(|_| Wr::default());
        let count = requests.len().min(wrs.len());
        let first = wrs.as_mut_ptr();
        for (n, request) in requests.iter().take(count).enumerate() {
            // SAFETY: The index is below `count`.
            let place = unsafe { first.add(n) };
            // SAFETY: `place` is one of the requests.
            let wr = unsafe { &mut *place };
            wr.fill(*request, self.mr);
            let raw = wr.raw();
            raw.send_flags = flags;
            raw.sg_list = sges.as_mut_ptr();
            raw.num_sge = match request {
                Request::Reg(..) | Request::Inv(..) => 0,
                _ => pieces.len() as i32,
            };
            let place = (&raw mut raw.__bindgen_anon_1).cast::<u64>();
            // SAFETY: The union has room for a `u64`.
            unsafe { place.write(id + n as u64) };
            if n + 1 < count {
                // SAFETY: The index is below `count`.
                raw.next = unsafe { first.add(n + 1) }.cast();
            }
        }
        let mut bad = null();
        // SAFETY: The device is valid.
        let Some(post) = (unsafe { (*self.device).ops.post_send }) else {
            return (0, Err(EINVAL));
        };
        // SAFETY: The requests are valid for the call, their memory longer.
        let result = to_result(unsafe { post(self.qp, first.cast(), &mut bad) });
        let taken = if result.is_ok() {
            count
        } else {
            (bad.addr() - first.addr()) / size_of::<Wr>()
        };
        (taken, result)
    }

    /// Posts one signaled request.
    pub(crate) fn post(&self, id: u64, request: Request, pieces: &[(usize, usize, u32)]) -> Result {
        // CAST: A bit.
        let signaled = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        self.send(id, &[request], pieces, signaled).1
    }

    /// Sends a datagram of the user's memory.
    pub(crate) fn datagram(&self, dlid: u16, qp: u32, qkey: u32, at: usize, len: usize) -> Result {
        self.datagram_by(Self::address(dlid), qp, qkey, at, len)
    }

    pub(super) fn datagram_by(
        &self,
        mut attr: bindings::rdma_ah_attr,
        qp: u32,
        qkey: u32,
        at: usize,
        len: usize,
    ) -> Result {
        // SAFETY: The domain is valid.
        let ah = from_err_ptr(unsafe {
            bindings::rdma_create_ah(
                self.pd,
                &mut attr,
                bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE,
            )
        })?;
        let mut sges = self.sges(&[(at, len, self.lkey())]);
        let mut wr = bindings::ib_ud_wr {
            ah,
            remote_qpn: qp,
            remote_qkey: qkey,
            ..Default::default()
        };
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        wr.wr.sg_list = sges.as_mut_ptr();
        wr.wr.num_sge = 1;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        let mut bad = null();
        // SAFETY: The device is valid.
        let post = unsafe { (*self.device).ops.post_send }.ok_or(EINVAL)?;
        // SAFETY: The request is valid for the call, its memory longer.
        let result = to_result(unsafe { post(self.qp, &raw const wr.wr, &mut bad) });
        // SAFETY: The handle was created above, and no request uses it now.
        unsafe { bindings::rdma_destroy_ah_user(ah, 1, null_mut()) };
        result
    }
}
