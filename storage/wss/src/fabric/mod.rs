// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of the roles on RDMA devices.

mod ce;
mod early;
pub mod election;
mod files;
pub mod objects;
mod rs;
mod se;
mod short;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    os::fd::{AsRawFd, RawFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{json, Value};
use srp_target::{
    acl::ListFile,
    auth::{Guard, Identity, KeyFile, Wanted},
    program,
    reactor::{Event, LinkId, Reactor, ENDING, EVENTS},
    status::{Board, Told},
    store::{self, Label, Use},
    target::ChannelId,
    wire::MIN_IT_IU_LEN,
};
use verbs::Buffer;

use early::Early;
use election::Leadership;
use files::Files;
use objects::Objects;

use crate::{
    answers,
    etcd::Etcd,
    flow::{Flow, RECEIVES},
    message::{Message, MAX_LEN},
    options::{Options, System},
    peer::{fits, Peer, CE, RS, SE, SILENCE},
    rs::Settings,
};

/// Private data of connections between roles. An SRP login differs: its twelfth byte is 0.
pub const PRIVATE: &[u8; 16] = b"wss-role-000003 ";
/// The same between roles with keys.
pub const KEYED: &[u8; 16] = b"wss-auth-000002 ";

/// All connections of a role, with flow control for those to other roles.
struct Links<T> {
    reactor: Reactor<T>,
    flows: BTreeMap<LinkId, Flow>,
    begin: Instant,
}

impl<T> Deref for Links<T> {
    type Target = Reactor<T>;

    fn deref(&self) -> &Reactor<T> {
        &self.reactor
    }
}

impl<T> DerefMut for Links<T> {
    fn deref_mut(&mut self) -> &mut Reactor<T> {
        &mut self.reactor
    }
}

impl<T> Links<T> {
    fn new(listen: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            reactor: Reactor::new(listen)?,
            flows: BTreeMap::new(),
            begin: Instant::now(),
        })
    }

    /// Sends as many queued messages as the peer has free buffers.
    fn flush(&mut self, id: LinkId) -> io::Result<()> {
        let flow = self.flows.entry(id).or_default();
        while let Some(message) = flow.pop() {
            self.reactor.send(id, None, &message)?;
        }
        Ok(())
    }

    /// Handles a GRANT. Returns false for other messages. Fails if the sender says that it is
    /// another role than it has proven.
    fn granted(&mut self, id: LinkId, bytes: &[u8]) -> io::Result<bool> {
        // The role parses all others.
        if !Message::is_of_link(bytes) {
            return Ok(false);
        }
        let message = Message::parse(bytes);
        if let (Some(who), Ok(message)) = (self.reactor.peer(id), &message) {
            if !fits(who, message) {
                return Err(io::Error::other(format!("{who:?} has sent {message:?}")));
            }
        }
        let Ok(Message::Grant { count }) = message else {
            return Ok(false);
        };
        if !self.flows.entry(id).or_default().granted(count) {
            return Err(io::Error::other("more buffers than there can be"));
        }
        self.flush(id)?;
        Ok(true)
    }

    /// Reposts a receive buffer of a connection to another role, and sends a GRANT if one is due.
    fn again(&mut self, id: LinkId, buffer: Buffer, granted: bool) -> io::Result<()> {
        self.reactor.receive(id, buffer)?;
        if granted {
            return Ok(());
        }
        match self.flows.entry(id).or_default().free() {
            Some(grant) => self.reactor.send(id, None, &grant.build()),
            None => Ok(()),
        }
    }
}

/// All connections of a role.
pub trait Connections {
    /// The purpose of a completion.
    type Token;
    /// The reactor of the connections.
    fn reactor(&mut self) -> &mut Reactor<Self::Token>;
    /// Forgets the state of connections that have ended.
    fn prune(&mut self) {}
}

impl<T> Connections for Reactor<T> {
    type Token = T;

    fn reactor(&mut self) -> &mut Self {
        self
    }
}

impl<T> Connections for Links<T> {
    type Token = T;

    fn reactor(&mut self) -> &mut Reactor<T> {
        &mut self.reactor
    }

    fn prune(&mut self) {
        self.flows.retain(|id, _| self.reactor.has(*id));
    }
}

