// SPDX-License-Identifier: GPL-2.0

//! Power failures after any write or sync of a node's file, also inside of a journal operation.
//! Afterwards the journal has the state after one of its calls, not earlier than the last durable
//! one, and never a partial one.

use std::collections::BTreeSet;

use crate::world::{disk::Disk, Rng};
use xorset::{
    journal::{unreadable, Journal, Media, Name},
    layout::{Cell, Size, Span},
};

const SIZE: Size = Size {
    cell: 2,
    stripes: 2,
};
/// Length of half of the log, in bytes. A few calls fill it.
const LOG: u64 = 24 << 10;

/// The visible state of a journal.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    cells: Vec<Vec<u8>>,
    records: BTreeSet<Name>,
    epoch: u64,
    since: u64,
    set: u64,
    next: u64,
}

fn seen(journal: &mut Journal<Disk>) -> Seen {
    let mut cells = Vec::new();
    for stripe in 0..SIZE.stripes {
        for row in 0..4 {
            cells.push(journal.read(span(stripe, row, 0, SIZE.cell)).unwrap());
        }
    }
    Seen {
        cells,
        records: journal.records().keys().copied().collect(),
        epoch: journal.epoch(),
        since: journal.since(),
        set: journal.set(),
        next: journal.floor(journal.number()),
    }
}

fn span(stripe: u64, row: u8, block: u16, blocks: u16) -> Span {
    Span {
        stripe,
        cell: Cell { row, column: 0 },
        block,
        blocks,
    }
}

