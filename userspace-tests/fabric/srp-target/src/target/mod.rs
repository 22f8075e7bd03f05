// SPDX-License-Identifier: GPL-2.0

//! Sessions, their channels, credits and tasks.
//!
//! Whatever happens is told by a call; what has to be done then is left in a list of [`Action`]. So the same code works
//! on any device, and in tests on none. A session (an I_T nexus) is all channels of one initiator port.
//!
//! A command goes from state to state ([`task::State`]) until its response is sent, or the end of its channel. Only
//! while it executes it does not end with its channel, as its write may be on the way to the file: a new login of this
//! initiator is not answered before that is over, so an old write never lands behind a new one.

mod login;
mod management;
mod task;

use std::{
    collections::{BTreeMap, HashMap},
    ops::DerefMut,
    sync::Arc,
};

use crate::{
    proto::{cmd::DirectBuf, ids::PortId, opcode},
    scsi::{Command, Unit},
    sense::Sense,
    wire::{self, Broken, Reason},
};
use login::Login;
use management::Waiter;
use task::Task;

/// Memory that messages and data are in.
pub trait Buffer: DerefMut<Target = [u8]> {}
impl<T: DerefMut<Target = [u8]>> Buffer for T {}

/// A connection, numbered by whoever calls.
pub type ChannelId = u64;
/// A command, numbered by [`Target`].
pub type TaskId = u64;

/// DATA-OUT of a command.
pub struct Out<B> {
    /// Where it is.
    pub buffer: B,
    /// At which byte of the buffer it begins.
    pub at: usize,
}

/// What [`Command::execute`] needs.
pub struct Work<B> {
    /// What to do.
    pub command: Command,
    /// With which unit.
    pub unit: Option<Arc<Unit>>,
    /// All of its DATA-OUT.
    pub out: Option<Out<B>>,
    /// Bytes of DATA-IN that there is room for.
    pub into: usize,
}

/// What came of it.
pub struct Done<B> {
    /// Whether it was done.
    pub result: Result<(), Sense>,
    /// As it was in [`Work`].
    pub out: Option<Out<B>>,
    /// DATA-IN, from the start of the buffer on.
    pub into: Option<B>,
}

/// A command whose blocks are elsewhere.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Who wants it.
    pub initiator: [u8; 16],
    /// The tag that its response needs.
    pub tag: u64,
    /// The unit's number.
    pub unit: usize,
    /// What to do: [`Command::blocks`].
    pub command: Command,
    /// Bytes of the initiator's buffers for the data.
    pub room: u32,
    /// Where the data is, or goes to: as many bytes as are to be moved.
    pub places: Vec<DirectBuf>,
    /// Data that has come with the command (immediate data); else empty.
    pub data: Vec<u8>,
}

/// What came of a command whose blocks are elsewhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was done and has been answered there.
    Answered,
    /// It was done. The response is to be sent here.
    Good,
    /// It was not done.
    Failed(Sense),
    /// Nobody can do it now.
    Busy,
    /// Nobody does it any more, and nobody waits for it.
    Over,
}

/// Something that has to be done, in the order of the list.
pub enum Action<B> {
    /// Let a connection in, with so many buffers of so many bytes for what it sends.
    Accept {
        /// Which.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
        /// How many buffers.
        receives: usize,
        /// The length of each.
        len: usize,
    },
    /// Refuse a connection.
    Reject {
        /// Which.
        channel: ChannelId,
        /// Private data.
        response: Vec<u8>,
    },
    /// A message may arrive in this buffer again.
    Receive {
        /// Where.
        channel: ChannelId,
        /// The buffer of an earlier message.
        buffer: B,
    },
    /// This memory is not used any more.
    Free {
        /// For whom it was.
        channel: ChannelId,
        /// It.
        buffer: B,
    },
    /// Read memory of the initiator, then call [`Target::fetched`].
    Fetch {
        /// Through which channel.
        channel: ChannelId,
        /// For what.
        task: TaskId,
        /// Where it is.
        from: Vec<DirectBuf>,
    },
    /// Execute a command, then call [`Target::executed`].
    Execute {
        /// Which.
        task: TaskId,
        /// It.
        work: Work<B>,
    },
    /// Have a command carried out where its blocks are, then call [`Target::dispatched`].
    Dispatch {
        /// Which.
        task: TaskId,
        /// It.
        remote: Remote,
    },
    /// A command that was dispatched gets no response. [`Target::dispatched`] is to be called as soon as nothing of it is
    /// under way.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// The last channel of an initiator has ended.
    Gone {
        /// Whose.
        initiator: [u8; 16],
    },
    /// Write data to memory of the initiator and send a response, in this order, then call [`Target::sent`].
    Answer {
        /// Through which channel.
        channel: ChannelId,
        /// The command, if it is the answer to one.
        task: Option<TaskId>,
        /// Data, from the start of a buffer on, and its places.
        data: Option<(B, Vec<DirectBuf>)>,
        /// The response.
        message: Vec<u8>,
    },
    /// Send a message, if there is one, and end the connection; then call [`Target::ended`].
    Leave {
        /// Which.
        channel: ChannelId,
        /// The last one.
        message: Option<Vec<u8>>,
    },
    /// Something to tell whoever runs the target.
    Say(String),
}

/// How a target is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its port identifier.
    pub id: [u8; 16],
    /// Credits of a channel.
    pub queue_depth: u32,
    /// Most channels of a session.
    pub channels: usize,
}

