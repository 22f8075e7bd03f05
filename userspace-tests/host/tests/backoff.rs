// SPDX-License-Identifier: GPL-2.0

//! Pauses between attempts of a session, and the number of its log messages.

use srp_host::logic::{
    backoff::{self, Backoff, Cause},
    time::Ktime,
    window::Window,
};

const SECOND: i64 = 1_000_000_000;

#[test]
fn pauses_double_up_to_reconnect_delay() {
    let mut backoff = Backoff::default();
    backoff.lost(5 * SECOND, Cause::Plain);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        pauses.push(backoff.pause(10, 0));
        backoff.failed();
    }
    let own = [0, 1000, 2000, 4000, 8000].map(Some);
    assert_eq!(pauses[..5], own);
    assert_eq!(pauses[5..], [None; 2]);
    assert_eq!(backoff.attempts(), 7);
    for _ in 0..100 {
        backoff.failed();
    }
    assert!(matches!(backoff.pause(u32::MAX, u16::MAX), Some(ms) if ms >= 1 << 30));
    backoff.connected();
    assert_eq!(backoff.attempts(), 0);
}

#[test]
fn pauses_are_spread_by_a_quarter() {
    let mut backoff = Backoff::default();
    backoff.lost(5 * SECOND, Cause::Plain);
    assert_eq!(backoff.pause(10, u16::MAX), Some(0));
    backoff.failed();
    for random in [0, 1, 0x8000, u16::MAX] {
        let Some(ms) = backoff.pause(10, random) else {
            panic!("{random}");
        };
        assert!((1000..1250).contains(&ms), "{random} {ms}");
    }
    assert_eq!(backoff.pause(10, 0x8000), Some(1125));
    assert_eq!(backoff.pause(1, 0), None);
    assert_eq!(backoff::spread_ms(10, 0), 0);
    assert_eq!(backoff::spread_ms(8, 0x8000), 250);
    assert!(backoff::spread_ms(u32::MAX, u16::MAX) < 1000);
}

/// The pauses after losses of connections that each lived for `life`.
fn flap(backoff: &mut Backoff, life: i64, losses: usize) -> Vec<Option<u32>> {
    let one = |backoff: &mut Backoff| {
        backoff.lost(life, Cause::Plain);
        let pause = backoff.pause(60, 0);
        backoff.connected();
        pause
    };
    (0..losses).map(|_| one(backoff)).collect()
}

#[test]
fn a_try_at_once_is_earned_by_a_life_that_doubles() {
    let at_once = Some(0);
    let mut backoff = Backoff::default();
    let pauses = flap(&mut backoff, SECOND + SECOND / 100, 8);
    let grow = [0, 2000, 4000, 8000, 16_000, 32_000].map(Some);
    assert_eq!(pauses[..6], grow);
    assert_eq!(pauses[6..], [None; 2]);
    // From then on 64 s are enough.
    assert_eq!(flap(&mut backoff, 64 * SECOND, 3), [at_once; 3]);
    assert_eq!(flap(&mut backoff, 64 * SECOND - 1, 1), [None]);
    // Ten minutes clear the count.
    assert_eq!(flap(&mut backoff, 600 * SECOND, 1), [at_once]);
    assert_eq!(flap(&mut backoff, SECOND, 2), [Some(2000), Some(4000)]);
    // If a connection dies at once, even the first retry has a pause.
    let mut backoff = Backoff::default();
    assert_eq!(flap(&mut backoff, 0, 1), [Some(1000)]);
}

#[test]
fn violations_wait_and_resets_do_not() {
    let mut backoff = Backoff::default();
    backoff.lost(100 * SECOND, Cause::Violation);
    assert_eq!(backoff.pause(10, 0), None);
    backoff.hurry();
    assert_eq!(backoff.pause(10, 0), Some(0));
    for _ in 0..20 {
        backoff.lost(0, Cause::Reset);
        assert_eq!(backoff.pause(10, 0), Some(0));
        backoff.connected();
    }
    // Resets do not count as losses, but violations do.
    assert_eq!(flap(&mut backoff, SECOND, 1), [Some(2000)]);
}

/// The times at which events take effect. An event comes every `every_ms` from `from_ms` to
/// `to_ms`, without a connection.
fn storm(backoff: &mut Backoff, from_ms: i64, to_ms: i64, every_ms: i64) -> Vec<i64> {
    events(backoff, true, from_ms, to_ms, every_ms)
}

fn events(backoff: &mut Backoff, lost: bool, from_ms: i64, to_ms: i64, every_ms: i64) -> Vec<i64> {
    let mut at = Vec::new();
    let mut now = from_ms;
    while now < to_ms {
        let counts = now + i64::from(backoff.event(Ktime::from_ns(now * 1_000_000), lost));
        // An event that waits has the time of the previous one.
        if at.last() != Some(&counts) {
            at.push(counts);
        }
        now += every_ms;
    }
    at
}

#[test]
fn the_first_event_counts_at_once_and_a_storm_seldom() {
    let mut backoff = Backoff::default();
    let at = storm(&mut backoff, 1000, 21_000, 10);
    // Events of a port that comes up, each shortly after the previous one.
    assert_eq!(at[..9], [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|n| 1000 + 250 * n));
    assert_eq!(at[9..13], [3500, 4500, 6500, 10_500]);
    assert_eq!(at[13..], [14_500, 18_500, 22_500]);
    // The next event comes after the pause has passed.
    assert_eq!(storm(&mut backoff, 30_000, 30_001, 1), [30_000]);
    // After a rest the pauses start over.
    assert_eq!(
        storm(&mut backoff, 40_000, 41_000, 100),
        [40_000, 40_250, 40_500, 40_750, 41_000]
    );
}

#[test]
fn events_with_a_connection_do_not_count_against_attempts() {
    let mut backoff = Backoff::default();
    let at = events(&mut backoff, false, 1000, 11_000, 10);
    assert_eq!(at, Vec::from_iter((0..41).map(|n| 1000 + 250 * n)));
    // The earlier events do not lengthen the pauses.
    let at = storm(&mut backoff, 11_000, 13_000, 10);
    assert_eq!(at, Vec::from_iter((0..9).map(|n| 11_000 + 250 * n)));
}

#[test]
fn events_that_are_few_count_each_at_once() {
    let mut backoff = Backoff::default();
    for n in 0..100 {
        let now = 1_000_000 + n * 10_000;
        assert_eq!(storm(&mut backoff, now, now + 1, 1), [now]);
    }
    // A connection that comes and goes in between changes nothing.
    assert_eq!(storm(&mut backoff, 3_000_000, 3_000_001, 1), [3_000_000]);
    backoff.lost(SECOND, Cause::Plain);
    backoff.connected();
    assert_eq!(storm(&mut backoff, 3_000_001, 3_000_002, 1), [3_000_250]);
}

#[test]
fn ten_losses_a_minute_are_told() {
    let mut losses = Window::default();
    for n in 0..i64::from(Window::LOGGED) {
        assert_eq!(losses.may_log(Ktime::from_ns(n * SECOND)), Some(0), "{n}");
    }
    for n in 10..60 {
        assert_eq!(losses.may_log(Ktime::from_ns(n * SECOND)), None, "{n}");
    }
    assert_eq!(losses.may_log(Ktime::from_ns(61 * SECOND)), Some(50));
    assert_eq!(losses.may_log(Ktime::from_ns(62 * SECOND)), Some(0));
}
