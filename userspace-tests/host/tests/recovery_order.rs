// SPDX-License-Identifier: GPL-2.0

//! Every reachable state of a session, with its threads interleaved in every order.
//!
//! `Session` models the driver's part: the steps of its work items and of the transport class. All
//! interleavings are visited. Each state is checked when it is visited; that every wait can end is
//! checked backwards from the final states.

#[path = "common/outcomes.rs"]
mod outcomes;

use outcomes::Named;
use srp_host::logic::{
    backoff::Cause,
    recovery::{
        BeginAttempt, Commit, Ended, Ending, LoggedIn, Loss, Outcome, Recovery, Remove, Retry,
        Returned,
    },
    state::{Attempt, Life, Link, Reset, State},
    time::Ktime,
};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::thread;

/// No event of the walk depends on the clock.
const NOW: Ktime = Ktime::from_ns(0);

thread_local! {
    /// The outcomes that a walk has reached.
    static REACHED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// The parameters of one walk.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// `reconnect_delay` is positive.
    automatic: bool,
    /// Whether the class blocks the port while there is no connection.
    blocks: bool,
}

/// The work item that ends connections.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Worker {
    Idle,
    Queued,
    Notifying,
    Ending,
}

/// The thread that reconnects.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Thread {
    Idle,
    Connecting,
    /// In the class, before (`Class`) and after (`Called`) its callback.
    Class,
    Called,
    Ending,
}

