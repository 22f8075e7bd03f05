// SPDX-License-Identifier: GPL-2.0

//! The client on RDMA devices: an SRP target for the blocks of the set.

use std::{collections::BTreeMap, io, os::fd::RawFd, sync::Arc};

use srp_target::{
    acl::ListFile,
    fabric::{self, Commands},
    proto::cmd::DirectBuf,
    reactor::{pieces, Event, LinkId, Parked, Reactor},
    scsi::{Command, Geometry, Unit},
    sense::Sense,
    target::{self, Target, TaskId},
    workers::{execute, Workers},
};
use verbs::{Buffer, Op};
use wss::fabric::{good, Role};

use super::{
    name,
    nodes::{self, Nodes},
};
use crate::{
    client::{Action, Outcome, Settings},
    coordinator::Coordinator,
    layout::{Size, BLOCK},
    options::Options,
};

/// The memory of a command. A buffer is of the connection that moves the data.
type Memory = nodes::Memory<LinkId>;

/// Timeout of a command in milliseconds. Less than that of initiators, also if the exclusion of
/// nodes takes longer because this process is slow.
const PATIENCE: u64 = 12_000;
/// Maximum length of a transfer, in bytes.
const MAX_TRANSFER: u64 = 4 << 20;

/// The purpose of a completion.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Target(fabric::Token),
    /// The data of a write has been fetched.
    Fetched(TaskId),
}

/// A command that the set executes.
struct Task {
    lba: u64,
    count: u32,
    write: bool,
    descriptors: Vec<DirectBuf>,
    /// Whether the command was passed to the [`Client`].
    given: bool,
}

pub(super) struct Gate {
    nodes: Nodes<Memory>,
    target: Target<Buffer>,
    /// The initiators that may log in.
    allow: Option<ListFile>,
    guid: u64,
    parked: Parked<target::Action<Buffer>>,
    commands: Commands,
    tasks: BTreeMap<TaskId, Task>,
}

