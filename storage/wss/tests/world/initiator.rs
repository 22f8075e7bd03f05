// SPDX-License-Identifier: GPL-2.0

//! An initiator like the driver: a session has one or two channels at the SE and an answer channel
//! at each CE, perhaps at each RS, and ends when any of them is lost. rkeys are valid until their
//! command ends. Commands are retried, also in a new session. The driver's code builds and parses
//! the messages.

pub mod commands;

use commands::{abort, submit};
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{ConnId, Node, World, BLOCKS, TARGET};
use srp_target::proto::{
    cmd::Direction,
    ids::PortId,
    login_iu::{LoginError, LoginReqRdma, LoginRsp, MultiChannel, Requested},
    opcode,
    rsp::Rsp,
    sense::Sense,
    tmf::TmfStatus,
};

/// Command timeout in milliseconds; then the command is aborted.
const TIMEOUT: u64 = 20_000;
/// Time in milliseconds after which an unfinished login or command ends the session.
const GIVE_UP: u64 = 40_000;
/// Login timeout of an answer channel in milliseconds.
const ANSWERS: u64 = 5000;
/// Retry delay of an answer channel in milliseconds.
const AGAIN: u64 = 2000;
/// Maximum number of blocks of a command.
const MOST: u64 = 12;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    /// Zeroes blocks.
    Zero,
    /// Verifies blocks without a transfer.
    Verify,
}

#[derive(Clone, Debug)]
struct Op {
    kind: Kind,
    lba: u64,
    /// The values written, or the identifiers of zeroed blocks.
    values: Vec<u64>,
    stable: bool,
    start: u64,
    /// Tag of the command in flight for the operation.
    tag: Option<u64>,
}

impl Op {
    fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Zero)
    }

    /// Data of the command.
    fn data(&self) -> Vec<u8> {
        let all = self.values.iter();
        match self.kind {
            Kind::Write => all.flat_map(|v| v.to_le_bytes().repeat(64)).collect(),
            Kind::Zero if self.stable => vec![0; 512],
            Kind::Zero => {
                let count = self.values.len() as u32;
                let range = [&self.lba.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]];
                [&[0, 22, 0, 16, 0, 0, 0, 0], &range.concat()[..]].concat()
            }
            _ => Vec::new(),
        }
    }
}

struct Out {
    op: u64,
    conn: ConnId,
    keys: Vec<u32>,
    sent: u64,
    /// `Some` if the command must be aborted. The value tells whether to retry the operation.
    aborted: Option<bool>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Log in next at this time.
    Down(u64),
    /// Logging in since this time.
    LogsIn(u64),
    Up,
}

pub struct Initiator {
    number: usize,
    state: State,
    /// Connections with a login in flight.
    waiting: HashSet<ConnId>,
    /// Missing answer channels: time of the next attempt, and the CE or RS.
    missing: Vec<(u64, Node)>,
    mains: Vec<ConnId>,
    answers: Vec<ConnId>,
    credits: HashMap<ConnId, i32>,
    regions: HashMap<u32, Vec<u8>>,
    ops: BTreeMap<u64, Op>,
    outs: BTreeMap<u64, Out>,
    /// Aborts in flight by tag, each with the tag of the command and the channel.
    aborts: HashMap<u64, (u64, ConnId)>,
    next: u64,
    /// Number of channels at the SE.
    channels: usize,
    /// Number of answered commands, and of sessions.
    pub answered: u64,
    pub sessions: u64,
    /// Number of commands aborted before they were answered.
    pub aborted: u64,
    /// The last value read, by block.
    pub last: HashMap<u64, u64>,
    /// Number of commands answered by a CE.
    pub by_ce: u64,
    /// Number of commands answered by an RS.
    pub by_rs: u64,
    /// End of the first answered write that a power loss has taken: no later flush succeeds until
    /// one has failed.
    pub owed: Option<u64>,
}

