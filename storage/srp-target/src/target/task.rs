// SPDX-License-Identifier: GPL-2.0

//! Commands, from arrival to response.

use std::{collections::btree_map::Entry, sync::Arc};

use super::{
    sessions::Nexus, Action, Buffer, ChannelId, Done, Out, Outcome, Remote, Target, TaskId, Work,
};
use crate::{
    acl,
    proto::cmd::DirectBuf,
    scsi::{self, opcode, status, Command, Unit},
    sense::Sense,
    wire::{self, Broken, Cmd, Data, Residual},
};

/// The event that a task waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Fetch of the DATA-OUT table.
    TableOut,
    /// Fetch of the DATA-IN table.
    TableIn,
    /// Fetch of the DATA-OUT.
    Data,
    /// A worker thread.
    Executing,
    /// The roles with the blocks.
    Dispatched,
    /// The send completion of the response. The initiator may already reuse the tag.
    Answering,
}

pub(super) struct Task<B> {
    pub(super) initiator: [u8; 16],
    pub(super) channel: ChannelId,
    pub(super) unit: Option<usize>,
    pub(super) tag: u64,
    pub(super) state: State,
    /// Whether the task is aborted: no response is sent.
    pub(super) aborted: bool,
    /// Credits that are granted for the response, if another role sends it.
    granted: Option<i32>,
    command: Command,
    data: Data,
    /// DATA-OUT that has arrived.
    out: Option<Out<B>>,
    /// Length of the table that is being fetched, in bytes.
    table: usize,
}

impl<B> Task<B> {
    /// Returns whether the tag is in use: no response can have been sent.
    fn has_tag(&self) -> bool {
        self.state != State::Answering && self.granted.is_none()
    }

    /// Lengths of the DATA-OUT and DATA-IN buffers, in bytes.
    fn room(&self) -> (u32, u32) {
        let immediate = self.data.immediate.map(|(_, len)| len as u32);
        let out = immediate.unwrap_or(self.data.out.total);
        (out, self.data.into.total)
    }
}

/// Truncates a list to its first `len` bytes.
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

/// The unit that a LUN addresses, if the session sees it.
pub(super) fn unit_of(nexus: &Nexus, units: &[Arc<Unit>], lun: [u8; 8]) -> Option<usize> {
    scsi::unit_of(lun, units).filter(|n| acl::sees(&nexus.units, *n))
}

/// Performs the checks of a command that do not need its data.
fn check(
    nexus: &Nexus,
    units: &[Arc<Unit>],
    unit: Option<usize>,
    cmd: &Cmd,
) -> Result<Command, Sense> {
    let mut attention = None;
    let code = cmd.cdb[0];
    if ![opcode::INQUIRY, opcode::REPORT_LUNS].contains(&code) {
        attention = unit.and_then(|unit| nexus.take(unit));
    }
    match attention {
        Some(sense) if code != opcode::REQUEST_SENSE => return Err(sense),
        _ => {}
    }
    // Only SIMPLE and HEAD OF QUEUE are supported.
    if cmd.attribute > 1 {
        return Err(Sense::ATTRIBUTE);
    }
    let cdb = cmd.cdb.first_chunk().ok_or(Sense::FIELD)?;
    scsi::parse(cdb, units, unit, attention, &nexus.units)
}

impl<B: Buffer> Target<B> {
    pub(super) fn command(&mut self, id: ChannelId, buffer: B, len: usize) -> Result<(), Broken> {
        let Some(channel) = self.channels.get_mut(&id) else {
            return Ok(());
        };
        let cmd = Cmd::parse(&buffer[..len], channel.immediate)?;
        let initiator = channel.initiator;
        if !self.tags.insert((initiator, cmd.tag)) {
            return Err(Broken::Tag(cmd.tag));
        }
        channel.credits -= 1;
        let nexus = &channel.nexus;
        let unit = unit_of(nexus, &self.units, cmd.lun);
        let checked = check(nexus, &self.units, unit, &cmd);
        let mut out = None;
        match cmd.data.immediate {
            Some((at, _)) => out = Some(Out { buffer, at }),
            None => self.actions.push(Action::Receive {
                channel: id,
                buffer,
            }),
        }
        let number = self.next;
        self.next += 1;
        let (command, refused) = match checked {
            Ok(command) => (command, None),
            Err(sense) => (Command::Done, Some(sense)),
        };
        let task = Task {
            initiator,
            channel: id,
            unit,
            tag: cmd.tag,
            state: State::Executing,
            aborted: false,
            granted: None,
            command,
            data: cmd.data,
            out,
            table: 0,
        };
        // Reject a write with too little data before it changes any block.
        let short = task.command.data_out() > task.room().0;
        self.tasks.insert(number, task);
        match refused.or(short.then_some(Sense::FIELD)) {
            Some(sense) => self.answer(number, status::CHECK_CONDITION, Some(sense), None),
            None => self.go_on(number),
        }
        Ok(())
    }

