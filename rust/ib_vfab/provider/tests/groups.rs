// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of a user, and datagrams to them.

use super::{
    super::attr::{
        Address,
        Grh, //
    },
    User, //
};
use crate::bindings;
use kernel::{
    error::to_result,
    prelude::*, //
};

// SAFETY: Verbs may be called from any task.
unsafe impl Send for User {}
// SAFETY: Verbs may be called concurrently.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn attach(&self, mut gid: [u8; 16], lid: u16) -> Result {
        // SAFETY: The queue pair is valid; the GID has 16 bytes.
        to_result(unsafe { bindings::ib_attach_mcast(self.qp, (&raw mut gid).cast(), lid) })
    }

    pub(crate) fn detach(&self, mut gid: [u8; 16], lid: u16) -> Result {
        // SAFETY: The queue pair is valid; the GID has 16 bytes.
        to_result(unsafe { bindings::ib_detach_mcast(self.qp, (&raw mut gid).cast(), lid) })
    }

    /// Sends a datagram of the first `len` bytes of the user's memory, with a GRH if a GID is
    /// given.
    pub(crate) fn datagram_to(
        &self,
        gid: Option<[u8; 16]>,
        lid: u16,
        qp: u32,
        qkey: u32,
        len: usize,
    ) -> Result {
        let address = Address {
            dlid: lid,
            port: 1,
            grh: gid.map(|dgid| Grh {
                dgid,
                flow: 0x12345,
                hops: 9,
                ..Default::default()
            }),
            ..Default::default()
        };
        self.datagram_by(address.to_raw(), qp, qkey, 0, len)
    }
}
