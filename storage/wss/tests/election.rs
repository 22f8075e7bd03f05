// SPDX-License-Identifier: GPL-2.0

//! Succession of SEs, elected with a fake etcd. A check that a term is over reads etcd first and
//! the term afterwards, so it does not fail on a slow machine.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    made::{Behaviour, Made},
    world::scene::settings,
};
use wss::{
    etcd::PATIENCE,
    fabric::election::{least_epoch, Leadership, TTL},
    message::{Message, Role, Status},
    rs::{Action, Store},
};

/// The SE stops this long before its lease expires, in seconds.
const EARLIER: u64 = 1;

fn sleep(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// A `wait` that never stops.
fn patient(time: Duration) -> std::io::Result<bool> {
    thread::sleep(time);
    Ok(false)
}

fn begin(made: &Made, endpoint: usize) -> Leadership {
    Leadership::begin(made.etcd(endpoint), "a", patient)
        .unwrap()
        .unwrap()
}

fn epoch(revision: u64) -> u64 {
    revision << 32
}

fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        sleep(5);
    }
}

/// Checks, until `until` is true, that the term of an SE is over whenever the SE does not hold the
/// key.
fn never_without_its_key(made: &Made, leadership: &Leadership, until: impl Fn() -> bool) {
    let (mine, term) = (leadership.epoch() >> 32, leadership.term());
    let end = Instant::now() + Duration::from_secs(60);
    while !until() {
        assert!(Instant::now() < end);
        if made.created() != Some(mine) {
            assert!(term.over().is_some(), "it leads without its key");
        }
        sleep(5);
    }
}

#[test]
fn it_holds_longer_than_a_lease() {
    let made = Made::new(1);
    let leadership = begin(&made, 0);
    assert_eq!(Some(leadership.epoch()), made.created().map(epoch));
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(TTL + 2) {
        assert_eq!(leadership.term().over(), None);
        sleep(20);
    }
    assert_eq!(Some(leadership.epoch()), made.created().map(epoch));
}

#[test]
fn it_is_released() {
    let made = Made::new(1);
    let first = begin(&made, 0);
    let before = first.epoch();
    drop(first);
    // The key is free at once, not when the lease expires.
    assert_eq!(made.created(), None);
    assert!(begin(&made, 0).epoch() > before);
}

#[test]
fn its_lease_is_lost() {
    let made = Made::new(1);
    let leadership = begin(&made, 0);
    assert_eq!(leadership.term().over(), None);
    let lease = made
        .state
        .lock()
        .unwrap()
        .keys
        .values()
        .next()
        .unwrap()
        .lease;
    made.state.lock().unwrap().revoke(lease);
    until("it is told", || leadership.term().over().is_some());
    let why = leadership.term().over().unwrap();
    assert!(why.contains("has ended"), "{why}");
}

