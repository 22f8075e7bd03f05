// SPDX-License-Identifier: GPL-2.0

//! An RS of `wss` that has a set as its object 0. A thread of its own runs the client of the set.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{json, Value};
use srp_target::{
    auth::{Guard, Identity},
    program,
    reactor::{Event, Reactor},
    results::{ResultSender, Results},
    status::{Board, Told as Shown},
};
use wss::{
    fabric::{
        objects::{Done, Job, Objects},
        run, Role,
    },
    message::Status,
    options::LINE,
    rs::{OpId, Settings, Work},
};

use super::{
    name,
    nodes::{self, Lease, Nodes},
    CLIENT, KEYED,
};
use crate::{
    client::{self, Action, Outcome},
    coordinator::Coordinator,
    layout::BLOCK,
    options::Options,
};

type Memory = nodes::Memory<()>;

/// What the thread tells.
enum Told {
    /// It has the set: its number of blocks, and its identifier.
    Ready(u64, u64),
    Done(Done),
    Ended(String),
}

/// The thread.
struct Blocks {
    nodes: Nodes<Memory>,
    jobs: Results<Job>,
    told: ResultSender<Told>,
    /// The operations that the set executes.
    tasks: BTreeMap<OpId, Work>,
    /// Those that wait until the data of others take less memory.
    busy: VecDeque<(OpId, Work, Memory)>,
    shown: Arc<Mutex<Value>>,
}

impl Blocks {
    fn take(&mut self, job: Job) {
        let Job { op, work, memory } = job;
        let memory = match (work, memory) {
            // Answered writes are durable.
            (Work::Flush { .. }, memory) => {
                return self.told.send(Told::Done((op, Status::Good, memory)));
            }
            (_, Some(buffer)) => Memory::Buffer((), buffer),
            (Work::Zero { blocks, .. }, None) => Memory::Bytes(vec![0; blocks as usize * BLOCK]),
            (Work::Read { .. } | Work::Write { .. }, None) => {
                return self.told.send(Told::Done((op, Status::Invalid, None)));
            }
        };
        self.begin(op, work, memory);
    }

    fn begin(&mut self, op: OpId, work: Work, memory: Memory) {
        let (at, blocks, write) = match work {
            Work::Read { at, blocks, .. } => (at, blocks, false),
            Work::Write { at, blocks, .. } | Work::Zero { at, blocks, .. } => (at, blocks, true),
            Work::Flush { .. } => return,
        };
        self.tasks.insert(op, work);
        self.nodes.client.command(op, at, blocks, write, memory);
    }

    fn answer(&mut self, op: OpId, outcome: Outcome, memory: Option<Memory>) {
        let Some(work) = self.tasks.remove(&op) else {
            return;
        };
        let status = match (outcome, work) {
            (Outcome::Busy, _) => {
                self.busy.extend(memory.map(|memory| (op, work, memory)));
                return;
            }
            (Outcome::Good, _) => Status::Good,
            (_, Work::Read { .. }) => Status::ReadError,
            _ => Status::WriteError,
        };
        let buffer = match memory {
            Some(Memory::Buffer((), buffer)) => Some(buffer),
            _ => None,
        };
        self.told.send(Told::Done((op, status, buffer)));
        if let Some((op, work, memory)) = self.busy.pop_front() {
            self.begin(op, work, memory);
        }
    }
}

impl Role for Blocks {
    type Token = ();
    type Links = Reactor<()>;

    fn tick(&mut self, _now: u64) {
        self.nodes.tick();
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.nodes.client.status();
    }

    fn event(&mut self, reactor: &mut Reactor<()>, event: Event<()>) {
        self.nodes.clock();
        match event {
            Event::Connected { id } => self.nodes.connected(id),
            Event::Received { id, buffer, len } => {
                self.nodes.received(reactor, id, buffer, len);
            }
            Event::Done { id, buffer, .. } => reactor.give(id, buffer),
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("connection {id} lost: {why}");
                }
                self.nodes.closed(id);
            }
            Event::Login { .. } | Event::Refused { .. } | Event::Memory { .. } => {}
        }
    }

    fn act(&mut self, reactor: &mut Reactor<()>) {
        self.nodes.go_on(reactor);
        loop {
            let actions = self.nodes.client.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match self.nodes.action(reactor, action) {
                    Some(Action::Ready(size)) => {
                        let set = self.nodes.client.map().map_or(0, |map| map.set);
                        self.told.send(Told::Ready(size.blocks(), set));
                    }
                    Some(Action::Answer {
                        command,
                        outcome,
                        memory,
                    }) => self.answer(command, outcome, memory),
                    _ => {}
                }
            }
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.jobs.fd(), self.nodes.fd()]
    }

    fn work(&mut self, reactor: &mut Reactor<()>) {
        self.nodes.clock();
        for job in self.jobs.take() {
            self.take(job);
        }
        self.act(reactor);
        for (id, answer) in self.nodes.answers() {
            self.nodes.answered(id, answer);
            self.act(reactor);
        }
    }

    fn status(&self) -> Value {
        json!({})
    }

    /// The RS has waited for its operations.
    fn shutdown(&mut self) {}

    fn idle(&self) -> bool {
        true
    }

    fn failed(&self) -> Option<String> {
        self.nodes.failed.clone()
    }
}

