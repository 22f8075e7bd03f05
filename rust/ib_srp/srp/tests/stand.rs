// SPDX-License-Identifier: GPL-2.0

//! A port with everything its sessions need, as the module creates it.

use crate::{
    params,
    rdma::{
        device::Health,
        ib_cm::tests::target::Target,
        tests::soft::Soft, //
    },
    scsi::transport::srp::Transport,
    srp::{
        error::LoginFailure,
        login::tests::{
            begin,
            log_in, //
        },
        port::Port,
        session::{
            Queues,
            Session,
            LOGOUT_PATIENCE_MS, //
        },
        sessions::Sessions, //
    },
    workqueue::{
        Flag,
        WorkQueue, //
    }, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

/// A port that only the test knows. Dropping it ends its sessions.
pub(in crate::srp) struct Stand {
    pub(in crate::srp) sessions: Arc<Sessions>,
    _queues: [WorkQueue; 3],
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.sessions.close(LOGOUT_PATIENCE_MS);
        self.sessions.wait_empty();
    }
}

/// Shows sixteen bytes as hexadecimal digits.
pub(in crate::srp) struct Hex(pub(in crate::srp) [u8; 16]);

impl core::fmt::Display for Hex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Stand {
    pub(in crate::srp) fn new(soft: &Soft) -> Result<Self> {
        Self::with_number(soft, 1)
    }

    /// Creates a port with this number, which the device need not have.
    pub(in crate::srp) fn with_number(soft: &Soft, number: u32) -> Result<Self> {
        let flags = Flag::Unbound | Flag::MemReclaim;
        let removal = WorkQueue::new(c"srp_test_remove", Flag::Unbound)?;
        let ending = WorkQueue::new(c"srp_test_end", flags)?;
        let reconnect = WorkQueue::new(c"srp_test_rec", flags)?;
        let queues = Queues {
            ending: ending.handle(),
            removal: removal.handle(),
            reconnect: reconnect.handle(),
        };
        let transport = Arc::new(Transport::new(params::timeouts())?, GFP_KERNEL)?;
        Ok(Self {
            sessions: Sessions::new(
                Port::new(&soft.device, number, Health::new()?)?,
                transport,
                queues,
            )?,
            _queues: [reconnect, removal, ending],
        })
    }

    /// The string for `add_target` to log in at this target, from the port to itself.
    pub(in crate::srp) fn text(&self, target: &Target, more: &str) -> Result<CString> {
        self.text_for(target.service_id(), more)
    }

    /// Like [`Self::text`], for a service that may not exist.
    pub(in crate::srp) fn text_for(&self, service_id: u64, more: &str) -> Result<CString> {
        let gid = self.sessions.port().device().gid(1, 0)?;
        Ok(CString::try_from_fmt(fmt!(
            "id_ext=0011223344556677,ioc_guid=8899aabbccddeeff,dgid={},pkey=ffff,\
             service_id={:016x},queue_size=4,ch_count=1,{}",
            format_args!("{}", Hex(gid)),
            service_id,
            more
        ))?)
    }

    /// Creates a session that has not started to log in.
    pub(in crate::srp) fn session(&self, target: &Target, more: &str) -> Result<Arc<Session>> {
        begin(self, self.text(target, more)?.to_bytes())
    }

    /// Logs in. Returns the session, or why the login failed.
    pub(in crate::srp) fn log_in(
        &self,
        target: &Target,
        more: &str,
    ) -> Result<Result<Arc<Session>, LoginFailure>> {
        log_in(self, self.text(target, more)?.to_bytes())
    }

    /// Ends a session.
    pub(in crate::srp) fn end(&self, session: &Arc<Session>) {
        session.remove(LOGOUT_PATIENCE_MS);
        self.sessions.wait_gone(session);
    }
}