/// A role with its connections.
pub trait Role {
    /// The purpose of a completion.
    type Token;
    /// The connections of the role.
    type Links: Connections<Token = Self::Token>;
    /// Sets the time in milliseconds.
    fn tick(&mut self, now: u64);
    /// Handles an event.
    fn event(&mut self, reactor: &mut Self::Links, event: Event<Self::Token>);
    /// Carries out the pending actions.
    fn act(&mut self, reactor: &mut Self::Links);
    /// Descriptors that are readable when worker threads have results.
    fn fds(&self) -> Vec<RawFd>;
    /// Handles the results of worker threads, when one of [`Role::fds`] is readable.
    fn work(&mut self, reactor: &mut Self::Links);
    /// Begins to shut down.
    fn shutdown(&mut self);
    /// Returns whether nothing is left to do.
    fn idle(&self) -> bool;
    /// Returns the status of the role.
    fn status(&self) -> Value;
    /// The reason if the role has failed.
    fn failed(&self) -> Option<String> {
        None
    }
}

/// Calls [`Role::tick`] when it is due.
fn pace<R: Role>(begin: Instant, last: &mut Option<u64>, reactor: &mut R::Links, role: &mut R) {
    let now = begin.elapsed().as_millis() as u64;
    if last.is_none_or(|last| now >= last + SILENCE / 12) {
        *last = Some(now);
        reactor.prune();
        role.tick(now);
        role.act(reactor);
    }
}

/// Runs a role until `stop` is readable, then until it is idle, at most 5 s. The caller drops the
/// role before the reactor, so the writes of its threads end before another process can listen
/// here.
pub fn run<R: Role>(
    mut reactor: R::Links,
    mut role: R,
    stop: &impl AsRawFd,
    board: Option<&Board>,
) -> io::Result<(R, R::Links)> {
    let mut told = Told::default();
    let begin = Instant::now();
    let mut end = None;
    let mut last = None;
    let mut more = false;
    loop {
        pace(begin, &mut last, &mut reactor, &mut role);
        told.tell(board, || role.status());
        let mut fds = role.fds();
        let workers = fds.len();
        // After the first stop signal the descriptor stays readable.
        if end.is_none() {
            fds.push(stop.as_raw_fd());
        }
        let ready = reactor.reactor().wait(&fds, if more { 0 } else { 100 })?;
        if ready.get(workers) == Some(&true) {
            end = Some(Instant::now() + ENDING);
            program::stopping();
            role.shutdown();
        }
        let mut turn = EVENTS;
        while turn > 0 {
            // After a suspend, first close the silent connections.
            pace(begin, &mut last, &mut reactor, &mut role);
            let Some(event) = reactor.reactor().poll()? else {
                break;
            };
            turn -= 1;
            role.event(&mut reactor, event);
            role.act(&mut reactor);
        }
        more = turn == 0;
        if ready[..workers].contains(&true) {
            role.work(&mut reactor);
        }
        for id in reactor.reactor().late() {
            role.event(&mut reactor, Event::Ended { id, why: None });
        }
        role.act(&mut reactor);
        if let Some(why) = role.failed() {
            return Err(io::Error::other(why));
        }
        if end.is_some_and(|end| role.idle() || Instant::now() > end) {
            return Ok((role, reactor));
        }
    }
}

/// The open connections that a role makes and numbers itself.
#[derive(Default)]
pub struct Made {
    links: BTreeMap<Peer, LinkId>,
    peers: BTreeMap<LinkId, Peer>,
}

impl Made {
    /// The role's number of a connection.
    pub fn peer(&self, id: LinkId) -> Option<Peer> {
        self.peers.get(&id).copied()
    }

    /// The reactor's number of a connection.
    pub fn link(&self, peer: Peer) -> Option<LinkId> {
        self.links.get(&peer).copied()
    }

    /// Removes a connection. Returns the reactor's number of it.
    pub fn remove(&mut self, peer: Peer) -> Option<LinkId> {
        let id = self.links.remove(&peer)?;
        self.peers.remove(&id);
        Some(id)
    }

    /// Connects with private data `role`, and a number of buffers for messages of a maximum length.
    /// On failure prints the error and returns false.
    pub fn connect<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        peer: Peer,
        (to, wanted): (SocketAddr, Wanted),
        role: &[u8],
        sizes: [usize; 2],
    ) -> bool {
        match reactor.call(to, wanted, role, sizes) {
            Ok(id) => {
                self.links.insert(peer, id);
                self.peers.insert(id, peer);
                true
            }
            Err(e) => {
                tracing::warn!("{to}: {e}");
                false
            }
        }
    }
}

