// SPDX-License-Identifier: GPL-2.0

//! Reconstruction of blocks from other cells.

use std::{collections::BTreeSet, io};

use wss::peer::Peer;

use super::Node;
use crate::{
    journal::{unreadable, Media},
    layout::{column, plan, xor, Cell, Mask, Span, ROWS},
    message::{Message, Status},
};

pub(super) enum Goal {
    Read,
    Write(Vec<u8>),
    /// Rebuild of a stripe. If blocks that cannot be computed become bad, with the nodes that lack
    /// the stripe.
    Rebuild(Option<Mask>),
}

pub(super) struct Gather {
    pub(super) peer: Peer,
    pub(super) id: u64,
    pub(super) span: Span,
    pub(super) lost: Mask,
    pub(super) goal: Goal,
    pub(super) sum: Vec<u8>,
    pub(super) waits: BTreeSet<u64>,
}

impl<M: Media> Node<M> {
    pub(super) fn rebuild(
        &mut self,
        peer: Peer,
        id: u64,
        stripe: u64,
        lost: Mask,
        rest: bool,
    ) -> io::Result<()> {
        let span = Span {
            stripe,
            cell: Cell {
                row: 0,
                column: column(stripe, self.number),
            },
            block: 0,
            blocks: self.journal.size().cell,
        };
        self.gather(peer, id, span, lost, Goal::Rebuild(rest.then_some(lost)))
    }

    /// Continues a rebuild after a span: with the next block of its cell, or the next row.
    fn rebuilt(&mut self, g: Gather) -> io::Result<()> {
        let (mut span, cell) = (g.span, self.journal.size().cell);
        span.block += span.blocks;
        if span.block == cell {
            span.cell.row += 1;
            (span.block, span.blocks) = (0, cell);
        }
        if usize::from(span.cell.row) == ROWS {
            self.rebuilds.push((self.journal.lsn(), g.peer, g.id));
            return Ok(());
        }
        let lost = match g.goal {
            Goal::Rebuild(Some(lost)) => lost,
            _ => g.lost,
        };
        self.gather(g.peer, g.id, span, lost, g.goal)
    }

    pub(super) fn gather(
        &mut self,
        peer: Peer,
        id: u64,
        span: Span,
        lost: Mask,
        goal: Goal,
    ) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        let mut gather = Gather {
            peer,
            id,
            span,
            lost,
            goal,
            sum: vec![0; span.len()],
            waits: BTreeSet::new(),
        };
        let cells = plan(span.stripe, lost, span.cell);
        let status = if cells.is_none() {
            Status::Invalid
        } else {
            Status::Failed
        };
        let (mut ask, mut down, mut spoilt) = (Vec::new(), cells.is_none(), None);
        for cell in cells.unwrap_or_default() {
            let span = span.of(cell);
            let n = span.node();
            if n == self.number {
                match self.journal.read(span) {
                    Ok(bytes) => xor(&mut gather.sum, &bytes),
                    Err(e) if unreadable(&e) => spoilt = Some(e),
                    Err(e) => return Err(e),
                }
                continue;
            }
            down |= !self.links[n].up();
            let id = self.next;
            self.next += 1;
            gather.waits.insert(id);
            ask.push((n, id, span));
        }
        self.gathers.insert(number, gather);
        if let Some(e) = spoilt {
            self.say(e.to_string());
            return self.fail(number, Status::Unreadable, self.number as u8);
        }
        if down {
            return self.fail(number, status, 0);
        }
        let epoch = self.journal.epoch();
        for (n, id, span) in ask {
            self.reads.insert(id, (number, n));
            let read = Message::Read {
                epoch,
                id,
                span,
                lost,
            };
            self.tell(self.links[n].peer, read);
        }
        self.gathered(number)
    }

    /// `node`: the one with unreadable blocks, if these are the reason.
    pub(super) fn fail(&mut self, gather: u64, status: Status, node: u8) -> io::Result<()> {
        self.reads.retain(|_, (g, _)| *g != gather);
        let Some(mut g) = self.gathers.remove(&gather) else {
            return Ok(());
        };
        let id = g.id;
        match (&g.goal, status) {
            (Goal::Rebuild(Some(_)), Status::Unreadable) => {
                let wider = g.lost | 1 << node;
                if g.span.blocks > 1 {
                    g.span.blocks = 1;
                } else if wider != g.lost && wider.count_ones() <= 2 {
                    g.lost = wider;
                } else {
                    self.journal.lose(g.span)?;
                    return self.rebuilt(g);
                }
                return self.gather(g.peer, g.id, g.span, g.lost, g.goal);
            }
            (Goal::Read, _) => self.tell(g.peer, Message::Data { status, id, node }),
            _ => self.tell(g.peer, Message::Done { status, id, node }),
        }
        Ok(())
    }

    /// Continues a gather when all of its cells have arrived.
    pub(super) fn gathered(&mut self, gather: u64) -> io::Result<()> {
        if self
            .gathers
            .get(&gather)
            .is_none_or(|g| !g.waits.is_empty())
        {
            return Ok(());
        }
        let Some(mut g) = self.gathers.remove(&gather) else {
            return Ok(());
        };
        match g.goal {
            Goal::Read => {
                let (status, id) = (Status::Good, g.id);
                let node = 0;
                self.send(g.peer, Message::Data { status, id, node }, g.sum.into());
                Ok(())
            }
            Goal::Write(data) => self.commit(g.peer, g.id, g.span, g.lost, g.sum, data),
            Goal::Rebuild(_) => {
                self.journal.rebuilt(g.span, std::mem::take(&mut g.sum))?;
                self.rebuilt(g)
            }
        }
    }
}