    /// Fetches the next missing table or data, or starts the command.
    fn go_on(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let (out, room) = (task.command.data_out(), task.room().1);
        let into = task.command.data_in().min(room);
        let missing = out > 0 && task.out.is_none();
        let unit = task.unit.and_then(|n| self.units.get(n));
        let elsewhere = unit.is_some_and(|u| u.is_elsewhere()) && task.command.blocks();
        let mut fetch = None;
        if missing {
            fetch = task
                .data
                .out
                .table
                .take()
                .map(|t| (State::TableOut, vec![t]));
        }
        if fetch.is_none() && into > 0 {
            fetch = task
                .data
                .into
                .table
                .take()
                .map(|t| (State::TableIn, vec![t]));
        }
        if fetch.is_none() && missing && (!elsewhere || task.command.needs_data()) {
            fetch = Some((State::Data, first(&task.data.out.entries, out)));
        }
        if let Some((state, from)) = fetch {
            task.state = state;
            task.table = from.first().map_or(0, |t| t.len() as usize);
            return self.actions.push(Action::Fetch {
                channel: task.channel,
                task: id,
                from,
            });
        }
        if let (true, Some(number), Some(unit)) = (elsewhere, task.unit, unit) {
            let data = match &task.out {
                Some(o) if task.command.needs_data() => &o.buffer[o.at..o.at + out as usize],
                _ => &[],
            };
            let command = match task.command.for_elsewhere(unit, data) {
                Ok(Command::Done) => return self.answer(id, status::GOOD, None, None),
                Ok(command) => command,
                Err(sense) => return self.answer(id, status::CHECK_CONDITION, Some(sense), None),
            };
            task.state = State::Dispatched;
            let list = if out > 0 {
                &task.data.out
            } else {
                &task.data.into
            };
            let moved = match task.command {
                Command::Read { .. } | Command::Write { .. } => out.max(into),
                _ => 0,
            };
            let remote = Remote {
                initiator: task.initiator,
                tag: task.tag,
                unit: number,
                command,
                room: list.total,
                descriptors: first(&list.entries, moved),
                data: match (&task.command, &task.out) {
                    (Command::Write { .. }, Some(o)) => {
                        o.buffer[o.at..o.at + out as usize].to_vec()
                    }
                    _ => Vec::new(),
                },
            };
            return self.actions.push(Action::Dispatch { task: id, remote });
        }
        task.state = State::Executing;
        let work = Work {
            command: task.command.clone(),
            unit: task.unit.and_then(|n| self.units.get(n).cloned()),
            out: task.out.take(),
            into: into as usize,
        };
        self.actions.push(Action::Execute { task: id, work });
    }

