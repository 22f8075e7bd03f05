// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of a [`Target`] on RDMA devices.

mod thread;

use std::{io, net::SocketAddr, os::fd::AsRawFd, sync::Arc};

use verbs::{Buffer, Op};

use crate::{
    acl::{List, ListFile},
    program,
    proto::cmd::DirectBuf,
    reactor::{pieces, Event, LinkId, Reactor},
    scsi::Unit,
    status::{Board, Told, PAUSE},
    target::{Action, ChannelId, Done, Sessions, Settings, Target, TaskId, Wake, Work},
    threads::Threads,
    wake::{Waker, Woken},
    workers::{Job, Workers},
};
use thread::{Inbox, Mail, Thread};

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

/// The connection and the length in bytes of the memory that an action needs.
pub fn needs(front: &impl Front, action: &Action<Buffer>) -> Option<(LinkId, usize)> {
    match action {
        Action::Execute { task, work } if work.into > 0 => {
            front.channel(*task).map(|id| (id, work.into))
        }
        Action::Fetch { channel, from, .. } => {
            Some((*channel, from.iter().map(|d| d.len() as usize).sum()))
        }
        Action::Dispatch { task, remote } if remote.moves() > 0 => {
            front.channel(*task).map(|id| (id, remote.moves()))
        }
        _ => None,
    }
}

/// Ends an action for which there is no memory.
pub fn no_memory(front: &mut impl Front, action: Option<Action<Buffer>>) {
    match action {
        Some(Action::Execute { task, work }) => front.no_memory(task, Some(work)),
        Some(Action::Fetch { task, .. } | Action::Dispatch { task, .. }) => {
            front.no_memory(task, None);
        }
        _ => {}
    }
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
            let most = QUEUED * receives;
            match reactor.accept(channel, &response, receives, len, most) {
                Err(e) if reactor.waits(channel) => refused(front, channel, &e.to_string()),
                Err(_) => front.ended(channel),
                Ok(()) => {}
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

/// Rejects a connection after [`Event::Refused`].
pub fn refused(front: &mut impl Front, channel: ChannelId, why: &str) {
    tracing::warn!("channel {channel}: cannot accept it: {why}");
    front.no_resources(channel);
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

/// A listening target. This thread takes the connection requests, and gives them in turn to its
/// reactors, which are threads. A reactor has its channels, their completions and the threads that
/// read and write for them to itself.
pub struct Fabric {
    door: Reactor<()>,
    sessions: Arc<Sessions>,
    units: Vec<Arc<Unit>>,
    reactors: Vec<Thread>,
    inboxes: Vec<Inbox>,
    allow: Option<ListFile>,
}

impl Fabric {
    /// Listens at an address and TCP port, for `reactors` reactors with `threads` threads each that
    /// execute commands. Returns the error of the failed system call.
    pub fn new(
        settings: Settings,
        units: Vec<Arc<Unit>>,
        listen: SocketAddr,
        [reactors, threads]: [usize; 2],
    ) -> io::Result<Self> {
        let woken = (0..reactors).map(|_| Woken::new());
        let woken = woken.collect::<io::Result<Vec<_>>>()?;
        let wake = |(_, waker): &(Woken, Waker)| -> Wake {
            let waker = waker.clone();
            Box::new(move || waker.wake())
        };
        let sessions = Sessions::new(woken.iter().map(wake).collect());
        let (mut all, mut inboxes) = (Vec::new(), Vec::new());
        let parts = Reactor::parts(reactors)?.into_iter().zip(woken);
        for (number, (reactor, woken)) in parts.enumerate() {
            let units = units.clone();
            let target = Target::thread(settings, units, Arc::clone(&sessions), number);
            let (thread, inbox) = Thread::new(reactor, target, woken, threads)?;
            all.push(thread);
            inboxes.push(inbox);
        }
        for (number, thread) in all.iter_mut().enumerate() {
            let others = inboxes.iter().enumerate().filter(|(n, _)| *n != number);
            thread.others = others.map(|(_, inbox)| inbox.clone()).collect();
        }
        Ok(Self {
            door: Reactor::new(listen)?,
            sessions,
            units,
            reactors: all,
            inboxes,
            allow: None,
        })
    }

    /// Admits only initiators in this list, which is read again for each login.
    pub fn allow(&mut self, (file, list): (ListFile, List)) {
        self.sessions.allow(list);
        self.allow = Some(file);
    }

    /// Runs until `stop` is readable, then until all sessions have ended, at most 5 s. Returns the
    /// error of a reactor that has failed, when the others have ended.
    pub fn run(&mut self, stop: &impl AsRawFd, board: Option<&Board>) -> io::Result<()> {
        let mut threads = Threads::new()?;
        let mut result = Ok(());
        for (number, thread) in std::mem::take(&mut self.reactors).into_iter().enumerate() {
            result = result
                .and_then(|()| threads.start(&format!("reactor-{number}"), move || thread.run()));
        }
        let mut told = Told::default();
        if result.is_ok() {
            result = self.serve(&mut threads, stop, (&mut told, board));
        }
        program::stopping();
        for inbox in &self.inboxes {
            inbox.send(Mail::Stop);
        }
        // Until then another process cannot listen here, so that its writes are later.
        while threads.running() > 0 {
            told.tell(board, || self.sessions.status(&self.units));
            verbs::os::wait(&[threads.fd()], PAUSE.as_millis() as i32)?;
            result = threads.results().into_iter().fold(result, io::Result::and);
        }
        result
    }

    /// Takes connection requests until `stop` is readable, or until a reactor has failed.
    fn serve(
        &mut self,
        threads: &mut Threads<io::Result<()>>,
        stop: &impl AsRawFd,
        (told, board): (&mut Told, Option<&Board>),
    ) -> io::Result<()> {
        let mut turn = 0;
        loop {
            told.tell(board, || self.sessions.status(&self.units));
            let timeout = match () {
                () if self.door.leaving() => 100,
                () if board.is_some() => PAUSE.as_millis() as i32,
                () => -1,
            };
            let fds = [threads.fd(), stop.as_raw_fd()];
            if self.door.wait(&fds, timeout)? != [false, false] {
                return Ok(());
            }
            while let Some(event) = self.door.poll()? {
                let Event::Login { id, .. } = event else {
                    continue;
                };
                if let Some(list) = self.allow.as_mut().and_then(ListFile::news) {
                    self.sessions.allow(list);
                }
                let inbox = &self.inboxes[turn % self.inboxes.len()];
                turn += 1;
                match self.door.hand_over(id, &inbox.events) {
                    Ok(incoming) => inbox.send(Mail::Request(incoming)),
                    Err(e) => tracing::warn!("connection request {id}: {e}"),
                }
            }
            self.door.late();
        }
    }
}
