// SPDX-License-Identifier: GPL-2.0

//! The SCSI host of a session: commands in, error handling.

use super::host::{
    LoginOptions,
    HOST_ATTRIBUTES, //
};
use crate::{
    scsi::{
        self,
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
        error::{
            Lost,
            Trouble, //
        },
        log::session_log_ratelimited,
        logic::{
            session::{
                Life,
                TSK_MGMT_TIMEOUT_MS, //
            },
            slot::{
                State as SlotState,
                Word, //
            },
            tag::Tag, //
        },
        login::Connected,
        port::Port,
        proto::{
            guid::Guid,
            ids::Lun,
            options::Options,
            tmf::{
                Function,
                TmfStatus,
                NO_TASK, //
            }, //
        },
        session::{
            Session,
            Upper, //
        },
        slot::Cell,
        statistics::Statistics, //
    },
    sys::{
        synchronize_rcu, //
    },
    sysfs::AttributeGroup, //
};
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::Arc,
    time::Msecs, //
};

/// A reset of the host waits so long for the next connection: for a permit, and for a target that is silent.
const RESET_TIMEOUT_MS: Msecs = 60_000;

/// What the callbacks of a host need: the session and its connections. The number of a connection is that of its
/// hardware queue.
pub struct Io {
    session: Arc<Session>,
    connections: Arc<Channels>,
    target_can_queue: u32,
    options: LoginOptions,
}

impl Io {
    /// Makes the host of a session that is connected.
    ///
    /// # Errors
    ///
    /// Those of [`Host::new`].
    pub fn host(connected: &Connected<'_>, options: &Options<'_>) -> Result<Arc<dyn Upper>> {
        let Connected {
            session,
            channels,
            limits,
            transport,
        } = connected;
        let io = Self {
            session: Arc::clone(session),
            connections: channels.clone(),
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

    /// The port that it was logged in through.
    pub fn port(&self) -> &Port {
        self.session.port()
    }

    /// Where the session is logged in, and as whom.
    pub fn plan(&self) -> &Plan {
        &self.session.nexus.plan
    }

    /// The last connection that was lost, or try that failed, and when, in seconds since 1970.
    pub fn last_error(&self) -> Option<(i64, Trouble)> {
        self.session.last_error()
    }

    /// The number of channels that are connected.
    pub fn channels(&self) -> usize {
        self.open().count()
    }

    /// The number of channels that the session asks for.
    pub fn requested_channels(&self) -> u16 {
        self.session.geometry.all_channels()
    }

    fn open(&self) -> impl Iterator<Item = &Arc<Connection>> + '_ {
        self.connections.iter().filter(|c| c.is_open())
    }

    /// The unused credits of the connected channel that has the fewest, below 0 if the target has taken back what is in
    /// use; 0 if none is.
    pub fn least_credits(&self) -> i32 {
        let credits = self.open().map(|c| c.credits());
        credits.min().unwrap_or(0)
    }

    /// The channel for a hardware queue: its own, or while that is not connected the next one.
    #[inline]
    fn channel_for(&self, hw_queue: u16) -> Option<&Arc<Connection>> {
        let own = self.connections.get(usize::from(hw_queue))?;
        if own.is_open() {
            return Some(own);
        }
        let after = self.connections.iter().skip(usize::from(hw_queue) + 1);
        let mut others = Iterator::chain(after, self.connections.iter());
        // One that nobody has to look at. Without any the own one says why.
        Some(
            others
                .find(|c| c.is_open() && !c.is_polled())
                .unwrap_or(own),
        )
    }

    /// The slot that has a command, and its channel.
    fn find(&self, tag: scsi::Tag) -> Option<(&Arc<Connection>, u16, &Cell, Word)> {
        self.connections.iter().find_map(|connection| {
            let (index, cell, word) = connection.find(tag)?;
            Some((connection, index, cell, word))
        })
    }

    /// What was counted for each channel, connected or not.
    pub fn counts(&self) -> impl Iterator<Item = &Counts> + '_ {
        self.connections.iter().map(|c| c.counts())
    }

    /// What was counted for the session.
    pub fn statistics(&self) -> &Statistics {
        &self.session.statistics
    }

