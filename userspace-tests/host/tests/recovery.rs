// SPDX-License-Identifier: GPL-2.0

//! The state table of a session's recovery: each event in each state, and sequences with a clock.

use srp_host::logic::{
    backoff::Cause,
    recovery::{
        BeginAttempt, Commit, Ended, Ending, LoggedIn, Loss, Outcome, Recovery, Retry, Returned,
    },
    state::{Attempt, Life, Link, Reset, State},
    time::Ktime,
};

const ACCEPT: Commit = Commit::Outcome(Outcome::Accept);

/// Every event in every combination, reachable or not: it changes only the states that it belongs
/// to, and the life only advances, except to Live.
#[test]
fn every_pair() {
    let states = states();
    assert!(states.len() > 10_000);
    for state in states {
        let (life, link, attempt) = (state.life, state.link, state.attempt);
        let connecting = matches!(attempt, Attempt::Connecting { .. });
        let made = matches!(attempt, Attempt::Ready { .. } | Attempt::Taken);
        let going = matches!(life, Life::Removing | Life::Gone);
        moves(state, life == Life::Connecting, |r| r.logged_in(at(0)));
        moves(state, link == Link::Lost, Recovery::ending);
        moves(state, link == Link::Notifying, Recovery::notified);
        moves(state, link == Link::Ending, Recovery::ended);
        moves(state, connecting, Recovery::connected);
        moves(state, connecting, Recovery::attempt_failed);
        moves(state, made, Recovery::returned);
        moves(state, attempt == Attempt::Failed, Recovery::attempt_ended);
        moves(state, !state.failing, Recovery::fail_fast);
        moves(state, !state.banned, Recovery::ban);
        moves(state, !going, |r| r.remove(at(0), 0, 0));
        moves(state, link == Link::Up, Recovery::log_out);
        moves(state, life == Life::Removing, Recovery::removed);
        let waits = !state.starving && !state.is_lost();
        moves(state, waits, |r| r.credit_missing(at(0), 0));
        moves(state, false, |r| r.port_event(at(0), true));
        moves(state, false, |r| r.test(at(0), None));
        moves(state, false, |r| r.watch(at(0), 0, true));
        for cause in [Cause::Plain, Cause::Violation, Cause::Reset] {
            let (after, loss) = happens(state, |r| r.lost(cause, at(0)));
            let end = matches!(loss, Loss::End { .. });
            assert!(after.is_lost() && end != state.is_lost(), "{state:?}");
            assert!(loss != Loss::Attempt || state.may_attempt(), "{state:?}");
        }
        for automatic in [false, true] {
            let (after, begun) = happens(state, |r| r.begin_attempt(automatic));
            let connect = begun == BeginAttempt::Connect;
            assert_eq!(connect, after.attempt != attempt, "{state:?}");
            assert!(
                !connect || state.may_attempt() && !state.banned,
                "{state:?}"
            );
        }
        for (blocks, running) in [(false, false), (false, true), (true, false), (true, true)] {
            let (after, commit) = happens(state, |r| r.commit(blocks, running, at(0)));
            assert!(!back(state, after) || commit == ACCEPT, "{state:?}");
            assert!(commit != Commit::Wait || after.asked, "{state:?}");
        }
        let (after, outcome) = happens(state, |r| r.waited(at(0)));
        assert!(
            !back(state, after) || outcome == Outcome::Accept,
            "{state:?}"
        );
    }
}

/// Whether a new connection becomes the session's.
fn back(before: State, after: State) -> bool {
    before.life == Life::Recovering && after.life == Life::Live
}

/// The state after an event, and the action that the event returns.
fn happens<T>(state: State, event: impl FnOnce(&mut Recovery) -> T) -> (State, T) {
    let mut recovery = Recovery::of(state);
    let outcome = event(&mut recovery);
    let after = recovery.state();
    assert_eq!(State::from_word(after.to_word()), after);
    assert!(
        !state.is_ending() || after.is_ending(),
        "{state:?} {after:?}"
    );
    let on = after.life as u8 >= state.life as u8;
    assert!(
        on || back(state, after) && !after.is_lost(),
        "{state:?} {after:?}"
    );
    assert!(!state.banned || after.banned);
    (after, outcome)
}

/// An event that changes the states to which it belongs, and no other state, and that does not make
/// a connection the session's.
fn moves<T>(state: State, belongs: bool, event: impl FnOnce(&mut Recovery) -> T) {
    let (after, _) = happens(state, event);
    assert_eq!(after != state, belongs, "{state:?} {after:?}");
    assert!(!back(state, after), "{state:?}");
}

fn states() -> Vec<State> {
    let links = [
        Link::Up,
        Link::Closing,
        Link::Lost,
        Link::Notifying,
        Link::Ending,
        Link::Down,
    ];
    let mut attempts = vec![Attempt::None, Attempt::Taken, Attempt::Failed];
    for broken in [false, true] {
        attempts.extend([Attempt::Connecting { broken }, Attempt::Ready { broken }]);
    }
    let mut all = vec![];
    for life in (0..6).map(|life| State::from_word(life).life) {
        for link in links {
            for &attempt in &attempts {
                for reset in [Reset::None, Reset::Wanted, Reset::Tried] {
                    for bits in 0..16 {
                        let (failing, banned, asked) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
                        let starving = bits & 8 > 0;
                        all.push(State {
                            life,
                            link,
                            attempt,
                            reset,
                            failing,
                            banned,
                            asked,
                            starving,
                        });
                    }
                }
            }
        }
    }
    all
}

