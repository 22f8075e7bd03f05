// SPDX-License-Identifier: GPL-2.0

//! Slow files, and the nodes that may be excluded for them.

use super::*;

/// A node without a fault for this long, in milliseconds, must not be excluded. Complaints about it
/// may be in flight that long.
const GUILT: u64 = 9000;

/// The slowness of a node's file.
#[derive(Clone, Copy, Debug)]
pub struct Hang {
    /// End of the fault.
    pub until: u64,
    /// Duration of each call in milliseconds; 0: until the end of the fault.
    pub each: u64,
    pub reads: bool,
    pub writes: bool,
    pub syncs: bool,
}

impl Hang {
    fn end(&self, now: u64, [reads, writes, syncs]: [u64; 3]) -> u64 {
        let part = |slow, count| if slow { count } else { 0 };
        let count = part(self.reads, reads) + part(self.writes, writes) + part(self.syncs, syncs);
        match (count, self.each) {
            (0, _) => now,
            (_, 0) => self.until,
            (_, each) => (now + each * count).min(self.until + each),
        }
    }
}

impl World {
    fn slow(&self, n: usize) -> Option<&Hang> {
        let hang = self.slots[n].hang.as_ref();
        hang.filter(|h| h.until > self.now)
    }

    /// Makes the file of a node slow.
    pub fn hang(&mut self, n: usize, hang: Hang) {
        self.note(|| format!("Node({n}) has {hang:?}"));
        self.slots[n].hang = Some(hang);
    }

    /// Delays random kinds of access to the file of a node, for a random time.
    pub fn hang_any(&mut self, n: usize) {
        let until = self.now + [300, 2000, 5000, 9000, 16_000][self.rng.below(5) as usize];
        let all = Hang {
            until,
            each: 0,
            reads: true,
            writes: true,
            syncs: true,
        };
        let hang = match self.rng.below(4) {
            0 => all,
            1 => Hang {
                each: 1 + self.rng.below(500),
                ..all
            },
            2 => Hang {
                writes: false,
                syncs: false,
                ..all
            },
            _ => Hang {
                reads: false,
                writes: false,
                ..all
            },
        };
        self.hang(n, hang);
    }

    /// Whether a node with a slow file has pending events to handle before it reads the clock, at
    /// most 64.
    pub(super) fn busy(&self, n: usize) -> bool {
        let who = Who::Node(n);
        let there = |c: &Conn| {
            let side = |s: usize| {
                let cut = self.cuts.contains(&(c.ends[1 - s].0, who));
                c.ends[s].0 == who && c.open[s] && !c.queues[s].is_empty() && !cut
            };
            side(0) || side(1)
        };
        self.slow(n).is_some() && self.slots[n].turn < 64 && self.conns.values().any(there)
    }

    /// End of the current sync of a node.
    pub(super) fn sync_end(&self, n: usize, begun: u64) -> u64 {
        let slow = self.slow(n);
        slow.map_or(begun, |h| h.end(begun, [0, 0, 1]))
    }

    /// Stalls a node for the duration of its file I/O; its messages are sent afterwards.
    pub(super) fn charge(&mut self, n: usize) {
        let calls = self.slots[n].disk.calls();
        let end = self.slow(n).map_or(self.now, |h| h.end(self.now, calls));
        let slot = &mut self.slots[n];
        slot.stall = slot.stall.max(end);
    }

    /// Whether the file of a node cannot even be opened.
    pub(super) fn shut(&self, n: usize) -> bool {
        self.slow(n).is_some_and(|h| h.reads && h.each == 0)
    }

    /// Records the time for nodes that have a fault.
    pub(super) fn faults(&mut self) {
        for n in 0..NODES {
            let who = Who::Node(n);
            let cut = self.cuts.iter().any(|(a, b)| *a == who || *b == who);
            if cut
                || self.slots[n].lost
                || self.slots[n].spoilt
                || !self.runs(who)
                || self.slow(n).is_some()
            {
                self.slots[n].fault = self.now;
            }
        }
    }

    /// Checks a new map: a node that is excluded must have had a fault.
    pub(super) fn blame(&mut self, before: Option<(u64, String)>) {
        let parse = |map: &Option<(u64, String)>| map.as_ref().and_then(|(_, m)| Map::parse(m));
        let (Some(old), Some(new)) = (parse(&before), parse(&self.etcd.map)) else {
            return;
        };
        for n in 0..NODES {
            self.slots[n].lost &= new.states[n] != State::Rebuilding;
            let out = old.states[n] != State::Out && new.states[n] == State::Out;
            assert!(
                !out || self.now < self.slots[n].fault + GUILT,
                "Node({n}) is excluded, and has had no fault since {} of {}",
                self.slots[n].fault,
                self.now
            );
        }
    }
}
