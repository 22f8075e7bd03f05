// SPDX-License-Identifier: GPL-2.0

//! A simulated fabric with all roles, disks and initiators. A seed determines the order of all
//! events, and everything can fail.
//!
//! A connection is reliable and ordered in each direction. An RDMA operation takes effect in the
//! peer's memory when it arrives there, and its completion is delayed. A side that closes a
//! connection has no further events of it. Some of the items that it has sent may still arrive
//! before the peer sees the close.

mod connections;
mod events;
pub mod history;
pub mod initiator;
mod roles;
pub mod scene;
mod sets;

pub use connections::{ConnId, Item};
pub use seeded::Rng;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use connections::Conn;
use history::History;
use initiator::Initiator;
use srp_target::target::Settings;
use wss::{ce, message::Status, rs, se};

/// Line size in bytes: four blocks, so that most commands use several lines.
pub const LINE: u32 = 2048;
/// Number of blocks per extent.
pub const EXTENT: u64 = 8;
/// Number of blocks per object.
pub const OBJECT: u64 = 32;
/// Number of blocks of the unit: one object of each RS.
pub const BLOCKS: u64 = 2 * OBJECT;
pub const TARGET: [u8; 16] = [7; 16];
pub const DEPTH: u32 = 6;
/// Address of the arena of a CE.
const ARENA: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Node {
    Se,
    Ce(usize),
    /// A process of an RS. An RS has the process of its number, and with a set another one.
    Rs(usize),
    Initiator(usize),
}

pub struct CeNode {
    pub engine: Option<ce::Engine>,
    arena: Vec<u8>,
    key: u32,
    /// Destinations in the arena of each job's fetches.
    fetches: HashMap<u64, Vec<(usize, usize)>>,
}

pub struct RsNode {
    /// The RS.
    of: usize,
    pub store: Option<rs::Store>,
    /// Whether the process waits for its set.
    waits: bool,
    /// Whether the lease of the process is over.
    lapsed: bool,
    memory: HashMap<u64, Vec<u8>>,
    /// Boot of the host.
    boot: u64,
    /// Whether the next sync of the file fails: it is reported once, and what it should have
    /// written is lost.
    pub bad_sync: bool,
    /// Whether a sync has failed: all fail until the process is started again.
    failed: bool,
    /// Pending file I/O, executed in any order, not before the event with this number.
    pub pending: Vec<(u64, rs::Work, u64)>,
}

pub struct World {
    pub rng: Rng,
    /// Time in milliseconds.
    pub now: u64,
    pub clock: u64,
    pub se: Option<se::Engine<Vec<u8>>>,
    pub ces: Vec<CeNode>,
    pub rss: Vec<RsNode>,
    /// The sets, by RS.
    sets: BTreeMap<usize, sets::Set>,
    /// Processes of RSs that do not reach etcd.
    pub away: BTreeSet<usize>,
    /// The object of each RS.
    pub disks: Vec<Vec<u8>>,
    /// The blocks of each object that certainly survive a power loss.
    durable: Vec<Vec<u8>>,
    /// RSs to which the current SE has been attached.
    pub attached: BTreeSet<usize>,
    /// Number of flushes that failed because of a power loss.
    pub told: u64,
    pub initiators: Vec<Initiator>,
    pub conns: BTreeMap<ConnId, Conn>,
    pub frozen: BTreeSet<Node>,
    pub history: History,
    /// One in this many file operations fails; 0: none.
    pub bad_disk: u64,
    pub disks_failed: bool,
    /// Pairs of an initiator and a CE that it cannot reach.
    pub barred: Vec<(usize, usize)>,
    /// Whether initiators log in to RSs, too.
    pub direct: bool,
    /// Time advances once in this many events.
    pub pace: u64,
    /// Number of blocks that most commands use.
    pub span: u64,
    /// One in this many file operations is slow; 0: none.
    pub slow_disk: u64,
    /// RSs on which file I/O makes no progress.
    pub stuck: BTreeSet<usize>,
    /// Whether the SE gets no completions.
    pub uncompleted: bool,
    next: u64,
    pub verbose: bool,
}

impl World {
    pub fn new(seed: u64, ces: usize, initiators: usize) -> Self {
        Self::with_sets(seed, ces, initiators, &[])
    }

