// SPDX-License-Identifier: GPL-2.0

//! The history of all writes, by block, and the check of reads.
//!
//! Time counts events. If a write ends before a second one starts, they are ordered: after the
//! second one is answered or read, the first must never be read again. A write without an answer
//! may or may not take effect. Once its initiator knows that it has ended, it must not overwrite
//! newer data.

/// One write of one block.
#[derive(Clone, Copy, Debug)]
struct Write {
    id: u64,
    /// The value written: `id`, or 0 for zeros.
    value: u64,
    start: u64,
    /// The time at which its initiator learns that the write can no longer take effect.
    end: Option<u64>,
    /// The time from which the write is known to be on the disk.
    known: Option<u64>,
}

/// The writes of each block. 0 is the initial content, and the value of zeroing writes.
pub struct History {
    blocks: Vec<Vec<Write>>,
    /// For blocks with lost writes, the start of reads that must not return these.
    lost: Vec<u64>,
    /// Number of block reads checked.
    pub judged: u64,
}

impl History {
    pub fn new(blocks: usize) -> Self {
        let first = Write {
            id: 0,
            value: 0,
            start: 0,
            end: Some(0),
            known: Some(0),
        };
        Self {
            blocks: vec![vec![first]; blocks],
            lost: vec![0; blocks],
            judged: 0,
        }
    }

    pub fn begins(&mut self, block: usize, id: u64, value: u64, now: u64) {
        self.blocks[block].push(Write {
            id,
            value,
            start: now,
            end: None,
            known: None,
        });
    }

    /// A write has ended; `good`: with status GOOD.
    pub fn ends(&mut self, block: usize, id: u64, now: u64, good: bool) {
        let mut all = self.blocks[block].iter_mut();
        let write = all.find(|w| w.id == id).expect("it has begun");
        write.end = Some(now);
        // A write that was in flight during a power loss may be lost.
        if good && write.start >= self.lost[block] {
            write.known.get_or_insert(now);
        }
    }

    /// A power loss has taken the writes of a block after that of this value. Returns the times at
    /// which those that were answered had ended.
    pub fn lost(&mut self, block: usize, value: u64) -> Vec<u64> {
        self.lost[block] = u64::MAX;
        let all = &mut self.blocks[block];
        let left = all.iter().rev().find(|w| w.value == value);
        let (id, end) = left.map_or((0, None), |w| (w.id, w.end));
        let mut ends = Vec::new();
        for write in all.iter_mut().filter(|w| w.id != id) {
            let answered = write.known.take().is_some();
            if answered && end.is_some_and(|end| write.start >= end) {
                ends.extend(write.end);
            }
        }
        ends
    }

    /// Records that reads of these blocks return no lost write from now on.
    pub fn certain(&mut self, blocks: std::ops::Range<usize>, now: u64) {
        let blocks = &mut self.lost[blocks];
        for lost in blocks.iter_mut().filter(|lost| **lost == u64::MAX) {
            *lost = now;
        }
    }

    /// Whether reads of all blocks return no lost write.
    pub fn settled(&self) -> bool {
        !self.lost.contains(&u64::MAX)
    }

    /// Checks the value returned by a read that started at `start`.
    pub fn seen(&mut self, block: usize, value: u64, start: u64, now: u64) {
        self.judged += 1;
        let certain = start >= self.lost[block];
        let all = &mut self.blocks[block];
        let newer = |seen: &Write| {
            let end = seen.end?;
            let known = |w: &Write| w.known.is_some_and(|k| k <= start);
            let after = |w: &&Write| w.id != seen.id && w.start >= end && known(w);
            all.iter().find(after).copied()
        };
        let same = all.iter().enumerate().filter(|(_, w)| w.value == value);
        // Any write of this value may be the one that was read.
        let (good, bad): (Vec<_>, Vec<_>) = same
            .map(|(at, w)| (at, newer(w)))
            .partition(|(_, newer)| newer.is_none());
        match (&good[..], bad.last()) {
            ([], None) => panic!("block {block}: {value:#x} was never written"),
            ([], Some((at, w))) => panic!(
                "block {block}: a read from {start} to {now} got {:x?}, which {w:x?} came after",
                all[*at]
            ),
            // If several writes match, it is unknown which one was read.
            ([(at, _)], _) if certain => {
                all[*at].known.get_or_insert(now);
            }
            _ => {}
        }
    }
}

#[test]
fn what_was_overwritten_is_not_seen() {
    let mut h = History::new(1);
    h.begins(0, 1, 1, 1);
    h.seen(0, 0, 2, 3);
    h.ends(0, 1, 4, true);
    h.begins(0, 2, 2, 5);
    h.seen(0, 1, 6, 7);
    h.seen(0, 2, 8, 9);
    for (value, start) in [(0, 5), (1, 10), (3, 10)] {
        let judge = std::panic::AssertUnwindSafe(|| h.seen(0, value, start, 11));
        assert!(std::panic::catch_unwind(judge).is_err(), "{value}");
    }
    // Without an answer the write may or may not have taken effect, until something newer is known
    // to be on the disk.
    h.ends(0, 2, 12, false);
    h.begins(0, 4, 4, 13);
    h.seen(0, 2, 14, 15);
    h.ends(0, 4, 16, true);
    h.seen(0, 4, 17, 18);
    let judge = std::panic::AssertUnwindSafe(|| h.seen(0, 2, 19, 20));
    assert!(std::panic::catch_unwind(judge).is_err());
    // Written zeros differ from the initial content.
    h.begins(0, 5, 0, 21);
    h.seen(0, 0, 22, 23);
    h.ends(0, 5, 24, true);
    h.begins(0, 6, 6, 25);
    h.ends(0, 6, 26, true);
    let judge = std::panic::AssertUnwindSafe(|| h.seen(0, 0, 27, 28));
    assert!(std::panic::catch_unwind(judge).is_err());
}