/// Another caller in the transport class. It holds the port's mutex.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Caller {
    None,
    WaitsDown,
    WaitsOutcome,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Removal {
    None,
    Queued,
    Waits,
    Done,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Session {
    state: State,
    worker: Worker,
    thread: Thread,
    /// Whether the work item that reconnects is queued, or its timer is armed.
    armed: bool,
    /// The timer of the class is armed.
    class_timer: bool,
    caller: Caller,
    removal: Removal,
    /// A thread waits for the reset of the host.
    resetting: bool,
    scanning: bool,
}

impl Session {
    fn new() -> Self {
        Self {
            state: Recovery::default().state(),
            worker: Worker::Idle,
            thread: Thread::Idle,
            armed: false,
            class_timer: false,
            caller: Caller::None,
            removal: Removal::None,
            resetting: false,
            scanning: true,
        }
    }

    fn on<T: Named>(&mut self, event: impl FnOnce(&mut Recovery) -> T) -> T {
        let mut recovery = Recovery::of(self.state);
        let outcome = event(&mut recovery);
        self.state = recovery.state();
        REACHED.with_borrow_mut(|reached| reached.insert(outcome.name()));
        outcome
    }

    /// An event that belongs to the state, and so changes it.
    fn step<T: Named>(&mut self, event: impl FnOnce(&mut Recovery) -> T) -> T {
        let before = *self;
        let outcome = self.on(event);
        assert_ne!(before.state, self.state, "{} in {before:?}", outcome.name());
        outcome
    }

    fn with(self, event: impl FnOnce(&mut Self)) -> Self {
        let mut to = self;
        event(&mut to);
        to
    }

    fn lost(&mut self, cause: Cause) {
        match self.on(|r| r.lost(cause, NOW)) {
            Loss::End { .. } => {
                // Each connection is ended once.
                assert_eq!(self.worker, Worker::Idle, "{self:?}");
                self.worker = Worker::Queued;
            }
            Loss::Attempt => self.hurry(),
            Loss::Say | Loss::Nothing => {}
        }
    }

    /// Requests an immediate attempt.
    fn hurry(&mut self) {
        self.armed |= self.state.may_attempt();
    }

    fn remove(&mut self) {
        match self.on(|r| r.remove(NOW, 0, 0)) {
            Remove::TearDown => {
                assert_eq!(self.removal, Removal::None);
                self.removal = Removal::Queued;
            }
            Remove::Nothing => assert_ne!(self.removal, Removal::None),
        }
    }

    /// Schedules a retry after a pause, by the driver's timer or by that of the class.
    fn retry(self, retry: Retry, rules: Rules) -> Vec<Self> {
        let armed = self.with(|to| to.armed = true);
        let class = self.with(|to| to.class_timer = true);
        match retry {
            // A host reset has no pause.
            Retry::Later if self.state.reset == Reset::Wanted => vec![armed],
            Retry::Later if rules.automatic && rules.blocks => vec![armed, class],
            Retry::Later if rules.automatic => vec![armed],
            Retry::Later | Retry::GiveUp | Retry::None => vec![self],
        }
    }

    fn is_free(&self) -> bool {
        self.caller == Caller::None && !matches!(self.thread, Thread::Called)
    }

    /// The class calls `commit`, from its timer or for a user.
    fn commit(self, rules: Rules, running: bool) -> Self {
        let mut to = self;
        let blocks = rules.blocks;
        match to.on(|r| r.commit(blocks, running, NOW)) {
            Commit::Wait => to.caller = Caller::WaitsDown,
            Commit::Attempt => to.hurry(),
            Commit::Outcome(Outcome::Accept) => {
                to.class_timer &= self.state.is_lost() && to.state.is_lost();
            }
            // The class must block the port: otherwise an error would fail the commands.
            Commit::Outcome(Outcome::InProgress) => assert!(blocks, "{self:?}"),
            Commit::Outcome(Outcome::NotConnected | Outcome::NoDevice) | Commit::Protocol => {}
        }
        to
    }

    /// Returns the states after steps that happen by themselves.
    fn inner(self, rules: Rules) -> Vec<Self> {
        let mut all = vec![];
        if self.scanning {
            let mut to = self;
            to.scanning = false;
            let live = match to.on(|r| r.logged_in(NOW)) {
                LoggedIn::StartTimers => true,
                LoggedIn::TooLate => false,
            };
            assert_eq!(live, to.state.life == Life::Live, "{self:?}");
            all.push(to);
        }
        match self.worker {
            Worker::Idle => {}
            Worker::Queued => {
                let mut to = self;
                to.worker = match to.step(Recovery::ending) {
                    Ending::Notify => Worker::Notifying,
                    Ending::EndCommands => Worker::Ending,
                };
                all.push(to);
            }
            Worker::Notifying => {
                let mut to = self;
                to.step(Recovery::notified);
                to.worker = Worker::Ending;
                all.push(to);
            }
            // A login in flight is waited for, and a scheduled one cancelled.
            Worker::Ending if self.thread == Thread::Idle => {
                let mut to = self;
                to.armed = false;
                to.worker = Worker::Idle;
                match to.step(Recovery::ended) {
                    Ended::Remove => all.push(to.with(Self::remove)),
                    Ended::Retry(retry) => all.extend(to.retry(retry, rules)),
                }
            }
            Worker::Ending => {}
        }
        match self.thread {
            Thread::Idle if self.armed => {
                let mut to = self;
                to.armed = false;
                to.thread = match to.on(|r| r.begin_attempt(rules.automatic)) {
                    BeginAttempt::Connect => Thread::Connecting,
                    BeginAttempt::Nothing => Thread::Idle,
                };
                all.push(to);
            }
            Thread::Idle => {}
            Thread::Connecting => {
                let mut to = self;
                to.step(Recovery::connected);
                to.thread = Thread::Class;
                all.push(to);
                let mut to = self;
                to.step(Recovery::attempt_failed);
                to.thread = Thread::Ending;
                all.push(to);
            }
            Thread::Class if self.caller == Caller::None => {
                let mut to = self.commit(rules, false);
                assert_eq!(to.caller, Caller::None, "waits for itself: {self:?}");
                to.thread = Thread::Called;
                all.push(to);
                // The class does not call back for a lost port.
                all.push(Self {
                    thread: Thread::Called,
                    ..self
                });
            }
            Thread::Class => {}
            Thread::Called => {
                let mut to = self;
                to.thread = match to.step(Recovery::returned) {
                    Returned::StartTimers => Thread::Idle,
                    Returned::EndAttempt => Thread::Ending,
                };
                all.push(to);
            }
            Thread::Ending => {
                let mut to = self;
                to.thread = Thread::Idle;
                let retry = to.step(Recovery::attempt_ended);
                all.extend(to.retry(retry, rules));
            }
        }
        let ending = self.state.is_ending();
        match self.caller {
            Caller::None => {}
            Caller::WaitsDown if self.state.is_down() || ending => {
                let mut to = self.with(Self::hurry);
                to.caller = Caller::WaitsOutcome;
                all.push(to);
            }
            Caller::WaitsOutcome if !self.state.asked || ending => {
                let mut to = self;
                let live = match to.on(|r| r.waited(NOW)) {
                    Outcome::Accept => true,
                    Outcome::InProgress | Outcome::NotConnected | Outcome::NoDevice => false,
                };
                assert_eq!(live, to.state.life == Life::Live, "{self:?}");
                to.caller = Caller::None;
                all.push(to);
            }
            Caller::WaitsDown | Caller::WaitsOutcome => {}
        }
        if self.class_timer && self.is_free() {
            all.push(self.commit(rules, false));
        }
        match self.removal {
            // Removing the timers and files of the class waits for their callbacks.
            Removal::Queued if self.caller == Caller::None => {
                let mut to = self;
                to.class_timer = false;
                to.on(Recovery::fail_fast);
                to.on(Recovery::log_out);
                to.lost(Cause::Plain);
                to.removal = Removal::Waits;
                all.push(to);
            }
            Removal::Waits if self.state.is_down() => {
                // The timers are cancelled, and removal waits for an attempt in flight.
                let mut to = self;
                to.armed = false;
                if to.thread == Thread::Idle {
                    to.step(Recovery::removed);
                    to.removal = Removal::Done;
                }
                all.push(to);
            }
            _ => {}
        }
        if self.resetting && self.state.is_settled() {
            all.push(Self {
                resetting: false,
                ..self
            });
        }
        all
    }

    /// Returns the states after steps from outside, at any time.
    fn outer(self, rules: Rules) -> Vec<Self> {
        let mut all = vec![
            self.with(|to| to.lost(Cause::Plain)),
            self.with(|to| to.lost(Cause::Violation)),
            self.with(Self::hurry),
            self.with(|to| to.on(Recovery::fail_fast)),
            self.with(|to| to.on(Recovery::ban)),
            self.with(Self::remove),
        ];
        let mut reset = self.with(|to| to.lost(Cause::Reset));
        reset.resetting = true;
        all.push(reset);
        if self.is_free() && self.thread != Thread::Class {
            all.push(self.commit(rules, true));
            all.push(self.commit(rules, false));
        }
        all
    }

    fn check(&self) {
        let State {
            life,
            link,
            attempt,
            ..
        } = self.state;
        let worker = match link {
            Link::Up | Link::Closing | Link::Down => Worker::Idle,
            Link::Lost => Worker::Queued,
            Link::Notifying => Worker::Notifying,
            Link::Ending => Worker::Ending,
        };
        assert_eq!(self.worker, worker, "{self:?}");
        let fits = match self.thread {
            Thread::Idle => attempt == Attempt::None,
            Thread::Connecting => matches!(attempt, Attempt::Connecting { .. }),
            Thread::Class | Thread::Called => {
                matches!(attempt, Attempt::Ready { .. } | Attempt::Taken)
            }
            Thread::Ending => attempt == Attempt::Failed,
        };
        assert!(fits, "{self:?}");
        match life {
            Life::Connecting | Life::Live => assert!(!self.state.is_lost(), "{self:?}"),
            Life::Recovering | Life::Failed => assert!(self.state.is_lost(), "{self:?}"),
            Life::Removing => {}
            Life::Gone => {
                assert!(
                    self.state.is_down() && self.thread == Thread::Idle,
                    "{self:?}"
                );
                assert_eq!(self.caller, Caller::None, "{self:?}");
            }
        }
        // An attempt connects only after the commands of the last connection have ended.
        if matches!(
            attempt,
            Attempt::Connecting { .. } | Attempt::Ready { .. } | Attempt::Failed
        ) {
            assert!(self.state.is_down(), "{self:?}");
        }
        assert_eq!(
            self.state.is_ending() && life != Life::Failed,
            self.removal != Removal::None,
            "{self:?}"
        );
    }
}

/// All reachable states, each with its predecessors by steps that happen by themselves.
struct Walk {
    all: Vec<Session>,
    back: HashMap<Session, Vec<Session>>,
}

fn walk(rules: Rules) -> Walk {
    let mut seen = HashSet::from([Session::new()]);
    let mut queue = VecDeque::from([Session::new()]);
    let mut back: HashMap<Session, Vec<Session>> = HashMap::new();
    while let Some(from) = queue.pop_front() {
        from.check();
        let inner = from.inner(rules);
        for to in &inner {
            back.entry(*to).or_default().push(from);
        }
        for to in inner.into_iter().chain(from.outer(rules)) {
            if seen.insert(to) {
                queue.push_back(to);
            }
        }
    }
    Walk {
        all: seen.into_iter().collect(),
        back,
    }
}

impl Walk {
    /// Checks that steps that happen by themselves can lead from each state that is `some` to a
    /// state that is `end`.
    fn leads(&self, what: &str, some: impl Fn(&Session) -> bool, end: impl Fn(&Session) -> bool) {
        let mut good: HashSet<Session> = self.all.iter().filter(|s| end(s)).copied().collect();
        assert!(!good.is_empty(), "{what}: never");
        let mut queue: Vec<Session> = good.iter().copied().collect();
        while let Some(to) = queue.pop() {
            for from in self.back.get(&to).into_iter().flatten() {
                if good.insert(*from) {
                    queue.push(*from);
                }
            }
        }
        let stuck = self.all.iter().find(|s| some(s) && !good.contains(s));
        assert!(stuck.is_none(), "{what}: {stuck:?}");
    }
}

/// Returns the outcomes that the walk has reached.
fn walk_and_check(automatic: bool, blocks: bool) -> BTreeSet<&'static str> {
    let walk = walk(Rules { automatic, blocks });
    println!("{automatic} {blocks}: {} states", walk.all.len());
    let lost = |s: &Session| s.state.is_lost();
    walk.leads("a lost link goes down", lost, |s| {
        s.state.is_down() || !s.state.is_lost()
    });
    walk.leads(
        "a caller returns",
        |s| s.caller != Caller::None,
        |s| s.caller == Caller::None,
    );
    let removed = |s: &Session| s.removal != Removal::None;
    walk.leads("a removal ends", removed, |s| s.removal == Removal::Done);
    walk.leads(
        "a failed login goes",
        |s| s.state.life == Life::Failed,
        removed,
    );
    walk.leads(
        "an attempt ends",
        |s| s.thread != Thread::Idle,
        |s| s.thread == Thread::Idle,
    );
    if automatic {
        let hopeful = |s: &Session| s.state.life == Life::Recovering && !s.state.banned;
        walk.leads("a session recovers", hopeful, |s| {
            s.state.life == Life::Live
        });
    }
    let wanted = |s: &Session| s.state.reset != Reset::None && s.state.life == Life::Recovering;
    walk.leads("a reset has its attempt", wanted, |s| {
        s.state.reset == Reset::None || s.state.is_ending()
    });
    REACHED.take()
}

/// With and without automatic attempts, and with a class that blocks or does not block. Each
/// outcome of each event occurs.
#[test]
fn every_order() {
    let all = [(true, true), (true, false), (false, true), (false, false)];
    let walks =
        all.map(|(automatic, blocks)| thread::spawn(move || walk_and_check(automatic, blocks)));
    let reached: BTreeSet<&str> = walks
        .into_iter()
        .flat_map(|walk| walk.join().expect("a walk that finds nothing"))
        .collect();
    let never: Vec<_> = outcomes::ALL
        .iter()
        .filter(|one| !reached.contains(*one))
        .collect();
    assert!(never.is_empty(), "never: {never:?}");
}
