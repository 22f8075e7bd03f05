// SPDX-License-Identifier: GPL-2.0

//! An RS of `wss` with a set of `xorset`, and five made-up nodes, on the made-up rdma-core of
//! `fake.h`.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use srp_target::reactor::{Event, LinkId, Reactor};
use verbs::Arena;
use wss::{
    fabric,
    message::{Message, Role, Scope, Status, Transfer, MAX_LEN},
};
use xorset::{
    coordinator::{Answer, Coordinator, Request, TTL},
    fabric::run_rs,
    options::{Options, Set},
};

use crate::{
    pair::*,
    target::{Running, TARGET},
    xorset::{etcd::Etcd, start_nodes, SIZE},
};

const ARENA: usize = 2 << 20;
const BLOCKS: u32 = 256;

/// The etcd of several processes, for one of them. It may be cut off.
struct Shared {
    begin: Instant,
    etcd: Arc<Mutex<Etcd>>,
    cut: Arc<AtomicBool>,
}

impl Coordinator for Shared {
    fn ask(&mut self, request: &Request) -> Answer {
        if self.cut.load(Ordering::Relaxed) {
            return Answer::Failed;
        }
        let mut etcd = self.etcd.lock().unwrap();
        etcd.now = self.begin.elapsed().as_millis() as u64;
        etcd.ask(request)
    }
}

/// The SE and a CE.
struct Peers {
    reactor: Reactor<()>,
    connected: Vec<LinkId>,
    ended: Vec<LinkId>,
    received: HashMap<LinkId, VecDeque<Message>>,
    /// The last time at which both have sent ALIVE.
    alive: Instant,
}

impl Peers {
    fn new() -> Self {
        let mut reactor = Reactor::calling().unwrap();
        reactor.share(Arena::new(ARENA).unwrap());
        Self {
            reactor,
            connected: Vec::new(),
            ended: Vec::new(),
            received: HashMap::new(),
            alive: Instant::now(),
        }
    }

    fn turn(&mut self) {
        self.reactor.wait(&[], 1).unwrap();
        while let Some(event) = self.reactor.poll().unwrap() {
            match event {
                Event::Connected { id } => self.connected.push(id),
                Event::Received { id, buffer, len } => {
                    let message = Message::parse(&buffer[..len]).unwrap();
                    if !matches!(message, Message::Alive | Message::Grant { .. }) {
                        self.received.entry(id).or_default().push_back(message);
                    }
                    self.reactor.receive(id, buffer).unwrap();
                }
                Event::Done { id, buffer, .. } => self.reactor.give(id, buffer),
                Event::Ended { id, .. } => self.ended.push(id),
                _ => {}
            }
        }
        self.reactor.late();
        if self.alive.elapsed() > Duration::from_millis(500) {
            self.alive = Instant::now();
            for id in self.connected.clone() {
                if !self.ended.contains(&id) {
                    self.send(id, &Message::Alive);
                }
            }
        }
    }

    fn until<T>(&mut self, what: &str, done: impl Fn(&mut Self) -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(value) = done(self) {
                return value;
            }
            assert!(Instant::now() < until, "{what}");
            self.turn();
        }
    }

    fn send(&mut self, id: LinkId, message: &Message) {
        self.reactor.send(id, None, &message.build()).unwrap();
    }

    fn answer(&mut self, id: LinkId, what: &str) -> Message {
        self.until(what, |p| p.received.get_mut(&id)?.pop_front())
    }

    /// Connects as a role, once the RS listens there.
    fn attach(&mut self, to: SocketAddr, role: Role, epoch: u64) -> LinkId {
        let end = Instant::now() + Duration::from_secs(20);
        let id = loop {
            assert!(Instant::now() < end, "no RS at {to}");
            let id = self.call(to);
            if self.until("an end", |p| p.came(id)) {
                break id;
            }
            thread::sleep(Duration::from_millis(50));
        };
        let member = u32::from(role == Role::Ce);
        self.send(
            id,
            &Message::Attach {
                role,
                member,
                epoch,
            },
        );
        id
    }

    fn call(&mut self, to: SocketAddr) -> LinkId {
        self.reactor
            .connect(to, fabric::PRIVATE, 16, MAX_LEN)
            .unwrap()
    }

    /// Whether a connection is there, once that is known.
    fn came(&mut self, id: LinkId) -> Option<bool> {
        match (self.connected.contains(&id), self.ended.contains(&id)) {
            (false, false) => None,
            (connected, _) => Some(connected),
        }
    }

    /// Begins as the SE of an RS with a number, whose boot number is returned.
    fn begin(&mut self, to: SocketAddr) -> (LinkId, u64) {
        let se = self.attach(to, Role::Se, 5);
        let Message::Attached {
            status: Status::Good,
            number: 7,
            boot,
            ..
        } = self.answer(se, "ATTACHED")
        else {
            panic!()
        };
        for (scope, member) in [(Scope::All, 0), (Scope::Member, 1)] {
            let epoch = 6;
            let fence = Message::Fence {
                scope,
                member,
                epoch,
            };
            self.send(se, &fence);
            let Message::Fenced { epoch: 6, .. } = self.answer(se, "FENCED") else {
                panic!()
            };
        }
        (se, boot)
    }

    /// Attaches the CE of this epoch, whose arena the RS may access.
    fn ce(&mut self, to: SocketAddr) -> (LinkId, u64, u32) {
        let ce = self.attach(to, Role::Ce, 6);
        assert!(matches!(
            self.answer(ce, "ATTACHED"),
            Message::Attached {
                status: Status::Good,
                ..
            }
        ));
        self.reactor.offer(ce, ()).unwrap();
        let (va, key) = self.until("the arena", |p| p.reactor.arena(ce));
        (ce, va, key)
    }

    /// Sends a message with an identifier, and waits for its result.
    fn done(&mut self, to: LinkId, message: &Message) -> (Status, u64) {
        self.send(to, message);
        match self.answer(to, "DONE") {
            Message::Done { status, value, .. } => (status, value),
            other => panic!("{other:?}"),
        }
    }
}