fn call(journal: &mut Journal<Disk>, rng: &mut Rng, other: &mut u64) -> std::io::Result<()> {
    let block = rng.below(2) as u16;
    let span = span(
        rng.below(SIZE.stripes),
        rng.below(3) as u8,
        block,
        1 + rng.below(u64::from(2 - block)) as u16,
    );
    let bytes = vec![rng.next() as u8; span.len()];
    let own: Vec<_> = journal.records().keys().copied().collect();
    match rng.below(12) {
        0 => journal.enter(journal.epoch() + 1),
        1 => journal.rebuilt(span, bytes),
        2 if rng.one_in(9) => journal.wipe(journal.epoch() + 1, journal.epoch() + 1, rng.next()),
        3 | 4 if !own.is_empty() => match own[rng.below(own.len() as u64) as usize] {
            (2, seq) => journal.done(seq),
            (owner, seq) => journal.raise(owner, seq + 1),
        },
        // A node never has more records at once.
        _ if own.len() > 6 => Ok(()),
        5..8 => {
            *other += 1;
            journal.write((1, *other), span, 0, span.cell.row, bytes.into())
        }
        _ => {
            let seq = journal.floor(2);
            journal.write((2, seq), span, 0, span.cell.row, bytes.into())
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng(seed);
    let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
    Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
    let mut other = 0;
    let mut journal = Journal::open(disk.clone()).unwrap();
    // The state after each call, with the number of its last record.
    let mut history = vec![(journal.lsn(), seen(&mut journal))];
    let mut durable = journal.durable();
    for _ in 0..6 {
        disk.fails_after(rng.below(60));
        loop {
            let before = history.last().unwrap().1.next;
            let result = call(&mut journal, &mut rng, &mut other);
            let now = seen(&mut journal);
            assert!(now.next >= before);
            durable = durable.max(journal.durable());
            // The failed call may have taken effect, too.
            history.push((journal.lsn() + u64::from(result.is_err()), now));
            if result.is_err() {
                break;
            }
            if rng.one_in(3) {
                // Some writes become durable, and then the journal is told.
                let (lsn, count) = (journal.lsn(), disk.written());
                if rng.one_in(2) && call(&mut journal, &mut rng, &mut other).is_err() {
                    durable = durable.max(journal.durable());
                    history.push((journal.lsn() + 1, seen(&mut journal)));
                    break;
                }
                history.push((journal.lsn(), seen(&mut journal)));
                disk.stable(count);
                if journal.synced(lsn).is_err() {
                    break;
                }
                durable = durable.max(journal.durable());
            }
        }
        drop(journal);
        disk.power(&mut rng);
        // The power may fail again during the start.
        loop {
            if rng.one_in(3) {
                disk.fails_after(rng.below(12));
            }
            match Journal::open(disk.clone()) {
                Ok(opened) => {
                    journal = opened;
                    break;
                }
                Err(_) => disk.power(&mut rng),
            }
        }
        let now = seen(&mut journal);
        // The last state that was completely durable, and all later ones.
        let stable = history
            .iter()
            .map(|(lsn, _)| *lsn)
            .filter(|lsn| *lsn <= durable)
            .max();
        let mut may = history
            .iter()
            .filter(|(lsn, _)| Some(*lsn) >= stable)
            .map(|(_, s)| s);
        assert!(
            may.any(|s| *s == now),
            "seed {seed}: it has what it never had"
        );
        history = vec![(journal.lsn(), now)];
        durable = journal.durable();
    }
}

/// A block that was bad when a write came stays bad until it is written, also if it has the old
/// content again; the other blocks have the write.
#[test]
fn a_bad_block_that_lacks_a_write_stays_bad() {
    for flush in [false, true] {
        let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
        Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
        let mut journal = Journal::open(disk.clone()).unwrap();
        let (all, at) = (span(1, 3, 0, 2), 4096 + 2 * LOG + (4 + 3) * 2 * 512);
        disk.rot(at);
        let delta = vec![7; all.len()];
        assert!(journal.follow((1, 1), all, 0, 3, delta.into()).unwrap());
        disk.rot(at);
        let check = |journal: &mut Journal<Disk>| {
            assert!(journal.read(span(1, 3, 0, 1)).is_err());
            assert_eq!(journal.read(span(1, 3, 1, 1)).unwrap(), [7; 512]);
        };
        check(&mut journal);
        if flush {
            journal.flush().unwrap();
            check(&mut journal);
        }
        drop(journal);
        let mut journal = Journal::open(disk.clone()).unwrap();
        check(&mut journal);
        journal.rebuilt(span(1, 3, 0, 1), vec![9; 512]).unwrap();
        let mut journal = Journal::open(disk).unwrap();
        assert_eq!(journal.read(span(1, 3, 0, 1)).unwrap(), [9; 512]);
    }
}

/// A lost block is bad at once, after a power failure, and when the log has begun anew, until it is
/// written.
#[test]
fn a_lost_block_stays_bad() {
    let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
    Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
    let mut journal = Journal::open(disk.clone()).unwrap();
    let check = |journal: &mut Journal<Disk>| {
        let lost = journal.read(span(1, 2, 0, 1)).unwrap_err();
        assert!(unreadable(&lost), "{lost}");
        assert_eq!(journal.read(span(1, 2, 1, 1)).unwrap(), [5; 512]);
    };
    journal.rebuilt(span(1, 2, 0, 2), vec![5; 1024]).unwrap();
    journal.lose(span(1, 2, 0, 1)).unwrap();
    check(&mut journal);
    let mut journal = Journal::open(disk.clone()).unwrap();
    check(&mut journal);
    journal.flush().unwrap();
    check(&mut journal);
    for n in 0..99 {
        journal.rebuilt(span(0, 0, 0, 2), vec![n; 1024]).unwrap();
    }
    check(&mut journal);
    let mut journal = Journal::open(disk.clone()).unwrap();
    check(&mut journal);
    journal.rebuilt(span(1, 2, 0, 1), vec![9; 512]).unwrap();
    let mut journal = Journal::open(disk).unwrap();
    assert_eq!(journal.read(span(1, 2, 0, 1)).unwrap(), [9; 512]);
}

#[test]
fn the_power_is_lost_at_any_moment() {
    let mut bad = Vec::new();
    for seed in 0..6000 {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            bad.push(seed);
        }
    }
    assert!(bad.is_empty(), "{} of 6000: {bad:?}", bad.len());
}

/// A file of another version is named, and a file of a node is not formatted again.
#[test]
fn a_file_of_a_node_is_kept() {
    let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
    let refused = |disk: &Disk| {
        Journal::unused(&mut disk.clone())
            .err()
            .map(|e| e.to_string())
    };
    assert_eq!(refused(&disk), None);
    Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
    assert!(refused(&disk)
        .unwrap()
        .contains("a file of a node (xorset-2): remove it first"));
    disk.clone().write(7, b"1").unwrap();
    assert!(refused(&disk).unwrap().contains("(xorset-1)"));
    let e = Journal::open(disk.clone()).err().unwrap().to_string();
    assert!(
        e.starts_with("its format is xorset-1, and this xorset serves xorset-2"),
        "{e}"
    );
    disk.clone().write(0, b"other").unwrap();
    let e = Journal::open(disk).err().unwrap().to_string();
    assert_eq!(e, "it is no file of a node: see xorset format");
}

/// The file is written in pages, and one has a sector that cannot be read: a block of it is
/// written, and of the others none is read that is not what was written.
#[test]
fn a_block_in_an_unreadable_page_is_written() {
    let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
    Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
    let mut journal = Journal::open(disk.clone()).unwrap();
    for row in 0..4 {
        let all = span(1, row, 0, 2);
        journal.rebuilt(all, vec![5; all.len()]).unwrap();
    }
    journal.flush().unwrap();
    // The page has the cells of this stripe.
    disk.spoil(4096 + 2 * LOG + 4 * 2 * 512);
    journal.rebuilt(span(1, 2, 1, 1), vec![6; 512]).unwrap();
    journal.flush().unwrap();
    assert_eq!(disk.bad(), 0);
    assert_eq!(journal.read(span(1, 2, 1, 1)).unwrap(), [6; 512]);
    for (row, block) in [(0, 0), (1, 1), (2, 0), (3, 0)] {
        assert!(journal.read(span(1, row, block, 1)).is_err());
        journal
            .rebuilt(span(1, row, block, 1), vec![8; 512])
            .unwrap();
        journal.flush().unwrap();
        assert_eq!(journal.read(span(1, row, block, 1)).unwrap(), [8; 512]);
    }
}

/// A page of checksums cannot be read: blocks without a checksum are bad, as their content is not
/// known to be what was written.
#[test]
fn an_unreadable_checksum_is_not_made_up() {
    let disk = Disk::new(Journal::<Disk>::file_len(&SIZE, LOG));
    Journal::format(disk.clone(), 2, SIZE, LOG).unwrap();
    let mut journal = Journal::open(disk.clone()).unwrap();
    journal.rebuilt(span(0, 0, 0, 2), vec![5; 1024]).unwrap();
    journal.flush().unwrap();
    let cells = 4096 + 2 * LOG;
    disk.rot(cells + 9);
    disk.spoil((cells + 16 * 512).next_multiple_of(4096));
    journal.rebuilt(span(0, 0, 1, 1), vec![6; 512]).unwrap();
    journal.flush().unwrap();
    assert!(journal.read(span(0, 0, 0, 1)).is_err());
    assert_eq!(journal.read(span(0, 0, 1, 1)).unwrap(), [6; 512]);
}
