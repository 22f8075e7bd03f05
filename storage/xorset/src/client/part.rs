// SPDX-License-Identifier: GPL-2.0

//! The parts of commands. Each part is executed by one node.

use std::collections::BTreeSet;

use super::{command::Data, Client, CommandId, Memory, AGAIN, DEPTH};
use crate::{
    layout::{column, has, node, Cell, Mask, Span, NODES},
    map::State,
    message::{Message, Status},
};

/// Maximum number of stripes of a node that are rebuilt at once.
const REBUILDS: usize = 4;
/// Interval of [`Client::tick`] in milliseconds, about.
const TICK: u64 = 300;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Rebuild the cells of the node with this number.
    Rebuild(usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Time before which the part must not be sent, and the node that may still execute it, if any.
    Waiting(u64, Option<usize>),
    /// Request number and node.
    Sent(u64, usize),
}

/// The part of a command at one node, or the rebuild of a stripe.
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) span: Span,
    pub(super) command: Option<CommandId>,
    /// Offset in the memory of the command.
    pub(super) at: usize,
    pub(super) stage: Stage,
}

impl<B: Memory> Client<B> {
    /// Records that earlier requests to a node, or with `None` to any node, are not executing.
    pub(super) fn resolved(&mut self, which: Option<usize>) {
        let mut over = Vec::new();
        for (number, part) in &mut self.parts {
            let Stage::Waiting(at, Some(n)) = part.stage else {
                continue;
            };
            if which.is_some_and(|w| w != n) {
                continue;
            }
            part.stage = Stage::Waiting(at, None);
            let command = part.command.and_then(|c| self.commands.get(&c));
            if command.is_some_and(|c| c.dead) {
                over.push(*number);
            }
        }
        for number in over {
            self.part_over(number);
        }
    }

    pub(super) fn part(&mut self, part: Part) {
        let number = self.number();
        self.stripes.insert((part.span.stripe, number));
        self.parts.insert(number, part);
    }

    pub(super) fn part_over(&mut self, number: u64) {
        let Some(part) = self.parts.remove(&number) else {
            return;
        };
        self.stripes.remove(&(part.span.stripe, number));
        let Some(id) = part.command else {
            return;
        };
        if let Some(command) = self.commands.get_mut(&id) {
            command.parts -= 1;
        }
        self.command_over(id);
    }

    /// A node has bad blocks in a stripe. Until they are written again, reads go around them.
    /// Returns false if too many nodes lack the stripe for that.
    pub(super) fn spoilt(&mut self, n: usize, stripe: u64) -> bool {
        let lost = self.lost_of(stripe);
        if has(lost, n) {
            return true;
        }
        if lost.count_ones() >= 2 {
            return false;
        }
        self.partners[n].cells.spoil(stripe);
        self.say(format!(
            "node {n}: bad blocks in stripe {stripe}; they are computed and written again"
        ));
        true
    }

