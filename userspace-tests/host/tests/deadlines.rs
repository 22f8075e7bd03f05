// SPDX-License-Identifier: GPL-2.0

//! The deadlines of a session: the actions that are due at each time, in each phase of its life.

use srp_host::logic::{
    backoff::Cause,
    recovery::{
        BeginAttempt, Commit, Due, Ended, Ending, LoggedIn, Loss, Outcome, Recovery, Remove, Retry,
    },
    state::Life,
    time::Ktime,
    watch::Policy,
};

/// `keep_alive`, in milliseconds.
const KEEP_ALIVE: u32 = 5_000;

fn at(ms: u32) -> Ktime {
    Ktime::from_ns(0).add_ms(ms)
}

/// A session that is logged in at boot.
fn live(keep_alive: u32, polled: bool) -> Recovery {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.next_tick(at(0)), None);
    assert_eq!(recovery.logged_in(at(0)), LoggedIn::StartTimers);
    recovery.watch(at(0), keep_alive, polled);
    recovery
}

/// Lets the clock run from `from` to `until`. Returns the due actions and their times.
fn run(recovery: &mut Recovery, from: u32, until: u32) -> Vec<(u32, Due)> {
    let mut all = Vec::new();
    let mut now = from;
    while let Some(delay) = recovery.next_tick(at(now)) {
        now += delay;
        if now > until {
            break;
        }
        let due = recovery.tick(at(now), KEEP_ALIVE);
        assert_ne!(due, Due::default(), "a tick for nothing at {now}");
        all.push((now, due));
    }
    all
}

fn look(policy: Policy) -> Due {
    Due {
        look: Some(policy),
        ..Due::default()
    }
}

/// Loses the connection and ends its commands.
fn lose(recovery: &mut Recovery, now: u32) {
    assert_eq!(
        recovery.lost(Cause::Plain, at(now)),
        Loss::End { say: true }
    );
    assert_eq!(recovery.ending(), Ending::Notify);
    recovery.notified();
    assert_eq!(recovery.ended(), Ended::Retry(Retry::Later));
}

#[test]
fn a_test_follows_the_keep_alive() {
    let mut recovery = live(KEEP_ALIVE, false);
    recovery.test(at(7_000), Some(false));
    let idle = look(Policy::Idle);
    let (ask, half, judge) = (look(Policy::Ask), look(Policy::Look), look(Policy::Judge));
    let due = run(&mut recovery, 7_000, 22_000);
    let wanted = [
        (7_000, ask),
        (9_500, half),
        (12_000, judge),
        (17_000, idle),
        (22_000, idle),
    ];
    assert_eq!(due, wanted);
    // A test in flight is not delayed, except by one that must begin anew.
    recovery.test(at(23_000), Some(false));
    assert_eq!(run(&mut recovery, 23_000, 23_000), [(23_000, ask)]);
    recovery.test(at(24_000), Some(true));
    assert_eq!(run(&mut recovery, 24_000, 25_500), [(25_500, half)]);
    recovery.test(at(26_000), None);
    assert_eq!(run(&mut recovery, 26_000, 26_000), [(26_000, ask)]);
}

#[test]
fn without_keep_alive_only_tests_look() {
    let mut recovery = live(0, false);
    assert_eq!(recovery.next_tick(at(0)), None);
    recovery.test(at(1_000), Some(false));
    let mut now = 1_000;
    for _ in 0..3 {
        now += recovery.next_tick(at(now)).expect("the test goes on");
        assert!(recovery.tick(at(now), 0).look.is_some());
    }
    assert_eq!(recovery.next_tick(at(now)), None);
}

#[test]
fn credits_are_looked_at_while_commands_wait() {
    let mut recovery = live(0, false);
    recovery.credit_missing(at(0), 3_000);
    assert!(recovery.state().starving);
    // More refused commands delay nothing.
    recovery.credit_missing(at(2_000), 3_000);
    let due = Due {
        credits: true,
        ..Due::default()
    };
    assert_eq!(run(&mut recovery, 2_000, 60_000), [(3_000, due)]);
    assert!(!recovery.state().starving);
    recovery.credit_missing(at(3_000), 3_000);
    lose(&mut recovery, 4_000);
    assert!(!recovery.state().starving);
    assert_eq!(recovery.next_tick(at(4_000)), None);
    recovery.credit_missing(at(4_000), 3_000);
    assert_eq!(recovery.next_tick(at(4_000)), None);
}

#[test]
fn polling_goes_on_until_the_connection_is_down() {
    let mut recovery = live(0, true);
    assert_eq!(run(&mut recovery, 0, 1_000).len(), 50);
    assert_eq!(
        recovery.lost(Cause::Plain, at(1_000)),
        Loss::End { say: true }
    );
    assert_eq!(run(&mut recovery, 1_000, 2_000).len(), 50);
    assert_eq!(recovery.ending(), Ending::Notify);
    recovery.notified();
    assert_eq!(recovery.ended(), Ended::Retry(Retry::Later));
    assert_eq!(recovery.next_tick(at(2_000)), None);
    // The next connection is polled, too.
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    recovery.connected();
    assert_eq!(
        recovery.commit(true, false, at(3_000)),
        Commit::Outcome(Outcome::Accept)
    );
    recovery.watch(at(3_000), 0, true);
    assert_eq!(run(&mut recovery, 3_000, 3_100).len(), 5);
}