pub(super) fn role(
    options: Options,
    etcd: impl Coordinator + Send + 'static,
) -> io::Result<(Gate, Reactor<Token>)> {
    let Options::Client {
        set,
        listen,
        id,
        guid,
        queue_depth,
        channels,
        pause,
        lease,
        key: _,
        allow,
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut target = Target::closed(target::Settings {
        id,
        queue_depth,
        channels,
    });
    let allow = allow.as_deref().map(ListFile::open).transpose()?;
    let allow = allow.map(|(file, list)| {
        target.allow(list);
        file
    });
    let settings = Settings {
        id: name(),
        pause,
        lease,
        patience: Some(PATIENCE),
    };
    let role = Gate {
        nodes: Nodes::new(set, etcd, settings)?,
        target,
        allow,
        guid,
        parked: Parked::default(),
        // This thread executes only commands without data.
        commands: Workers::new(1, execute)?,
        tasks: BTreeMap::new(),
    };
    Ok((role, Reactor::new(listen)?))
}

impl Gate {
    fn closed(&mut self, id: LinkId) {
        if !self.nodes.closed(id) {
            self.target.ended(id);
        }
    }

    /// Opens the target, when the set is usable.
    fn ready(&mut self, size: Size) {
        let geometry = Geometry {
            blocks: size.blocks(),
            read_only: false,
            max_transfer: MAX_TRANSFER,
            max_unmap: MAX_TRANSFER / BLOCK as u64,
            // Unmapped blocks would be written as zeros, with their parities.
            max_ranges: 0,
        };
        let unit = Unit::elsewhere(geometry, self.nodes.set.name.as_bytes(), self.guid);
        tracing::info!("the set has {} blocks", size.blocks());
        self.target.open(vec![Arc::new(unit)]);
    }

    /// Begins a command that has its memory, unless it or its channel has ended meanwhile.
    fn dispatch(&mut self, reactor: &mut Reactor<Token>, id: TaskId, remote: target::Remote) {
        if let Err(outcome) = self.begin(reactor, id, remote) {
            self.target.dispatched(id, outcome);
        }
    }

    /// Begins a command, unless it has this result.
    fn begin(
        &mut self,
        reactor: &mut Reactor<Token>,
        id: TaskId,
        remote: target::Remote,
    ) -> Result<(), target::Outcome> {
        let link = self.target.channel(id).ok_or(target::Outcome::Over)?;
        let (lba, count, write) = match remote.command {
            // VERIFY reads, so that bad blocks are found, and does not compare.
            Command::Read { lba, count, .. } | Command::Verify { lba, count, .. } => {
                (lba, count, false)
            }
            Command::Write { lba, count, .. } | Command::Zero { lba, count, .. } => {
                (lba, count, true)
            }
            // Answered writes are durable.
            Command::Flush | Command::Start(_) => return Err(target::Outcome::Good),
            _ => return Err(target::Outcome::Failed(Sense::FIELD)),
        };
        let (len, moves) = (count as usize * BLOCK, remote.moves());
        if len == 0 {
            return Err(target::Outcome::Good);
        }
        let mut task = Task {
            lba,
            count,
            write,
            descriptors: remote.descriptors,
            given: true,
        };
        let memory = match moves {
            0 if remote.data.is_empty() => Memory::Bytes(vec![0; len]),
            0 => Memory::Bytes(remote.data),
            _ => {
                let buffer = reactor.take(link, moves);
                Memory::Buffer(link, buffer.map_err(|_| target::Outcome::Busy)?)
            }
        };
        match memory {
            Memory::Buffer(_, buffer) if write => {
                task.given = false;
                let list = pieces(&task.descriptors);
                self.tasks.insert(id, task);
                let result = reactor.queue(link, Some(Token::Fetched(id)), Op::Read, buffer, list);
                self.check(reactor, link, result);
            }
            memory => {
                self.tasks.insert(id, task);
                self.nodes.client.command(id, lba, count, write, memory);
            }
        }
        Ok(())
    }

    fn check(&mut self, reactor: &mut Reactor<Token>, id: LinkId, result: io::Result<()>) {
        if !good(reactor, id, result) {
            self.closed(id);
        }
    }

    fn fetched(&mut self, reactor: &mut Reactor<Token>, link: LinkId, id: TaskId, buffer: Buffer) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return reactor.give(link, Some(buffer));
        };
        task.given = true;
        let memory = Memory::Buffer(link, buffer);
        self.nodes
            .client
            .command(id, task.lba, task.count, true, memory);
    }

    /// Aborts a command, which gets no response.
    fn cancel(&mut self, id: TaskId) {
        if self.tasks.get(&id).is_some_and(|t| t.given) {
            return self.nodes.client.cancel(id);
        }
        // The buffer of data that still arrives is discarded.
        self.tasks.remove(&id);
        self.target.dispatched(id, target::Outcome::Over);
    }

    fn answer(
        &mut self,
        reactor: &mut Reactor<Token>,
        id: TaskId,
        outcome: Outcome,
        memory: Option<Memory>,
    ) {
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        if let Some(Memory::Buffer(link, buffer)) = memory {
            let there = self.target.channel(id).is_some();
            if outcome == Outcome::Good && !task.write && there {
                // The response follows on the same connection.
                let pieces = pieces(&task.descriptors);
                let result = reactor.queue(link, None, Op::Write, buffer, pieces);
                self.check(reactor, link, result);
            } else {
                reactor.give(link, Some(buffer));
            }
        }
        let outcome = match outcome {
            Outcome::Good => target::Outcome::Good,
            Outcome::Over => target::Outcome::Over,
            Outcome::Busy => target::Outcome::Busy,
            Outcome::NotReady => target::Outcome::Failed(Sense::BECOMING_READY),
            Outcome::Failed if task.write => target::Outcome::Failed(Sense::WRITE_ERROR),
            Outcome::Failed => target::Outcome::Failed(Sense::READ_ERROR),
        };
        self.target.dispatched(id, outcome);
    }

    fn target_actions(&mut self, reactor: &mut Reactor<Token>) -> bool {
        let actions = self.target.actions();
        let some = !actions.is_empty();
        for action in actions {
            let need = fabric::needs(&self.target, &action);
            if let Some(action) = self.parked.pass(reactor, need, action) {
                self.target_action(reactor, action);
            }
        }
        some
    }

    fn target_action(&mut self, reactor: &mut Reactor<Token>, action: target::Action<Buffer>) {
        match action {
            target::Action::Dispatch { task, remote } => self.dispatch(reactor, task, remote),
            target::Action::Cancel { task } => self.cancel(task),
            action => fabric::act(
                reactor,
                &mut self.target,
                &self.commands,
                action,
                Token::Target,
            ),
        }
    }

    /// Carries out the actions of a connection that have waited for memory.
    fn resume(&mut self, reactor: &mut Reactor<Token>, id: LinkId) {
        while let Some(action) = self.parked.next(reactor, id) {
            self.target_action(reactor, action);
        }
    }

    fn client_actions(&mut self, reactor: &mut Reactor<Token>) -> bool {
        let actions = self.nodes.client.actions();
        let some = !actions.is_empty();
        for action in actions {
            match self.nodes.action(reactor, action) {
                Some(Action::Ready(size)) => self.ready(size),
                Some(Action::Answer {
                    command,
                    outcome,
                    memory,
                }) => self.answer(reactor, command, outcome, memory),
                _ => {}
            }
        }
        some
    }
}