    /// Handles an answer. A status comes with the node that has unreadable blocks, if any.
    pub(super) fn done(
        &mut self,
        n: usize,
        id: u64,
        (status, bad): (Status, u8),
        payload: Option<&[u8]>,
    ) {
        let number = match self.sent.get(&id) {
            Some(number) => *number,
            None => return,
        };
        let Some(part) = self
            .parts
            .get_mut(&number)
            .filter(|p| p.stage == Stage::Sent(id, n))
        else {
            return;
        };
        let read = part.kind == Kind::Read;
        let wrong = payload.is_some() != read
            || (status == Status::Good && payload.is_some_and(|p| p.len() != part.span.len()));
        if wrong {
            return self.close(n, "an answer that does not fit");
        }
        self.sent.remove(&id);
        match (status, part.kind) {
            (Status::Good, Kind::Rebuild(node)) => {
                let stripe = part.span.stripe;
                let stripes = self.size.map_or(0, |s| s.stripes);
                self.partners[node].cells.made(stripe, stripes);
                if self
                    .map
                    .as_ref()
                    .is_some_and(|m| m.states[node] == State::Up)
                {
                    self.partners[node].repaired += 1;
                    let count = self.partners[node].repaired;
                    self.say(format!(
                        "node {node}: stripe {stripe} is written again, {count} so far"
                    ));
                }
                self.part_over(number);
                self.rebuild();
            }
            (Status::Good, _) => {
                let command = part.command.and_then(|c| self.commands.get_mut(&c));
                let data = command.and_then(|c| c.data.as_mut());
                if let (Some(Data::Read(memory)), Some(bytes)) = (data, payload) {
                    memory[part.at..part.at + bytes.len()].copy_from_slice(bytes);
                }
                self.part_over(number);
            }
            (Status::Invalid, _) => {
                if let Some(command) = part.command.and_then(|c| self.commands.get_mut(&c)) {
                    command.failed = true;
                }
                self.say(format!("node {n} refuses a request"));
                self.part_over(number);
            }
            (Status::Unreadable, kind) => {
                part.stage = Stage::Waiting(self.now, None);
                let (stripe, command) = (part.span.stripe, part.command);
                let dead = command.is_some_and(|c| self.commands.get(&c).is_some_and(|c| c.dead));
                let bad = usize::from(bad);
                let goes_on = !dead && self.spoilt(bad, stripe);
                if let (Kind::Rebuild(node), false) = (kind, goes_on) {
                    if self.rebuilds(node) {
                        // The part goes on, and what it cannot compute becomes bad.
                        self.given_up.insert(stripe);
                        self.incomplete += 1;
                        let count = self.incomplete;
                        return self.say(format!(
                            "node {node}: stripe {stripe} is rebuilt without the blocks that need \
                             bad ones of node {bad}, {count} such stripes so far; these blocks are \
                             lost"
                        ));
                    }
                }
                if !goes_on {
                    if let Some(command) = command.and_then(|c| self.commands.get_mut(&c)) {
                        command.failed = true;
                    }
                    if let Kind::Rebuild(node) = kind {
                        self.partners[node].hard.insert(stripe);
                        self.say(format!(
                            "node {node}: stripe {stripe} cannot be rebuilt: node {bad} has bad \
                             blocks there"
                        ));
                    }
                    self.part_over(number);
                }
                self.rebuild();
            }
            (Status::Stale | Status::Failed, _) => {
                part.stage = Stage::Waiting(self.now + AGAIN, None);
                let command = part.command.and_then(|c| self.commands.get(&c));
                if command.is_some_and(|c| c.dead) {
                    self.part_over(number);
                }
            }
        }
    }

    /// Returns whether a node is being rebuilt.
    fn rebuilds(&self, n: usize) -> bool {
        self.map
            .as_ref()
            .is_some_and(|m| m.states[n] == State::Rebuilding)
    }

    /// Starts the rebuild of the next stripes of each rebuilding node. A stripe that is done makes
    /// room for the next one, so the nodes set the pace.
    pub(super) fn rebuild(&mut self) {
        let (Some(map), Some(size), true) = (self.map.clone(), self.size, self.open()) else {
            return;
        };
        let (now, pause) = (self.now, self.settings.pause);
        for n in 0..NODES {
            let bad = !self.partners[n].cells.whole();
            let wanted = match map.states[n] {
                State::Up => bad,
                State::Rebuilding => true,
                State::Out => false,
            };
            if !wanted {
                continue;
            }
            let mine = self.parts.values().filter(|p| p.kind == Kind::Rebuild(n));
            let flying: BTreeSet<_> = mine.map(|p| p.span.stripe).collect();
            let room = REBUILDS.saturating_sub(flying.len());
            let skip = &flying | &self.partners[n].hard;
            // If two others lack a stripe, the bad blocks of this node wait.
            let free = |s| !skip.contains(&s) && has(self.lost_of(s), n);
            let list = self.partners[n].cells.next(size.stripes, free, room);
            for stripe in list {
                let partner = &mut self.partners[n];
                // Commands wait for a stripe with bad blocks of a node that is up.
                if map.states[n] == State::Rebuilding {
                    if now < partner.next {
                        break;
                    }
                    // Catch up after late calls, except after an outage.
                    partner.next = partner.next.max(now.saturating_sub(TICK)) + pause;
                }
                let cell = Cell {
                    row: 0,
                    column: column(stripe, n),
                };
                self.part(Part {
                    kind: Kind::Rebuild(n),
                    span: Span {
                        stripe,
                        cell,
                        block: 0,
                        blocks: size.cell,
                    },
                    command: None,
                    at: 0,
                    stage: Stage::Waiting(now, None),
                });
            }
        }
    }