/// The time this many seconds after boot.
fn at(seconds: i64) -> Ktime {
    Ktime::from_ns(seconds * 1_000_000_000)
}

/// Creates a session that is logged in at boot.
fn live() -> Recovery {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.logged_in(at(0)), LoggedIn::StartTimers);
    recovery
}

/// The work item ends the connection.
fn end(recovery: &mut Recovery) -> Ended {
    assert_eq!(recovery.ending(), Ending::Notify);
    recovery.notified();
    recovery.ended()
}

/// Creates a session that has lost its connection and has ended its commands.
fn down(cause: Cause, now: Ktime) -> Recovery {
    let mut recovery = live();
    assert_eq!(recovery.lost(cause, now), Loss::End { say: true });
    assert_eq!(end(&mut recovery), Ended::Retry(Retry::Later));
    recovery
}

/// The attempt in flight fails.
fn fails(recovery: &mut Recovery) {
    recovery.attempt_failed();
    assert_eq!(recovery.attempt_ended(), Retry::Later);
}

/// A session that loses its connection and gets a new one, with a clock.
#[test]
fn a_loss_and_a_new_connection() {
    let mut recovery = live();
    assert_eq!(recovery.lost(Cause::Plain, at(1)), Loss::End { say: true });
    assert_eq!(recovery.lost(Cause::Plain, at(1)), Loss::Nothing);
    assert_eq!(recovery.commit(true, false, at(1)), ACCEPT);
    assert_eq!(end(&mut recovery), Ended::Retry(Retry::Later));
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    assert_eq!(
        recovery.commit(true, false, at(1)),
        Commit::Outcome(Outcome::InProgress)
    );
    fails(&mut recovery);
    assert_eq!(recovery.backoff().attempts(), 1);
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    recovery.connected();
    assert_eq!(recovery.commit(true, false, at(3)), ACCEPT);
    assert!(
        !recovery.state().is_settled(),
        "the port is not running yet"
    );
    assert_eq!(recovery.returned(), Returned::StartTimers);
    assert!(recovery.state().is_settled());
    assert_eq!(recovery.backoff().attempts(), 0);
}

/// The pauses of the transport class grow only with its own attempts, however many others port
/// events cause.
#[test]
fn hurried_attempts_are_not_those_of_the_class() {
    let mut recovery = down(Cause::Plain, at(1));
    for class in 1..=4 {
        for _ in 0..10 {
            assert!(recovery.state().may_attempt());
            assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
            fails(&mut recovery);
        }
        assert_eq!(recovery.commit(true, false, at(2)), Commit::Attempt);
        assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
        // The class checks while that attempt is in flight.
        assert_eq!(
            recovery.commit(true, false, at(2)),
            Commit::Outcome(Outcome::InProgress)
        );
        fails(&mut recovery);
        assert_eq!(recovery.backoff().wanted_attempts(), class);
        assert_eq!(recovery.backoff().attempts(), 11 * class);
    }
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    recovery.connected();
    assert_eq!(recovery.commit(true, false, at(3)), ACCEPT);
    assert_eq!(recovery.backoff().wanted_attempts(), 0);
}

/// A new connection that fails before the class sees it is reported once.
#[test]
fn a_connection_that_breaks_while_it_is_made() {
    let mut recovery = down(Cause::Plain, at(1));
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    assert_eq!(recovery.lost(Cause::Plain, at(1)), Loss::Say);
    assert_eq!(recovery.lost(Cause::Plain, at(1)), Loss::Nothing);
    recovery.connected();
    assert_eq!(
        recovery.commit(true, false, at(1)),
        Commit::Outcome(Outcome::NotConnected)
    );
    assert_eq!(recovery.returned(), Returned::EndAttempt);
    assert_eq!(recovery.attempt_ended(), Retry::Later);
    assert_eq!(recovery.backoff().attempts(), 1);
}

/// Five violations within a minute end all attempts, on any connections.
#[test]
fn violations_add_up() {
    let mut recovery = live();
    assert_eq!(
        recovery.lost(Cause::Violation, at(1)),
        Loss::End { say: true }
    );
    for _ in 0..3 {
        recovery.strike(at(2));
    }
    assert!(!recovery.state().banned);
    recovery.strike(at(3));
    assert_eq!(end(&mut recovery), Ended::Retry(Retry::GiveUp));
    assert!(
        recovery.state().is_settled(),
        "there is nothing to wait for"
    );
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Nothing);
    assert_eq!(recovery.commit(false, false, at(4)), Commit::Protocol);
}

/// A reset of the host gets one attempt, even if there are no others.
#[test]
fn a_reset_has_one_attempt() {
    let mut recovery = down(Cause::Reset, at(0));
    recovery.fail_fast();
    assert!(!recovery.state().is_settled());
    assert_eq!(recovery.begin_attempt(false), BeginAttempt::Connect);
    fails(&mut recovery);
    assert!(recovery.state().is_settled());
    assert_eq!(recovery.begin_attempt(false), BeginAttempt::Nothing);
    // A reset while another attempt is in flight gets its own.
    assert_eq!(recovery.lost(Cause::Reset, at(0)), Loss::Attempt);
    assert_eq!(recovery.begin_attempt(false), BeginAttempt::Connect);
    assert_eq!(recovery.lost(Cause::Reset, at(0)), Loss::Attempt);
    fails(&mut recovery);
    assert_eq!(recovery.state().reset, Reset::Wanted);
    assert_eq!(recovery.begin_attempt(false), BeginAttempt::Connect);
}
