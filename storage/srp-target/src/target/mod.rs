// SPDX-License-Identifier: GPL-2.0

//! Sessions, their channels, credits and tasks.
//!
//! Methods report events. They collect the resulting work in a list of [`Action`]s, so the same
//! code runs on any device, and in tests without a device. A session (an I_T nexus) consists of all
//! channels of one initiator port. A target may have several threads, with a [`Target`] each that
//! has some of the channels; [`Sessions`] is what they share.
//!
//! A command passes through the states of [`task::State`] until its response is sent or its channel
//! ends. Only an executing or dispatched command outlives its channel, because its write may be on
//! the path to the file. A new login of the initiator is not answered until that command has ended,
//! so an old write never overtakes a new one.

mod login;
mod management;
mod sessions;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::DerefMut,
    sync::{atomic::Ordering, Arc},
};

use crate::{
    acl,
    proto::{cmd::DirectBuf, ids::PortId, opcode},
    scsi::{Command, Unit},
    sense::Sense,
    wire::{self, Broken, Reason},
};
use management::{Aborting, Waiter};
use sessions::{Nexus, Order};
use task::Task;

pub use sessions::{Sessions, Wake};

/// Memory for messages and data.
pub trait Buffer: DerefMut<Target = [u8]> {}
impl<T: DerefMut<Target = [u8]>> Buffer for T {}

/// Number of a connection, assigned by the caller.
pub type ChannelId = u64;
/// Number of a command, assigned by [`Target`].
pub type TaskId = u64;

/// DATA-OUT of a command.
pub struct Out<B> {
    /// The buffer.
    pub buffer: B,
    /// Offset in the buffer.
    pub at: usize,
}

/// Input of [`Command::execute`].
pub struct Work<B> {
    /// The command.
    pub command: Command,
    /// The unit.
    pub unit: Option<Arc<Unit>>,
    /// The whole DATA-OUT.
    pub out: Option<Out<B>>,
    /// Maximum length of DATA-IN, in bytes.
    pub into: usize,
}

/// Result of [`Command::execute`].
pub struct Done<B> {
    /// Success, or the sense condition.
    pub result: Result<(), Sense>,
    /// The buffer of [`Work::out`].
    pub out: Option<Out<B>>,
    /// DATA-IN, at the start of the buffer.
    pub into: Option<B>,
}

/// A command to a unit with remote blocks.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Initiator port identifier.
    pub initiator: [u8; 16],
    /// Tag of the response.
    pub tag: u64,
    /// Unit number.
    pub unit: usize,
    /// The command, for which [`Command::blocks`] is true.
    pub command: Command,
    /// Size of the initiator's data buffer in bytes.
    pub room: u32,
    /// The initiator's buffers, truncated to the bytes to transfer.
    pub descriptors: Vec<DirectBuf>,
    /// Immediate data, if any.
    pub data: Vec<u8>,
}

impl Remote {
    /// Length of the memory, in bytes, for data that is read from or written to the initiator's
    /// buffers; 0 if none is.
    pub fn moves(&self) -> usize {
        match self.descriptors.is_empty() {
            true => 0,
            false => self.command.data_out().max(self.command.data_in()) as usize,
        }
    }
}

/// Result of a command with remote blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Done; the remote role has sent the response.
    Answered,
    /// Done; the target must send the response.
    Good,
    /// Failed.
    Failed(Sense),
    /// No role can execute it now.
    Busy,
    /// Abandoned; no response is needed.
    Over,
}

/// Work for the caller, in list order.
pub enum Action<B> {
    /// Accept a connection and post receive buffers.
    Accept {
        /// The connection.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
        /// Number of receive buffers.
        receives: usize,
        /// Length of each receive buffer, in bytes.
        len: usize,
    },
    /// Reject a connection.
    Reject {
        /// The connection.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// Post a receive buffer again.
    Receive {
        /// The connection.
        channel: ChannelId,
        /// The buffer of an earlier message.
        buffer: B,
    },
    /// Free a buffer.
    Free {
        /// The connection of the buffer.
        channel: ChannelId,
        /// The buffer.
        buffer: B,
    },
    /// Read memory of the initiator, then call [`Target::fetched`].
    Fetch {
        /// The connection.
        channel: ChannelId,
        /// The task.
        task: TaskId,
        /// The initiator's buffers.
        from: Vec<DirectBuf>,
    },
    /// Execute a command, then call [`Target::executed`].
    Execute {
        /// The task.
        task: TaskId,
        /// The work.
        work: Work<B>,
    },
    /// Dispatch a command to the roles with its blocks, then call [`Target::dispatched`].
    Dispatch {
        /// The task.
        task: TaskId,
        /// The command.
        remote: Remote,
    },
    /// Abort a dispatched command, which gets no response. Call [`Target::dispatched`] when no part
    /// of it is in flight.
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// The last channel of an initiator has ended.
    Gone {
        /// The initiator.
        initiator: [u8; 16],
    },
    /// Write data to memory of the initiator, then send a response, then call [`Target::sent`].
    Answer {
        /// The connection.
        channel: ChannelId,
        /// The task, if the response is to a command.
        task: Option<TaskId>,
        /// Data, at the start of the buffer, and its destination.
        data: Option<(B, Vec<DirectBuf>)>,
        /// The response.
        message: Vec<u8>,
    },
    /// Send a message, if any, and disconnect; then call [`Target::ended`].
    Leave {
        /// The connection.
        channel: ChannelId,
        /// The logout.
        message: Option<Vec<u8>>,
    },
    /// Log a line.
    Say(String),
}

/// Parameters of a target.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Target port identifier.
    pub id: [u8; 16],
    /// Number of credits per channel.
    pub queue_depth: u32,
    /// Maximum number of channels per session.
    pub channels: usize,
}

