// SPDX-License-Identifier: GPL-2.0

//! Rules: a filter around a [`Target`]. A message of the initiator passes it before the engine gets
//! it, and each action of the engine before it is carried out. A rule drops, holds, alters,
//! duplicates or redirects what passes, or responds by itself.
//!
//! The engine grants more credits than the wire shows, so that changes of the request limit by
//! orders stay within what it accepts.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use srp_target::{
    proto::{cmd::DirectBuf, opcode, reject::Reject},
    scsi::{status, Unit},
    sense::Sense,
    target::{Action, Buffer, ChannelId, Done, Out, Settings, Target, TaskId},
    wire::{self, field, Others, Residual, CMD_LEN, TSK_MGMT_LEN},
};

use crate::orders::{Grants, Logins, Message, Order, Treatment};

/// Credits of a channel on the wire.
pub const CREDITS: u32 = 32;
/// Credits of a channel that the engine counts. It posts one receive buffer more.
const DEPTH: u32 = 39;
/// Maximum number of channels.
const CHANNELS: usize = 16;
/// Tag of messages that answer no request.
const TAG: u64 = 0x1234_5678_90ab_cdef;
/// More credits than possible.
const TOO_MANY: i32 = i32::MAX;
/// Bit that makes a tag unknown.
const ASTRAY: u64 = 1 << 40;

/// SCSI operation codes.
const MODE_SENSE: [u8; 2] = [0x1a, 0x5a];
const INQUIRY: u8 = 0x12;
const REPORT_LUNS: u8 = 0xa0;

/// Where a login arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Port {
    /// Where commands are sent.
    Commands,
    /// Where a node logs in that gets responses only.
    Answers,
}

/// Work for the caller, in list order.
pub enum Step<B> {
    /// An action of the engine, as it is or altered, or one like it.
    Act(Action<B>),
    /// Write these bytes to memory of the initiator, then send a message.
    Answer {
        /// The connection.
        channel: ChannelId,
        /// The data.
        data: Vec<u8>,
        /// Its destination.
        places: Vec<DirectBuf>,
        /// The message.
        message: Vec<u8>,
    },
}

struct Channel {
    /// The lowest number that is free at the login.
    number: usize,
    /// Whether it is for responses only.
    answers: bool,
}

/// The treatment of the next commands with an operation code.
struct Rule {
    opcode: u8,
    left: u32,
    treatment: Treatment,
}

/// A command that the engine executes.
struct Pending {
    cdb: [u8; 16],
    with_data: bool,
    treatment: Option<Treatment>,
}

/// A message that the engine does not have yet.
struct Held<B> {
    channel: ChannelId,
    buffer: B,
    len: usize,
}

/// The fields of a command that rules look at.
struct Header {
    tag: u64,
    lun: u16,
    cdb: [u8; 16],
    with_data: bool,
}

impl Header {
    fn parse(message: &[u8]) -> Option<Self> {
        let [formats] = field(message, 5).ok()?;
        Some(Self {
            tag: u64::from_be_bytes(field(message, 8).ok()?),
            lun: u16::from_be_bytes(field(message, 20).ok()?) & 0x3fff,
            cdb: field(message, 32).ok()?,
            with_data: formats != 0,
        })
    }
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
    /// Response code of task management; `None`: no response. A different one for ABORT TASK.
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

