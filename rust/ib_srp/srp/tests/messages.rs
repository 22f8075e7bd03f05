// SPDX-License-Identifier: GPL-2.0

//! Messages of a target, built byte by byte.

use crate::rdma::{
    device::Gid,
    ib_cm::tests::target::{
        Answer,
        Asked,
        Script, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Maximum length of a message to the target, in bytes.
pub(in crate::srp) const MAX_IT_IU_LEN: u32 = 1024;
/// Number of credits granted at login.
pub(in crate::srp) const REQ_LIM: u32 = 9;

/// Reject reason: the private data says why.
pub(in crate::srp) const CONSUMER: u16 = 28;
/// Reject reason: a `ClassPortInfo` names another port.
pub(in crate::srp) const PORT_CM_REDIRECT: u16 = 24;
/// Reject reason: a GID names another port.
pub(in crate::srp) const PORT_REDIRECT: u16 = 25;

/// Writes bytes at an offset.
pub(in crate::srp) fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// Returns `N` bytes of `from` at an offset.
pub(in crate::srp) fn get<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..)
        .and_then(<[u8]>::first_chunk)
        .copied()
        .unwrap_or([0; N])
}

/// `SRP_LOGIN_RSP` to a request of 64 bytes; keeps the existing channels if requested.
pub(in crate::srp) fn login_rsp(request: &Asked) -> [u8; 52] {
    let mut rsp = [0; 52];
    let [flags] = get(&request.data, 26);
    put(&mut rsp, 0, [0xc0]);
    put(&mut rsp, 4, REQ_LIM.to_be_bytes());
    put(&mut rsp, 8, get::<8>(&request.data, 8));
    put(&mut rsp, 16, MAX_IT_IU_LEN.to_be_bytes());
    put(&mut rsp, 20, 64u32.to_be_bytes());
    put(&mut rsp, 24, [0, 6]);
    put(&mut rsp, 26, [if flags & 3 == 1 { 2 } else { 0 }]);
    rsp
}

/// `SRP_LOGIN_REJ`.
pub(in crate::srp) fn login_rej(reason: u32) -> [u8; 32] {
    let mut rej = [0; 32];
    put(&mut rej, 0, [0xc2]);
    put(&mut rej, 4, reason.to_be_bytes());
    rej
}

/// A `ClassPortInfo` that redirects. Fields that are 0 are absent.
pub(in crate::srp) fn class_port_info(gid: Gid, lid: u16, pkey: u16, qpn: u32) -> [u8; 72] {
    let mut info = [0; 72];
    put(&mut info, 8, gid);
    put(&mut info, 28, lid.to_be_bytes());
    put(&mut info, 30, pkey.to_be_bytes());
    // The highest byte is not part of the number.
    put(&mut info, 32, (qpn | 0x5a00_0000).to_be_bytes());
    info
}

/// A target that is always ready and has no disks.
pub(in crate::srp) struct Empty {
    /// Number of messages by opcode.
    told: [Atomic<u32>; 4],
}

impl Empty {
    pub(in crate::srp) fn new() -> Result<Arc<Self>> {
        let told = [const { Atomic::new(0) }; 4];
        Ok(Arc::new(Self { told }, GFP_KERNEL)?)
    }

    /// Number of messages with this opcode.
    pub(in crate::srp) fn count(&self, opcode: usize) -> u32 {
        self.told.get(opcode).map_or(0, |count| count.load(Relaxed))
    }
}

/// The opcode of commands.
pub(in crate::srp) const CMD: usize = 2;
/// The opcode of logouts.
pub(in crate::srp) const I_LOGOUT: usize = 3;

impl Script for Arc<Empty> {
    fn asked(&self, _: usize, request: &Asked) -> Answer {
        Answer::accept(&login_rsp(request))
    }

    /// `SRP_RSP` to a command: CHECK CONDITION, ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED.
    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        let [opcode] = get(message, 0);
        if let Some(count) = self.told.get(usize::from(opcode)) {
            count.fetch_add(1, Relaxed);
        }
        if usize::from(opcode) != CMD {
            return 0;
        }
        reply.fill(0);
        put(reply, 0, [0xc1]);
        put(reply, 4, 1u32.to_be_bytes());
        put(reply, 8, get::<8>(message, 8));
        put(reply, 18, [2, 2]);
        put(reply, 28, 18u32.to_be_bytes());
        put(reply, 36, [0x70, 0, 5, 0, 0, 0, 0, 10]);
        put(reply, 48, [0x25]);
        36 + 18
    }
}