/// Maximum request length that an initiator may ask for, in bytes.
pub const MAX_IT_IU_LEN: u32 = 128 << 10;

struct Channel {
    /// Tag of the login.
    tag: u64,
    initiator: [u8; 16],
    nexus: Arc<Nexus>,
    /// Number of requests that the initiator may send.
    credits: u32,
    /// Credits of tasks that ended without a response, granted with the next response.
    owed: u32,
    immediate: Option<u16>,
    /// Whether the channel is disconnecting: messages are ignored.
    leaving: bool,
}

/// A target, or one thread of it, with its channels.
pub struct Target<B> {
    settings: Settings,
    units: Vec<Arc<Unit>>,
    sessions: Arc<Sessions>,
    /// Number of this thread.
    thread: usize,
    channels: BTreeMap<ChannelId, Channel>,
    /// The channels that have ended, with the number of their tasks that have not.
    orphans: BTreeMap<ChannelId, usize>,
    tasks: BTreeMap<TaskId, Task<B>>,
    /// The tags in use, by initiator. Tags of channels of other threads are not checked: an
    /// initiator that uses one twice aborts both.
    tags: BTreeSet<([u8; 16], u64)>,
    next: TaskId,
    /// Number of task management requests.
    requests: u64,
    waiters: Vec<Waiter>,
    aborting: Vec<Aborting>,
    actions: Vec<Action<B>>,
}

impl<B: Buffer> Target<B> {
    /// Creates a target with these units and no session.
    pub fn new(settings: Settings, units: Vec<Arc<Unit>>) -> Self {
        let alone: Wake = Box::new(|| {});
        Self::thread(settings, units, Sessions::new(vec![alone]), 0)
    }

