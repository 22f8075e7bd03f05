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
    Rebuild,
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
        row: u8,
    ) -> io::Result<()> {
        if usize::from(row) == ROWS {
            self.rebuilds.push((self.journal.lsn(), peer, id));
            return Ok(());
        }
        let span = Span {
            stripe,
            cell: Cell {
                row,
                column: column(stripe, self.number),
            },
            block: 0,
            blocks: self.journal.size().cell,
        };
        self.gather(peer, id, span, lost, Goal::Rebuild)
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
            self.fail(number, Status::Unreadable, self.number as u8);
            return Ok(());
        }
        if down {
            self.fail(number, status, 0);
            return Ok(());
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
    pub(super) fn fail(&mut self, gather: u64, status: Status, node: u8) {
        self.reads.retain(|_, (g, _)| *g != gather);
        if let Some(Gather { peer, id, goal, .. }) = self.gathers.remove(&gather) {
            let answer = match goal {
                Goal::Read => Message::Data { status, id, node },
                _ => Message::Done { status, id, node },
            };
            self.tell(peer, answer);
        }
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
        let Some(g) = self.gathers.remove(&gather) else {
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
            Goal::Rebuild => {
                self.journal.rebuilt(g.span, g.sum)?;
                self.rebuild(g.peer, g.id, g.span.stripe, g.lost, g.span.cell.row + 1)
            }
        }
    }
}
