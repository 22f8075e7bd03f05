// SPDX-License-Identifier: GPL-2.0

//! Election of the SE: the holder of a key in etcd. The key is bound to a lease, and its
//! create_revision is the epoch, greater than that of every earlier SE.
//!
//! An SE serves until shortly before its lease can expire, measured from when it sent its last
//! successful request for the key or its renewal. A late answer or an unreachable etcd therefore
//! cannot prolong its term. If it still acts after that, every RS that knows the next SE's epoch
//! rejects it. A starting RS asks etcd for the lowest epoch that is still valid.

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

/// Lifetime of the key without renewal, in seconds. Longer than [`SILENCE`]: by then all running
/// CEs have dropped a sleeping SE and its commands.
pub const TTL: u64 = 5;
/// The SE stops this long before its lease expires. Allows for clocks that differ in speed by a
/// fifth.
const MARGIN: Duration = Duration::from_secs(1);
/// Renewal interval.
const PAUSE: Duration = Duration::from_secs(1);
/// Retry interval after a failed request.
const AGAIN: Duration = Duration::from_millis(250);
/// Epoch bits below the revision, for the epochs that the SE allocates, for example to sessions and
/// CEs.
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

/// The term of an SE.
pub struct Term {
    begin: Instant,
    /// End of the term in milliseconds after `begin`.
    until: AtomicU64,
    /// Whether etcd has reported that the lease has expired.
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

    /// Extends the term when etcd has confirmed the lease in the answer to a request sent at
    /// `asked`.
    fn confirm(&self, asked: Instant) {
        let until = asked + Duration::from_secs(TTL) - MARGIN;
        let until = until.saturating_duration_since(self.begin).as_millis() as u64;
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// The reason if the term is over.
    pub fn over(&self) -> Option<String> {
        if self.lost.load(Ordering::Relaxed) {
            return Some("its lease in etcd has ended: another SE may have its place".into());
        }
        let now = self.begin.elapsed().as_millis() as u64;
        let late = now >= self.until.load(Ordering::Relaxed);
        late.then(|| {
            "etcd has not confirmed its lease in time: another SE may have its place".into()
        })
    }
}

/// The tenure of one SE.
pub struct Leadership {
    etcd: Etcd,
    lease: String,
    epoch: u64,
    term: Arc<Term>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// Repeats a request until it is answered. `wait` returns true to stop.
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
            tracing::warn!("{why}");
            said = why;
        }
        if wait(PAUSE)? {
            return Ok(None);
        }
    }
}

/// Takes the key if it is free. Returns its lease and create_revision.
fn take(etcd: &mut Etcd, key: &str) -> io::Result<Option<(String, u64)>> {
    if !etcd.look(key, &format!("{key}\0"))?.pairs.is_empty() {
        return Ok(None);
    }
    let lease = etcd.grant(TTL)?;
    match etcd.create(key, &std::process::id().to_string(), &lease) {
        Ok(Some(revision)) => Ok(Some((lease, revision))),
        other => {
            // The key may have been created although the answer is lost.
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
                tracing::warn!("etcd: {e}");
                pause = AGAIN;
            }
        }
    }
}

impl Leadership {
    /// Waits until no other SE holds the key of this system, and takes it. `wait` waits for a
    /// duration and returns true to stop; then the result is `None`.
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
        // On failure, drop revokes the lease and the key.
        this.epoch = epoch(revision)?;
        Ok(Some(this))
    }

    /// The epoch of this SE, greater than every epoch that an earlier SE had or allocated.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The term of this SE.
    pub fn term(&self) -> Arc<Term> {
        Arc::clone(&self.term)
    }
}

/// Frees the key at once. The SE must have stopped before.
impl Drop for Leadership {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            // A panicking thread has already reported.
            let _ = keeper.join();
        }
        // If this fails, the lease expires by itself.
        let _ = self.etcd.revoke(&self.lease);
    }
}

/// Returns the lowest epoch that an SE of this system with a valid lease can have. Retries until
/// etcd answers; `None` if `wait` returns true.
pub fn least_epoch(
    mut etcd: Etcd,
    system: &str,
    wait: impl FnMut(Duration) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    let key = key(system);
    let revision = ask(wait, || {
        let view = etcd.look(&key, &format!("{key}\0"))?;
        // A later holder will have a later revision.
        let first = view.pairs.first();
        Ok(Ok(first.map_or(view.revision + 1, |pair| pair.created)))
    })?;
    revision.map(epoch).transpose()
}
