// SPDX-License-Identifier: GPL-2.0

//! The table of a session's recovery: every pair of a state and an event, and lives by the clock.

use srp_host::logic::{
    backoff::Cause,
    ktime::Ktime,
    recovery::{next, Action, Attempt, Event, Link, Recovery, Reset, State},
    session::Life,
    view::View,
};

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
    for life in Life::ALL {
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
        Event::Notified,
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

/// So many seconds after the boot.
fn at(seconds: i64) -> Ktime {
    Ktime::from_ns(seconds * 1_000_000_000)
}

/// The life of a session whose connection is lost and comes back, by the clock.
#[test]
fn a_loss_and_a_new_connection() {
    let mut recovery = Recovery::new();
    let blocks = Event::Commit {
        blocks: true,
        running: false,
    };
    assert_eq!(recovery.on(Event::LoggedIn, at(0)), Action::StartTimers);
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), at(1)),
        Action::End { say: true }
    );
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), at(1)),
        Action::Nothing
    );
    assert_eq!(recovery.on(blocks, at(1)), Action::Accept);
    assert_eq!(recovery.on(Event::Ending, at(1)), Action::Notify);
    assert_eq!(recovery.on(Event::Notified, at(1)), Action::EndCommands);
    assert_eq!(recovery.on(Event::Ended, at(1)), Action::TryLater);
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, at(1)),
        Action::Connect
    );
    assert_eq!(recovery.on(blocks, at(1)), Action::InProgress);
    assert_eq!(recovery.on(Event::TryFailed, at(2)), Action::EndAttempt);
    assert_eq!(recovery.on(Event::TryEnded, at(2)), Action::TryLater);
    assert_eq!(recovery.backoff().tries(), 1);
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, at(3)),
        Action::Connect
    );
    assert_eq!(recovery.on(Event::Connected, at(3)), Action::Take);
    assert_eq!(recovery.on(blocks, at(3)), Action::Accept);
    assert!(
        !recovery.state().is_settled(),
        "the port is not running yet"
    );
    assert_eq!(recovery.on(Event::Returned, at(3)), Action::StartTimers);
    assert!(recovery.state().is_settled());
    assert_eq!(recovery.backoff().tries(), 0);
}

/// The pauses of the transport class grow with its own tries, however many others an event of the
/// port has hurried.
#[test]
fn hurried_tries_are_not_those_of_the_class() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, at(0));
    for event in [
        Event::Lost(Cause::Plain),
        Event::Ending,
        Event::Notified,
        Event::Ended,
    ] {
        recovery.on(event, at(1));
    }
    let automatic = Event::Try { automatic: true };
    let fails = |recovery: &mut Recovery| {
        assert_eq!(recovery.on(automatic, at(2)), Action::Connect);
        recovery.on(Event::TryFailed, at(2));
        assert_eq!(recovery.on(Event::TryEnded, at(2)), Action::TryLater);
    };
    let commit = Event::Commit {
        blocks: true,
        running: false,
    };
    for class in 1..=4 {
        for _ in 0..10 {
            assert_eq!(recovery.on(Event::Hurry, at(2)), Action::Try);
            fails(&mut recovery);
        }
        assert_eq!(recovery.on(commit, at(2)), Action::TrySpread);
        assert_eq!(recovery.on(automatic, at(2)), Action::Connect);
        // It looks while that try is under way.
        assert_eq!(recovery.on(commit, at(2)), Action::InProgress);
        recovery.on(Event::TryFailed, at(2));
        recovery.on(Event::TryEnded, at(2));
        assert_eq!(recovery.backoff().wanted_tries(), class);
        assert_eq!(recovery.backoff().tries(), 11 * class);
    }
    assert_eq!(recovery.on(automatic, at(3)), Action::Connect);
    recovery.on(Event::Connected, at(3));
    assert_eq!(recovery.on(commit, at(3)), Action::Accept);
    assert_eq!(recovery.backoff().wanted_tries(), 0);
}

/// A new connection that fails before the class has it is told of once.
#[test]
fn a_connection_that_breaks_while_it_is_made() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, at(0));
    for event in [
        Event::Lost(Cause::Plain),
        Event::Ending,
        Event::Notified,
        Event::Ended,
        Event::Try { automatic: true },
    ] {
        recovery.on(event, at(1));
    }
    assert_eq!(recovery.on(Event::Lost(Cause::Plain), at(1)), Action::Say);
    assert_eq!(
        recovery.on(Event::Lost(Cause::Plain), at(1)),
        Action::Nothing
    );
    assert_eq!(recovery.on(Event::Connected, at(1)), Action::Take);
    let commit = Event::Commit {
        blocks: true,
        running: false,
    };
    assert_eq!(recovery.on(commit, at(1)), Action::NotConnected);
    assert_eq!(recovery.on(Event::Returned, at(1)), Action::EndAttempt);
    assert_eq!(recovery.on(Event::TryEnded, at(1)), Action::TryLater);
    assert_eq!(recovery.backoff().tries(), 1);
}

/// Five violations in a minute are the end of all tries, whichever connection they were on.
#[test]
fn violations_add_up() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, at(0));
    recovery.on(Event::Lost(Cause::Violation), at(1));
    for _ in 0..3 {
        recovery.strike(at(2));
    }
    for event in [Event::Ending, Event::Notified] {
        recovery.on(event, at(2));
    }
    assert!(!recovery.state().banned);
    recovery.strike(at(3));
    assert_eq!(recovery.on(Event::Ended, at(3)), Action::GiveUp);
    assert!(
        recovery.state().is_settled(),
        "there is nothing to wait for"
    );
    assert_eq!(
        recovery.on(Event::Try { automatic: true }, at(4)),
        Action::Nothing
    );
    let commit = Event::Commit {
        blocks: false,
        running: false,
    };
    assert_eq!(recovery.on(commit, at(4)), Action::Protocol);
}

/// A reset of the host is one try, also where nobody else tries.
#[test]
fn a_reset_has_one_try() {
    let mut recovery = Recovery::new();
    recovery.on(Event::LoggedIn, at(0));
    recovery.on(Event::Lost(Cause::Reset), at(0));
    for event in [Event::Ending, Event::Notified, Event::Ended] {
        recovery.on(event, at(0));
    }
    recovery.on(Event::FailFast, at(0));
    assert!(!recovery.state().is_settled());
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, at(0)),
        Action::Connect
    );
    recovery.on(Event::TryFailed, at(0));
    recovery.on(Event::TryEnded, at(0));
    assert!(recovery.state().is_settled());
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, at(0)),
        Action::Nothing
    );
    // One that comes while another try is under way has its own.
    recovery.on(Event::Lost(Cause::Reset), at(0));
    recovery.on(Event::Try { automatic: false }, at(0));
    assert_eq!(recovery.on(Event::Lost(Cause::Reset), at(0)), Action::Try);
    recovery.on(Event::TryFailed, at(0));
    recovery.on(Event::TryEnded, at(0));
    assert_eq!(recovery.state().reset, Reset::Wanted);
    assert_eq!(
        recovery.on(Event::Try { automatic: false }, at(0)),
        Action::Connect
    );
}