/// Copies bytes to the arena of the peers.
fn fill(va: u64, bytes: &[u8]) {
    assert!(bytes.len() <= ARENA);
    // SAFETY: With the made-up rdma-core an RDMA address is that of the memory; the arena is as
    // long, lives as long as the peers, and no transfer is in flight.
    unsafe { std::ptr::copy(bytes.as_ptr(), va as *mut u8, bytes.len()) }
}

/// Copies bytes from the arena of the peers.
fn contents(va: u64, len: usize) -> Vec<u8> {
    assert!(len <= ARENA / 2);
    let mut bytes = vec![0; len];
    // SAFETY: As in `fill`; `va` is in the first half of the arena, or begins the second one.
    unsafe { std::ptr::copy(va as *const u8, bytes.as_mut_ptr(), len) }
    bytes
}

fn start(set: &Set, listen: SocketAddr, etcd: Shared) -> Running {
    let options = Options::Rs {
        number: 7,
        set: set.clone(),
        system: None,
        listen,
        id: TARGET.0,
        pause: 0,
        lease: TTL,
        key: None,
    };
    let cut = Arc::clone(&etcd.cut);
    Running::start(move |stop| match run_rs(options, etcd, &stop, None) {
        Ok(()) => assert!(!cut.load(Ordering::Relaxed)),
        Err(e) => assert!(cut.load(Ordering::Relaxed), "{e}"),
    })
}

/// One RS writes and zeroes blocks, and is cut off from etcd. It ends its connections; the other
/// one takes its place, with its boot number, and reads the blocks.
#[test]
fn another_rs_takes_the_set() {
    let _alone = alone();
    let (nodes, set) = start_nodes(5070);
    let places: [SocketAddr; 2] =
        [5076, 5077].map(|port| format!("192.0.2.1:{port}").parse().unwrap());
    let (begin, etcd) = (Instant::now(), Arc::default());
    let cuts = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let shared = |n: usize| Shared {
        begin,
        etcd: Arc::clone(&etcd),
        cut: Arc::clone(&cuts[n]),
    };
    let mut peers = Peers::new();
    let one = start(&set, places[0], shared(0));
    let (se, boot) = peers.begin(places[0]);
    assert_ne!(boot, 0);
    let two = start(&set, places[1], shared(1));
    let open = Message::Open { id: 1, object: 0 };
    assert_eq!(peers.done(se, &open), (Status::Good, SIZE.blocks()));

    let (ce, va, key) = peers.ce(places[0]);
    let pattern: Vec<u8> = (0..BLOCKS as usize * 512).map(|n| (n / 7) as u8).collect();
    fill(va, &pattern);
    let transfer = |id, at: u64, from: u64, (va, key): (u64, u32)| Transfer {
        id,
        object: 0,
        // In several cells.
        at: 100 + at,
        blocks: BLOCKS,
        stable: true,
        va: va + from,
        key,
    };
    let put = Message::Put(transfer(1, 0, 0, (va, key)));
    assert_eq!(peers.done(ce, &put).0, Status::Good);
    let zero = Transfer {
        blocks: 8,
        ..transfer(2, 16, 0, (0, 0))
    };
    let zero = Message::Zero(zero, wss::message::Zero::Unmap);
    assert_eq!(peers.done(ce, &zero).0, Status::Good);
    let flush = Message::Flush { id: 2, object: 0 };
    assert_eq!(peers.done(se, &flush).0, Status::Good);
    let beyond = Transfer {
        at: SIZE.blocks() - 1,
        ..transfer(3, 0, 0, (va, key))
    };
    assert_eq!(peers.done(ce, &Message::Get(beyond)).0, Status::Invalid);
    // The other process does not listen.
    let early = peers.call(places[1]);
    assert!(!peers.until("a refusal", |p| p.came(early)));

    let cut = Instant::now();
    cuts[0].store(true, Ordering::Relaxed);
    peers.until("the ends", |p| {
        [se, ce].iter().all(|id| p.ended.contains(id)).then_some(())
    });
    let ended = cut.elapsed().as_millis() as u64;
    assert!(ended <= TTL, "{ended} ms");
    let (_, again) = peers.begin(places[1]);
    assert_eq!(again, boot);
    let (ce, va, key) = peers.ce(places[1]);
    let half = ARENA as u64 / 2;
    let get = Message::Get(transfer(4, 0, half, (va, key)));
    assert_eq!(peers.done(ce, &get).0, Status::Good);
    let mut wanted = pattern;
    wanted[16 * 512..24 * 512].fill(0);
    assert!(contents(va + half, wanted.len()) == wanted);
    drop((one, two, nodes, peers));
    assert_eq!(misuse(), "");
}