/// etcd is silent, refuses, truncates or delays its answers. The lease expires, or etcd renews it
/// without the SE noticing. The SE stops before the lease can expire.
#[test]
fn etcd_is_not_heard() {
    let late = Behaviour::Late(Duration::from_millis(1500));
    let behaviours = [Behaviour::Silent, Behaviour::Refuses, Behaviour::Torn, late];
    let threads = behaviours.map(|behaviour| {
        thread::spawn(move || {
            let made = Made::new(1);
            let leadership = begin(&made, 0);
            made.set(0, behaviour);
            let (term, since) = (leadership.term(), Instant::now());
            never_without_its_key(&made, &leadership, || since.elapsed().as_secs() > TTL);
            let why = term.over().unwrap();
            assert!(why.contains("not confirmed"), "{behaviour:?}: {why}");
            // etcd renews the lease even if its answer is late or lost.
            let kept = matches!(behaviour, Behaviour::Late(_) | Behaviour::Torn);
            assert_eq!(made.created().is_some(), kept, "{behaviour:?}");
            assert!(made.asked(0) > 4, "{behaviour:?}");
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The term starts with the request, not with the response.
#[test]
fn an_answer_takes_its_time() {
    let made = Made::new(1);
    let leadership = begin(&made, 0);
    made.set(0, Behaviour::Late(Duration::from_millis(300)));
    until("a lease kept alive", || {
        made.state.lock().unwrap().kept.is_some()
    });
    // The next request is not answered.
    made.set(0, Behaviour::Silent);
    let kept = made.state.lock().unwrap().kept.unwrap();
    let mine = kept + Duration::from_secs(TTL - EARLIER);
    thread::sleep(mine.saturating_duration_since(Instant::now()));
    assert!(leadership.term().over().is_some());
}

/// A second SE waits, takes the key when the lease of the first expires, and has a greater epoch.
/// Then RSs reject the first SE, whether they start afterwards or are told by the second.
#[test]
fn a_second_one_takes_over() {
    let made = Made::new(3);
    let first = begin(&made, 0);
    let (term, old) = (first.term(), first.epoch());
    thread::scope(|scope| {
        let second = scope.spawn(|| begin(&made, 1));
        until("the second one asks", || made.asked(1) > 1);
        assert_eq!(made.created().map(epoch), Some(old));
        // The first SE gets no answers, as if it were asleep or cut off.
        made.set(0, Behaviour::Silent);
        never_without_its_key(&made, &first, || second.is_finished());
        let second = second.join().unwrap();
        assert!(term.over().is_some() && second.term().over().is_none());
        let new = second.epoch();
        assert!(new > old);
        // Greater than the epochs that the first one may allocate.
        assert!(new > old + u64::from(u32::MAX));
        let least = least_epoch(made.etcd(2), "a", patient).unwrap().unwrap();
        assert_eq!(least, new);
        let mut store = Store::new(settings(), vec![64], 0);
        store.refuse_before(least);
        assert_eq!(attach(&mut store, 1, old), Status::Stale);
        assert_eq!(attach(&mut store, 2, new), Status::Good);
        assert_eq!(attach(&mut store, 3, old), Status::Stale);
        // The first SE has nothing to release.
        made.set(0, Behaviour::Good);
        drop(first);
        assert_eq!(made.created().map(epoch), Some(new));
    });
}

fn attach(store: &mut Store, peer: u64, epoch: u64) -> Status {
    let (role, member) = (Role::Se, 0);
    store.connected(peer);
    let attach = Message::Attach {
        role,
        member,
        epoch,
    };
    store.message(peer, &attach.build());
    let answers = store
        .actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Send {
                message: Message::Attached { status, .. },
                ..
            } => Some(status),
            _ => None,
        });
    answers.last().expect("an answer")
}

/// An RS that starts between two SEs rejects the first and accepts the second.
#[test]
fn an_rs_asks_without_an_se() {
    let made = Made::new(1);
    let ask = || least_epoch(made.etcd(0), "a", patient).unwrap().unwrap();
    let first = ask();
    let leadership = begin(&made, 0);
    let old = leadership.epoch();
    assert!(first <= old);
    assert_eq!(ask(), old);
    drop(leadership);
    let between = ask();
    assert!(between > old + u64::from(u32::MAX));
    assert!(begin(&made, 0).epoch() >= between);
}

/// An RS that gets no answer or a truncated one waits: an SE may hold the key.
#[test]
fn an_rs_waits_for_etcd() {
    let made = Made::new(2);
    let leadership = begin(&made, 0);
    for behaviour in [
        Behaviour::Refuses,
        Behaviour::Torn,
        Behaviour::Silent,
        Behaviour::Late(Duration::from_secs(1)),
    ] {
        made.set(1, behaviour);
        let mut waits = 0;
        let wait = |_| {
            waits += 1;
            if waits == 2 {
                made.set(1, Behaviour::Good);
            }
            Ok(false)
        };
        let least = least_epoch(made.etcd(1), "a", wait).unwrap();
        assert_eq!(
            (least, waits),
            (Some(leadership.epoch()), 2),
            "{behaviour:?}"
        );
        made.set(1, behaviour);
        assert_eq!(least_epoch(made.etcd(1), "a", |_| Ok(true)).unwrap(), None);
    }
    // The next endpoint is tried if one does not answer.
    let both = crate::made::plain(vec![made.at[1], made.at[0]]);
    let least = least_epoch(both, "a", |_| panic!("it waits")).unwrap();
    assert_eq!(least, Some(leadership.epoch()));
}

/// Dead machines of a cluster do not use up a lease: the next endpoint is asked before the timeout
/// of a silent one, and asked first from then on.
#[test]
fn endpoints_are_silent() {
    let made = Made::new(5);
    let mut etcd = crate::made::plain(made.at.clone());
    let lease = etcd.grant(60).unwrap();
    for n in 0..3 {
        made.set(n, Behaviour::Silent);
    }
    let since = Instant::now();
    assert!(etcd.keep_alive(&lease).unwrap());
    // One after the other they take three times as long as one.
    assert!(since.elapsed() < 2 * PATIENCE, "{:?}", since.elapsed());
    let asked = made.asked(0);
    assert!(etcd.look("a", "a\0").unwrap().pairs.is_empty());
    assert_eq!(made.asked(0), asked);
    for n in 3..5 {
        made.set(n, Behaviour::Refuses);
    }
    let why = etcd.keep_alive(&lease).unwrap_err().to_string();
    assert!(why.contains("does not answer in time"), "{why}");
    made.set(1, Behaviour::Good);
    assert!(etcd.keep_alive(&lease).unwrap());
}

/// The key is created, but the response is lost. The SE does not assume that it holds the key, and
/// starts only after the lease has expired.
#[test]
fn the_answer_to_a_key_is_lost() {
    let made = Made::new(1);
    made.set(0, Behaviour::Forgets);
    let first = std::cell::Cell::new(None);
    let wait = |time| {
        if first.get().is_none() {
            first.set(made.created());
            made.set(0, Behaviour::Good);
        }
        patient(time)
    };
    let leadership = Leadership::begin(made.etcd(0), "a", wait).unwrap().unwrap();
    let first = first.get().expect("a key without a lord");
    assert!(leadership.epoch() > epoch(first));
    assert_eq!(made.created().map(epoch), Some(leadership.epoch()));
    assert_eq!(leadership.term().over(), None);
}

/// An SE that is stopped while it waits leaves no key.
#[test]
fn it_stops_while_it_waits() {
    let made = Made::new(2);
    let leadership = begin(&made, 0);
    assert!(Leadership::begin(made.etcd(1), "a", |_| Ok(true))
        .unwrap()
        .is_none());
    made.set(1, Behaviour::Refuses);
    assert!(Leadership::begin(made.etcd(1), "a", |_| Ok(true))
        .unwrap()
        .is_none());
    assert_eq!(made.created().map(epoch), Some(leadership.epoch()));
    // Another system has another key.
    let other = Leadership::begin(made.etcd(0), "b", patient)
        .unwrap()
        .unwrap();
    assert!(other.epoch() > leadership.epoch());
    assert_eq!(made.state.lock().unwrap().keys.len(), 2);
}