    /// Creates the thread of this number of a target. `settings` and `units` are the same in all.
    pub fn thread(
        settings: Settings,
        units: Vec<Arc<Unit>>,
        sessions: Arc<Sessions>,
        thread: usize,
    ) -> Self {
        sessions.set_units(thread, units.len(), false);
        Self {
            settings,
            units,
            sessions,
            thread,
            channels: BTreeMap::new(),
            orphans: BTreeMap::new(),
            tasks: BTreeMap::new(),
            tags: BTreeSet::new(),
            next: 0,
            requests: 0,
            waiters: Vec::new(),
            aborting: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Creates a target without units. Logins wait for [`Target::open`].
    pub fn closed(settings: Settings) -> Self {
        let this = Self::new(settings, Vec::new());
        this.sessions.set_units(this.thread, 0, true);
        this
    }

    /// Sets the units and admits logins.
    pub fn open(&mut self, units: Vec<Arc<Unit>>) {
        self.units = units;
        self.sessions
            .set_units(self.thread, self.units.len(), false);
        self.obey();
    }

    /// [`Sessions::allow`].
    pub fn allow(&mut self, list: acl::List) {
        self.sessions.allow(list);
    }

    /// Returns whether an initiator has a session that is not ending.
    pub fn has_session(&self, initiator: &[u8; 16]) -> bool {
        self.sessions.has(initiator)
    }

    /// Ends the session of an initiator.
    pub fn end_session(&mut self, initiator: &[u8; 16]) {
        self.end_all(initiator, Reason::None);
    }

    /// Reports a unit attention once to each session.
    pub fn attention(&mut self, unit: usize, sense: Sense) {
        self.sessions.attention(None, unit, sense);
    }

    /// Does what other threads have ordered. Call it when [`Wake`] says so.
    pub fn obey(&mut self) {
        loop {
            let orders = self.sessions.orders(self.thread);
            if orders.is_empty() {
                return;
            }
            for order in orders {
                match order {
                    Order::Accept(login, nexus, others) => self.accept(&login, nexus, others),
                    Order::Withdraw(channel) => self.actions.push(Action::Leave {
                        channel,
                        message: None,
                    }),
                    Order::Leave(id, why) => self.leave(id, Some(why)),
                    Order::Abort(abort) => self.abort(abort),
                    Order::Aborted(number) => self.aborted_by(number),
                }
            }
        }
    }

    /// Takes the pending actions.
    pub fn actions(&mut self) -> Vec<Action<B>> {
        std::mem::take(&mut self.actions)
    }

    /// Sets the figures of this thread in [`Sessions::status`].
    pub fn tell(&self) {
        let figures = self.sessions.figures(self.thread);
        let set = Ordering::Relaxed;
        figures.channels.store(self.channels.len(), set);
        figures.tasks.store(self.tasks.len(), set);
        figures.commands.store(self.next, set);
    }

    /// Returns the status of the target.
    pub fn status(&self) -> serde_json::Value {
        self.tell();
        self.sessions.status(&self.units)
    }

    /// Returns whether there is no channel and no task.
    pub fn idle(&self) -> bool {
        self.channels.is_empty() && self.tasks.is_empty()
    }

    /// Returns the channel of a task, unless the channel has ended.
    pub fn channel(&self, task: TaskId) -> Option<ChannelId> {
        let id = self.tasks.get(&task)?.channel;
        self.channels.contains_key(&id).then_some(id)
    }

    /// Handles a received message of `len` bytes.
    pub fn received(&mut self, id: ChannelId, buffer: B, len: usize) {
        let Some(channel) = self.channels.get_mut(&id).filter(|c| !c.leaving) else {
            return;
        };
        let code = buffer[..len].first().copied();
        let result = match code {
            Some(opcode::CMD | opcode::TSK_MGMT) if channel.credits == 0 => Err(Broken::Credit),
            Some(opcode::CMD) => self.command(id, buffer, len),
            Some(opcode::TSK_MGMT) => {
                let result = self.management(id, &buffer[..len]);
                self.actions.push(Action::Receive {
                    channel: id,
                    buffer,
                });
                result
            }
            Some(opcode::I_LOGOUT) => {
                self.leave(id, None);
                Ok(())
            }
            Some(other) => Err(Broken::Opcode(other)),
            None => Err(Broken::Short),
        };
        if let Err(broken) = result {
            self.violation(id, broken);
        }
    }

    /// Handles a connection that has ended or failed.
    pub fn ended(&mut self, id: ChannelId) {
        self.waiters.retain(|w| w.channel != id);
        if !self.channels.contains_key(&id) && !self.sessions.withdraw(id) {
            // Another thread may have admitted its login.
            self.obey();
        }
        let Some(channel) = self.channels.remove(&id) else {
            return;
        };
        let left = self.orphan(id);
        if left > 0 {
            self.orphans.insert(id, left);
        }
        if self.sessions.ended(self.thread, id, left > 0) {
            self.actions.push(Action::Gone {
                initiator: channel.initiator,
            });
        }
        self.obey();
    }

    /// Ends all sessions. Of a target of several threads, each has to be told.
    pub fn shutdown(&mut self) {
        // From now on no thread admits a login of this one.
        self.sessions.withdraw_all(self.thread);
        self.obey();
        for id in self.channels.keys().copied().collect::<Vec<_>>() {
            self.leave(id, Some(Reason::None));
        }
    }

    /// Ends the session of a channel after a protocol violation.
    fn violation(&mut self, id: ChannelId, broken: Broken) {
        let Some(initiator) = self.channels.get(&id).map(|c| c.initiator) else {
            return;
        };
        self.say(&initiator, &format!("session ended: {broken}"));
        self.end_all(&initiator, Reason::Invalid);
    }

    fn end_all(&mut self, initiator: &[u8; 16], why: Reason) {
        self.sessions.end_all(self.thread, initiator, why);
        self.obey();
    }

    fn leave(&mut self, id: ChannelId, why: Option<Reason>) {
        let Some(channel) = self.channels.get_mut(&id).filter(|c| !c.leaving) else {
            return;
        };
        channel.leaving = true;
        self.sessions.leaving(id);
        self.actions.push(Action::Leave {
            channel: id,
            message: why.map(wire::t_logout),
        });
    }

    fn say(&mut self, initiator: &[u8; 16], what: &str) {
        let name = PortId(*initiator);
        self.actions.push(Action::Say(format!("{name}: {what}")));
    }

    /// Credits to grant with a response; `None` if the channel is ending.
    fn grant(&mut self, id: ChannelId) -> Option<i32> {
        let channel = self.channels.get_mut(&id).filter(|c| !c.leaving)?;
        let grant = 1 + std::mem::take(&mut channel.owed);
        channel.credits += grant;
        i32::try_from(grant).ok()
    }
}
