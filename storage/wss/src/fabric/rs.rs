// SPDX-License-Identifier: GPL-2.0

//! An RS on RDMA devices.

use std::{collections::BTreeMap, io, net::SocketAddr, os::fd::RawFd, sync::Arc};

use srp_target::{
    disk::Disk,
    reactor::{Event, LinkId},
    sense::Sense,
    workers::Workers,
};
use verbs::{Buffer, Op, Piece};

use super::{accept_role, good, send, short::Short, Links, Role};
use crate::{
    message::{Status, Zero},
    peer::Peer,
    rs::{Action, OpId, Store, Work},
};

pub(super) enum Token {
    Pulled(OpId),
    Pushed(OpId),
}

struct Job {
    op: OpId,
    work: Work,
    memory: Option<Buffer>,
}

type Files = Workers<Job, (OpId, Status, Option<Buffer>)>;

pub(super) struct Rs {
    store: Store,
    disks: Arc<Vec<Disk>>,
    files: Files,
    /// The connection and the buffer of each operation that is started.
    memory: BTreeMap<OpId, (LinkId, Option<Buffer>)>,
    short: Short<Action>,
}

fn status(result: Result<(), Sense>) -> Status {
    match result {
        Ok(()) => Status::Good,
        Err(Sense::READ_ERROR) => Status::ReadError,
        Err(Sense::FULL) => Status::Full,
        Err(_) => Status::WriteError,
    }
}

/// Does file I/O. The store has checked the object and the blocks.
fn execute(disks: &[Disk], job: &mut Job) -> Status {
    let object = match job.work {
        Work::Read { object, .. }
        | Work::Write { object, .. }
        | Work::Zero { object, .. }
        | Work::Flush { object } => object,
    };
    let Some(disk) = disks.get(object as usize) else {
        return Status::Invalid;
    };
    let bytes = job.memory.as_deref_mut().unwrap_or_default();
    let flush = |stable| if stable { disk.flush() } else { Ok(()) };
    status(match job.work {
        Work::Read {
            at, blocks, stable, ..
        } => flush(stable).and_then(|()| disk.read(at, &mut bytes[..blocks as usize * 512])),
        Work::Write {
            at, blocks, stable, ..
        } => disk
            .write(at, &bytes[..blocks as usize * 512])
            .and_then(|()| flush(stable)),
        Work::Zero {
            at,
            blocks,
            stable,
            how,
            ..
        } => match how {
            Zero::Unmap => disk.unmap(at, blocks.into()),
            Zero::Write => disk.fill(at, blocks.into(), &[0; 512]),
        }
        .and_then(|()| flush(stable)),
        Work::Flush { .. } => disk.flush(),
    })
}

/// Number of this boot of the host: until the next one, the page cache has all answered writes.
fn boot() -> io::Result<u64> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(PATH).map_err(|e| io::Error::other(format!("{PATH}: {e}")))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let first = digits
        .get(..16)
        .and_then(|d| u64::from_str_radix(d, 16).ok());
    first.ok_or_else(|| io::Error::other(format!("{PATH}: {text:?} is no boot number")))
}

pub(super) fn role(
    number: u32,
    disks: Vec<Disk>,
    listen: SocketAddr,
    threads: usize,
) -> io::Result<(Rs, Links<Token>)> {
    let blocks = disks.iter().map(Disk::blocks).collect();
    let boot = boot()?;
    let disks = Arc::new(disks);
    let shown = Arc::clone(&disks);
    let work = move |mut job: Job| {
        let status = execute(&disks, &mut job);
        (job.op, status, job.memory)
    };
    let role = Rs {
        store: Store::new(number, boot, blocks, 0),
        disks: shown,
        files: Workers::new(threads, work)?,
        memory: BTreeMap::new(),
        short: Short::default(),
    };
    Ok((role, Links::new(listen)?))
}

/// The connection of a transfer and the length of its buffer.
fn needs(action: &Action) -> Option<(Peer, usize)> {
    match *action {
        Action::Pull { peer, len, .. } => Some((peer, len as usize)),
        Action::Execute {
            peer,
            work: Work::Read { blocks, .. },
            ..
        } => Some((peer, blocks as usize * 512)),
        _ => None,
    }
}

impl Rs {
    /// Rejects SEs of older epochs.
    pub(super) fn refuse_before(&mut self, epoch: u64) {
        self.store.refuse_before(epoch);
    }