impl Initiator {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            state: State::Down(0),
            waiting: HashSet::new(),
            missing: Vec::new(),
            mains: Vec::new(),
            answers: Vec::new(),
            credits: HashMap::new(),
            regions: HashMap::new(),
            ops: BTreeMap::new(),
            outs: BTreeMap::new(),
            aborts: HashMap::new(),
            next: (number as u64 + 1) << 40,
            channels: 1 + number % 2,
            answered: 0,
            sessions: 0,
            aborted: 0,
            last: HashMap::new(),
            by_ce: 0,
            by_rs: 0,
            owed: None,
        }
    }

    pub fn id(&self) -> PortId {
        PortId([self.number as u8 + 1; 16])
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn idle(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn up(&self) -> bool {
        self.state == State::Up
    }

    pub fn pending(&self) -> usize {
        self.ops.len()
    }

    pub fn out(&self) -> usize {
        self.outs.len()
    }

    pub fn reach(&self) -> usize {
        self.answers.len()
    }

    pub fn memory(&mut self, va: u64, key: u32, len: usize) -> Option<&mut [u8]> {
        let region = self.regions.get_mut(&key)?;
        region.get_mut((va - 0x1000) as usize..)?.get_mut(..len)
    }

    pub fn invalidate(&mut self) {
        self.regions.clear();
    }

    fn requested(&self, multichannel: MultiChannel) -> Requested {
        Requested {
            tag: 77,
            max_it_iu_len: 260,
            descriptors: 12,
            immediate: 0,
            multichannel,
            initiator: self.id(),
            target: PortId(TARGET),
        }
    }
}

fn login(world: &mut World, n: usize, to: Node, how: MultiChannel) {
    let request = LoginReqRdma::new(&world.initiators[n].requested(how));
    let data = request.as_bytes().to_vec();
    let number = world.number();
    let id = world.connect(Node::Initiator(n), number, to, data);
    world.initiators[n].waiting.insert(id);
}

pub fn accepted(world: &mut World, n: usize, id: ConnId, data: &[u8]) {
    let to = world.conns[&id].sides[1].node;
    let this = &mut world.initiators[n];
    assert!(this.waiting.remove(&id));
    let rsp = LoginRsp::parse(data).expect("a login response");
    if to == Node::Se {
        let how = if this.mains.is_empty() {
            MultiChannel::Single
        } else {
            MultiChannel::Multi
        };
        let granted = match rsp.check(&this.requested(how)) {
            Ok(granted) => granted,
            // The first channel has ended meanwhile.
            Err(LoginError::NotMaintained(0)) => return lose(world, n),
            Err(e) => panic!("{e:?}"),
        };
        this.credits.insert(id, granted.req_lim as i32);
        this.mains.push(id);
        if this.mains.len() < this.channels {
            return login(world, n, to, MultiChannel::Multi);
        }
        // Answer channels follow; commands do not wait for them.
        this.state = State::Up;
        this.sessions += 1;
        let reached = |ce: &usize| !world.barred.contains(&(n, *ce));
        let ces = (0..world.ces.len()).filter(reached).map(Node::Ce);
        let rss = (0..world.rss.len()).filter(|_| world.direct).map(Node::Rs);
        for role in ces.chain(rss).collect::<Vec<_>>() {
            login(world, n, role, MultiChannel::Multi);
        }
        submit(world, n);
    } else {
        assert_eq!(data[4..8], [0; 4], "an answer channel has no credits");
        this.answers.push(id);
    }
}

/// Handles the end of a connection to a node.
pub fn closed(world: &mut World, n: usize, id: ConnId, to: Node) {
    let this = &mut world.initiators[n];
    if this.waiting.remove(&id) {
        return match to {
            Node::Se => lose(world, n),
            role => this.missing.push((world.now + AGAIN, role)),
        };
    }
    if this.mains.contains(&id) || this.answers.contains(&id) {
        lose(world, n);
    }
}

/// Ends the session: first all queue pairs, then the rkeys.
pub fn lose(world: &mut World, n: usize) {
    world.note(|| format!("Initiator({n}) has lost its session"));
    for (id, side) in world.sides_of(Node::Initiator(n)) {
        world.close(id, side);
    }
    let wait = world.rng.below(2000);
    let this = &mut world.initiators[n];
    this.state = State::Down(world.now + wait);
    this.waiting.clear();
    this.missing.clear();
    this.mains.clear();
    this.answers.clear();
    this.credits.clear();
    this.regions.clear();
    this.aborts.clear();
    // Retry all operations: only an answer ends one.
    this.outs.clear();
    for op in this.ops.values_mut() {
        op.tag = None;
    }
}

/// Abandons logins of answer channels after `after` milliseconds, and retries them after `again`.
pub fn give_up(world: &mut World, n: usize, after: u64, again: u64) {
    let now = world.now;
    let slow: Vec<_> = world.initiators[n]
        .waiting
        .iter()
        .copied()
        .filter(|id| world.conns[id].since + after <= now)
        .collect();
    for id in slow {
        let role = world.conns[&id].sides[1].node;
        if role != Node::Se {
            world.close(id, 0);
            let this = &mut world.initiators[n];
            this.waiting.remove(&id);
            this.missing.push((now + again, role));
        }
    }
}

pub fn tick(world: &mut World, n: usize) {
    let now = world.now;
    let this = &mut world.initiators[n];
    match this.state {
        State::Down(at) if at <= now => {
            this.state = State::LogsIn(now);
            return login(world, n, Node::Se, MultiChannel::Single);
        }
        State::LogsIn(since) if since + GIVE_UP <= now => return lose(world, n),
        _ => {}
    }
    let (again, later) = this.missing.iter().partition(|(at, _)| *at <= now);
    this.missing = later;
    let again: Vec<(u64, Node)> = again;
    for (_, role) in again {
        login(world, n, role, MultiChannel::Multi);
    }
    // Start the session without slow answer channels.
    give_up(world, n, ANSWERS, AGAIN);
    let this = &mut world.initiators[n];
    if this.outs.values().any(|o| o.sent + GIVE_UP <= now) {
        return lose(world, n);
    }
    let late = |o: &Out| o.sent + TIMEOUT <= now && o.aborted.is_none();
    let late: Vec<_> = this
        .outs
        .iter()
        .filter(|(_, o)| late(o))
        .map(|(t, _)| *t)
        .collect();
    for tag in late {
        abort(world, n, tag, true);
    }
    submit(world, n);
}

pub fn want(world: &mut World, n: usize, kind: Kind, lba: u64, count: u64, stable: bool) {
    let (clock, mut values) = (world.clock, Vec::new());
    if matches!(kind, Kind::Write | Kind::Zero) {
        for block in lba..lba + count {
            let id = world.initiators[n].number();
            let value = if kind == Kind::Zero { 0 } else { id };
            world.history.begins(block as usize, id, value, clock);
            values.push(id);
        }
    } else {
        values.resize(count as usize, 0);
    }
    let this = &mut world.initiators[n];
    let number = this.number();
    let op = Op {
        kind,
        lba,
        values,
        stable,
        start: clock,
        tag: None,
    };
    this.ops.insert(number, op);
    submit(world, n);
}

pub fn want_any(world: &mut World, n: usize) {
    let count = 1 + world.rng.below(MOST);
    // Put most operations in the same range, so that commands conflict.
    let span = if world.rng.one_in(3) {
        BLOCKS
    } else {
        world.span
    };
    let lba = world.rng.below(span - count + 1);
    let kind = match world.rng.below(20) {
        0 => Kind::Flush,
        1 => Kind::Verify,
        2..=3 => Kind::Zero,
        4..=10 => Kind::Write,
        _ => Kind::Read,
    };
    let stable = world.rng.one_in(8);
    want(world, n, kind, lba, count, stable);
}

pub fn read_all(world: &mut World, n: usize) {
    for lba in (0..BLOCKS).step_by(8) {
        want(world, n, Kind::Read, lba, 8, false);
    }
}

/// Ends a command: its rkeys become invalid.
fn end(world: &mut World, n: usize, tag: u64) -> Option<Out> {
    let this = &mut world.initiators[n];
    let out = this.outs.remove(&tag)?;
    for key in &out.keys {
        this.regions.remove(key);
    }
    if let Some(op) = this.ops.get_mut(&out.op) {
        op.tag = None;
    }
    Some(out)
}

pub fn received(world: &mut World, n: usize, id: ConnId, bytes: &[u8]) {
    if bytes[0] == opcode::T_LOGOUT {
        return lose(world, n);
    }
    let rsp = Rsp::parse(bytes).expect("a response");
    let (tag, credits) = (rsp.tag, rsp.req_lim_delta);
    let this = &mut world.initiators[n];
    if let Some((task, conn)) = this.aborts.remove(&tag) {
        assert_eq!(
            conn, id,
            "task management is answered where it was asked for"
        );
        assert_eq!(rsp.tmf_status(), TmfStatus::COMPLETE);
        *this.credits.get_mut(&conn).unwrap() += credits;
        let answered = !this.outs.contains_key(&task);
        if let Some(out) = end(world, n, task) {
            assert!(!answered);
            world.initiators[n].aborted += 1;
            if out.aborted == Some(false) {
                over(world, n, out.op, false);
            }
        }
        return submit(world, n);
    }
    let out = this
        .outs
        .get(&tag)
        .unwrap_or_else(|| panic!("a response to what is not out: {tag:x}"));
    let conn = out.conn;
    let elsewhere = this.answers.contains(&id);
    assert!(elsewhere || id == conn, "a response on another channel");
    let count = this.credits.get_mut(&conn).unwrap();
    *count += credits;
    assert!(*count <= super::DEPTH as i32, "more credits than there are");
    let op = this.ops[&out.op].clone();
    let len = op.values.len() as u32 * 512;
    let (direction, len) = match op.kind {
        Kind::Read => (Direction::FromDevice, len),
        Kind::Write | Kind::Zero => (Direction::ToDevice, op.data().len() as u32),
        Kind::Flush | Kind::Verify => (Direction::None, 0),
    };
    let outcome = rsp.outcome(len, direction).expect("a response that fits");
    if outcome.status != 0 {
        let sense = Sense::parse(outcome.sense).map(|s| (s.key, s.asc, s.ascq));
        let number = out.op;
        world.note(|| {
            format!(
                "Initiator({n}): {tag:x} failed: {} {sense:x?}",
                outcome.status
            )
        });
        assert!(!elsewhere);
        end(world, n, tag);
        if outcome.status == 8 {
            return submit(world, n);
        }
        match sense {
            // A unit attention: retry the command.
            Some((6, ..)) => {}
            Some((3, ..)) if world.disks_failed => over(world, n, number, false),
            Some((4, 0x0c, 0)) if op.kind == Kind::Flush => {
                world.told += 1;
                world.initiators[n].owed = None;
                over(world, n, number, false);
            }
            _ => panic!("status {}, sense {sense:x?}", outcome.status),
        }
        return submit(world, n);
    }
    assert_eq!(outcome.resid, 0);
    if op.kind == Kind::Flush {
        let lost = this.owed.filter(|end| *end <= op.start);
        assert_eq!(lost, None, "a flush promises a write that is lost");
    }
    // Only CEs and RSs transfer data, and the SE answers commands without a transfer.
    assert!(op.kind != Kind::Read || elsewhere);
    assert!(!elsewhere || matches!(op.kind, Kind::Read | Kind::Write));
    match world.conns[&id].sides[1].node {
        Node::Ce(_) => this.by_ce += 1,
        Node::Rs(_) => this.by_rs += 1,
        _ => {}
    }
    let mut data = Vec::new();
    if op.kind == Kind::Read {
        // The descriptor table, if any, is at the end.
        for (at, key) in out.keys.iter().enumerate() {
            data.extend_from_slice(&this.regions[key][16 * at..]);
        }
        data.truncate(len as usize);
    }
    let number = out.op;
    end(world, n, tag);
    world.initiators[n].answered += 1;
    let now = world.clock;
    if op.kind == Kind::Read {
        for (i, block) in data.chunks(512).enumerate() {
            let value = u64::from_le_bytes(*block.first_chunk().unwrap());
            let block_number = op.lba + i as u64;
            assert!(
                block.chunks(8).all(|c| c == value.to_le_bytes()),
                "block {block_number} is not of one piece: {block:02x?}"
            );
            world
                .history
                .seen(block_number as usize, value, op.start, now);
            world.initiators[n].last.insert(block_number, value);
        }
    }
    over(world, n, number, true);
    submit(world, n);
}

fn over(world: &mut World, n: usize, number: u64, good: bool) {
    let Some(op) = world.initiators[n].ops.remove(&number) else {
        return;
    };
    if op.writes() {
        let now = world.clock;
        for (i, id) in op.values.iter().enumerate() {
            world.history.ends(op.lba as usize + i, *id, now, good);
        }
    }
}