impl Role for Gate {
    type Token = Token;
    type Links = Reactor<Token>;

    fn tick(&mut self, _now: u64) {
        self.nodes.tick();
    }

    fn event(&mut self, reactor: &mut Reactor<Token>, event: Event<Token>) {
        self.nodes.clock();
        match event {
            Event::Login { id, data } => {
                if let Some(list) = self.allow.as_mut().and_then(ListFile::news) {
                    self.target.allow(list);
                }
                self.target.login(id, &data);
            }
            Event::Refused { id, why } => fabric::refused(&mut self.target, id, &why),
            Event::Connected { id } => self.nodes.connected(id),
            Event::Received { id, buffer, len } => {
                if let Some(buffer) = self.nodes.received(reactor, id, buffer, len) {
                    self.target.received(id, buffer, len);
                }
            }
            Event::Done { id, token, buffer } => match (token, buffer) {
                (Token::Fetched(task), Some(buffer)) => self.fetched(reactor, id, task, buffer),
                (Token::Target(fabric::Token::Fetch(task)), Some(buffer)) => {
                    self.target.fetched(task, buffer)
                }
                (Token::Target(fabric::Token::Answer(task)), buffer) => {
                    reactor.give(id, buffer);
                    self.target.sent(task);
                }
                (_, None) => {}
            },
            Event::Memory { id, registered } => {
                if !registered {
                    fabric::no_memory(&mut self.target, self.parked.first(id));
                }
                self.resume(reactor, id);
            }
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.closed(id);
            }
        }
    }

    fn act(&mut self, reactor: &mut Reactor<Token>) {
        self.nodes.go_on(reactor);
        for id in self.parked.ended(reactor) {
            self.resume(reactor, id);
        }
        while self.client_actions(reactor) | self.target_actions(reactor) {}
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.commands.fd(), self.nodes.fd()]
    }

    fn work(&mut self, reactor: &mut Reactor<Token>) {
        self.nodes.clock();
        for (task, done) in self.commands.done() {
            self.target.executed(task, done);
            self.act(reactor);
        }
        for (id, answer) in self.nodes.answers() {
            self.nodes.answered(id, answer);
            self.act(reactor);
        }
    }

    fn status(&self) -> serde_json::Value {
        let mut all = self.nodes.client.status();
        let target = self.target.status();
        for key in [
            "sessions",
            "channels",
            "logins_waiting",
            "commands_in_flight",
            "units",
        ] {
            all[key] = target[key].clone();
        }
        all["counters"] = target["counters"].clone();
        all
    }

    fn shutdown(&mut self) {
        self.target.shutdown();
    }

    fn idle(&self) -> bool {
        self.target.idle()
    }

    fn failed(&self) -> Option<String> {
        self.nodes.failed.clone()
    }
}