    /// These RSs have a set and two places.
    pub fn with_sets(seed: u64, ces: usize, initiators: usize, sets: &[usize]) -> Self {
        let mut this = Self {
            rng: Rng(seed),
            now: 1_000_000,
            clock: 1,
            se: None,
            ces: Vec::new(),
            rss: Vec::new(),
            sets: sets.iter().map(|n| (*n, sets::Set::default())).collect(),
            away: BTreeSet::new(),
            disks: vec![vec![0; OBJECT as usize * 512]; 2],
            durable: vec![vec![0; OBJECT as usize * 512]; 2],
            attached: BTreeSet::new(),
            told: 0,
            initiators: (0..initiators).map(Initiator::new).collect(),
            conns: BTreeMap::new(),
            frozen: BTreeSet::new(),
            history: History::new(BLOCKS as usize),
            bad_disk: 0,
            disks_failed: false,
            barred: Vec::new(),
            direct: false,
            pace: 60,
            span: 24,
            slow_disk: 0,
            stuck: BTreeSet::new(),
            uncompleted: false,
            next: 1,
            verbose: std::env::var_os("TRACE").is_some(),
        };
        for _ in 0..ces {
            this.ces.push(CeNode {
                engine: None,
                arena: Vec::new(),
                key: 0,
                fetches: HashMap::new(),
            });
        }
        for of in (0..2).chain(sets.iter().copied()) {
            this.rss.push(RsNode {
                of,
                store: None,
                waits: false,
                lapsed: false,
                memory: HashMap::new(),
                boot: 1,
                bad_sync: false,
                failed: false,
                pending: Vec::new(),
            });
        }
        for node in this.roles() {
            this.start(node);
        }
        this
    }

