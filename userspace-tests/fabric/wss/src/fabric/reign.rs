// SPDX-License-Identifier: GPL-2.0

//! Which SE a system has: the one that holds a key in etcd. The key ends with a lease, and the revision with which it was
//! created is the epoch: greater than that of any SE before.
//!
//! An SE serves until shortly before its lease can run out, counted from before it last asked for more. So it is not told by
//! a late answer, nor by an etcd that is away, that it may go on. Whatever it does all the same no RS takes, as soon as
//! the next SE has told them its epoch; an RS that starts asks etcd for it.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{channel, Receiver, RecvTimeoutError, Sender},
        Arc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{etcd::Etcd, peer::SILENCE};

/// So long the key stays without a word of its holder, in seconds. Longer than [`SILENCE`]: until then all CEs that are
/// awake have given up an SE that sleeps, with what they had to do for it.
pub const TTL: u64 = 5;
/// So much earlier the SE ends. Clocks may differ in pace by a fifth.
const MARGIN: Duration = Duration::from_secs(1);
/// How often etcd is asked.
const PAUSE: Duration = Duration::from_secs(1);
/// How soon it is asked again, when it has not answered.
const AGAIN: Duration = Duration::from_millis(250);
/// Bits of an epoch below the revision: for what the SE itself numbers, as sessions and CEs.
const BITS: u32 = 32;

const _: () = assert!(TTL * 1000 > SILENCE + MARGIN.as_millis() as u64);

fn key(system: &str) -> String {
    format!("/wss/{system}/se")
}

fn epoch(revision: u64) -> io::Result<u64> {
    if revision >> (u64::BITS - BITS) != 0 {
        return Err(io::Error::other("etcd has had too many revisions"));
    }
    Ok(revision << BITS)
}

/// How long an SE may serve.
pub struct Term {
    begin: Instant,
    /// In milliseconds after that.
    until: AtomicU64,
    /// etcd has said that the lease is no more.
    lost: AtomicBool,
}

impl Term {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            until: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// The lease holds, as etcd has been asked for it at this time.
    fn confirm(&self, asked: Instant) {
        let until = asked + Duration::from_secs(TTL) - MARGIN;
        let until = until.saturating_duration_since(self.begin).as_millis() as u64;
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Why the SE may do nothing, if so.
    pub fn over(&self) -> Option<String> {
        if self.lost.load(Ordering::Relaxed) {
            return Some("its lease in etcd is no more: another SE may have its place".into());
        }
        let now = self.begin.elapsed().as_millis() as u64;
        let late = now >= self.until.load(Ordering::Relaxed);
        late.then(|| {
            "etcd has not confirmed its lease in time: another SE may have its place".into()
        })
    }
}

/// The time of one SE.
pub struct Reign {
    etcd: Etcd,
    lease: String,
    epoch: u64,
    term: Arc<Term>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// Asks until there is an answer, and `wait` says after each one that is none whether to stop.
fn ask<T>(
    mut wait: impl FnMut(Duration) -> io::Result<bool>,
    mut question: impl FnMut() -> io::Result<Result<T, String>>,
) -> io::Result<Option<T>> {
    let mut said = String::new();
    loop {
        let why = match question() {
            Ok(Ok(answer)) => return Ok(Some(answer)),
            Ok(Err(why)) => why,
            Err(e) => format!("waits for etcd: {e}"),
        };
        if why != said {
            println!("{why}");
            said = why;
        }
        if wait(PAUSE)? {
            return Ok(None);
        }
    }
}

/// Takes the key, if nobody has it: its lease, and the revision with which it was created.
fn take(etcd: &mut Etcd, key: &str) -> io::Result<Option<(String, u64)>> {
    if !etcd.look(key, &format!("{key}\0"))?.pairs.is_empty() {
        return Ok(None);
    }
    let lease = etcd.grant(TTL)?;
    match etcd.create(key, &std::process::id().to_string(), &lease) {
        Ok(Some(revision)) => Ok(Some((lease, revision))),
        other => {
            // The key may have been created although nobody has said so.
            let _ = etcd.revoke(&lease);
            other.map(|_| None)
        }
    }
}

fn keep(mut etcd: Etcd, lease: &str, term: &Term, stop: &Receiver<()>) {
    let mut pause = PAUSE;
    while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let asked = Instant::now();
        pause = PAUSE;
        match etcd.keep_alive(lease) {
            Ok(true) => term.confirm(asked),
            Ok(false) => return term.lost.store(true, Ordering::Relaxed),
            Err(e) => {
                println!("etcd: {e}");
                pause = AGAIN;
            }
        }
    }
}

impl Reign {
    /// Waits until no other SE has the key of this system, and takes it. `wait` waits for so long and says whether to stop;
    /// then there is none.
    pub fn begin(
        etcd: Etcd,
        system: &str,
        wait: impl FnMut(Duration) -> io::Result<bool>,
    ) -> io::Result<Option<Self>> {
        let (key, term, mut asks) = (key(system), Arc::new(Term::new()), etcd.clone());
        let taken = ask(wait, || {
            let asked = Instant::now();
            let taken = take(&mut asks, &key)?;
            if taken.is_some() {
                term.confirm(asked);
            }
            Ok(taken.ok_or_else(|| format!("waits for the end of another SE of {system}")))
        })?;
        let Some((lease, revision)) = taken else {
            return Ok(None);
        };
        let (stop, stopped) = channel();
        let mut this = Self {
            etcd: etcd.clone(),
            lease: lease.clone(),
            epoch: 0,
            term: Arc::clone(&term),
            stop: Some(stop),
            keeper: Some(thread::spawn(move || keep(etcd, &lease, &term, &stopped))),
        };
        // If there is none, the key goes with it.
        this.epoch = epoch(revision)?;
        Ok(Some(this))
    }

    /// Its epoch. No SE before has had such a great one, nor one that it has made of its own by counting.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How long it is.
    pub fn term(&self) -> Arc<Term> {
        Arc::clone(&self.term)
    }
}

/// The key is free at once. To be done when nothing is being granted.
impl Drop for Reign {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            // One that panicked has said so.
            let _ = keeper.join();
        }
        // If nobody answers it ends by itself.
        let _ = self.etcd.revoke(&self.lease);
    }
}

/// The least epoch that an SE of this system can have whose lease holds. Asks until etcd answers, or until `wait` says that
/// it is to stop.
pub fn least_epoch(
    mut etcd: Etcd,
    system: &str,
    wait: impl FnMut(Duration) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    let key = key(system);
    let revision = ask(wait, || {
        let view = etcd.look(&key, &format!("{key}\0"))?;
        // Who has no key gets it with a later revision.
        let first = view.pairs.first();
        Ok(Ok(first.map_or(view.revision + 1, |pair| pair.created)))
    })?;
    revision.map(epoch).transpose()
}
