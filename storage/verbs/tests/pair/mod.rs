// SPDX-License-Identifier: GPL-2.0

//! Two reactors that are connected by the made-up rdma-core of `fake.h`.

use std::{
    collections::HashMap,
    ffi::{c_char, c_int, c_long, CStr},
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use srp_target::reactor::{Event, LinkId, Reactor};

#[link(name = "fake", kind = "static")]
extern "C" {
    fn fake_remove(number: c_int, tell_ids: c_int);
    fn fake_add(number: c_int);
    fn fake_event(what: c_int, port: c_int);
    fn fake_delay(ms: u32);
    fn fake_refuse(refuse: c_int);
    fn fake_again();
    fn fake_limit(bytes: c_long);
    fn fake_slow(ms: u32);
    fn fake_registered() -> c_long;
    fn fake_at_once() -> c_int;
    fn fake_open() -> c_int;
    fn fake_asked() -> c_int;
    fn fake_doorbells() -> c_int;
    fn fake_vectors() -> c_int;
    fn fake_late_reads(on: c_int);
    fn fake_misuse() -> *const c_char;
}

pub(crate) fn remove(number: i32, tell_ids: bool) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_remove(number, tell_ids.into()) }
}

pub(crate) fn add(number: i32) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_add(number) }
}

pub(crate) fn event(what: i32, port: i32) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_event(what, port) }
}

pub(crate) fn delay(ms: u32) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_delay(ms) }
}

pub(crate) fn refuse(refuse: bool) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_refuse(refuse.into()) }
}

pub(crate) fn again() {
    // SAFETY: The function has no preconditions.
    unsafe { fake_again() }
}

pub(crate) fn limit(bytes: c_long) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_limit(bytes) }
}

pub(crate) fn slow(time: Duration) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_slow(time.as_millis() as u32) }
}

/// Length of all registered memory, in bytes.
pub(crate) fn registered() -> c_long {
    // SAFETY: The function has no preconditions.
    unsafe { fake_registered() }
}

/// The most registrations and ends that have been slow at the same time, since the last call.
pub(crate) fn at_once() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { fake_at_once() }
}

/// Number of open contexts.
pub(crate) fn open() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { fake_open() }
}

/// Number of times that a source of events was asked.
pub(crate) fn asked() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { fake_asked() }
}

/// Number of posts of sends.
pub(crate) fn doorbells() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { fake_doorbells() }
}

pub(crate) fn late_reads(on: bool) {
    // SAFETY: The function has no preconditions.
    unsafe { fake_late_reads(on.into()) }
}

/// The completion vectors that were used, as bits.
pub(crate) fn vectors() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { fake_vectors() }
}

pub(crate) fn misuse() -> String {
    // SAFETY: The function has no preconditions.
    let text = unsafe { fake_misuse() };
    // SAFETY: The text is static, and nothing else runs that changes it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into()
}

/// The fake has one set of devices: tests take turns.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const LEN: usize = 64;

/// A reactor that accepts all connections.
pub(crate) struct Side {
    pub(crate) reactor: Reactor<()>,
    pub(crate) connected: Vec<LinkId>,
    pub(crate) received: HashMap<LinkId, usize>,
    pub(crate) ended: HashMap<LinkId, Option<String>>,
}

impl Side {
    pub(crate) fn new(listen: &[&str]) -> Self {
        let mut reactor = Reactor::calling().unwrap();
        for at in listen {
            reactor.listen(at.parse().unwrap()).unwrap();
        }
        Self::with(reactor)
    }

    pub(crate) fn with(reactor: Reactor<()>) -> Self {
        Self {
            reactor,
            connected: Vec::new(),
            received: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    pub(crate) fn connect(&mut self, to: &str) -> LinkId {
        let to: SocketAddr = to.parse().unwrap();
        self.reactor.connect(to, b"test", 4, LEN).unwrap()
    }

    pub(crate) fn turn(&mut self) {
        self.reactor.wait(&[], 0).unwrap();
        while let Some(event) = self.reactor.poll().unwrap() {
            match event {
                Event::Login { id, .. } => {
                    if let Err(e) = self.reactor.accept(id, &[], 4, LEN, 99) {
                        self.reactor.close(id);
                        self.ended.insert(id, Some(e.to_string()));
                    }
                }
                Event::Refused { id, why } => {
                    self.reactor.close(id);
                    self.ended.insert(id, Some(why));
                }
                Event::Connected { id } => self.connected.push(id),
                Event::Received { id, buffer, .. } => {
                    *self.received.entry(id).or_default() += 1;
                    self.reactor.receive(id, buffer).unwrap();
                }
                Event::Done { id, buffer, .. } => self.reactor.give(id, buffer),
                Event::Memory { .. } => {}
                Event::Ended { id, why } => {
                    self.ended.insert(id, why);
                }
            }
        }
        self.reactor.late();
    }

    pub(crate) fn all_received(&self) -> usize {
        self.received.values().sum()
    }

    /// Returns whether a descriptor stays ready although nothing is left to do.
    pub(crate) fn busy(&self) -> bool {
        let ready = verbs::os::wait(&self.reactor.fds(), 0).unwrap();
        ready.contains(&true)
    }
}

/// A server, and a client.
pub(crate) struct Pair {
    pub(crate) server: Side,
    pub(crate) client: Side,
}

impl Pair {
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Side, &Side) -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !done(&self.server, &self.client) {
            assert!(Instant::now() < until, "{what}");
            self.server.turn();
            self.client.turn();
        }
    }

    /// Lets the peer of a connection of the client access its arena. Returns the rkey.
    pub(crate) fn offer(&mut self, id: LinkId) -> u32 {
        self.client.reactor.offer(id, ()).unwrap();
        let has = |client: &Side| client.reactor.arena(id).is_some();
        self.until("the arena", |_, client| has(client));
        self.client.reactor.arena(id).unwrap().1
    }

    pub(crate) fn connect(&mut self, to: &str) -> LinkId {
        let id = self.client.connect(to);
        self.until(to, |server, client| {
            client.connected.contains(&id) && server.connected.len() == client.connected.len()
        });
        id
    }

    /// Sends a message from the client to the server.
    pub(crate) fn send(&mut self, id: LinkId) {
        let before = self.server.all_received();
        self.client.reactor.send(id, None, b"a message").unwrap();
        self.until("a message", |server, _| server.all_received() > before);
    }

    /// Sends messages over a connection until something of the client is done that takes `wait`
    /// from `begin`. Closes another connection after ten.
    pub(crate) fn send_beside(
        &mut self,
        other: LinkId,
        closed: LinkId,
        begin: Instant,
        wait: Duration,
        done: impl Fn(&Side) -> bool,
    ) {
        let (mut sent, mut longest) = (0, Duration::ZERO);
        while !done(&self.client) {
            assert!(begin.elapsed() < 5 * wait);
            let before = Instant::now();
            self.send(other);
            longest = longest.max(before.elapsed());
            sent += 1;
            if sent == 10 {
                self.client.reactor.close(closed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = begin.elapsed();
        println!("{sent} messages in {took:?}, the slowest in {longest:?}");
        assert!(took >= wait && longest < wait / 2, "{longest:?}");
    }
}
