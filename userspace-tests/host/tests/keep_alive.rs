// SPDX-License-Identifier: GPL-2.0

//! The time that a target may be silent before its connection is lost.

use srp_host::logic::watch::{Policy, Verdict, Watch};

/// `keep_alive`, in milliseconds.
const PERIOD: u32 = 5_000;

/// A channel that is tested periodically.
struct Channel {
    policy: Policy,
    watch: Watch,
    /// Time at which the timer fires.
    at: u32,
    /// Time at which the outstanding probe was sent.
    asked: Option<u32>,
    /// Number of commands that have ended.
    ended: i32,
    dead: Option<u32>,
}

impl Channel {
    fn new() -> Self {
        Self {
            policy: Policy::Idle,
            watch: Watch::default(),
            at: PERIOD,
            asked: None,
            ended: 0,
            dead: None,
        }
    }

    fn test(&mut self, now: u32) {
        if self.policy.begins_anew(self.asked.is_some()) {
            self.policy = Policy::Ask;
            self.at = now;
        }
    }

    /// Runs until `until`. The path works before `broken`, and commands keep ending before `last`.
    /// An event that requests a test comes every `test_ms`.
    fn run(&mut self, until: u32, broken: u32, last: u32, test_ms: Option<u32>) {
        for now in 0..until {
            if test_ms.is_some_and(|every| now % every == 0) {
                self.test(now);
            }
            if now < last {
                self.ended += 1;
            }
            if now != self.at || self.dead.is_some() {
                continue;
            }
            let idle = self.watch.round(self.ended) > 0;
            match self.policy.verdict(idle, self.asked.is_some()) {
                Verdict::Wait => {}
                Verdict::Ask if now < broken => self.asked = None,
                Verdict::Ask => self.asked = Some(now),
                Verdict::Silent | Verdict::Stuck => self.dead = Some(now),
            }
            let (policy, delay) = self.policy.next();
            self.policy = policy;
            self.at = now + delay.unwrap_or(PERIOD);
        }
    }
}

/// Returns the time at which the channel is found dead.
fn dead(broken: u32, last: u32, test_ms: Option<u32>) -> Option<u32> {
    let mut channel = Channel::new();
    channel.run(60_000, broken, last, test_ms);
    channel.dead
}

#[test]
fn an_idle_connection_is_given_up_within_three_periods() {
    for broken in (1..20_000).step_by(777) {
        let found = dead(broken, 0, None).expect("found");
        assert!(
            found > broken && found < broken + 3 * PERIOD,
            "{broken}: {found}"
        );
        let busy = dead(broken, broken, None).expect("found");
        assert!(
            busy > broken && busy <= broken + 3 * PERIOD,
            "{broken}: {busy}"
        );
    }
    assert_eq!(dead(u32::MAX, 0, None), None);
}

#[test]
fn a_test_has_its_verdict_in_five_seconds() {
    // The path breaks with the event, whatever commands end in the first half of the test.
    for last in [0, 1, 100, 2_499] {
        assert_eq!(dead(0, last, Some(60_000)), Some(5_000), "{last}");
    }
    // A command that ends in the second half is a sign of life; after that, idleness decides.
    let later = dead(0, 2_600, Some(60_000)).expect("found");
    assert!(later > 5_000 && later <= 2_600 + 3 * PERIOD, "{later}");
    // Events, however frequent, never end a connection whose path works.
    for every in [1, 10, 250, 4_000] {
        assert_eq!(dead(u32::MAX, 0, Some(every)), None);
        assert_eq!(dead(u32::MAX, u32::MAX, Some(every)), None);
    }
}

#[test]
fn a_storm_does_not_move_the_verdict() {
    for every in [1, 10, 250, 1_000] {
        let found = dead(10_000, 10_000, Some(every)).expect("found");
        assert!(
            (15_000..=15_001 + every).contains(&found),
            "{every}: {found}"
        );
    }
}
