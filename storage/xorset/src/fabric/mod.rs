// SPDX-License-Identifier: GPL-2.0

//! Carries out the actions of the roles on RDMA devices.

mod backlog;
mod client;
mod node;
mod nodes;
mod rs;

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use backlog::Backlog;
use srp_target::{
    auth::{Guard, Identity, Wanted},
    program,
    reactor::{LinkId, Reactor},
    status::Board,
    store::{self, Owner, Use},
};
use verbs::{Op, Piece};
use wss::{
    fabric::{check_access, good, run, Made},
    peer::Peer,
};

use crate::{
    coordinator::Coordinator,
    etcd::Etcd,
    journal::{Journal, Media},
    layout::Size,
    link::Payload,
    message::{Message, Role, LEN, PAYLOAD},
    options::{Options, Set},
};

/// Private data of connections between roles. An SRP login differs: its twelfth byte is 0.
pub const PRIVATE: &[u8; 16] = b"xorset-role-002 ";
/// The same between roles with keys.
pub const KEYED: &[u8; 16] = b"xorset-auth-001 ";
/// The client in identities.
pub const CLIENT: u8 = 1;
/// A node in identities.
pub const NODE: u8 = 2;
/// Number of receive buffers per connection, for messages with payload. Further messages wait at
/// the sender.
const RECEIVES: usize = 48;

/// The file of a node.
struct Disk(File);

impl Media for Disk {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Creates the file of a node.
fn format(path: &Path, number: u8, size: Size, log: u64, thin: bool) -> io::Result<()> {
    store::format(path, |file| {
        let mut disk = Disk(file);
        Journal::unused(&mut disk)?;
        match store::owner(&disk.0)? {
            Owner::Unknown => {}
            other => return Err(io::Error::other(format!("--file: {other}"))),
        }
        store::zeroed(&disk.0, Journal::<Disk>::file_len(&size, log), thin)?;
        Journal::format(disk, number, size, log)
    })
}

/// Opens the journal of a node.
fn open(path: &Path, number: Option<u8>, how: Use) -> io::Result<Disk> {
    let mut disk = Disk(store::open(path, how)?);
    let has = Journal::owner(&mut disk)?;
    match number.filter(|n| *n != has) {
        Some(n) => Err(io::Error::other(format!(
            "--file: it is of node {has}, and this is node {n}"
        ))),
        None => Ok(disk),
    }
}

/// A unique number for this process, from its start time in nanoseconds and its process ID.
fn name() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}

/// Connects to a node.
fn connect<T>(
    reactor: &mut Reactor<T>,
    made: &mut Made,
    peer: Peer,
    set: &Set,
    node: usize,
) -> bool {
    let wanted = Wanted {
        role: NODE,
        number: Some(node as u32),
    };
    let to = (set.nodes[node], wanted);
    made.connect(reactor, peer, to, PRIVATE, [RECEIVES, LEN + PAYLOAD])
}

/// Fails if a role says that it is another one than it has proven.
fn fits(who: Option<Identity>, message: &[u8]) -> io::Result<()> {
    let (role, number) = match Message::parse(message) {
        Ok(Message::Attach { role: Role::Client }) => (CLIENT, 0),
        Ok(Message::Attach {
            role: Role::Node(n),
        }) => (NODE, n.into()),
        Ok(Message::Attached { number, .. }) => (NODE, number.into()),
        _ => return Ok(()),
    };
    match who {
        Some(who) if who != (Identity { role, number }) => Err(io::Error::other(format!(
            "{who:?} says that it is role {role}, number {number}"
        ))),
        _ => Ok(()),
    }
}

/// Queues a message with its payload. Fails with `OutOfMemory` if it has to wait.
fn put<T>(
    reactor: &mut Reactor<T>,
    id: LinkId,
    message: &Message,
    payload: &[u8],
) -> io::Result<()> {
    let len = LEN + payload.len();
    let mut buffer = reactor.take(id, len)?;
    buffer[..LEN].copy_from_slice(&message.build());
    buffer[LEN..len].copy_from_slice(payload);
    let piece = Piece {
        va: 0,
        key: 0,
        len: len as u32,
    };
    reactor.queue(id, None, Op::Send, buffer, vec![piece])
}

/// Sends a message with its payload, when there is memory. On failure closes the connection and
/// returns false.
fn send<T>(
    reactor: &mut Reactor<T>,
    backlog: &mut Backlog,
    id: LinkId,
    message: Message,
    payload: Payload,
) -> bool {
    let result = backlog.send(id, (message, payload), |(m, p)| put(reactor, id, m, p));
    good(reactor, id, result)
}

