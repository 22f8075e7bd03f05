// SPDX-License-Identifier: GPL-2.0

//! The end of a schedule.

use super::*;

impl World {
    /// Ends all faults, restarts everything and waits until the set is complete.
    pub fn heal(&mut self) {
        self.note(|| "heal".to_string());
        self.cuts.clear();
        self.frozen.clear();
        for slot in &mut self.slots {
            slot.hang = None;
        }
        for n in 0..NODES {
            self.start(n);
        }
        if !self.seats.iter().any(|s| s.client.is_some()) {
            self.add_client();
        }
        // Until then dead processes may be undetected.
        let end = self.now + 10_000;
        self.until("a while is over", 20_000, |w| w.now >= end);
        let whole = |w: &Self| {
            w.seats
                .iter()
                .any(|s| s.client.as_ref().is_some_and(|c| c.whole()))
        };
        let empty = |w: &Self| !w.seats.iter().any(|s| s.client.is_some());
        self.until("all nodes are up", 200_000, |w| whole(w) || empty(w));
        // A client that was away too long ends.
        if empty(self) {
            self.add_client();
            self.until("all nodes are up", 200_000, whole);
        }
        self.quiet();
        // Nodes find their bad blocks, and these are written again.
        self.until("no block is bad", 120_000, |w| {
            let clear = |p: &Slot| p.disk.bad() == 0;
            w.slots.iter().all(clear)
        });
        let end = self.now + 120_000;
        while !self.readable() {
            let next = self.now + 500;
            assert!(next < end, "some blocks stay unreadable");
            self.until("some time is over", 2000, |w| w.now >= next);
        }
    }

    /// Returns whether all nodes can read all of their blocks.
    fn readable(&mut self) -> bool {
        let size = self.size;
        let mut nodes = self.slots.iter_mut().filter_map(|p| p.node.as_mut());
        nodes.all(|node| {
            let cells = (0..size.stripes).flat_map(|s| (0..ROWS as u8).map(move |row| (s, row)));
            let mut spans = cells.map(|(stripe, row)| Span {
                stripe,
                cell: Cell { row, column: 0 },
                block: 0,
                blocks: size.cell,
            });
            spans.all(|span| node.journal().read(span).is_ok())
        })
    }

    /// Checks all blocks and all parities.
    pub fn judge(&mut self) {
        let seat = self.seat().expect("a client");
        let mut lba = 0;
        while lba < self.size.blocks() {
            let count = (1 + self.rng.below(7)).min(self.size.blocks() - lba);
            self.command(seat, lba, count, false);
            lba += count;
        }
        let failed = self.failed;
        self.quiet();
        assert_eq!(self.failed, failed);
        self.until("nodes are idle", 20_000, |w| {
            w.slots
                .iter()
                .all(|p| p.node.as_ref().is_some_and(|n| n.idle()) && p.sync.is_none())
        });
        for stripe in 0..self.size.stripes {
            for number in 0..20 {
                let cell = Cell::from_number(number).unwrap();
                // Reconstruct the cell without its node and without any other one.
                for other in 0..NODES {
                    let home = xorset::layout::node(stripe, cell.column);
                    let cells = plan(stripe, 1 << home | 1 << other, cell).unwrap();
                    let mut sum = self.content(stripe, cell);
                    for c in cells {
                        xorset::layout::xor(&mut sum, &self.content(stripe, c));
                    }
                    assert!(
                        sum.iter().all(|b| *b == 0),
                        "stripe {stripe}, {cell:?} without {home} and {other}"
                    );
                }
            }
        }
    }

    pub(super) fn content(&mut self, stripe: u64, cell: Cell) -> Vec<u8> {
        let span = Span {
            stripe,
            cell,
            block: 0,
            blocks: self.size.cell,
        };
        let node = self.slots[span.node()].node.as_mut().unwrap();
        node.journal().read(span).unwrap()
    }
}