/// The longest message that an initiator may ask to send, in bytes.
pub const MAX_IT_IU_LEN: u32 = 128 << 10;

struct Channel {
    /// Of its login.
    tag: u64,
    initiator: [u8; 16],
    /// Requests that may arrive.
    credits: u32,
    /// Those that ended without a response, to be given with the next one.
    owed: u32,
    immediate: Option<u16>,
    /// It is to end, and nothing that arrives counts.
    leaving: bool,
}

/// What a session has to be told, by unit.
type Attention = Vec<Option<Sense>>;

/// A target with its sessions.
pub struct Target<B> {
    settings: Settings,
    units: Vec<Arc<Unit>>,
    channels: BTreeMap<ChannelId, Channel>,
    nexuses: HashMap<[u8; 16], Attention>,
    tasks: BTreeMap<TaskId, Task<B>>,
    next: TaskId,
    waiters: Vec<Waiter>,
    logins: Vec<Login>,
    /// No login is answered.
    closed: bool,
    actions: Vec<Action<B>>,
}

impl<B: Buffer> Target<B> {
    /// A target with these units and no session.
    pub fn new(settings: Settings, units: Vec<Arc<Unit>>) -> Self {
        Self {
            settings,
            units,
            channels: BTreeMap::new(),
            nexuses: HashMap::new(),
            tasks: BTreeMap::new(),
            next: 0,
            waiters: Vec::new(),
            logins: Vec::new(),
            closed: false,
            actions: Vec::new(),
        }
    }

    /// A target whose units are not known so far. Logins wait for [`Target::open`].
    pub fn closed(settings: Settings) -> Self {
        let mut this = Self::new(settings, Vec::new());
        this.closed = true;
        this
    }

    /// The units are known: logins are answered from now on.
    pub fn open(&mut self, units: Vec<Arc<Unit>>) {
        self.units = units;
        self.closed = false;
        self.admit();
    }

    /// True if an initiator has a session that goes on.
    pub fn has_session(&self, initiator: &[u8; 16]) -> bool {
        let mut all = self.channels.values();
        all.any(|c| c.initiator == *initiator && !c.leaving)
    }

    /// Ends the session of an initiator.
    pub fn end_session(&mut self, initiator: &[u8; 16]) {
        for id in self.of(initiator) {
            self.leave(id, Some(Reason::None));
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action<B>> {
        std::mem::take(&mut self.actions)
    }

    /// True if there is no channel, and nothing is done for one.
    pub fn idle(&self) -> bool {
        self.channels.is_empty() && self.tasks.is_empty()
    }

    /// The channel that a task came through, unless it has ended.
    pub fn channel(&self, task: TaskId) -> Option<ChannelId> {
        let id = self.tasks.get(&task)?.channel;
        self.channels.contains_key(&id).then_some(id)
    }

    /// A message has arrived, `len` bytes long.
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

    /// A connection has ended, or there will be none.
    pub fn ended(&mut self, id: ChannelId) {
        self.logins.retain(|l| l.channel != id);
        self.waiters.retain(|w| w.channel != id);
        let Some(channel) = self.channels.remove(&id) else {
            return;
        };
        self.orphan(id);
        let mut others = self.channels.values();
        if !others.any(|c| c.initiator == channel.initiator) {
            self.nexuses.remove(&channel.initiator);
            self.actions.push(Action::Gone {
                initiator: channel.initiator,
            });
        }
        self.admit();
    }

    /// All sessions end.
    pub fn shutdown(&mut self) {
        for id in self.channels.keys().copied().collect::<Vec<_>>() {
            self.leave(id, Some(Reason::None));
        }
        for login in std::mem::take(&mut self.logins) {
            self.actions.push(Action::Leave {
                channel: login.channel,
                message: None,
            });
        }
    }

    /// The session of a channel broke the protocol and ends.
    fn violation(&mut self, id: ChannelId, broken: Broken) {
        let Some(initiator) = self.channels.get(&id).map(|c| c.initiator) else {
            return;
        };
        self.say(&initiator, &format!("session ended: {broken}"));
        for id in self.of(&initiator) {
            self.leave(id, Some(Reason::Invalid));
        }
    }

    /// The channels of an initiator.
    fn of(&self, initiator: &[u8; 16]) -> Vec<ChannelId> {
        let all = self.channels.iter();
        all.filter(|(_, c)| c.initiator == *initiator)
            .map(|(id, _)| *id)
            .collect()
    }

    fn leave(&mut self, id: ChannelId, why: Option<Reason>) {
        let Some(channel) = self.channels.get_mut(&id).filter(|c| !c.leaving) else {
            return;
        };
        channel.leaving = true;
        self.actions.push(Action::Leave {
            channel: id,
            message: why.map(wire::t_logout),
        });
    }

    fn say(&mut self, initiator: &[u8; 16], what: &str) {
        let name = PortId(*initiator);
        self.actions.push(Action::Say(format!("{name}: {what}")));
    }

    /// Credits for a response on a channel, unless it is ending.
    fn grant(&mut self, id: ChannelId) -> Option<i32> {
        let channel = self.channels.get_mut(&id).filter(|c| !c.leaving)?;
        let grant = 1 + std::mem::take(&mut channel.owed);
        channel.credits += grant;
        i32::try_from(grant).ok()
    }
}