fn connect<T>(
    reactor: &mut Links<T>,
    made: &mut Made,
    peer: Peer,
    (to, role): (SocketAddr, u8),
) -> bool {
    let wanted = Wanted { role, number: None };
    made.connect(reactor, peer, (to, wanted), PRIVATE, [RECEIVES, MAX_LEN])
}

/// Returns false and closes the connection if `result` is an error, unless it has already ended.
pub fn good<T>(reactor: &mut Reactor<T>, id: LinkId, result: io::Result<()>) -> bool {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotConnected => {
            tracing::warn!("connection {id}: {e}");
            reactor.close(id);
            false
        }
        _ => true,
    }
}

fn send<T>(reactor: &mut Links<T>, id: LinkId, message: &Message) -> bool {
    let now = reactor.begin.elapsed().as_millis() as u64;
    let flow = reactor.flows.entry(id).or_default();
    let result = if flow.queue(message.build(), now) {
        reactor.flush(id)
    } else {
        Err(io::Error::other("it takes no messages"))
    };
    good(reactor, id, result)
}

/// Number of receive buffers of an answer channel, whose initiator only sends a logout.
const LOGOUTS: usize = 2;
/// Maximum number of its queued operations: data and response of 1,024 commands of each of 64
/// channels, times two, as in [`srp_target::fabric::QUEUED`].
const QUEUED: usize = 2 * 2 * 1024 * 64;

/// Carries out an action on an answer channel. Returns the channel if it has ended.
fn answer_channel<T, A>(
    reactor: &mut Links<T>,
    early: &mut Early<A>,
    action: answers::Action,
) -> Option<ChannelId> {
    let (id, result) = match action {
        answers::Action::Accept { channel, response } => {
            let len = MIN_IT_IU_LEN as usize;
            let Err(e) = reactor.accept(channel, &response, LOGOUTS, len, QUEUED) else {
                early.accept(channel);
                return None;
            };
            reactor.refuse(channel, &e.to_string());
            return Some(channel);
        }
        answers::Action::Reject { channel, response } => {
            if let Err(e) = reactor.reject(channel, &response) {
                tracing::warn!("channel {channel}: cannot refuse it: {e}");
            }
            return None;
        }
        answers::Action::Leave { channel, .. } if reactor.waits(channel) => {
            reactor.close(channel);
            return Some(channel);
        }
        answers::Action::Leave { channel, message } => {
            (channel, reactor.leave(channel, message.as_deref()))
        }
    };
    (!good(reactor, id, result)).then_some(id)
}

/// Accepts a connection request of another role. The result is that of [`Reactor::welcome`].
fn accept_role<T>(reactor: &mut Links<T>, id: LinkId, data: &[u8]) -> bool {
    reactor.welcome(id, data, [PRIVATE, KEYED], [RECEIVES, MAX_LEN])
}

/// Labels the store of an object.
fn format(label: Label, file: &Path, size: Option<u64>, again: bool) -> io::Result<()> {
    let result = store::format(file, |f| {
        store::label(&f, label, size.map(|mib| mib << 20), again)
    });
    let name = file.display();
    let len = result.map_err(|e| io::Error::other(format!("{name}: {e}")))?;
    println!("{name}: {label}, {} blocks", len / 512);
    Ok(())
}

/// Checks the files of `--key` and `--allow`.
pub fn check_access(key: Option<&Path>, allow: Option<&Path>) -> io::Result<()> {
    key.map(KeyFile::open).transpose()?;
    allow.map(ListFile::open).transpose()?;
    Ok(())
}

/// Checks the files of a role. Its stores may be in use.
pub fn check(options: Options) -> io::Result<()> {
    match options {
        Options::Rs {
            number,
            files,
            key,
            system,
            ..
        } => {
            check_access(key.as_deref(), None)?;
            system.map(|s| Etcd::new(s.etcd)).transpose()?;
            files::open(number, &files, Use::Checking).map(|_| ())
        }
        Options::Se {
            key, allow, system, ..
        } => {
            system.map(|s| Etcd::new(s.etcd)).transpose()?;
            check_access(key.as_deref(), allow.as_deref())
        }
        Options::Ce { key, .. } => check_access(key.as_deref(), None),
        Options::Format { .. } => Ok(()),
    }
}