/// Sends the messages that wait for memory. Returns the connections that were closed.
fn go_on<T>(reactor: &mut Reactor<T>, backlog: &mut Backlog) -> Vec<LinkId> {
    let mut closed = Vec::new();
    for id in backlog.links() {
        let result = backlog.go_on(id, |(m, p)| put(reactor, id, m, p));
        if !good(reactor, id, result) {
            closed.push(id);
        }
    }
    closed
}

fn named(file: &Path, e: io::Error) -> io::Error {
    io::Error::other(format!("{}: {e}", file.display()))
}

/// Checks the files of a role. A node's file may be in use.
pub fn check(options: Options) -> io::Result<()> {
    match options {
        Options::Node {
            number,
            file,
            key,
            set,
        } => {
            check_access(key.as_deref(), None)?;
            Etcd::new(set.etcd, &set.name)?;
            let media = open(&file, number, Use::Checking);
            media.map(|_| ()).map_err(|e| named(&file, e))
        }
        Options::Rs { key, set, .. } => {
            Etcd::new(set.etcd, &set.name)?;
            check_access(key.as_deref(), None)
        }
        Options::Client {
            key, allow, set, ..
        } => {
            Etcd::new(set.etcd, &set.name)?;
            check_access(key.as_deref(), allow.as_deref())
        }
        Options::Format { .. } => Ok(()),
    }
}

/// Runs the client of a set until `stop` is readable.
pub fn run_client(
    options: Options,
    etcd: impl Coordinator + Send + 'static,
    stop: &impl AsRawFd,
    board: Option<&Board>,
) -> io::Result<()> {
    let Options::Client {
        listen, ref key, ..
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let ours = Identity {
        role: CLIENT,
        number: 0,
    };
    let guard = Guard::open(KEYED, ours, &[], key.as_deref())?;
    let (role, mut reactor) = client::role(options, etcd)?;
    reactor.guard(guard);
    program::ready(&format!("listens at {listen}"));
    run(reactor, role, stop, board).map(|_| ())
}

/// Runs an RS of `wss` that has the set until `stop` is readable.
pub fn run_rs(
    options: Options,
    etcd: impl Coordinator + Send + 'static,
    stop: &impl AsRawFd,
    board: Option<&Board>,
) -> io::Result<()> {
    rs::serve(options, etcd, stop, board)
}

/// Runs a role until SIGTERM.
pub fn serve(options: Options, board: Option<Arc<Board>>) -> io::Result<()> {
    // Threads inherit the signal mask, so block the signals first.
    let stop = verbs::os::signals()?;
    let board = board.as_deref();
    match options {
        Options::Format {
            number,
            file,
            size,
            log,
            thin,
        } => {
            format(&file, number, size, log, thin).map_err(|e| named(&file, e))?;
            println!(
                "{}: node {number}, {} blocks in the set",
                file.display(),
                size.blocks()
            );
            return Ok(());
        }
        Options::Node {
            number,
            file,
            set,
            key,
        } => {
            let media = open(&file, number, Use::Alone).map_err(|e| named(&file, e))?;
            // The kernel reports a failed write once to each opener, so open the file again for the
            // thread that syncs: both must hear of it.
            let other = File::open(&file).map_err(|e| named(&file, e))?;
            let journal = Journal::open(media).map_err(|e| named(&file, e))?;
            let (number, listen) = (journal.number(), set.nodes[usize::from(journal.number())]);
            let ours = Identity {
                role: NODE,
                number: number.into(),
            };
            let guard = Guard::open(KEYED, ours, &[CLIENT, NODE], key.as_deref())?;
            let (role, mut reactor) = node::role(journal, other, set)?;
            reactor.guard(guard);
            program::ready(&format!("node {number} listens at {listen}"));
            run(reactor, role, &stop, board)?;
        }
        Options::Client { ref set, lease, .. } => {
            let etcd = Etcd::new(set.etcd.clone(), &set.name)?.with_lease(lease);
            run_client(options, etcd, &stop, board)?;
        }
        Options::Rs { ref set, lease, .. } => {
            let etcd = Etcd::new(set.etcd.clone(), &set.name)?.with_lease(lease);
            run_rs(options, etcd, &stop, board)?;
        }
    }
    tracing::info!("ended");
    Ok(())
}
