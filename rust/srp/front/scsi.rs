// SPDX-License-Identifier: GPL-2.0

//! The SCSI host of a session: maps the midlayer's calls to the session and its channels.

use super::host::{
    LoginOptions,
    HOST_ATTRIBUTES, //
};
use crate::{
    scsi::{
        transport,
        Busy,
        Command,
        CommandRef,
        Device,
        Disposition,
        Driver,
        Host,
        HostReset,
        Rejected, //
    },
    srp::{
        channel::{
            Connection,
            Counts, //
        },
        channels::Channels,
        connect::Plan,
        error::Trouble,
        login::HostParams,
        port::Port,
        proto::{
            guid::Guid,
            ids::Lun,
            options::Options, //
        },
        session::{
            Session,
            SessionHost, //
        },
        statistics::Statistics, //
    },
    sysfs::AttributeGroup, //
};
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        rcu,
        Arc, //
    }, //
};

/// What the callbacks of a host need: the session and its channels.
pub struct Io {
    session: Arc<Session>,
    channels: Arc<Channels>,
    target_can_queue: u32,
    options: LoginOptions,
}

impl Io {
    /// Creates the SCSI host of a connected session.
    ///
    /// # Errors
    ///
    /// Those of [`Host::new`].
    pub fn host(params: &HostParams<'_>, options: &Options<'_>) -> Result<Arc<dyn Upper>> {
        let HostParams {
            session,
            channels,
            limits,
            transport,
        } = params;
        let io = Self {
            session: Arc::clone(session),
            channels: channels.clone(),
            target_can_queue: options.target_can_queue.unwrap_or(0),
            options: LoginOptions {
                comp_vector: options.comp_vector.unwrap_or(0),
                cmd_sg_entries: options.cmd_sg_entries,
                allow_ext_sg: options.allow_ext_sg,
            },
        };
        let io = Arc::new(io, GFP_KERNEL)?;
        let info = CString::try_from_fmt(fmt!("SRP.T10:{:016X}", options.id_ext.0))?;
        Ok(Arc::new(
            Host::new(limits, &info, Arc::clone(transport), io)?,
            GFP_KERNEL,
        )?)
    }

    /// Options of the login.
    pub fn options(&self) -> &LoginOptions {
        &self.options
    }

    /// Extension of the target's port identifier.
    pub fn id_ext(&self) -> Guid {
        self.session.key().0
    }

    /// GUID of the target's I/O controller.
    pub fn ioc_guid(&self) -> Guid {
        self.session.key().1
    }

    /// The port of the login.
    pub fn port(&self) -> &Port {
        self.session.port()
    }

    /// The target of the login, and the initiator's identity there.
    pub fn plan(&self) -> &Plan {
        &self.session.nexus.plan
    }

    /// The last loss or failed reconnect, and its time in seconds since 1970.
    pub fn last_error(&self) -> Option<(i64, Trouble)> {
        self.session.last_error()
    }

    /// The number of connected channels.
    pub fn channels(&self) -> usize {
        self.open().count()
    }

    /// The number of channels that the session asks for.
    pub fn requested_channels(&self) -> u16 {
        self.session.geometry.all_channels()
    }

    fn open(&self) -> impl Iterator<Item = &Arc<Connection>> + '_ {
        self.channels.iter().filter(|c| c.is_open())
    }

    /// The lowest number of unused credits of a connected channel, 0 if none is connected. Negative
    /// if the target has taken back credits in use.
    pub fn least_credits(&self) -> i32 {
        let credits = self.open().map(|c| c.credits());
        credits.min().unwrap_or(0)
    }

    /// The number of connected answer channels.
    pub fn answer_channels(&self) -> usize {
        let answers = self.channels.answers().iter();
        answers.filter(|c| c.is_open()).count()
    }

    /// The counters of each channel, connected or not; answer channels come last.
    pub fn counts(&self) -> impl Iterator<Item = &Counts> + '_ {
        let answers = self.channels.answers().iter();
        Iterator::chain(self.channels.iter(), answers).map(|c| c.counts())
    }

    /// The counters of the session.
    pub fn statistics(&self) -> &Statistics {
        &self.session.statistics
    }
}

fn disposition(success: bool) -> Disposition {
    match success {
        true => Disposition::Success,
        false => Disposition::Failed,
    }
}

#[vtable]
impl Driver for Io {
    const MODULE: &'static ThisModule = crate::compat::THIS_MODULE;
    const NAME: &'static CStr = c"InfiniBand SRP initiator";
    const PROC_NAME: &'static CStr = c"ib_srp";
    type Transport = transport::srp::Transport<Session>;
    const HOST_ATTRIBUTES: Option<&'static AttributeGroup<Host<Self>>> = Some(&HOST_ATTRIBUTES);

    #[inline]
    fn queue_command(&self, cmd: Command) -> Result<(), Rejected> {
        // The section must begin before the channel is chosen. The error handler calls this outside
        // an RCU section.
        let posting = rcu::read_lock();
        let tag = cmd.tag();
        match self.channels.for_hw_queue(tag.hw_queue) {
            Some(connection) => connection.queue(&posting, cmd, tag),
            None => Err(Rejected {
                cmd,
                why: Busy::Host,
            }),
        }
    }

    fn poll(&self, hw_queue: u16) -> u32 {
        let own = self.channels.get(usize::from(hw_queue));
        own.map_or(0, |connection| connection.poll())
    }

    fn abort(&self, cmd: &CommandRef<'_>) -> Disposition {
        self.statistics().aborts.increment();
        let lun = Lun::from_int(cmd.device().lun());
        disposition(cmd.tag().is_some_and(|tag| self.channels.abort(tag, lun)))
    }

    fn device_reset(&self, dev: &Device, _: &CommandRef<'_>) -> Disposition {
        self.statistics().device_resets.increment();
        disposition(self.channels.reset_device(Lun::from_int(dev.lun())))
    }

    fn host_reset(&self) -> HostReset {
        self.statistics().host_resets.increment();
        match self.session.reset_host() {
            true => HostReset::Done,
            false => HostReset::TransportGone,
        }
    }

    fn target_can_queue(&self) -> u32 {
        self.target_can_queue
    }

    fn sdev_configure(&self, dev: &Device) -> Result {
        if dev.is_disk() {
            dev.set_request_timeout(self.session.command_time());
        }
        Ok(())
    }
}
