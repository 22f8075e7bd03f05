// SPDX-License-Identifier: GPL-2.0

//! The table of a session's recovery: every pair of a state and an event, and lives by the clock.

use srp_host::logic::{
    recovery::{next, Action, Attempt, Cause, Event, Link, Recovery, Reset, State},
    session::State as Life,
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
        Link::Telling,
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