    /// Returns whether one part could observe the other half done.
    pub(super) fn conflict(lost: Mask, a: &Part, b: &Part) -> bool {
        let made = |p: &Part| has(lost, p.span.node());
        let both_read = a.kind == Kind::Read && b.kind == Kind::Read;
        // The span of a rebuild is in a lost cell, so it conflicts with the whole stripe.
        let same = a.span.cell == b.span.cell || made(a) || made(b);
        a.span.meets(&b.span) && same && !both_read
    }

    /// Sends the parts that can be sent, in order.
    pub(super) fn go(&mut self) {
        if !self.open() || self.ended {
            return;
        }
        let Some((epoch, up)) = self.map.as_ref().map(|m| (m.epoch, m.mask(State::Up))) else {
            return;
        };
        let up = up | self.rising;
        let mut busy = [0; NODES];
        for part in self.parts.values() {
            if let Stage::Sent(_, n) = part.stage {
                busy[n] += 1;
            }
        }
        let ready = |p: &Part| matches!(p.stage, Stage::Waiting(at, None) if at <= self.now);
        let list: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, p)| ready(p))
            .map(|(n, _)| *n)
            .collect();
        for number in list {
            if busy.iter().all(|b| *b >= DEPTH) {
                break;
            }
            let Some(part) = self.parts.get(&number) else {
                continue;
            };
            let stripe = part.span.stripe;
            let lost = self.lost_of(stripe);
            // A write must not pass over bad blocks of a node that the next client takes for whole.
            if part.kind == Kind::Write && lost & up != 0 {
                continue;
            }
            // Later parts may be executing only if blocks have just become bad. A rebuild may
            // precede the commands that wait for it.
            let executing = |p: &Part| !matches!(p.stage, Stage::Waiting(_, None));
            let first = |n: u64| n < number && !matches!(part.kind, Kind::Rebuild(_));
            let others = self.stripes.range((stripe, 0)..=(stripe, u64::MAX));
            let others = others.filter(|(_, n)| *n != number);
            let mut others = others.filter_map(|(_, n)| Some((*n, self.parts.get(n)?)));
            if others.any(|(n, other)| {
                (first(n) || executing(other)) && Self::conflict(lost, part, other)
            }) {
                continue;
            }
            let home = part.span.node();
            let n = match part.kind {
                Kind::Rebuild(n) => Some(n),
                _ if !has(lost, home) => Some(home),
                _ => {
                    let nodes = part.span.cell.parities().map(|c| node(stripe, c.column));
                    nodes.into_iter().find(|n| !has(lost, *n))
                }
            };
            let Some(n) = n.filter(|n| self.partners[*n].settled == epoch && busy[*n] < DEPTH)
            else {
                continue;
            };
            busy[n] += 1;
            if part.kind == Kind::Write {
                for (n, partner) in self.partners.iter_mut().enumerate() {
                    if has(lost, n) {
                        partner.cells.spoil(stripe);
                    }
                }
            }
            let (kind, span, payload) = (part.kind, part.span, self.payload(part));
            let id = self.number();
            self.sent.insert(id, number);
            if let Some(part) = self.parts.get_mut(&number) {
                part.stage = Stage::Sent(id, n);
            }
            let message = match kind {
                Kind::Read => Message::Read {
                    epoch,
                    id,
                    span,
                    lost,
                },
                Kind::Write => Message::Write {
                    epoch,
                    id,
                    span,
                    lost,
                },
                Kind::Rebuild(n) => Message::Rebuild {
                    epoch,
                    id,
                    stripe,
                    lost,
                    rest: self.given_up.contains(&stripe) && self.rebuilds(n),
                },
            };
            self.send(n, message, payload);
        }
    }
}
