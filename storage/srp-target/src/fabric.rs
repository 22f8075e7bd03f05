// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of a [`Target`] on RDMA devices.

use std::{io, net::SocketAddr, os::fd::AsRawFd, time::Instant};

use verbs::{Buffer, Op};

use crate::{
    acl::{List, ListFile},
    program,
    proto::cmd::DirectBuf,
    reactor::{pieces, Event, LinkId, Reactor, ENDING, EVENTS},
    status::{Board, Told, PAUSE},
    target::{Action, ChannelId, Done, Target, TaskId, Work},
    workers::{execute, Job, Workers},
};

/// Maximum number of queued operations per receive buffer: two tables, data and response, times
/// two, because the completion of an operation may be outstanding when the peer has already
/// received its data. A connection that exceeds this is closed, because its peer takes no
/// responses.
pub const QUEUED: usize = 8;

/// The purpose of a completion.
#[derive(Clone, Copy)]
pub enum Token {
    /// An RDMA READ of data or a table.
    Fetch(TaskId),
    /// A response.
    Answer(TaskId),
}

/// The functions of a target that [`act`] calls.
pub trait Front {
    /// [`Target::no_resources`].
    fn no_resources(&mut self, channel: ChannelId);
    /// [`Target::ended`].
    fn ended(&mut self, channel: ChannelId);
    /// [`Target::no_memory`].
    fn no_memory(&mut self, task: TaskId, work: Option<Work<Buffer>>);
    /// [`Target::channel`].
    fn channel(&self, task: TaskId) -> Option<ChannelId>;
}

impl Front for Target<Buffer> {
    fn no_resources(&mut self, channel: ChannelId) {
        Target::no_resources(self, channel);
    }

    fn ended(&mut self, channel: ChannelId) {
        Target::ended(self, channel);
    }

    fn no_memory(&mut self, task: TaskId, work: Option<Work<Buffer>>) {
        Target::no_memory(self, task, work.and_then(|w| w.out));
    }

    fn channel(&self, task: TaskId) -> Option<ChannelId> {
        Target::channel(self, task)
    }
}

/// The threads that execute commands.
pub type Commands = Workers<Job<Buffer>, (TaskId, Done<Buffer>)>;

/// Carries out an action. `token` converts a [`Token`] to the token type of the reactor.
pub fn act<T>(
    reactor: &mut Reactor<T>,
    front: &mut impl Front,
    workers: &Commands,
    action: Action<Buffer>,
    token: impl Fn(Token) -> T,
) {
    match action {
        Action::Say(what) => tracing::info!("{what}"),
        Action::Accept {
            channel,
            response,
            receives,
            len,
        } => {
            if let Err(e) = reactor.accept(channel, &response, receives, len, QUEUED * receives) {
                tracing::warn!("channel {channel}: cannot accept it: {e}");
                if reactor.waits(channel) {
                    front.no_resources(channel);
                } else {
                    front.ended(channel);
                }
            }
        }
        Action::Reject { channel, response } => {
            if let Err(e) = reactor.reject(channel, &response) {
                tracing::warn!("channel {channel}: cannot refuse it: {e}");
            }
        }
        Action::Execute { task, work } => {
            let mut into = None;
            if work.into > 0 {
                // Use a buffer of the device that sends the data.
                let id = front.channel(task);
                match id.map(|id| reactor.take(id, work.into)) {
                    Some(Ok(buffer)) => into = Some(buffer),
                    _ => return front.no_memory(task, Some(work)),
                }
            }
            workers.give(Job { task, work, into });
        }
        Action::Receive { channel, buffer } => {
            let result = reactor.receive(channel, buffer);
            check(reactor, front, channel, result);
        }
        Action::Free { channel, buffer } => reactor.give(channel, Some(buffer)),
        Action::Fetch {
            channel,
            task,
            from,
        } => fetch(
            reactor,
            front,
            channel,
            task,
            &from,
            token(Token::Fetch(task)),
        ),
        Action::Answer {
            channel,
            task,
            data,
            message,
        } => {
            let mut result = Ok(());
            if let Some((buffer, descriptors)) = data {
                result = reactor.queue(channel, None, Op::Write, buffer, pieces(&descriptors));
            }
            let token = task.map(|task| token(Token::Answer(task)));
            let result = result.and_then(|()| reactor.send(channel, token, &message));
            check(reactor, front, channel, result);
        }
        Action::Leave { channel, message } => {
            if reactor.waits(channel) {
                reactor.close(channel);
                return front.ended(channel);
            }
            let result = reactor.leave(channel, message.as_deref());
            check(reactor, front, channel, result);
        }
        // This target has only local units.
        Action::Dispatch { task, .. } => front.no_memory(task, None),
        Action::Cancel { .. } | Action::Gone { .. } => {}
    }
}

