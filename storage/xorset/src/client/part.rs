// SPDX-License-Identifier: GPL-2.0

//! Commands, split into parts. Each part is executed by one node.

use std::{collections::BTreeSet, sync::Arc};

use super::{Action, Client, CommandId, Outcome, AGAIN, DEPTH, HELD, PATIENCE};
use crate::{
    layout::{column, has, node, spans, Cell, Mask, Span, ALL, BLOCK, NODES},
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
    pub(super) data: Arc<[u8]>,
    /// Offset in the data of the command.
    pub(super) at: usize,
    pub(super) stage: Stage,
}

pub(super) struct Command {
    pub(super) since: u64,
    pub(super) parts: usize,
    pub(super) data: Vec<u8>,
    /// Length of the data of the command, read or written.
    len: usize,
    pub(super) failed: bool,
    /// Whether the command is already answered or cancelled.
    pub(super) dead: bool,
    pub(super) cancelled: bool,
}

impl Client {
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

    /// Starts a command on `count` blocks, which must exist: a write of `data`, or else a read.
    pub fn command(&mut self, id: CommandId, lba: u64, count: u32, data: Option<Vec<u8>>) {
        let Some(size) = self.size else {
            return self.actions.push(Action::Answer {
                command: id,
                outcome: Outcome::NotReady,
            });
        };
        let len = count as usize * BLOCK;
        if self.bytes > 0 && self.bytes + len > HELD {
            return self.actions.push(Action::Answer {
                command: id,
                outcome: Outcome::Busy,
            });
        }
        self.bytes += len;
        let list = spans(&size, lba, count.into());
        let write = data.is_some();
        let bytes = data.unwrap_or_default();
        let command = Command {
            since: self.now,
            parts: list.len(),
            data: if write { Vec::new() } else { vec![0; len] },
            len,
            failed: false,
            dead: false,
            cancelled: false,
        };
        self.commands.insert(id, command);
        let mut at = 0;
        for span in list {
            let data: Arc<[u8]> = if write {
                bytes[at..at + span.len()].into()
            } else {
                Arc::new([])
            };
            self.part(Part {
                kind: if write { Kind::Write } else { Kind::Read },
                span,
                command: Some(id),
                data,
                at,
                stage: Stage::Waiting(self.now, None),
            });
            at += span.len();
        }
        self.command_over(id);
        self.go();
    }

    pub(super) fn part(&mut self, part: Part) {
        let number = self.number();
        self.stripes.insert((part.span.stripe, number));
        self.parts.insert(number, part);
    }

    /// Cancels a command. It ends when none of its parts is in flight.
    pub fn cancel(&mut self, id: CommandId) {
        if let Some(command) = self.commands.get_mut(&id) {
            command.cancelled = true;
        }
        self.kill(id);
        self.go();
    }

    /// Drops the parts of a command that no node is executing.
    pub(super) fn kill(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        command.dead = true;
        let parts = self.parts.iter();
        let mine = parts
            .filter(|(_, p)| p.command == Some(id) && matches!(p.stage, Stage::Waiting(_, None)));
        let over: Vec<_> = mine.map(|(n, _)| *n).collect();
        for number in over {
            self.part_over(number);
        }
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

    pub(super) fn command_over(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id).filter(|c| c.parts == 0) else {
            return;
        };
        let (len, dead) = (command.len, command.dead && !command.cancelled);
        let outcome = match () {
            () if command.cancelled => Outcome::Over,
            () if command.failed => Outcome::Failed,
            () => Outcome::Good(std::mem::take(&mut command.data)),
        };
        self.commands.remove(&id);
        self.bytes -= len;
        // A dead command has already been answered.
        if !dead {
            self.actions.push(Action::Answer {
                command: id,
                outcome,
            });
        }
    }

    /// Ends the commands that cannot be executed now. Their blocks are not lost, however many nodes
    /// are missing: these may return.
    pub(super) fn refuse(&mut self) {
        let Some(map) = self.map.clone() else {
            return;
        };
        let unable = !map.mask(State::Up) & ALL | self.lost(&map);
        let broken = !self.open && unable.count_ones() > 2;
        let old = |c: &Command| broken || self.now >= c.since + PATIENCE;
        let list = self.commands.iter().filter(|(_, c)| !c.dead && old(c));
        let list: Vec<_> = list.map(|(id, c)| (*id, self.now - c.since)).collect();
        let missing = (0..NODES).filter(|n| self.partners[*n].settled != map.epoch);
        let missing: Vec<_> = missing.collect();
        for (command, ms) in list {
            self.say(format!(
                "command {command} is to be sent again: not done after {ms} ms, nodes {missing:?} \
                 are missing"
            ));
            self.actions.push(Action::Answer {
                command,
                outcome: Outcome::NotReady,
            });
            self.kill(command);
        }
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
                if let (Some(command), Some(bytes)) = (command, payload) {
                    command.data[part.at..part.at + bytes.len()].copy_from_slice(bytes);
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
                    data: Arc::new([]),
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
            let (kind, span, data) = (part.kind, part.span, part.data.clone());
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
            self.send(n, message, data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Settings, layout::Size};

    /// Whether a command was refused as busy.
    fn busy(client: &mut Client, id: CommandId) -> bool {
        let told = |action: &Action| match action {
            Action::Answer { command, outcome } => *command == id && *outcome == Outcome::Busy,
            _ => false,
        };
        client.actions().iter().any(told)
    }

    #[test]
    fn data_over_the_bound_is_refused_as_busy() {
        let settings = Settings {
            id: 1,
            pause: 0,
            lease: 3000,
        };
        let mut client = Client::new(settings, 0);
        client.size = Some(Size {
            cell: 128,
            stripes: 1000,
        });
        let count = 4 << 20;
        let last = (HELD / count) as u64;
        for id in 0..last {
            client.command(id, 0, (count / BLOCK) as u32, None);
            assert!(!busy(&mut client, id), "{id}");
        }
        let write = || Some(vec![0; BLOCK]);
        client.command(last, 9, 1, write());
        assert!(busy(&mut client, last));
        assert_eq!(client.commands.len() as u64, last);
        // A command that ends gives its part back, and no more.
        client.cancel(0);
        client.command(last + 1, 9, 1, write());
        assert!(!busy(&mut client, last + 1));
        client.command(last + 2, 0, (count / BLOCK) as u32, None);
        assert!(busy(&mut client, last + 2));
        for id in 1..last + 2 {
            client.cancel(id);
        }
        assert_eq!((client.bytes, client.commands.len()), (0, 0));
        // A single command is accepted even if it has more data.
        client.command(last + 3, 0, (HELD / BLOCK) as u32 + 1, None);
        assert!(!busy(&mut client, last + 3));
    }
}