/// Runs a role until SIGTERM.
pub fn serve(options: Options, board: Option<Arc<Board>>) -> io::Result<()> {
    // Threads inherit the signal mask, so block the signals first.
    let stop = verbs::os::signals()?;
    let board = board.as_deref();
    let listen = match &options {
        Options::Rs { listen, .. } | Options::Se { listen, .. } | Options::Ce { listen, .. } => {
            *listen
        }
        Options::Format {
            label,
            file,
            size,
            again,
        } => return format(*label, file, *size, *again),
    };
    match options {
        Options::Rs {
            number,
            files,
            threads,
            id,
            system,
            key,
            ..
        } => {
            let objects = Files::new(files::open(number, &files, Use::Alone)?, threads)?;
            let boot = files::boot()?;
            let settings = Settings { number, id, boot };
            run_rs(settings, objects, (listen, system, key), &stop, board)?;
        }
        Options::Se {
            ref system,
            ref key,
            ..
        } => {
            let ours = Identity {
                role: SE,
                number: 0,
            };
            let guard = Guard::open(KEYED, ours, &[CE], key.as_deref())?;
            let leadership = match system {
                Some(system) => {
                    let etcd = Etcd::new(system.etcd.clone())?;
                    program::ready("waits for its place as the SE");
                    match Leadership::begin(etcd, &system.name, waits(&stop, board))? {
                        Some(leadership) => Some(leadership),
                        None => return ended(),
                    }
                }
                None => None,
            };
            // Without etcd the epoch is the start time, which is later than every earlier start.
            // Its unit is so small that no earlier SE can have reached it by allocating epochs.
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or(Duration::ZERO);
            let clock = (since.as_millis() as u64) << 20;
            let epoch = leadership.as_ref().map_or(clock, Leadership::epoch);
            let (role, mut reactor) =
                se::role(options, epoch, leadership.as_ref().map(Leadership::term))?;
            reactor.guard(guard);
            program::ready(&format!("listens at {listen}, epoch {epoch}"));
            run(reactor, role, &stop, board)?;
        }
        Options::Format { .. } => {}
        Options::Ce {
            member, ref key, ..
        } => {
            let ours = Identity {
                role: CE,
                number: member,
            };
            let guard = Guard::open(KEYED, ours, &[], key.as_deref())?;
            let (role, mut reactor) = ce::role(options)?;
            reactor.guard(guard);
            program::ready(&format!("listens at {listen}"));
            let done = run(reactor, role, &stop, board)?;
            let [hits, misses] = done.0.hits();
            tracing::info!("{hits} reads found all of their lines, {misses} did not");
        }
    }
    ended()
}

/// Runs an RS until `stop` is readable. It listens at an address, looks up its SE in etcd if it is
/// of a system, and shares the keys in a file, if any.
pub fn run_rs(
    settings: Settings,
    objects: impl Objects,
    (listen, system, key): (SocketAddr, Option<System>, Option<PathBuf>),
    stop: &impl AsRawFd,
    board: Option<&Board>,
) -> io::Result<()> {
    let ours = Identity {
        role: RS,
        number: settings.number,
    };
    let guard = Guard::open(KEYED, ours, &[SE, CE], key.as_deref())?;
    let (mut role, mut reactor) = rs::role(settings, objects, listen)?;
    reactor.guard(guard);
    program::ready(&format!("listens at {listen}"));
    // This RS already holds the port, or its objects, so no SE can announce its epoch to an earlier
    // instance after the lookup.
    if let Some(system) = system {
        let etcd = Etcd::new(system.etcd)?;
        match election::least_epoch(etcd, &system.name, waits(stop, board))? {
            Some(epoch) => role.refuse_before(epoch),
            None => return Ok(()),
        }
    }
    run(reactor, role, stop, board).map(|_| ())
}

fn ended() -> io::Result<()> {
    tracing::info!("ended");
    Ok(())
}

/// Returns a function that waits for a duration, or until `stop` is readable, in which case it
/// returns true. The status says that the role waits.
fn waits<'a>(
    stop: &impl AsRawFd,
    board: Option<&'a Board>,
) -> impl FnMut(Duration) -> io::Result<bool> + 'a {
    let (fd, mut told) = (stop.as_raw_fd(), Told::default());
    move |time| {
        told.tell(board, || json!({ "state": "waiting" }));
        Ok(verbs::os::wait(&[fd], time.as_millis() as i32)? == [true])
    }
}