    pub fn roles(&self) -> Vec<Node> {
        let mut all = vec![Node::Se];
        all.extend((0..self.rss.len()).map(Node::Rs));
        all.extend((0..self.ces.len()).map(Node::Ce));
        all
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.verbose {
            let line = format!("{} {}: {}", self.clock, self.now, what());
            eprintln!("{line}");
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    // Nodes.

    pub fn alive(&self, node: Node) -> bool {
        match node {
            Node::Se => self.se.is_some(),
            Node::Ce(n) => self.ces[n].engine.is_some(),
            Node::Rs(n) => self.rss[n].store.is_some(),
            Node::Initiator(_) => true,
        }
    }

    /// Whether the process of a node is there, perhaps asleep.
    pub fn runs(&self, node: Node) -> bool {
        self.alive(node) || matches!(node, Node::Rs(p) if self.rss[p].waits)
    }

    pub fn start(&mut self, node: Node) {
        if self.runs(node) {
            return;
        }
        self.note(|| format!("start {node:?}"));
        let number = self.number();
        let stores: Vec<_> = (0..2).map(|n| self.places(n).len()).collect();
        match node {
            Node::Se => {
                let settings = se::Settings {
                    target: Settings {
                        id: TARGET,
                        queue_depth: DEPTH,
                        channels: 4,
                    },
                    guid: 5,
                    units: vec![vec![(100, 0), (101, 0)]],
                    stores,
                    extent: EXTENT,
                    line: u64::from(LINE) / 512,
                    max_transfer: 12 * 512,
                    epoch: self.now << 20,
                };
                self.se = Some(se::Engine::new(settings, self.now));
            }
            Node::Ce(n) => {
                let settings = ce::Settings {
                    member: n as u32 + 1,
                    id: TARGET,
                    lines: 10,
                    line: LINE,
                    engines: 1,
                    stores,
                };
                let ce = &mut self.ces[n];
                ce.engine = Some(ce::Engine::new(settings, self.now));
                ce.arena = vec![0xcc; 10 * LINE as usize];
                ce.key = number as u32;
            }
            Node::Rs(n) => match self.sets.contains_key(&self.rss[n].of) {
                true => return self.wait_for_set(n),
                false => self.serve(n),
            },
            Node::Initiator(_) => {}
        }
        self.tick_node(node);
    }

    /// A process begins to serve as an RS.
    fn serve(&mut self, n: usize) {
        let settings = rs::Settings {
            number: 100 + self.rss[n].of as u32,
            id: TARGET,
            boot: self.rss[n].boot,
        };
        self.rss[n].store = Some(rs::Store::new(settings, vec![OBJECT], self.now));
    }

    pub fn kill(&mut self, node: Node) {
        self.note(|| format!("kill {node:?}"));
        match node {
            Node::Se => {
                self.se = None;
                // An SE that ends before it has reported a loss reports nothing.
                self.attached.clear();
                for initiator in &mut self.initiators {
                    initiator.owed = None;
                }
            }
            Node::Ce(n) => {
                self.ces[n].engine = None;
                self.ces[n].fetches.clear();
            }
            Node::Rs(n) => {
                self.rss[n].store = None;
                self.settle_files(n);
                self.rss[n].memory.clear();
                self.rss[n].failed = false;
                self.left_set(n);
            }
            Node::Initiator(_) => unreachable!(),
        }
        self.frozen.remove(&node);
        for (id, side) in self.sides_of(node) {
            self.close(id, side);
        }
    }

    /// Executes the pending writes of an RS up to a random block.
    fn settle_files(&mut self, n: usize) {
        for (op, work, _) in std::mem::take(&mut self.rss[n].pending) {
            let blocks = match work {
                rs::Work::Write { blocks, .. } => self.rng.below(u64::from(blocks) + 1),
                _ => 0,
            };
            self.work(n, op, work, blocks as u32);
        }
    }

    /// The host of an RS loses its power: of the blocks that are not durable, any may be lost. A
    /// set loses none.
    pub fn power(&mut self, n: usize) {
        self.kill(Node::Rs(n));
        if self.sets.contains_key(&self.rss[n].of) {
            return;
        }
        self.note(|| format!("Rs({n}) has lost its power"));
        self.rss[n].boot += 1;
        self.lose(n);
    }

    /// A sync of the file of an RS.
    fn sync(&mut self, n: usize) -> Status {
        if std::mem::take(&mut self.rss[n].bad_sync) {
            self.note(|| format!("Rs({n}): a sync fails"));
            self.rss[n].failed = true;
            self.disks_failed = true;
            self.lose(n);
        }
        if self.rss[n].failed {
            return Status::WriteError;
        }
        let n = self.rss[n].of;
        self.durable[n].clone_from(&self.disks[n]);
        Status::Good
    }

    /// Loses any of the blocks of an RS that are not durable.
    fn lose(&mut self, n: usize) {
        let mut ends = Vec::new();
        for block in 0..OBJECT as usize {
            let range = block * 512..(block + 1) * 512;
            let (cache, durable) = (
                &self.disks[n][range.clone()],
                &self.durable[n][range.clone()],
            );
            if cache == durable {
                continue;
            }
            if self.rng.one_in(3) {
                self.durable[n][range.clone()].copy_from_slice(&self.disks[n][range]);
                continue;
            }
            let value = u64::from_le_bytes(*durable.first_chunk().unwrap());
            ends.extend(self.history.lost(n * OBJECT as usize + block, value));
            self.disks[n][range.clone()].copy_from_slice(&self.durable[n][range]);
        }
        // An SE that has not seen the boot number before a loss cannot detect the loss.
        let lost = ends.into_iter().filter(|_| self.attached.contains(&n));
        let lost = lost.min();
        for initiator in &mut self.initiators {
            initiator.owed = initiator.owed.into_iter().chain(lost).min();
        }
    }

    /// Ends all faults and waits until all operations have ended.
    pub fn heal(&mut self) {
        self.note(|| "heal".into());
        self.release();
        self.frozen.clear();
        self.stuck.clear();
        self.away.clear();
        self.uncompleted = false;
        self.bad_disk = 0;
        self.slow_disk = 0;
        for (_, _, at) in self.rss.iter_mut().flat_map(|rs| &mut rs.pending) {
            *at = 0;
        }
        for node in self.roles() {
            if self.lapsed(node) {
                self.kill(node);
            }
            self.start(node);
        }
        self.until("all commands have ended", 200_000, |w| {
            w.initiators.iter().all(|i| i.idle())
        });
        self.until("all roles are idle", 20_000, |w| {
            w.se.as_ref().is_some_and(|se| se.commands() == 0)
                && w.history.settled()
                && w.ces
                    .iter()
                    .all(|ce| ce.engine.as_ref().is_some_and(|e| e.idle()))
                && w.rss
                    .iter()
                    .all(|rs| rs.store.as_ref().is_none_or(|s| s.idle()))
        });
        let buffers = self.rss.iter().map(|rs| rs.memory.len());
        assert_eq!(buffers.sum::<usize>(), 0, "buffers of no operation");
        let se = self.se.as_mut().unwrap();
        assert_eq!(se.busy(), 0);
        let (owners, status) = (se.owners(), se.status());
        for member in status["members"].as_array().unwrap() {
            let number = member["name"].as_str().unwrap().parse().unwrap();
            let owned = owners.get(&number).copied().unwrap_or(0);
            assert_eq!(member["extents"], owned, "extents of CE {number}");
        }
    }

    /// Reads all blocks and compares them with the disks.
    pub fn judge(&mut self) {
        initiator::read_all(self, 0);
        self.until("all blocks are read", 200_000, |w| {
            w.initiators.iter().all(|i| i.idle())
        });
        for block in 0..BLOCKS {
            let disk = &self.disks[(block / OBJECT) as usize];
            let bytes = &disk[(block % OBJECT) as usize * 512..][..512];
            let value = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(
                Some(&value),
                self.initiators[0].last.get(&block),
                "block {block} of the disk is not what was read"
            );
        }
    }
}