    /// Resets a unit and ends the commands for it that were sent on this channel.
    fn reset_unit(&self, channel: &Connection, lun: Lun) -> bool {
        // Another reset that ends meanwhile lets the midlayer send commands behind this one.
        let Ok(commands) = channel.all_out(lun) else {
            return false;
        };
        let result = channel.task.run(channel, Function::LunReset, lun, NO_TASK);
        if self.failed("reset of a unit", result) {
            return false;
        }
        channel.finish_unit(lun, &commands);
        for other in self.connections.iter() {
            other.probe.recall(lun);
        }
        true
    }

    fn failed(&self, what: &str, result: Result<TmfStatus>) -> bool {
        match result {
            Ok(status) if status.is_complete() => return false,
            Ok(status) => session_log_ratelimited!(
                Warning,
                self.session,
                "{what}: {}",
                format_args!("{status}")
            ),
            Err(e) => {
                session_log_ratelimited!(Warning, self.session, "{what}: error {}", e.to_errno())
            }
        }
        true
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
        let tag = cmd.tag();
        match self.channel_for(tag.hw_queue) {
            Some(connection) => connection.queue(cmd, tag),
            None => Err(Rejected {
                cmd,
                why: Busy::Host,
            }),
        }
    }

    fn poll(&self, hw_queue: u16) -> u32 {
        let own = self.connections.get(usize::from(hw_queue));
        own.map_or(0, |connection| connection.poll())
    }

    fn abort(&self, cmd: &CommandRef<'_>) -> Disposition {
        self.statistics().aborts.increment();
        let Some(tag) = cmd.tag() else {
            return Disposition::Failed;
        };
        let Some((channel, index, cell, word)) = self.find(tag) else {
            // It has been completed meanwhile.
            return Disposition::Success;
        };
        let generation = word.generation();
        match word.state() {
            SlotState::Free => return Disposition::Success,
            SlotState::Posted | SlotState::Aborting => {
                // What the target has answered meanwhile is on its way to being free.
                if channel.begin_abort(cell, word) && !channel.is_lost() {
                    let Some(task) = Tag::command(generation, channel.index(), index) else {
                        return Disposition::Failed;
                    };
                    let lun = Lun(cmd.device().lun());
                    let result =
                        channel
                            .task
                            .run(channel, Function::AbortTask, lun, task.to_wire());
                    // Anything but "complete" proves nothing, so the command stays ours, unless the
                    // target has answered it meanwhile or the connection is lost.
                    if !self.failed("abort of a command", result) {
                        let aborting = word.with_state(SlotState::Aborting);
                        channel.finish_abort(index, aborting);
                    } else if cell.holds(generation) && !channel.is_lost() {
                        return Disposition::Failed;
                    }
                }
            }
            _ => {}
        }
        if channel.wait_freed(cell, generation, TSK_MGMT_TIMEOUT_MS) {
            Disposition::Success
        } else {
            Disposition::Failed
        }
    }

    fn device_reset(&self, dev: &Device, _: &CommandRef<'_>) -> Disposition {
        self.statistics().device_resets.increment();
        let lun = Lun(dev.lun());
        let mut reset = false;
        // The midlayer holds commands back, but when a user wants the reset it does not wait for those
        // that it was just sending, each in an RCU read-side section. What is sent after the request must
        // not be taken for reset: the target would carry it out, and it would be sent again.
        synchronize_rcu();
        // The answer on a channel comes after all that was sent on it before, and proves nothing for
        // another channel, where a command may still be on its way.
        for connection in self.connections.iter() {
            if connection.has_out(lun) {
                if !self.reset_unit(connection, lun) {
                    return Disposition::Failed;
                }
                reset = true;
            }
        }
        if !reset
            && !self
                .connections
                .first()
                .is_some_and(|c| self.reset_unit(c, lun))
        {
            return Disposition::Failed;
        }
        for connection in self.connections.iter() {
            connection.wait_unit(lun, TSK_MGMT_TIMEOUT_MS);
        }
        // If a command that has timed out is still held, the midlayer hears of failure.
        Disposition::Success
    }

    fn host_reset(&self) -> HostReset {
        self.statistics().host_resets.increment();
        self.session.fail(Lost::HostReset);
        self.session.wait_down();
        // The commands are ended. What the midlayer does next needs a connection.
        self.session.wait_settled(RESET_TIMEOUT_MS);
        match self.session.life() {
            Life::Live => HostReset::Done,
            _ => HostReset::TransportGone,
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