#[test]
fn port_events_reconnect_or_test() {
    let mut recovery = live(0, false);
    recovery.port_event(at(1_000), false);
    assert_eq!(recovery.next_tick(at(1_000)), None);
    recovery.port_event(at(1_000), true);
    let due = run(&mut recovery, 1_000, 2_000);
    assert!(matches!(
        due[..],
        [(
            _,
            Due {
                moved: true,
                reconnect: false,
                ..
            }
        )]
    ));
    lose(&mut recovery, 20_000);
    recovery.port_event(at(20_000), true);
    let due = run(&mut recovery, 20_000, 21_000);
    assert!(matches!(
        due[..],
        [(
            _,
            Due {
                moved: false,
                reconnect: true,
                ..
            }
        )]
    ));
    // An event from before the loss does not test the next connection.
    recovery.port_event(at(30_000), true);
    assert_eq!(recovery.begin_attempt(true), BeginAttempt::Connect);
    recovery.connected();
    assert_eq!(
        recovery.commit(true, false, at(30_000)),
        Commit::Outcome(Outcome::Accept)
    );
    while let Some(delay) = recovery.next_tick(at(30_000)) {
        let due = recovery.tick(at(30_000 + delay), 0);
        assert_eq!(due, Due::default());
    }
}

#[test]
fn a_removal_has_rounds_and_nothing_else() {
    let mut recovery = live(KEEP_ALIVE, false);
    recovery.port_event(at(0), true);
    assert_eq!(recovery.remove(at(1_000), 10_000, 7), Remove::TearDown);
    recovery.limit_removal(20_000);
    recovery.test(at(1_000), None);
    recovery.port_event(at(1_000), true);
    recovery.watch(at(1_000), KEEP_ALIVE, false);
    let due = Due {
        removal: true,
        ..Due::default()
    };
    let unblock = Due {
        unblock: true,
        ..Due::default()
    };
    let wanted = [(1_000, unblock), (6_000, due), (11_000, due), (16_000, due)];
    assert_eq!(run(&mut recovery, 1_000, 16_000), wanted);
    let rounds = |rounds| Policy::Removal { rounds, limit: 4 };
    assert_eq!(recovery.removal_round(7), rounds(1));
    assert_eq!(recovery.removal_round(7), rounds(2));
    assert_eq!(recovery.removal_round(8), rounds(0));
    assert_eq!(recovery.removal_round(8), rounds(1));
    recovery.log_out();
    assert_eq!(recovery.next_tick(at(16_000)), None);
}

/// The credits and the polled channels of a session are checked until its connection is lost,
/// even if its removal begins before its deadlines are set.
#[test]
fn a_removal_still_polls_and_looks_at_credits() {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.logged_in(at(0)), LoggedIn::StartTimers);
    recovery.credit_missing(at(0), 3_000);
    assert_eq!(recovery.remove(at(0), 100_000, 0), Remove::TearDown);
    recovery.watch(at(0), KEEP_ALIVE, true);
    assert!(recovery.state().starving);
    let due = run(&mut recovery, 0, 3_000);
    assert_eq!(due.iter().filter(|(_, due)| due.poll).count(), 150);
    assert_eq!(due.iter().filter(|(_, due)| due.credits).count(), 1);
    assert!(due.iter().all(|(_, due)| due.look.is_none()));
}

/// Once a removed session is down, nothing sets a deadline, whatever happened before.
#[test]
fn no_deadline_after_the_end() {
    for bits in 0..32 {
        let has = |bit: u32| bits >> bit & 1 > 0;
        let mut recovery = live(KEEP_ALIVE * u32::from(has(0)), has(1));
        if has(2) {
            recovery.credit_missing(at(0), 3_000);
        }
        if has(3) {
            recovery.port_event(at(0), true);
        }
        if has(4) {
            recovery.test(at(0), None);
        }
        assert_eq!(recovery.remove(at(0), 10_000, 0), Remove::TearDown);
        recovery.log_out();
        assert_eq!(recovery.lost(Cause::Plain, at(0)), Loss::End { say: false });
        assert_eq!(recovery.ending(), Ending::EndCommands);
        assert_eq!(recovery.ended(), Ended::Retry(Retry::None));
        for _ in 0..2 {
            assert_eq!(recovery.next_tick(at(0)), None, "{bits:b}");
            recovery.credit_missing(at(0), 3_000);
            recovery.port_event(at(0), true);
            recovery.test(at(0), None);
            recovery.watch(at(0), KEEP_ALIVE, true);
            assert_eq!(recovery.next_tick(at(0)), None, "{bits:b}");
            recovery.removed();
        }
        assert_eq!(recovery.state().life, Life::Gone);
    }
}
