// SPDX-License-Identifier: GPL-2.0

//! Logging of writes, and their content.

use std::{io, sync::Arc};

use super::entry::{Entry, NEW, SOME_NEW, WRITE};
use super::{unreadable, Journal, Media, Name, Record};
use crate::layout::{xor, Cell, Mask, Span, BLOCK};

impl<M: Media> Journal<M> {
    pub(super) fn content(&mut self, place: u64, bytes: Arc<[u8]>, bad: Vec<bool>) {
        for n in 0..bytes.len() / BLOCK {
            let good = !bad.get(n).is_some_and(|b| *b);
            let new = good.then(|| (bytes.clone(), n * BLOCK));
            self.overlay.insert(place + n as u64, (self.lsn, new));
        }
        self.pending.push_back((self.lsn, place, bytes, bad));
    }

    /// Writes new content to the cells; the bad blocks become unreadable.
    pub(super) fn apply(&mut self, place: u64, bytes: &[u8], bad: &[bool]) -> io::Result<()> {
        if !bad.contains(&true) {
            return self.in_place(place, bytes);
        }
        for ((place, block), bad) in (place..).zip(bytes.chunks(BLOCK)).zip(bad) {
            match bad {
                true => self.taint(place)?,
                false => self.in_place(place, block)?,
            }
        }
        Ok(())
    }

    /// Logs a write. `delta` belongs to `span`, a data cell. `row` is the row of this node's cell
    /// that `delta` is XORed into.
    pub fn write(
        &mut self,
        name: Name,
        span: Span,
        lost: Mask,
        row: u8,
        delta: Arc<[u8]>,
    ) -> io::Result<()> {
        let new = self.read(span.of(Cell { row, column: 0 }))?;
        self.log((name, span, lost, row, delta), new, Vec::new())
    }

    /// Like [`Journal::write`], for a write that its owner has done already. Blocks of this node's
    /// cell that are bad stay bad, whatever the file returns later. Returns whether there are any.
    pub fn follow(
        &mut self,
        name: Name,
        span: Span,
        lost: Mask,
        row: u8,
        delta: Arc<[u8]>,
    ) -> io::Result<bool> {
        let own = span.of(Cell { row, column: 0 });
        let (mut new, mut bad) = (Vec::new(), Vec::new());
        match self.read(own) {
            Ok(bytes) => new = bytes,
            Err(e) if unreadable(&e) => {
                for block in span.block..span.block + span.blocks {
                    let one = Span {
                        block,
                        blocks: 1,
                        ..own
                    };
                    let bytes = match self.read(one) {
                        Err(e) if !unreadable(&e) => return Err(e),
                        bytes => bytes.ok(),
                    };
                    bad.push(bytes.is_none());
                    new.extend(bytes.unwrap_or_else(|| vec![0; BLOCK]));
                }
            }
            Err(e) => return Err(e),
        }
        let any = bad.contains(&true);
        self.log((name, span, lost, row, delta), new, bad)?;
        Ok(any)
    }

    pub(super) fn log(
        &mut self,
        (name, span, lost, row, delta): (Name, Span, Mask, u8, Arc<[u8]>),
        mut new: Vec<u8>,
        bad: Vec<bool>,
    ) -> io::Result<()> {
        xor(&mut new, &delta);
        let mut map: Vec<u8> = bad.iter().map(|b| u8::from(*b)).collect();
        if !map.is_empty() {
            map.resize(BLOCK, 0);
        }
        let entry = Entry {
            lost,
            content: if map.is_empty() { NEW } else { SOME_NEW },
            row,
            cell: span.cell.number(),
            block: span.block,
            blocks: span.blocks,
            ..Entry::new(WRITE, name.0, name.1, span.stripe)
        };
        self.append(entry, &[&delta, &new, &map])?;
        let record = Record {
            span,
            lost,
            delta,
            lsn: self.lsn,
        };
        self.records.insert(name, record);
        self.used(name);
        let place = span.of(Cell { row, column: 0 }).place(&self.size);
        self.content(place, new.into(), bad);
        Ok(())
    }
}