/// Closes a connection after an error, unless it has already ended.
fn check<T>(reactor: &mut Reactor<T>, front: &mut impl Front, id: LinkId, result: io::Result<()>) {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotConnected => {
            tracing::warn!("channel {id}: {e}");
            reactor.close(id);
            front.ended(id);
        }
        _ => {}
    }
}

fn fetch<T>(
    reactor: &mut Reactor<T>,
    front: &mut impl Front,
    id: LinkId,
    task: TaskId,
    from: &[DirectBuf],
    token: T,
) {
    let len: usize = from.iter().map(|d| d.len() as usize).sum();
    match reactor.take(id, len) {
        Ok(buffer) => {
            let result = reactor.queue(id, Some(token), Op::Read, buffer, pieces(from));
            check(reactor, front, id, result);
        }
        Err(e) if e.kind() == io::ErrorKind::NotConnected => {}
        Err(_) => front.no_memory(task, None),
    }
}

/// A listening target. Dropped in field order: writes end before another process can listen here.
pub struct Fabric {
    workers: Commands,
    reactor: Reactor<Token>,
    target: Target<Buffer>,
    allow: Option<ListFile>,
}

impl Fabric {
    /// Listens at an address and TCP port. Returns the error of the failed system call.
    pub fn new(target: Target<Buffer>, listen: SocketAddr, threads: usize) -> io::Result<Self> {
        Ok(Self {
            reactor: Reactor::new(listen)?,
            target,
            workers: Workers::new(threads, execute)?,
            allow: None,
        })
    }

    /// Admits only initiators in this list, which is read again for each login.
    pub fn allow(&mut self, (file, list): (ListFile, List)) {
        self.target.allow(list);
        self.allow = Some(file);
    }

    /// Runs until `stop` is readable, then until all sessions have ended, at most 5 s.
    pub fn run(&mut self, stop: &impl AsRawFd, board: Option<&Board>) -> io::Result<()> {
        let mut end = None;
        let mut more = false;
        let mut told = Told::default();
        loop {
            told.tell(board, || self.target.status());
            let mut fds = vec![self.workers.fd()];
            // After the first stop signal the descriptor stays readable.
            if end.is_none() {
                fds.push(stop.as_raw_fd());
            }
            let timeout = match () {
                () if more => 0,
                () if self.reactor.leaving() || end.is_some() => 100,
                () if board.is_some() => PAUSE.as_millis() as i32,
                () => -1,
            };
            let ready = self.reactor.wait(&fds, timeout)?;
            if ready.get(1) == Some(&true) {
                end = Some(Instant::now() + ENDING);
                program::stopping();
                self.target.shutdown();
            }
            let mut turn = EVENTS;
            while turn > 0 {
                let Some(event) = self.reactor.poll()? else {
                    break;
                };
                turn -= 1;
                self.event(event);
                self.act();
            }
            more = turn == 0;
            if ready.first() == Some(&true) {
                for (task, done) in self.workers.done() {
                    self.target.executed(task, done);
                    self.act();
                }
            }
            for id in self.reactor.late() {
                self.target.ended(id);
            }
            self.act();
            if end.is_some_and(|end| self.target.idle() || Instant::now() > end) {
                return Ok(());
            }
        }
    }

    fn event(&mut self, event: Event<Token>) {
        match event {
            Event::Login { id, data } => {
                if let Some(list) = self.allow.as_mut().and_then(ListFile::news) {
                    self.target.allow(list);
                }
                self.target.login(id, &data);
            }
            Event::Received { id, buffer, len } => self.target.received(id, buffer, len),
            Event::Done { id, token, buffer } => match (token, buffer) {
                (Token::Fetch(task), Some(buffer)) => self.target.fetched(task, buffer),
                (Token::Fetch(_), None) => {}
                (Token::Answer(task), buffer) => {
                    self.reactor.give(id, buffer);
                    self.target.sent(task);
                }
            },
            Event::Connected { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("channel {id}: connection lost: {why}");
                }
                self.target.ended(id);
            }
        }
    }

    fn act(&mut self) {
        loop {
            let actions = self.target.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                act(
                    &mut self.reactor,
                    &mut self.target,
                    &self.workers,
                    action,
                    |token| token,
                );
            }
        }
    }
}
