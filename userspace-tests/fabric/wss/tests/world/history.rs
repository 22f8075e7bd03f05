// SPDX-License-Identifier: GPL-2.0

//! The journal of all writes, by block, and the judge of what is read.
//!
//! Time counts events. A write that has ended and one that began later are in this order for ever: who has seen the
//! second one, or has got its answer, never sees the first one again. A write without an answer may be seen or not, but
//! not when its initiator has been told that it is over, and something newer is there.

/// One write of one block.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: u64,
    start: u64,
    /// When its initiator knew that nothing of it would happen any more.
    end: Option<u64>,
    /// Since when it is known to be on the disk.
    known: Option<u64>,
}

/// The writes of each block. Values are never used twice; 0 is what is there at first.
pub struct History {
    blocks: Vec<Vec<Write>>,
    /// Blocks that have been read and judged.
    pub judged: u64,
}

impl History {
    pub fn new(blocks: usize) -> Self {
        let first = Write {
            value: 0,
            start: 0,
            end: Some(0),
            known: Some(0),
        };
        Self {
            blocks: vec![vec![first]; blocks],
            judged: 0,
        }
    }

    fn find(&mut self, block: usize, value: u64) -> &mut Write {
        let all = self.blocks[block].iter_mut();
        let mut found = all.filter(|w| w.value == value);
        found
            .next()
            .unwrap_or_else(|| panic!("block {block}: {value:#x} was never written"))
    }

    pub fn begins(&mut self, block: usize, value: u64, now: u64) {
        self.blocks[block].push(Write {
            value,
            start: now,
            end: None,
            known: None,
        });
    }

    /// It is over; `good` if it was answered with GOOD.
    pub fn ends(&mut self, block: usize, value: u64, now: u64, good: bool) {
        let write = self.find(block, value);
        write.end = Some(now);
        if good {
            write.known.get_or_insert(now);
        }
    }

    /// What a read got that began at `start`.
    pub fn seen(&mut self, block: usize, value: u64, start: u64, now: u64) {
        self.judged += 1;
        let seen = *self.find(block, value);
        if let Some(end) = seen.end {
            let newer = |w: &&Write| {
                w.value != value && w.start >= end && w.known.is_some_and(|k| k <= start)
            };
            if let Some(w) = self.blocks[block].iter().find(newer) {
                panic!("block {block}: a read from {start} to {now} got {seen:x?}, which {w:x?} came after");
            }
        }
        self.find(block, value).known.get_or_insert(now);
    }
}

#[test]
fn what_was_overwritten_is_not_seen() {
    let mut h = History::new(1);
    h.begins(0, 1, 1);
    h.seen(0, 0, 2, 3);
    h.ends(0, 1, 4, true);
    h.begins(0, 2, 5);
    h.seen(0, 1, 6, 7);
    h.seen(0, 2, 8, 9);
    for (value, start) in [(0, 5), (1, 10), (3, 10)] {
        let judge = std::panic::AssertUnwindSafe(|| h.seen(0, value, start, 11));
        assert!(std::panic::catch_unwind(judge).is_err(), "{value}");
    }
    // Without an answer it may have been done, or not, until something newer is known to be there.
    h.ends(0, 2, 12, false);
    h.begins(0, 4, 13);
    h.seen(0, 2, 14, 15);
    h.ends(0, 4, 16, true);
    h.seen(0, 4, 17, 18);
    let judge = std::panic::AssertUnwindSafe(|| h.seen(0, 2, 19, 20));
    assert!(std::panic::catch_unwind(judge).is_err());
}