    fn action(&mut self, reactor: &mut Links<Token>, action: Action) {
        match action {
            Action::Say(what) => tracing::info!("{what}"),
            Action::Send { peer, message } => {
                if !send(reactor, peer, &message) {
                    self.store.closed(peer);
                }
            }
            Action::Close { peer } => reactor.close(peer),
            Action::Pull { .. }
            | Action::Execute {
                work: Work::Read { .. },
                ..
            } => {
                let mut short = std::mem::take(&mut self.short);
                if short.start(action, |action| self.start(reactor, action)) {
                    tracing::warn!("no memory: transfers wait for others");
                }
                self.short = short;
            }
            Action::Push {
                peer,
                op,
                va,
                key,
                len,
            } => {
                let memory = self
                    .memory
                    .get_mut(&op)
                    .and_then(|(_, buffer)| buffer.take());
                let Some(buffer) = memory else {
                    return;
                };
                let piece = Piece { va, key, len };
                let token = Some(Token::Pushed(op));
                let result = reactor.queue(peer, token, Op::Write, buffer, vec![piece]);
                self.check(reactor, peer, result);
            }
            Action::Execute { peer, op, work } => {
                let memory = self.memory.remove(&op).and_then(|(_, buffer)| buffer);
                self.memory.insert(op, (peer, None));
                self.files.give(Job { op, work, memory });
            }
            Action::Forget { op } => {
                if let Some((peer, buffer)) = self.memory.remove(&op) {
                    reactor.give(peer, buffer);
                }
            }
        }
    }

    /// Starts a transfer. Returns false if there is no memory now.
    fn start(&mut self, reactor: &mut Links<Token>, action: &Action) -> bool {
        let Some((peer, len)) = needs(action) else {
            return true;
        };
        let buffer = match reactor.take(peer, len) {
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => return false,
            result => result,
        };
        match (action.clone(), buffer) {
            (
                Action::Pull {
                    op, va, key, len, ..
                },
                buffer,
            ) => {
                let result = buffer.and_then(|buffer| {
                    self.memory.insert(op, (peer, None));
                    let piece = Piece { va, key, len };
                    reactor.queue(peer, Some(Token::Pulled(op)), Op::Read, buffer, vec![piece])
                });
                self.check(reactor, peer, result);
            }
            (Action::Execute { op, work, .. }, Ok(buffer)) => {
                self.memory.insert(op, (peer, None));
                let memory = Some(buffer);
                self.files.give(Job { op, work, memory });
            }
            (Action::Execute { op, .. }, Err(e)) => {
                self.check(reactor, peer, Err(e));
                self.store.executed(op, Status::ReadError);
            }
            _ => {}
        }
        true
    }

    fn check(&mut self, reactor: &mut Links<Token>, peer: Peer, result: io::Result<()>) {
        if !good(reactor, peer, result) {
            self.store.closed(peer);
        }
    }
}

impl Role for Rs {
    type Token = Token;
    type Links = Links<Token>;

    fn tick(&mut self, now: u64) {
        self.store.tick(now);
        let busy = !self.memory.is_empty();
        if let Some((peer, len)) = self.short.in_vain(now, busy).and_then(needs) {
            let why = "there is no memory, and no operation has any; see `ulimit -l`";
            self.store.fail(peer, &format!("{len} bytes: {why}"));
        }
    }

    fn event(&mut self, reactor: &mut Links<Token>, event: Event<Token>) {
        match event {
            Event::Login { id, data } => {
                if !accept_role(reactor, id, &data) {
                    tracing::warn!("connection {id} is refused: it is of no role");
                    reactor.close(id);
                }
            }
            Event::Refused { id, why } => reactor.refuse(id, &why),
            Event::Received { id, buffer, len } => {
                let granted = reactor.granted(id, &buffer[..len]);
                if let Ok(false) = granted {
                    self.store.message(id, &buffer[..len]);
                }
                let result = granted.and_then(|granted| reactor.again(id, buffer, granted));
                self.check(reactor, id, result);
            }
            Event::Done { id, token, buffer } => match token {
                Token::Pulled(op) => {
                    self.memory.insert(op, (id, buffer));
                    self.store.moved(op);
                }
                Token::Pushed(op) => {
                    reactor.give(id, buffer);
                    self.store.moved(op);
                }
            },
            Event::Connected { id } => self.store.connected(id),
            Event::Memory { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.store.closed(id);
            }
        }
    }

    fn act(&mut self, reactor: &mut Links<Token>) {
        loop {
            let mut short = std::mem::take(&mut self.short);
            short.go_on(|action| self.start(reactor, action));
            self.short = short;
            let actions = self.store.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(reactor, action);
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.files.fd()]
    }

    fn work(&mut self, reactor: &mut Links<Token>) {
        for (op, status, buffer) in self.files.done() {
            if let Some((_, place)) = self.memory.get_mut(&op) {
                *place = buffer;
            }
            self.store.executed(op, status);
            self.act(reactor);
        }
    }

    fn status(&self) -> serde_json::Value {
        let objects = self.disks.iter().enumerate();
        let mut all = self.store.status();
        all["objects"] = objects
            .map(|(n, disk)| disk.status(&n.to_string()))
            .collect();
        all
    }

    fn shutdown(&mut self) {}

    fn idle(&self) -> bool {
        self.store.idle()
    }
}
