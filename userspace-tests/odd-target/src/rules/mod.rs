// SPDX-License-Identifier: GPL-2.0

//! Rules: a filter around a [`Target`]. The filter gets each message of the initiator before the
//! engine, and each action of the engine before the caller. A rule drops, holds, alters, duplicates
//! or redirects a message or action, or responds by itself.
//!
//! The engine grants more credits than the wire shows, so that changes of the request limit by
//! orders stay in the range that it accepts.

mod command;
mod filter;
mod login;
mod task;
mod told;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use srp_target::{
    proto::{cmd::DirectBuf, opcode},
    scsi::Unit,
    target::{Action, Buffer, ChannelId, Done, Out, Settings, Target, TaskId},
    wire::{field, CMD_LEN, TSK_MGMT_LEN},
};

use crate::orders::{Grants, Logins};

pub use login::Port;

use command::{Header, Held, Pending, Rule};

/// Credits of a channel on the wire.
pub const CREDITS: u32 = 32;
/// Credits of a channel that the engine counts. The engine posts one receive buffer more.
const DEPTH: u32 = 39;
/// Maximum number of channels.
const CHANNELS: usize = 16;

/// Work for the caller, in list order.
pub enum Step<B> {
    /// An action of the engine, unchanged or altered, or a similar action.
    Act(Action<B>),
    /// Write these bytes to memory of the initiator, then send a message.
    Answer {
        /// The connection.
        channel: ChannelId,
        /// The data.
        data: Vec<u8>,
        /// Its destination.
        descriptors: Vec<DirectBuf>,
        /// The message.
        message: Vec<u8>,
    },
}

struct Channel {
    /// The lowest number that is free at the login.
    number: usize,
    /// Whether the channel is for responses only.
    answers: bool,
}

/// A target with rules.
pub struct Rules<B> {
    target: Target<B>,
    id: [u8; 16],
    units: Vec<Arc<Unit>>,
    channels: BTreeMap<ChannelId, Channel>,
    pending: HashMap<(ChannelId, u64), Pending>,
    held: Vec<Held<B>>,
    rules: Vec<Rule>,
    /// Response codes of task management, and of ABORT TASK; `None`: no response.
    code: Option<u8>,
    abort_code: Option<u8>,
    /// Whether aborted commands stay held.
    keep: bool,
    logins: Logins,
    grants: Grants,
    granted: Instant,
    receives: bool,
    vendor: Option<String>,
    luns_size: Option<u32>,
    /// Whether responses go to the channel of the command.
    here: bool,
    steps: Vec<Step<B>>,
}

/// The first `len` bytes of a list of buffers.
fn first(list: &[DirectBuf], mut len: u32) -> Vec<DirectBuf> {
    let mut part = Vec::new();
    for d in list {
        let n = d.len().min(len);
        if n > 0 {
            part.push(DirectBuf::new(d.va(), d.key(), n));
        }
        len -= n;
    }
    part
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    let room = bytes.iter_mut().skip(at);
    room.zip(what).for_each(|(to, from)| *to = *from);
}

impl<B: Buffer> Rules<B> {
    /// Creates a target with the first of these units, and no rule.
    pub fn new(id: [u8; 16], units: Vec<Arc<Unit>>) -> Self {
        let settings = Settings {
            id,
            queue_depth: DEPTH,
            channels: CHANNELS,
        };
        Self {
            target: Target::new(settings, units.iter().take(1).cloned().collect()),
            id,
            units,
            channels: BTreeMap::new(),
            pending: HashMap::new(),
            held: Vec::new(),
            rules: Vec::new(),
            code: Some(0),
            abort_code: None,
            keep: false,
            logins: Logins::Ok,
            grants: Grants::All,
            granted: Instant::now(),
            receives: true,
            vendor: None,
            luns_size: None,
            here: false,
            steps: Vec::new(),
        }
    }

    /// Takes the pending steps.
    pub fn steps(&mut self) -> Vec<Step<B>> {
        std::mem::take(&mut self.steps)
    }

    fn say(&mut self, what: String) {
        self.steps.push(Step::Act(Action::Say(what)));
    }

    fn send(&mut self, channel: ChannelId, message: Vec<u8>) {
        self.steps.push(Step::Act(Action::Answer {
            channel,
            task: None,
            data: None,
            message,
        }));
    }

    /// Posts a receive buffer again.
    fn receive(&mut self, channel: ChannelId, buffer: B) {
        if self.receives {
            self.steps
                .push(Step::Act(Action::Receive { channel, buffer }));
        }
    }

    /// A connection has ended or could not be made.
    pub fn ended(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.remove(&id) {
            self.say(format!("gone channel={}", channel.number));
        }
        self.held.retain(|h| h.channel != id);
        self.pending.retain(|(channel, _), _| *channel != id);
        self.target.ended(id);
        self.filter();
    }

    /// [`Target::no_resources`].
    pub fn no_resources(&mut self, id: ChannelId) {
        self.channels.remove(&id);
        self.target.no_resources(id);
        self.filter();
    }

    /// [`Target::no_memory`].
    pub fn no_memory(&mut self, task: TaskId, out: Option<Out<B>>) {
        self.target.no_memory(task, out);
        self.filter();
    }

    /// [`Target::channel`].
    pub fn channel(&self, task: TaskId) -> Option<ChannelId> {
        self.target.channel(task)
    }

    /// [`Target::fetched`].
    pub fn fetched(&mut self, task: TaskId, buffer: B) {
        self.target.fetched(task, buffer);
        self.filter();
    }

    /// [`Target::executed`].
    pub fn executed(&mut self, task: TaskId, done: Done<B>) {
        self.target.executed(task, done);
        self.filter();
    }

    /// [`Target::sent`].
    pub fn sent(&mut self, task: TaskId) {
        self.target.sent(task);
        self.filter();
    }

    /// The number that the log has for a channel.
    pub fn number(&self, id: ChannelId) -> Option<usize> {
        self.channels.get(&id).map(|c| c.number)
    }

    /// Handles a received message of `len` bytes.
    pub fn received(&mut self, id: ChannelId, buffer: B, len: usize) {
        let Some(number) = self.number(id) else {
            return;
        };
        let message = &buffer[..len];
        match (message.first(), Header::parse(message)) {
            (Some(&opcode::CMD), Some(header)) if len >= CMD_LEN => {
                self.command(id, number, header, buffer, len);
            }
            (Some(&opcode::TSK_MGMT), Some(header)) if len >= TSK_MGMT_LEN => {
                self.task(id, number, &header, buffer, len);
            }
            (code, _) => {
                let code = code.copied().unwrap_or_default();
                let tag = field(message, 8).map_or(0, u64::from_be_bytes);
                self.say(format!(
                    "message channel={number} opcode={code:02x} length={len} tag={tag:016x}"
                ));
                self.receive(id, buffer);
            }
        }
    }

    /// The channel for the response to a command.
    fn answering(&self, id: ChannelId, with_data: bool) -> ChannelId {
        let mut all = self.channels.iter();
        match all.find(|(_, c)| c.answers) {
            Some((answers, _)) if with_data && !self.here => *answers,
            _ => id,
        }
    }

    /// Credits to grant with a response on a channel.
    fn grant(&self, id: ChannelId) -> i32 {
        match self.grants {
            Grants::All => 1,
            Grants::None(Some(number)) if self.number(id) != Some(number) => 1,
            Grants::None(_) | Grants::Every(_) => 0,
        }
    }
}
