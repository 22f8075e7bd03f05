// SPDX-License-Identifier: GPL-2.0

//! Every state that a session can get into, with the threads around it in every order.
//!
//! `Session` is the driver's part as a model: what its work items and the transport class do, one
//! step at a time. All interleavings are visited. What must hold in each state is asserted there; that
//! nobody waits without somebody who ends it is looked for backwards from the ends.

use srp_host::logic::{
    recovery::{next, Action, Attempt, Cause, Event, Link, Recovery, Reset, State},
    session::State as Life,
    view::View,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// What never changes in one walk.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// `reconnect_delay` is positive.
    automatic: bool,
    /// The class blocks the port while there is no connection.
    blocks: bool,
}

/// The work item that ends connections.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Worker {
    Idle,
    Queued,
    Telling,
    Ending,
}

/// The thread that tries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Thread {
    Idle,
    Connecting,
    /// In the class, before and after its callback.
    Class,
    Called,
    Ending,
}

/// Somebody else in the class, with the port's mutex.
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
    /// The work item that tries is queued or has its timer set.
    armed: bool,
    /// The class has its timer set.
    class_timer: bool,
    caller: Caller,
    removal: Removal,
    /// Somebody waits for the reset of the host.
    resetting: bool,
    scanning: bool,
}

impl Session {
    fn new() -> Self {
        Self {
            state: State::new(),
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

    fn on(&mut self, event: Event) -> Action {
        let (state, action) = next(self.state, event);
        self.state = state;
        let late = event == Event::LoggedIn;
        assert!(action != Action::Refuse || late, "{event:?} in {self:?}");
        match action {
            Action::End { .. } => {
                // Each connection is ended once.
                assert_eq!(self.worker, Worker::Idle, "{event:?} in {self:?}");
                self.worker = Worker::Queued;
            }
            Action::Try | Action::TrySpread => self.armed = true,
            Action::TearDown => {
                assert_eq!(self.removal, Removal::None);
                self.removal = Removal::Queued;
            }
            _ => {}
        }
        action
    }

    /// After a pause by our own timer or by the class's.
    fn rest(self, action: Action, rules: Rules) -> Vec<Self> {
        let mut all = vec![];
        match action {
            // It has no pause.
            Action::TryLater if self.state.reset == Reset::Wanted => all.push(Self {
                armed: true,
                ..self
            }),
            Action::TryLater if rules.automatic => {
                all.push(Self {
                    armed: true,
                    ..self
                });
                if rules.blocks {
                    all.push(Self {
                        class_timer: true,
                        ..self
                    });
                }
            }
            Action::Remove => {
                let mut to = self;
                to.on(Event::Remove);
                all.push(to);
            }
            _ => all.push(self),
        }
        all
    }

    fn with(self, event: Event) -> Self {
        let mut to = self;
        to.on(event);
        to
    }

    fn is_free(&self) -> bool {
        self.caller == Caller::None && !matches!(self.thread, Thread::Called)
    }

    /// The class calls `commit`, from its timer or for a user.
    fn commit(self, rules: Rules, running: bool) -> Self {
        let mut to = self;
        let blocks = rules.blocks;
        match to.on(Event::Commit { blocks, running }) {
            Action::Wait => to.caller = Caller::WaitsDown,
            Action::Accept => to.class_timer &= self.state.is_lost() && to.state.is_lost(),
            // An error has the commands fail, if no timeout blocks the port.
            Action::InProgress => assert!(blocks, "{self:?}"),
            _ => {}
        }
        to
    }

    /// What goes on by itself.
    fn inner(self, rules: Rules) -> Vec<Self> {
        let mut all = vec![];
        if self.scanning {
            let mut to = self;
            to.scanning = false;
            to.on(Event::LoggedIn);
            all.push(to);
        }
        match self.worker {
            Worker::Idle => {}
            Worker::Queued => {
                let mut to = self;
                to.worker = match to.on(Event::Ending) {
                    Action::Tell => Worker::Telling,
                    Action::EndCommands => Worker::Ending,
                    other => panic!("{other:?} in {self:?}"),
                };
                all.push(to);
            }
            Worker::Telling => {
                let mut to = self;
                assert_eq!(to.on(Event::Told), Action::EndCommands);
                to.worker = Worker::Ending;
                all.push(to);
            }
            Worker::Ending => {
                let mut to = self;
                to.worker = Worker::Idle;
                let action = to.on(Event::Ended);
                all.extend(to.rest(action, rules));
            }
        }
        match self.thread {
            Thread::Idle if self.armed => {
                let mut to = self;
                to.armed = false;
                let automatic = rules.automatic;
                if to.on(Event::Try { automatic }) == Action::Connect {
                    to.thread = Thread::Connecting;
                }
                all.push(to);
            }
            Thread::Idle => {}
            Thread::Connecting => {
                let mut to = self;
                assert_eq!(to.on(Event::Connected), Action::Take);
                to.thread = Thread::Class;
                all.push(to);
                let mut to = self;
                assert_eq!(to.on(Event::TryFailed), Action::EndAttempt);
                to.thread = Thread::Ending;
                all.push(to);
            }
            Thread::Class if self.caller == Caller::None => {
                let mut to = self.commit(rules, false);
                assert_eq!(to.caller, Caller::None, "waits for itself: {self:?}");
                to.thread = Thread::Called;
                all.push(to);
                // A port that is lost has no callback.
                all.push(Self {
                    thread: Thread::Called,
                    ..self
                });
            }
            Thread::Class => {}
            Thread::Called => {
                let mut to = self;
                to.thread = match to.on(Event::Returned) {
                    Action::LookAfter => Thread::Idle,
                    Action::EndAttempt => Thread::Ending,
                    other => panic!("{other:?} in {self:?}"),
                };
                all.push(to);
            }
            Thread::Ending => {
                let mut to = self;
                to.thread = Thread::Idle;
                let action = to.on(Event::TryEnded);
                all.extend(to.rest(action, rules));
            }
        }
        let ending = self.state.life.is_ending();
        match self.caller {
            Caller::None => {}
            Caller::WaitsDown if self.state.is_down() || ending => {
                let mut to = self.with(Event::Hurry);
                to.caller = Caller::WaitsOutcome;
                all.push(to);
            }
            Caller::WaitsOutcome if !self.state.asked || ending => {
                let mut to = self.with(Event::Outcome);
                to.caller = Caller::None;
                all.push(to);
            }
            Caller::WaitsDown | Caller::WaitsOutcome => {}
        }
        if self.class_timer && self.is_free() {
            all.push(self.commit(rules, false));
        }
        match self.removal {
            // The end of the class's timers and files waits for their calls.
            Removal::Queued if self.caller == Caller::None => {
                let mut to = self;
                to.class_timer = false;
                to.on(Event::FailFast);
                to.on(Event::LogOut);
                to.on(Event::Lost(Cause::Plain));
                to.removal = Removal::Waits;
                all.push(to);
            }
            Removal::Waits if self.state.is_down() => {
                // The timers are taken back, and a try that is under way is waited for.
                let mut to = self;
                to.armed = false;
                if to.thread == Thread::Idle {
                    to.on(Event::Removed);
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

    /// What comes from outside, at any time.
    fn outer(self, rules: Rules) -> Vec<Self> {
        let mut all = vec![
            self.with(Event::Lost(Cause::Plain)),
            self.with(Event::Lost(Cause::Violation)),
            self.with(Event::Hurry),
            self.with(Event::FailFast),
            self.with(Event::Banned),
            self.with(Event::Remove),
        ];
        let mut reset = self.with(Event::Lost(Cause::Reset));
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
            Link::Telling => Worker::Telling,
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
        // What the next try makes is not that of a connection whose commands are not ended.
        if matches!(
            attempt,
            Attempt::Connecting { .. } | Attempt::Ready { .. } | Attempt::Failed
        ) {
            assert!(self.state.is_down(), "{self:?}");
        }
        assert_eq!(
            life.is_ending() && life != Life::Failed,
            self.removal != Removal::None,
            "{self:?}"
        );
    }
}

/// All that can be reached, and from where by what goes on by itself.
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
    /// From each state that is `some`, what goes on by itself can lead to one that is `end`.
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

fn every_order(automatic: bool, blocks: bool) {
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
        "a try ends",
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
    walk.leads("a reset has its try", wanted, |s| {
        s.state.reset == Reset::None || s.state.life.is_ending()
    });
}

#[test]
fn every_order_with_tries_and_a_class_that_blocks() {
    every_order(true, true);
}

#[test]
fn every_order_with_tries() {
    every_order(true, false);
}

#[test]
fn every_order_without_tries() {
    every_order(false, false);
    every_order(false, true);
}

/// Every event in every combination, reached or not: the life only goes on, and nothing is lost.
#[test]
fn every_pair() {
    let mut pairs = 0;
    for state in states() {
        for event in events() {
            let (after, action) = next(state, event);
            pairs += 1;
            let view = View::from_word(after.view().word());
            assert_eq!(view.life(), after.life);
            assert_eq!(
                (
                    view.is_lost(),
                    view.is_down(),
                    view.is_failing(),
                    view.is_settled(),
                    view.is_asked()
                ),
                (
                    after.is_lost(),
                    after.is_down(),
                    after.failing,
                    after.is_settled(),
                    after.asked
                ),
            );
            assert!(
                !state.life.is_ending() || after.life.is_ending(),
                "{state:?} {event:?}"
            );
            let back = state.life == Life::Recovering && after.life == Life::Live;
            assert!(
                back || after.life as u8 >= state.life as u8,
                "{state:?} {event:?}"
            );
            assert!(
                !back || action == Action::Accept && !after.is_lost(),
                "{state:?} {event:?}"
            );
            assert!(!state.banned || after.banned);
            if action == Action::Refuse {
                assert_eq!(state, after, "{state:?} {event:?}");
            }
            if matches!(action, Action::End { .. }) {
                assert!(!state.is_lost() && after.is_lost());
            }
            if action == Action::Connect {
                assert!(state.may_try() && !state.banned);
            }
        }
    }
    assert!(pairs > 50_000, "{pairs}");
}

fn lives() -> [Life; 6] {
    Life::ALL
}

fn states() -> Vec<State> {
    let links = [
        Link::Up,
        Link::Closing,
        Link::Lost,
        Link::Telling,
        Link::Ending,
        Link::Down,
    ];
    let mut attempts = vec![Attempt::None, Attempt::Taken, Attempt::Failed];
    for broken in [false, true] {
        attempts.extend([Attempt::Connecting { broken }, Attempt::Ready { broken }]);
    }
    let mut all = vec![];
    for life in lives() {
        for link in links {
            for &attempt in &attempts {
                for reset in [Reset::None, Reset::Wanted, Reset::Tried] {
                    for bits in 0..8 {
                        let (failing, banned, asked) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
                        all.push(State {
                            life,
                            link,
                            attempt,
                            reset,
                            failing,
                            banned,
                            asked,
                        });
                    }
                }
            }
        }
    }
    all
}

fn events() -> Vec<Event> {
    let mut all = vec![
        Event::LoggedIn,
        Event::Ending,
        Event::Told,
        Event::Ended,
        Event::Hurry,
        Event::Connected,
        Event::TryFailed,
        Event::TryEnded,
        Event::Outcome,
        Event::Returned,
        Event::FailFast,
        Event::Banned,
        Event::Remove,
        Event::LogOut,
        Event::Removed,
    ];
    all.extend([Cause::Plain, Cause::Violation, Cause::Reset].map(Event::Lost));
    all.extend([false, true].map(|automatic| Event::Try { automatic }));
    for blocks in [false, true] {
        all.extend([false, true].map(|running| Event::Commit { blocks, running }));
    }
    all
}

const SECOND: i64 = 1_000_000_000;

/// The life of a session whose connection is lost and comes back, by the clock.
#[test]
fn a_loss_and_a_new_connection() {
    let mut recovery = Recovery::new();
    let blocks = Event::Commit {
        blocks: true,
        running: false,
    };
    assert_eq!(recovery.on(Event::LoggedIn, 0), Action::LookAfter);
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), SECOND),
        Action::End { say: true }
    );
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), SECOND),
        Action::Nothing
    );
    assert_eq!(recovery.on(blocks, SECOND), Action::Accept);
    assert_eq!(recovery.on(Event::Ending, SECOND), Action::Tell);
    assert_eq!(recovery.on(Event::Told, SECOND), Action::EndCommands);
    assert_eq!(recovery.on(Event::Ended, SECOND), Action::TryLater);
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, SECOND),
        Action::Connect
    );
    assert_eq!(recovery.on(blocks, SECOND), Action::InProgress);
    assert_eq!(
        recovery.on(Event::TryFailed, 2 * SECOND),
        Action::EndAttempt
    );
    assert_eq!(recovery.on(Event::TryEnded, 2 * SECOND), Action::TryLater);
    assert_eq!(recovery.backoff().tries(), 1);
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, 3 * SECOND),
        Action::Connect
    );
    assert_eq!(recovery.on(Event::Connected, 3 * SECOND), Action::Take);
    assert_eq!(recovery.on(blocks, 3 * SECOND), Action::Accept);
    assert!(
        !recovery.state().is_settled(),
        "the port is not running yet"
    );
    assert_eq!(recovery.on(Event::Returned, 3 * SECOND), Action::LookAfter);
    assert!(recovery.state().is_settled());
    assert_eq!(recovery.backoff().tries(), 0);
}

