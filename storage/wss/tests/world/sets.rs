// SPDX-License-Identifier: GPL-2.0

//! RSs with two places over a redundant set, which one process at a time holds.
//!
//! The holder has a key in etcd, with a lease. A process whose lease is over handles no event and
//! sends nothing: it ends, once it is awake. What it has sent before may still arrive. When another
//! process takes the set, each pending file operation of the former holder has been done, in part
//! or not at all, and never will be. The others wait, and refuse connections.

use super::{Node, World};

/// Lease of a holder in etcd, in milliseconds.
const LEASE: u64 = 3000;
/// Time in milliseconds by which a holder takes its lease to be shorter.
const MARGIN: u64 = 500;

/// The holder of a set.
#[derive(Default)]
pub struct Set {
    holder: Option<usize>,
    /// The last holder.
    before: Option<usize>,
    /// End of the lease in etcd.
    until: u64,
    /// Number of times that another process took the set.
    pub takeovers: u64,
}

impl World {
    /// The processes of an RS. Those of a set are its places.
    pub fn places(&self, n: usize) -> Vec<usize> {
        let all = self.rss.iter().enumerate();
        all.filter(|(_, rs)| rs.of == n).map(|(p, _)| p).collect()
    }

    /// Whether the lease of a process is over, which it notices before it does anything.
    pub(super) fn lapsed(&self, node: Node) -> bool {
        matches!(node, Node::Rs(p) if self.rss[p].lapsed)
    }

    /// The process that serves as an RS.
    pub fn holder(&self, n: usize) -> Option<usize> {
        match self.sets.get(&n) {
            Some(set) => set.holder,
            None => Some(n),
        }
    }

    /// Number of times that a set got another holder.
    pub fn takeovers(&self) -> u64 {
        self.sets.values().map(|set| set.takeovers).sum()
    }

    /// A process of a set starts.
    pub(super) fn wait_for_set(&mut self, p: usize) {
        self.rss[p].waits = true;
        self.leases();
    }

    /// A process of a set has ended. Its key remains.
    pub(super) fn left_set(&mut self, p: usize) {
        (self.rss[p].waits, self.rss[p].lapsed) = (false, false);
        for set in self.sets.values_mut() {
            set.holder = set.holder.filter(|holder| *holder != p);
        }
    }

    /// The holder of a set ends, and removes its key.
    pub fn hand_over(&mut self, n: usize) {
        if let Some(p) = self.holder(n) {
            self.kill(Node::Rs(p));
            self.sets.get_mut(&n).unwrap().until = 0;
            self.leases();
        }
    }

    /// Renews leases and ends those that are over. Free sets get a holder.
    pub(super) fn leases(&mut self) {
        for n in 0..self.disks.len() {
            let Some(Set { holder, until, .. }) = self.sets.get(&n) else {
                continue;
            };
            let (holder, until) = (*holder, *until);
            if let Some(p) = holder {
                self.rss[p].lapsed |= self.now + MARGIN >= until;
                if !self.rss[p].lapsed && self.reaches_etcd(p) {
                    self.sets.get_mut(&n).unwrap().until = self.now + LEASE;
                } else if self.now >= until {
                    self.note(|| format!("Rs({p}) has lost its set"));
                    self.settle_files(p);
                    self.sets.get_mut(&n).unwrap().holder = None;
                }
            }
            if self.sets[&n].holder.is_none() && self.now >= self.sets[&n].until {
                self.take_set(n);
            }
        }
    }

    fn reaches_etcd(&self, p: usize) -> bool {
        !self.frozen.contains(&Node::Rs(p)) && !self.away.contains(&p)
    }

    /// One of the processes that wait takes a set.
    fn take_set(&mut self, n: usize) {
        let mut waiting = self.places(n);
        waiting.retain(|p| self.rss[*p].waits && self.reaches_etcd(*p));
        if waiting.is_empty() {
            return;
        }
        let p = waiting[self.rng.below(waiting.len() as u64) as usize];
        self.note(|| format!("Rs({p}) has the set"));
        let set = self.sets.get_mut(&n).unwrap();
        set.takeovers += u64::from(set.before.is_some_and(|before| before != p));
        (set.holder, set.before, set.until) = (Some(p), Some(p), self.now + LEASE);
        self.rss[p].waits = false;
        self.serve(p);
        self.tick_node(Node::Rs(p));
    }
}