    /// Handles a connection request with this private data.
    pub fn login(&mut self, id: ChannelId, data: &[u8], port: Port) {
        let Ok(mut req) = field::<56>(data, 0) else {
            return self.say(format!("FAILED: a login of {} bytes", data.len()));
        };
        let multi = req[10] & 1;
        match port {
            Port::Answers => self.say(format!("login for answers multi={multi}")),
            Port::Commands => self.say(format!("login multi={multi} length={}", data.len())),
        }
        let tag = u64::from_be_bytes(field(&req, 0).unwrap_or_default());
        let reason = match self.logins {
            Logins::Silent => return,
            Logins::Reject(reason) => Some(Reject::Srp(reason)),
            Logins::Only(most) if self.channels.len() >= most => {
                Some(Reject::INSUFFICIENT_RESOURCES)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return self.steps.push(Step::Act(Action::Reject {
                channel: id,
                response: wire::login_rej(tag, reason, 6),
            }));
        }
        if port == Port::Commands {
            // Any target port identifier will do, and there is no immediate data.
            req[10] &= !0x80;
            put(&mut req, 32, &self.id);
            self.target.login(id, &req);
            return self.filter();
        }
        let others = match multi {
            1 => Others::Maintained,
            _ => Others::None,
        };
        let response = wire::login_rsp(tag, 0, 1024, 96, 6, others, false);
        self.accept(id, response, DEPTH as usize + 1, 1024, true);
    }

    fn accept(
        &mut self,
        id: ChannelId,
        mut response: Vec<u8>,
        receives: usize,
        len: usize,
        answers: bool,
    ) {
        let used = |n: &usize| self.channels.values().any(|c| c.number == *n);
        let number = (0..).find(|n| !used(n)).unwrap_or_default();
        self.channels.insert(id, Channel { number, answers });
        match &self.logins {
            Logins::Bytes(at, bytes) => put(&mut response, *at, bytes),
            Logins::Length(len) => response.truncate(*len),
            _ => {}
        }
        self.steps.push(Step::Act(Action::Accept {
            channel: id,
            response,
            receives,
            len,
        }));
    }

    /// A connection is established.
    pub fn established(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        self.say(format!("channel={}", channel.number));
        if self.logins == Logins::Break {
            self.send_first(&Message::Credits(TOO_MANY));
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

    /// The treatment of a command with this operation code.
    fn treatment(&mut self, opcode: u8) -> Option<Treatment> {
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|r| r.opcode == opcode && r.left > 0)?;
        rule.left -= 1;
        Some(rule.treatment.clone())
    }

    fn command(&mut self, id: ChannelId, number: usize, header: Header, buffer: B, len: usize) {
        let treatment = self.treatment(header.cdb[0]);
        let held = treatment == Some(Treatment::Hold);
        self.say(format!(
            "command channel={number} opcode={:02x} lun={} tag={:016x}{}",
            header.cdb[0],
            header.lun,
            header.tag,
            if held { " held" } else { "" }
        ));
        match treatment {
            Some(Treatment::Hold) => {
                self.held.push(Held {
                    channel: id,
                    buffer,
                    len,
                });
                return;
            }
            Some(Treatment::Busy) => self.respond(id, &header, status::BUSY, &[]),
            Some(Treatment::Short(data)) => self.short(id, &header, &buffer[..len], data),
            // There are no mode pages: so the disk has no write cache, and nothing to flush.
            None if MODE_SENSE.contains(&header.cdb[0]) => {
                self.respond(id, &header, status::CHECK_CONDITION, &Sense::OPCODE.fixed());
            }
            other => return self.execute(id, &header, other, buffer, len),
        }
        self.receive(id, buffer);
    }

    /// Gives a command to the engine.
    fn execute(
        &mut self,
        id: ChannelId,
        header: &Header,
        treatment: Option<Treatment>,
        buffer: B,
        len: usize,
    ) {
        let pending = Pending {
            cdb: header.cdb,
            with_data: header.with_data,
            treatment,
        };
        self.pending.insert((id, header.tag), pending);
        self.target.received(id, buffer, len);
        self.filter();
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

    /// Builds a response without a residual.
    fn response(&self, id: ChannelId, tag: u64, status: u8, sense: &[u8]) -> Vec<u8> {
        let none = Residual::None;
        wire::cmd_rsp(self.grant(id), tag, status, none, none, sense)
    }

    /// Responds to a command that the engine does not get.
    fn respond(&mut self, id: ChannelId, header: &Header, status: u8, sense: &[u8]) {
        let id = self.answering(id, header.with_data);
        let message = self.response(id, header.tag, status, sense);
        self.send(id, message);
    }

    fn short(&mut self, id: ChannelId, header: &Header, message: &[u8], data: Vec<u8>) {
        let Ok(cmd) = wire::Cmd::parse(message, None) else {
            return self.say("FAILED: a command that cannot be answered".into());
        };
        let channel = self.answering(id, header.with_data);
        let message = self.response(channel, header.tag, status::GOOD, &[]);
        let places = first(&cmd.data.into.entries, data.len() as u32);
        if places.is_empty() {
            return self.send(channel, message);
        }
        self.steps.push(Step::Answer {
            channel,
            data,
            places,
            message,
        });
    }

    /// Drops held commands to a LUN, with a tag or all of them.
    fn forget(&mut self, lun: u16, tag: Option<u64>) {
        for held in std::mem::take(&mut self.held) {
            let header = Header::parse(&held.buffer[..held.len]);
            let of_it = |h: &Header| h.lun == lun && tag.is_none_or(|tag| tag == h.tag);
            if header.is_some_and(|h| of_it(&h)) {
                self.receive(held.channel, held.buffer);
            } else {
                self.held.push(held);
            }
        }
    }

    fn task(&mut self, id: ChannelId, number: usize, header: &Header, buffer: B, len: usize) {
        let Ok(req) = wire::TskMgmt::parse(&buffer[..len]) else {
            return;
        };
        let (function, lun, of) = (req.function, header.lun, req.task_tag);
        self.say(format!(
            "task channel={number} function={function:02x} lun={lun} of={of:016x}"
        ));
        let abort = function == 1;
        let code = self.code.map(|code| match self.abort_code {
            Some(other) if abort => other,
            _ => code,
        });
        match code {
            Some(0) => {
                if !self.keep {
                    self.forget(lun, abort.then_some(of));
                }
                self.target.received(id, buffer, len);
                return self.filter();
            }
            Some(code) => {
                let message = wire::tmf_rsp(self.grant(id), req.tag, code);
                self.send(id, message);
            }
            None => {}
        }
        self.receive(id, buffer);
    }

    /// Passes the actions of the engine on.
    fn filter(&mut self) {
        for action in self.target.actions() {
            match action {
                Action::Accept {
                    channel,
                    mut response,
                    receives,
                    len,
                } => {
                    put(&mut response, 4, &CREDITS.to_be_bytes());
                    self.accept(channel, response, receives, len, false);
                }
                Action::Receive { channel, buffer } => self.receive(channel, buffer),
                Action::Fetch {
                    channel,
                    task,
                    from,
                } => self.steps.push(Step::Act(Action::Fetch {
                    channel: self.answering(channel, true),
                    task,
                    from,
                })),
                Action::Answer {
                    channel,
                    task,
                    data,
                    message,
                } => self.answer(channel, task, data, message),
                other => self.steps.push(Step::Act(other)),
            }
        }
    }

    /// Passes a response of the engine on.
    fn answer(
        &mut self,
        id: ChannelId,
        task: Option<TaskId>,
        mut data: Option<(B, Vec<DirectBuf>)>,
        mut message: Vec<u8>,
    ) {
        let tag = field(&message, 8).map_or(0, u64::from_be_bytes);
        let pending = task.and_then(|_| self.pending.remove(&(id, tag)));
        let channel = match &pending {
            Some(pending) => self.answering(id, pending.with_data),
            None => id,
        };
        let mut spare = None;
        if let (Some(pending), Some((bytes, _))) = (&pending, &mut data) {
            match (pending.cdb[0], &self.vendor, self.luns_size) {
                (INQUIRY, Some(vendor), _) if pending.cdb[1] & 1 == 0 => {
                    put(bytes, 8, format!("{vendor:8.8}").as_bytes());
                }
                (REPORT_LUNS, _, Some(size)) => put(bytes, 0, &size.to_be_bytes()),
                _ => {}
            }
        }
        let treatment = pending.and_then(|p| p.treatment);
        match &treatment {
            Some(Treatment::Check { sent, sense }) => {
                message = self.response(channel, tag, status::CHECK_CONDITION, sense);
                if let Some((_, places)) = &mut data {
                    *places = first(places, *sent);
                    spare = data.take_if(|(_, places)| places.is_empty());
                }
            }
            Some(Treatment::Astray) => put(&mut message, 8, &(tag ^ ASTRAY).to_be_bytes()),
            _ => {}
        }
        put(&mut message, 4, &self.grant(channel).to_be_bytes());
        let twice = treatment == Some(Treatment::Twice);
        let second = twice.then(|| message.clone());
        self.steps.push(Step::Act(Action::Answer {
            channel,
            task,
            data,
            message,
        }));
        if let Some(message) = second {
            self.send(channel, message);
        }
        if let Some((buffer, _)) = spare {
            self.steps.push(Step::Act(Action::Free { channel, buffer }));
        }
    }

    /// Sends a message on the first channel. Returns false if there is none.
    fn send_first(&mut self, what: &Message) -> bool {
        let first = self.channels.iter().min_by_key(|(_, c)| c.number);
        let Some(id) = first.map(|(id, _)| *id) else {
            self.say("FAILED: no channel to send to".into());
            return false;
        };
        let mut message = vec![0; 16];
        put(&mut message, 8, &TAG.to_be_bytes());
        match *what {
            Message::Logout(reason) => {
                message[0] = opcode::T_LOGOUT;
                put(&mut message, 4, &reason.to_be_bytes());
            }
            Message::Credits(delta) => {
                message[0] = opcode::CRED_REQ;
                put(&mut message, 4, &delta.to_be_bytes());
            }
            Message::Report([key, asc, ascq]) => {
                message[0] = opcode::AER_REQ;
                let code = (asc, ascq);
                let information = None;
                let sense = Sense {
                    key,
                    code,
                    information,
                }
                .fixed();
                message.resize(36, 0);
                put(&mut message, 28, &(sense.len() as u32).to_be_bytes());
                message.extend(sense);
            }
        }
        self.send(id, message);
        true
    }

    /// Carries out an order. Returns false if it is not for the rules, or fails.
    pub fn told(&mut self, order: Order) -> bool {
        match order {
            Order::On {
                opcode,
                treatment,
                count,
            } => {
                self.rules.retain(|r| r.opcode != opcode && r.left > 0);
                self.rules.extend(treatment.map(|treatment| Rule {
                    opcode,
                    left: count,
                    treatment,
                }));
            }
            Order::Answer { data } => {
                for held in std::mem::take(&mut self.held) {
                    let Some(header) = Header::parse(&held.buffer[..held.len]) else {
                        continue;
                    };
                    if data {
                        self.execute(held.channel, &header, None, held.buffer, held.len);
                    } else {
                        self.respond(held.channel, &header, status::GOOD, &[]);
                        self.receive(held.channel, held.buffer);
                    }
                }
            }
            Order::Tasks { code, keep } => (self.code, self.keep) = (code, keep),
            Order::Abort(code) => self.abort_code = code,
            Order::Send(message) => return self.send_first(&message),
            Order::Logins(logins) => self.logins = logins,
            Order::Grants(grants) => (self.grants, self.granted) = (grants, Instant::now()),
            Order::ReceiveOff => self.receives = false,
            Order::Vendor(name) => self.vendor = Some(name),
            Order::Luns { count, size } => {
                let Some(units) = self.units.get(..count) else {
                    return false;
                };
                self.luns_size = size;
                self.target.open(units.to_vec());
                self.filter();
            }
            Order::Answers { here } => self.here = here,
            Order::Disconnect { only_answers } => {
                let all = self
                    .channels
                    .iter()
                    .filter(|(_, c)| c.answers || !only_answers);
                let leave = |(id, _): (&ChannelId, _)| Action::Leave {
                    channel: *id,
                    message: None,
                };
                self.steps.extend(all.map(leave).map(Step::Act));
            }
            Order::Requests { .. } | Order::ForgetRequests => return false,
        }
        true
    }

    /// Grants a credit that is due. Returns whether more will follow.
    pub fn tick(&mut self, now: Instant) -> bool {
        let Grants::Every(seconds) = self.grants else {
            return false;
        };
        if now >= self.granted + Duration::from_secs(seconds) {
            self.granted = now;
            self.send_first(&Message::Credits(1));
        }
        true
    }
}