/// A new connection that fails before the class has it is told of once.
#[test]
fn a_connection_that_breaks_while_it_is_made() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, 0);
    for event in [
        Event::Lost(Cause::Plain),
        Event::Ending,
        Event::Told,
        Event::Ended,
        Event::Try { automatic: true },
    ] {
        recovery.on(event, SECOND);
    }
    assert_eq!(recovery.on(Event::Lost(Cause::Plain), SECOND), Action::Say);
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), SECOND),
        Action::Nothing
    );
    assert_eq!(recovery.on(Event::Connected, SECOND), Action::Take);
    let commit = Event::Commit {
        blocks: true,
        running: false,
    };
    assert_eq!(recovery.on(commit, SECOND), Action::NotConnected);
    assert_eq!(recovery.on(Event::Returned, SECOND), Action::EndAttempt);
    assert_eq!(recovery.on(Event::TryEnded, SECOND), Action::TryLater);
    assert_eq!(recovery.backoff().tries(), 1);
}

/// Five violations in a minute are the end of all tries, whichever connection they were on.
#[test]
fn violations_add_up() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, 0);
    recovery.on(Event::Lost(Cause::Violation), SECOND);
    for _ in 0..3 {
        recovery.strike(2 * SECOND);
    }
    for event in [Event::Ending, Event::Told] {
        recovery.on(event, 2 * SECOND);
    }
    assert!(!recovery.state().banned);
    recovery.strike(3 * SECOND);
    assert_eq!(recovery.on(Event::Ended, 3 * SECOND), Action::GiveUp);
    assert!(
        recovery.state().is_settled(),
        "there is nothing to wait for"
    );
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, 4 * SECOND),
        Action::Nothing
    );
    let commit = Event::Commit {
        blocks: false,
        running: false,
    };
    assert_eq!(recovery.on(commit, 4 * SECOND), Action::Protocol);
}

/// A reset of the host is one try, also where nobody else tries.
#[test]
fn a_reset_has_one_try() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, 0);
    recovery.on(Event::Lost(Cause::Reset), 0);
    for event in [Event::Ending, Event::Told, Event::Ended] {
        recovery.on(event, 0);
    }
    recovery.on(Event::FailFast, 0);
    assert!(!recovery.state().is_settled());
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, 0),
        Action::Connect
    );
    recovery.on(Event::TryFailed, 0);
    recovery.on(Event::TryEnded, 0);
    assert!(recovery.state().is_settled());
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, 0),
        Action::Nothing
    );
    // One that comes while another try is under way has its own.
    recovery.on(Event::Lost(Cause::Reset), 0);
    recovery.on(Event::Try { automatic: false }, 0);
    assert_eq!(recovery.on(Event::Lost(Cause::Reset), 0), Action::Try);
    recovery.on(Event::TryFailed, 0);
    recovery.on(Event::TryEnded, 0);
    assert_eq!(recovery.state().reset, Reset::Wanted);
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, 0),
        Action::Connect
    );
}
