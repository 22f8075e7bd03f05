// SPDX-License-Identifier: GPL-2.0

//! The SCSI host of a session: maps the midlayer's calls to the session and its channels.
//!
//! The files in `/sys/class/scsi_host/host<n>/` are those of the C driver, and a few more.

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
        connect::{
            Address,
            Destination,
            LoginParams,
            Service, //
        },
        logic::data_path::DataPath,
        login::HostParams,
        proto::{
            guid::Guid,
            ids::Lun,
            options::Options, //
        },
        session::{
            Session,
            SessionHost, //
        },
        statistics::Statistics,
        status::Status, //
    },
    sysfs::{
        attribute_group,
        AttributeGroup,
        Page, //
    }, //
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

/// The data of the callbacks and the files of a host: the session, its channels, and options of the
/// login.
pub struct Io {
    session: Arc<Session>,
    channels: Arc<Channels>,
    target_can_queue: u32,
    /// Completion vector of the first channel, for sysfs.
    comp_vector: u32,
    /// Option of the login, for sysfs. A message always contains its whole descriptor table.
    allow_ext_sg: bool,
}

impl Io {
    /// Creates the SCSI host of a connected session.
    ///
    /// # Errors
    ///
    /// Those of [`Host::new`].
    pub fn host(params: &HostParams<'_>, options: &Options<'_>) -> Result<Arc<SessionHost>> {
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
            comp_vector: options.comp_vector.unwrap_or(0),
            allow_ext_sg: options.allow_ext_sg,
        };
        let io = Arc::new(io, GFP_KERNEL)?;
        let info = CString::try_from_fmt(fmt!("SRP.T10:{:016X}", options.id_ext.0))?;
        Ok(Arc::new(
            Host::new(limits, &info, Arc::clone(transport), io)?,
            GFP_KERNEL,
        )?)
    }

    fn params(&self) -> &LoginParams {
        &self.session.logins.params
    }

    /// The counters of each channel, connected or not; answer channels come last.
    fn counts(&self) -> impl Iterator<Item = &Counts> + '_ {
        let answers = self.channels.answer_channels().iter();
        Iterator::chain(self.channels.iter(), answers).map(|c| c.counts())
    }

    fn status(&self) -> &Status {
        self.session.status()
    }

    fn statistics(&self) -> &Statistics {
        &self.status().statistics
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
        // The error handler calls this outside an RCU section.
        let posting = rcu::read_lock();
        let tag = cmd.tag();
        match self.channels.for_hw_queue(tag.hw_queue, &posting) {
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

attribute_group! {
    /// The files of a host.
    static HOST_ATTRIBUTES: Host<Io> {
        id_ext: 0o444, show = |io: &Io, page| line(page, io.session.key().0);
        ioc_guid: 0o444, show = |io: &Io, page| line(page, io.session.key().1);
        initiator_ext: 0o444, show = |io: &Io, page| line(page, io.session.key().2);
        service_id: 0o444, show = |io: &Io, page| line(page, Guid(service(io)?.service_id));
        pkey: 0o444, show = |io: &Io, page| line(page, fmt!("{:#06x}", service(io)?.pkey));
        sgid: 0o444, show = |io: &Io, page| line(page, io.params().sgid);
        dgid: 0o444,
            show = |io: &Io, page| line(page, io.session.logins.reached.lock().ok_or(ENOENT)?);
        orig_dgid: 0o444, show = |io: &Io, page| line(page, service(io)?.dgid);
        req_lim: 0o444, show = |io: &Io, page| line(page, least_credits(io));
        zero_req_lim: 0o444,
            show = |io: &Io, page| {
                line(page, io.counts().map(|c| c.credit_waits.get()).sum::<u64>())
            };
        src: 0o444,
            show = |io: &Io, page| {
                line(page, fmt!("{}", io.session.logins.bound.lock().ok_or(ENOENT)?))
            };
        dest: 0o444, show = |io: &Io, page| line(page, fmt!("{}", address(io)?.dest));
        local_ib_port: 0o444, show = |io: &Io, page| line(page, io.status().port().number());
        local_ib_device: 0o444,
            show = |io: &Io, page| line(page, io.status().port().device().name());
        ch_count: 0o444, show = |io: &Io, page| line(page, open(&io.channels).count());
        requested_ch_count: 0o444,
            show = |io: &Io, page| line(page, io.status().geometry.all_channels());
        comp_vector: 0o444, show = |io: &Io, page| line(page, io.comp_vector);
        tl_retry_count: 0o444, show = |io: &Io, page| line(page, io.params().retry_count);
        ack_timeout: 0o444,
            show = |io: &Io, page| line(page, io.params().ack_timeout.ok_or(ENOENT)?);
        tos: 0o444, show = |io: &Io, page| line(page, io.params().tos.ok_or(ENOENT)?);
        answers_from: 0o444, show = show_answers_from;
        answer_channels: 0o444, show = |io: &Io, page| {
            line(page, open(with_answers(io)?.channels.answer_channels()).count())
        };
        cmd_sg_entries: 0o444, show = |io: &Io, page| line(page, io.status().geometry.descriptors);
        allow_ext_sg: 0o444, show = |io: &Io, page| line(page, io.allow_ext_sg);
        last_error: 0o444, show = show_last_error;
        "statistics" {
            commands: 0o444, show = |io: &Io, page| row(page, io, Counts::commands);
            read_bytes: 0o444, show = |io: &Io, page| row(page, io, Counts::read_bytes);
            write_bytes: 0o444, show = |io: &Io, page| row(page, io, Counts::write_bytes);
            way_none: 0o444, show = |io: &Io, page| row(page, io, |c| c.of(DataPath::None));
            way_immediate: 0o444,
                show = |io: &Io, page| row(page, io, |c| c.of(DataPath::Immediate));
            way_static: 0o444, show = |io: &Io, page| row(page, io, |c| c.of(DataPath::Static));
            way_dynamic: 0o444, show = |io: &Io, page| row(page, io, Counts::dynamic);
            credit_waits: 0o444, show = |io: &Io, page| row(page, io, |c| c.credit_waits.get());
            busy: 0o444, show = |io: &Io, page| row(page, io, |c| c.busy.get());
            connections_lost: 0o444,
                show = |io: &Io, page| line(page, &io.statistics().connections_lost);
            login_tries: 0o444, show = |io: &Io, page| line(page, &io.statistics().login_tries);
            aborts: 0o444, show = |io: &Io, page| line(page, &io.statistics().aborts);
            device_resets: 0o444, show = |io: &Io, page| line(page, &io.statistics().device_resets);
            host_resets: 0o444, show = |io: &Io, page| line(page, &io.statistics().host_resets);
            violations: 0o444, show = |io: &Io, page| line(page, &io.statistics().violations);
        }
    }
}

fn line(page: &mut Page<'_>, value: impl core::fmt::Display) -> Result {
    page.emit(format_args!("{value}\n"))
}

/// Writes one number for each channel, as many as the page has room for.
fn row(page: &mut Page<'_>, io: &Io, number: impl Fn(&Counts) -> u64) -> Result {
    // Room for a space, a 64-bit decimal number and a newline.
    const ROOM: usize = 1 + 20 + 1;
    let mut before = "";
    for counts in io.counts() {
        if page.room() < ROOM {
            break;
        }
        page.emit(fmt!("{before}{}", number(counts)))?;
        before = " ";
    }
    page.emit(fmt!("\n"))
}

/// The connected channels among `channels`.
fn open(channels: &[Arc<Connection>]) -> impl Iterator<Item = &Arc<Connection>> + '_ {
    channels.iter().filter(|c| c.is_open())
}

/// The lowest number of unused credits of a connected channel, 0 if none is connected. Negative if
/// the target has taken back credits in use.
fn least_credits(io: &Io) -> i32 {
    open(&io.channels).map(|c| c.credits()).min().unwrap_or(0)
}

fn show_answers_from(io: &Io, page: &mut Page<'_>) -> Result {
    let mut before = "";
    for from in &with_answers(io)?.params().answers_from {
        page.emit(format_args!("{before}{}", from.destination))?;
        before = " ";
    }
    page.emit(fmt!("\n"))
}

/// Returns `ENOENT` for a session without answer channels.
fn with_answers(io: &Io) -> Result<&Io> {
    match io.params().answers_from.is_empty() {
        true => Err(ENOENT),
        false => Ok(io),
    }
}

fn show_last_error(io: &Io, page: &mut Page<'_>) -> Result {
    match io.session.last_error() {
        Some((when, what)) => page.emit(fmt!("{when} {}\n", format_args!("{what}"))),
        None => Ok(()),
    }
}

/// Returns `ENOENT` unless this is an RDMA/CM login; see [`service`].
fn address(io: &Io) -> Result<&Address> {
    match &io.params().destination {
        Destination::Rdma(address) => Ok(address),
        Destination::Ib(_) => Err(ENOENT),
    }
}

/// Returns `ENOENT` for an RDMA/CM login: the files exist, because scripts look for them, but have
/// nothing to show.
fn service(io: &Io) -> Result<&Service> {
    match &io.params().destination {
        Destination::Ib(service) => Ok(service),
        Destination::Rdma(_) => Err(ENOENT),
    }
}