    /// Handles a completed fetch. The data is at the start of the buffer.
    pub fn fetched(&mut self, id: TaskId, buffer: B) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if task.aborted {
            return self.end(id);
        }
        let list = match task.state {
            State::TableOut => Some(&mut task.data.out),
            State::TableIn => Some(&mut task.data.into),
            _ => None,
        };
        match list {
            None => task.out = Some(Out { buffer, at: 0 }),
            Some(list) => match wire::entries(&buffer[..task.table], list.total) {
                Ok(entries) => list.entries = entries,
                Err(broken) => {
                    let channel = task.channel;
                    self.end(id);
                    return self.violation(channel, broken);
                }
            },
        }
        self.go_on(id);
    }

    /// Handles a command that a worker thread has executed.
    pub fn executed(&mut self, id: TaskId, done: Done<B>) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.out = done.out;
        if task.aborted {
            return self.end(id);
        }
        match done.result {
            Ok(()) => self.answer(id, status::GOOD, None, done.into),
            Err(sense) => self.answer(id, status::CHECK_CONDITION, Some(sense), None),
        }
    }

    /// Returns the credits for the response to a dispatched command, which another role sends. They
    /// are granted at once. Returns `None` if the channel is ending.
    pub fn grant_for(&mut self, id: TaskId) -> Option<i32> {
        let task = self.tasks.get(&id)?;
        if task.granted.is_some() {
            return task.granted;
        }
        let grant = self.grant(task.channel)?;
        self.free_tag(id);
        let task = self.tasks.get_mut(&id)?;
        task.granted = Some(grant);
        task.granted
    }

    /// Lets the initiator use the tag of a task again. Call it before the response is sent.
    fn free_tag(&mut self, id: TaskId) {
        // Afterwards another task may have the same tag.
        if let Some(task) = self.tasks.get(&id).filter(|t| t.has_tag()) {
            self.tags.remove(&(task.initiator, task.tag));
        }
    }

    /// Returns whether a command is aborted or has ended.
    pub fn aborted(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_none_or(|t| t.aborted)
    }

    /// Ends a dispatched command, of which no part is in flight.
    pub fn dispatched(&mut self, id: TaskId, outcome: Outcome) {
        if outcome == Outcome::Answered {
            self.free_tag(id);
        }
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if outcome == Outcome::Answered {
            task.state = State::Answering;
            return self.end(id);
        }
        if task.aborted {
            return self.end(id);
        }
        match outcome {
            Outcome::Good => {
                // Stop the unit after its data is durable.
                if let (Command::Start(_), Some(unit)) = (&task.command, task.unit) {
                    let unit = self.units.get(unit).map(|u| &**u);
                    // This neither blocks nor fails.
                    let _ = task.command.execute(unit, &[], &mut []);
                }
                self.answer(id, status::GOOD, None, None);
            }
            Outcome::Failed(sense) => self.answer(id, status::CHECK_CONDITION, Some(sense), None),
            Outcome::Busy => self.answer(id, status::BUSY, None, None),
            Outcome::Answered | Outcome::Over => self.end(id),
        }
    }

    /// Responds TASK SET FULL for lack of memory to fetch or execute a command, so the initiator
    /// retries.
    pub fn no_memory(&mut self, id: TaskId, out: Option<Out<B>>) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.out = out;
        self.answer(id, status::TASK_SET_FULL, None, None);
    }

    fn answer(&mut self, id: TaskId, status: u8, sense: Option<Sense>, into: Option<B>) {
        self.recycle(id);
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let channel = task.channel;
        let grant = match task.granted {
            Some(grant) => {
                Some(grant).filter(|_| self.channels.get(&channel).is_some_and(|c| !c.leaving))
            }
            None => self.grant(channel),
        };
        let Some(grant) = grant else {
            return self.end(id);
        };
        self.free_tag(id);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.state = State::Answering;
        let done = status == status::GOOD;
        let used = |len| if done { len } else { 0 };
        let (out, room) = task.room();
        let wanted = used(task.command.data_in());
        let message = wire::cmd_rsp(
            grant,
            task.tag,
            status,
            Residual::new(out, used(task.command.data_out())),
            Residual::new(room, wanted),
            &sense.map(|s| s.fixed()).unwrap_or_default(),
        );
        let descriptors = first(&task.data.into.entries, wanted.min(room));
        let data = into
            .filter(|_| !descriptors.is_empty())
            .map(|b| (b, descriptors));
        self.actions.push(Action::Answer {
            channel,
            task: Some(id),
            data,
            message,
        });
    }

    /// Handles the send completion of the response to a command.
    pub fn sent(&mut self, id: TaskId) {
        self.end(id);
    }

    /// Frees the buffer with the DATA-OUT of a task.
    fn recycle(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let (channel, immediate) = (task.channel, task.data.immediate.is_some());
        if let Some(Out { buffer, .. }) = task.out.take() {
            self.actions.push(if immediate {
                Action::Receive { channel, buffer }
            } else {
                Action::Free { channel, buffer }
            });
        }
    }

    pub(super) fn end(&mut self, id: TaskId) {
        self.recycle(id);
        self.free_tag(id);
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        if task.state != State::Answering {
            if let Some(channel) = self.channels.get_mut(&task.channel) {
                let granted = task.granted.map_or(0, |g| g as u32);
                channel.credits = channel.credits.saturating_sub(granted);
                channel.owed += granted.max(1);
            }
        }
        self.task_ended(id);
        // Of a channel that has ended, the last one admits a login.
        if let Entry::Occupied(mut left) = self.orphans.entry(task.channel) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
                self.sessions.gone(self.thread, task.channel);
                self.obey();
            }
        }
    }

    /// Ends the tasks of a closed channel, except those that execute or are dispatched. Returns how
    /// many are left.
    pub(super) fn orphan(&mut self, channel: ChannelId) -> usize {
        let of_it = self.tasks.iter_mut().filter(|(_, t)| t.channel == channel);
        let (mut over, mut left) = (Vec::new(), 0);
        for (id, task) in of_it {
            left += 1;
            let before = std::mem::replace(&mut task.aborted, true);
            match task.state {
                State::Executing => {}
                State::Dispatched if before => {}
                State::Dispatched => self.actions.push(Action::Cancel { task: *id }),
                _ => over.push(*id),
            }
        }
        left -= over.len();
        for id in over {
            self.end(id);
        }
        left
    }
}