/// The set, as the RS knows it.
struct Set {
    name: String,
    blocks: u64,
    jobs: ResultSender<Job>,
    told: Results<Told>,
    lease: Arc<Lease>,
    shown: Arc<Mutex<Value>>,
    ended: Option<String>,
    /// The thread ends when this is dropped.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Set {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Set {
    fn status(&self) -> Value {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone()
    }

    /// Waits until this process has the set. Returns its identifier, or `None` if `stop` is
    /// readable before.
    fn wait(&mut self, stop: &impl AsRawFd, board: Option<&Board>) -> io::Result<Option<u64>> {
        let mut shown = Shown::default();
        loop {
            shown.tell(board, || self.status());
            let fds = [stop.as_raw_fd(), self.told.fd()];
            if verbs::os::wait(&fds, Duration::from_secs(1).as_millis() as i32)?[0] {
                return Ok(None);
            }
            for told in self.told.take() {
                match told {
                    Told::Ready(blocks, set) => {
                        let line = u64::from(LINE) / BLOCK as u64;
                        self.blocks = blocks / line * line;
                        return Ok(Some(set));
                    }
                    Told::Ended(why) => return Err(io::Error::other(why)),
                    Told::Done(_) => {}
                }
            }
        }
    }
}

impl Objects for Set {
    fn blocks(&self) -> Vec<u64> {
        vec![self.blocks]
    }

    fn give(&mut self, job: Job) {
        self.jobs.send(job);
    }

    fn done(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        for told in self.told.take() {
            match told {
                Told::Done(one) => done.push(one),
                Told::Ended(why) => self.ended = Some(why),
                Told::Ready(..) => {}
            }
        }
        done
    }

    fn fd(&self) -> RawFd {
        self.told.fd()
    }

    fn status(&self, all: &mut Value) {
        all["objects"] = json!([{ "name": "0", "set": self.name, "blocks": self.blocks }]);
        let mut set = Set::status(self);
        all["nodes"] = set["nodes"].take();
        all["set"] = set;
    }

    fn lost(&self) -> Option<String> {
        let late = || "etcd does not answer, so another RS may have the set".to_string();
        self.ended.clone().or_else(|| self.lease.over().then(late))
    }
}

fn start(options: &Options, etcd: impl Coordinator + Send + 'static) -> io::Result<Set> {
    let Options::Rs {
        set,
        pause,
        lease,
        key,
        ..
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let ours = Identity {
        role: CLIENT,
        number: 0,
    };
    let guard = Guard::open(KEYED, ours, &[], key.as_deref())?;
    let (jobs, give) = Results::new()?;
    let (told, tell) = Results::new()?;
    let (stop, stopped) = UnixStream::pair()?;
    let settings = client::Settings {
        id: name(),
        pause: *pause,
        lease: *lease,
        // As with a file on a slow disk: commands wait in the CEs.
        patience: None,
    };
    let nodes = Nodes::new(set.clone(), etcd, settings)?;
    let shown = Arc::new(Mutex::new(json!({})));
    let lease = Arc::clone(&nodes.lease);
    let role = Blocks {
        nodes,
        jobs,
        told: tell.clone(),
        tasks: BTreeMap::new(),
        busy: VecDeque::new(),
        shown: Arc::clone(&shown),
    };
    let serve = move || {
        let ended = Reactor::calling().and_then(|mut reactor| {
            reactor.guard(guard);
            run(reactor, role, &stopped, None).map(|_| ())
        });
        if let Err(e) = ended {
            tell.send(Told::Ended(e.to_string()));
        }
    };
    Ok(Set {
        name: set.name.clone(),
        blocks: 0,
        jobs: give,
        told,
        lease,
        shown,
        ended: None,
        stop: Some(stop),
        thread: Some(thread::Builder::new().name("set".into()).spawn(serve)?),
    })
}

/// Runs an RS until `stop` is readable: waits for the set, then serves it.
pub(super) fn serve(
    options: Options,
    etcd: impl Coordinator + Send + 'static,
    stop: &impl AsRawFd,
    board: Option<&Board>,
) -> io::Result<()> {
    let mut objects = start(&options, etcd)?;
    let Options::Rs {
        number,
        id,
        listen,
        system,
        key,
        ..
    } = options
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    program::ready("waits for the set");
    let Some(boot) = objects.wait(stop, board)? else {
        return Ok(());
    };
    // Whichever process has the set has all answered writes.
    let settings = Settings { number, id, boot };
    wss::fabric::run_rs(settings, objects, (listen, system, key), stop, board)
}
