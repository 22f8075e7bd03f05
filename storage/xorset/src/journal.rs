// SPDX-License-Identifier: GPL-2.0

//! The storage of a node: its cells, and a write-ahead log. New content of a cell is durable in the
//! log before the cell is written, so a cell is never torn by a power failure.
//!
//! The file: a header of 4096 bytes, two halves of the log, the cells, a checksum of each block of
//! the cells. One half is active and filled from its start. When it is full, the records that are
//! still needed are copied to the other half, which becomes active. Each start of the node does the
//! same.

mod checked;
mod entry;
mod write;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use crate::layout::{Cell, Mask, Size, Span, BLOCK, NODES};
use checked::{DIGEST, PAGE};
use entry::{sum, word, Entry, CONTENT, DONE, FLOOR, NO_NEW, SOME_NEW, STATE, WHOLE, WRITE};

pub use checked::unreadable;

/// A file, or a substitute for tests. All calls are synchronous.
pub trait Media {
    /// Reads bytes at offset `at`.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes bytes at offset `at`. On power failure each sector may be lost independently.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Length of the header, in bytes.
const HEADER: u64 = 4096;
const MAGIC: &[u8; 8] = b"xorset-2";
/// Length of a record without its payload, in bytes.
pub(crate) const RECORD: usize = 64;

/// A write that other nodes may still need.
#[derive(Clone, Debug)]
pub struct Record {
    /// The blocks of a data cell.
    pub span: Span,
    /// Nodes that were lost at the time of the write.
    pub lost: Mask,
    /// Old XOR new content.
    pub delta: Arc<[u8]>,
    /// Number of the log record.
    pub lsn: u64,
}

/// Identifies a write: its owner, and its number at the owner.
pub type Name = (u8, u64);

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The format that a header names, if it is one of a node.
fn version(header: &[u8]) -> Option<String> {
    let name = header.get(..MAGIC.len())?;
    let ours = name.starts_with(b"xorset-") && name.is_ascii();
    ours.then(|| String::from_utf8_lossy(name).escape_default().to_string())
}

type Found = (u64, u64, u64, Entry, Vec<u8>);

type Pending = (u64, u64, Arc<[u8]>, Vec<bool>);

/// New content of a block: bytes, and the offset in them; `None` if the block is bad.
type New = Option<(Arc<[u8]>, usize)>;

/// The cells and the log of a node.
pub struct Journal<M> {
    media: M,
    number: u8,
    size: Size,
    half_len: u64,
    half: u64,
    generation: u64,
    /// Offset of the next record in the active half.
    at: u64,
    /// Checksum of the previous record; 0 before the first record of a half.
    before: u64,
    /// Number of the last record.
    lsn: u64,
    durable: u64,
    epoch: u64,
    since: u64,
    set: u64,
    /// Cell content that waits for its log record: record number, block on the node, bytes, and
    /// which of their blocks are bad (none, if empty).
    pending: VecDeque<Pending>,
    /// Latest pending content by block, and its record number.
    overlay: BTreeMap<u64, (u64, New)>,
    records: BTreeMap<Name, Record>,
    /// For another node: the lowest number of its writes that may still arrive. For this node: the
    /// number of its next write.
    floors: [u64; NODES],
}

impl<M: Media> Journal<M> {
    /// Length of the file of a node, in bytes.
    pub fn file_len(size: &Size, half: u64) -> u64 {
        let (digests, blocks) = Self::digests_at(size, half);
        digests + (blocks * DIGEST).next_multiple_of(PAGE)
    }

    /// Formats the file of a node that has never been in a set. The media must be zeroed and
    /// [`Journal::file_len`] bytes long; `half` is the length of half of the log in bytes, a
    /// multiple of 512.
    pub fn format(mut media: M, number: u8, size: Size, half: u64) -> io::Result<()> {
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&u64::from(number).to_le_bytes());
        header[16..24].copy_from_slice(&u64::from(size.cell).to_le_bytes());
        header[24..32].copy_from_slice(&size.stripes.to_le_bytes());
        header[32..40].copy_from_slice(&half.to_le_bytes());
        let sum = sum(0, &header[..40]);
        header[40..48].copy_from_slice(&sum.to_le_bytes());
        // Write the header last, so that a file with a header is complete.
        media.write(HEADER, &[0; BLOCK])?;
        media.write(HEADER + half, &[0; BLOCK])?;
        media.sync()?;
        media.write(0, &header)?;
        media.sync()
    }

    /// Fails if the media have the header of a node, whatever its version.
    pub fn unused(media: &mut M) -> io::Result<()> {
        let mut header = [0; MAGIC.len()];
        match media.read(0, &mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        version(&header).map_or(Ok(()), |version| {
            Err(bad(&format!(
                "--file: it is a file of a node ({version}): remove it first, if its data may go"
            )))
        })
    }

    /// The header of a file of a node.
    fn header(media: &mut M) -> io::Result<[u8; 48]> {
        let mut header = [0; 48];
        media.read(0, &mut header)?;
        if let Some(other) = version(&header).filter(|v| v.as_bytes() != MAGIC) {
            return Err(bad(&format!(
                "its format is {other}, and this xorset serves {}: use the xorset that made it",
                String::from_utf8_lossy(MAGIC)
            )));
        }
        if &header[..8] != MAGIC || sum(0, &header[..40]) != word(&header, 40) {
            return Err(bad("it is no file of a node: see xorset format"));
        }
        Ok(header)
    }

    /// Number of the node that a file belongs to.
    pub fn owner(media: &mut M) -> io::Result<u8> {
        let number = word(&Self::header(media)?, 8);
        u8::try_from(number).map_err(|_| bad("its header is wrong"))
    }

    /// Opens a file and replays its log.
    pub fn open(mut media: M) -> io::Result<Self> {
        let header = Self::header(&mut media)?;
        let (number, cell) = (word(&header, 8), word(&header, 16));
        let size = Size {
            cell: u16::try_from(cell).map_err(|_| bad("its header is wrong"))?,
            stripes: word(&header, 24),
        };
        let mut this = Self {
            media,
            number: u8::try_from(number).map_err(|_| bad("its header is wrong"))?,
            size,
            half_len: word(&header, 32),
            half: 0,
            generation: 0,
            at: 0,
            before: 0,
            lsn: 0,
            durable: 0,
            epoch: 0,
            since: 0,
            set: 0,
            pending: VecDeque::new(),
            overlay: BTreeMap::new(),
            records: BTreeMap::new(),
            floors: [0; NODES],
        };
        let (first, second) = (this.begin(0)?, this.begin(1)?);
        this.half = u64::from(second > first);
        this.generation = first.max(second);
        if this.generation > 0 {
            this.replay()?;
        }
        // Make the replayed cells durable, and shorten the log.
        this.turn()?;
        Ok(this)
    }

    /// Number of the node.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Size of the set.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The last epoch logged.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch in which the node was admitted, or 0.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// The set that the file belongs to, or 0.
    pub fn set(&self) -> u64 {
        self.set
    }

    /// Writes that other nodes may still need.
    pub fn records(&self) -> &BTreeMap<Name, Record> {
        &self.records
    }

    /// Lowest number of a write of this owner that must not be ignored.
    pub fn floor(&self, owner: u8) -> u64 {
        self.floors[usize::from(owner)]
    }

    /// Number of the last record.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Number of the last durable record.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    fn base(&self, half: u64) -> u64 {
        HEADER + half * self.half_len
    }

    /// Reads the record at an offset; `None` unless its checksum is valid and follows `before`,
    /// that of the previous record. Returns its checksum, generation, number, header and payload.
    fn entry(&mut self, half: u64, at: u64, before: u64) -> io::Result<Option<Found>> {
        if at + RECORD as u64 > self.half_len {
            return Ok(None);
        }
        let mut head = [0; RECORD];
        let place = self.base(half) + at;
        self.media.read(place, &mut head)?;
        let entry = Entry::parse(&head);
        let len = entry.len();
        if entry.blocks > self.size.cell || at + (RECORD + len) as u64 > self.half_len {
            return Ok(None);
        }
        let mut all = vec![0; RECORD + len];
        self.media.read(place, &mut all)?;
        if sum(before, &all[8..]) != word(&all, 0) {
            return Ok(None);
        }
        Ok(Some((
            word(&all, 0),
            word(&all, 8),
            word(&all, 16),
            entry,
            all.split_off(RECORD),
        )))
    }

    /// Generation of a half of the log; 0 if the half is incomplete.
    fn begin(&mut self, half: u64) -> io::Result<u64> {
        let (mut at, mut before) = (0, 0);
        while let Some((sum, generation, _, entry, bytes)) = self.entry(half, at, before)? {
            if entry.kind == WHOLE {
                return Ok(generation);
            }
            before = sum;
            at += (RECORD + bytes.len()) as u64;
        }
        Ok(0)
    }

    fn replay(&mut self) -> io::Result<()> {
        let half = self.half;
        while let Some((sum, _, lsn, entry, bytes)) = self.entry(half, self.at, self.before)? {
            (self.before, self.lsn) = (sum, lsn);
            self.at += (RECORD + bytes.len()) as u64;
            let len = usize::from(entry.blocks) * BLOCK;
            let span = Span {
                stripe: entry.stripe,
                cell: Cell::from_number(entry.cell)
                    .ok_or_else(|| bad("a record of its log is wrong"))?,
                block: entry.block,
                blocks: entry.blocks,
            };
            let own = Cell {
                row: entry.row,
                column: 0,
            };
            let name = (entry.owner, entry.seq);
            match entry.kind {
                STATE => {
                    (self.epoch, self.since, self.set) = (entry.seq, entry.stripe, entry.set);
                    self.begin_numbers();
                }
                FLOOR => {
                    self.floors[usize::from(entry.owner)] = entry.seq;
                    self.records
                        .retain(|(o, seq), _| *o != entry.owner || *seq >= entry.seq);
                }
                WRITE => {
                    if entry.content != NO_NEW {
                        let place = span.of(own).place(&self.size);
                        let (new, map) = bytes[len..].split_at(len);
                        let bad: Vec<_> = map.iter().map(|b| *b != 0).collect();
                        self.apply(place, new, &bad)?;
                    }
                    let record = Record {
                        span,
                        lost: entry.lost,
                        delta: bytes[..len].into(),
                        lsn,
                    };
                    self.records.insert(name, record);
                    self.used(name);
                }
                DONE => {
                    self.records.remove(&name);
                }
                CONTENT => {
                    let place = span.of(own).place(&self.size);
                    let (new, map) = bytes.split_at(len);
                    let bad: Vec<_> = map.iter().map(|b| *b != 0).collect();
                    self.apply(place, new, &bad)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Marks the number of a write of this node as used.
    fn used(&mut self, (owner, seq): Name) {
        if owner == self.number {
            let next = &mut self.floors[usize::from(owner)];
            *next = (*next).max(seq + 1);
        }
    }

    /// Starts the write numbers of the epoch, which is in their upper 32 bits.
    fn begin_numbers(&mut self) {
        let next = &mut self.floors[usize::from(self.number)];
        *next = (*next).max(self.epoch << 32);
    }

    /// Reads blocks of this node, including content that is only in the log. The column of the span
    /// is ignored. The error of a bad block is [`unreadable`].
    pub fn read(&mut self, span: Span) -> io::Result<Vec<u8>> {
        let place = span.place(&self.size);
        let mut bytes = vec![0; span.len()];
        if self.checked(place, &mut bytes).is_err() {
            // Blocks with newer content in the log do not matter.
            for (place, block) in (place..).zip(bytes.chunks_mut(BLOCK)) {
                if !self.overlay.contains_key(&place) {
                    self.checked(place, block).map_err(io::Error::other)?;
                }
            }
        }
        for (block, (_, new)) in self.overlay.range(place..place + u64::from(span.blocks)) {
            let Some((from, offset)) = new else {
                return Err(io::Error::other(checked::tainted(*block)));
            };
            let to = (block - place) as usize * BLOCK;
            bytes[to..to + BLOCK].copy_from_slice(&from[*offset..offset + BLOCK]);
        }
        Ok(bytes)
    }

    fn append(&mut self, entry: Entry, bytes: &[&[u8]]) -> io::Result<()> {
        let len = (RECORD + entry.len()) as u64;
        if self.at + len > self.half_len {
            self.turn()?;
            if self.at + len > self.half_len {
                return Err(bad("its log is full"));
            }
        }
        self.lsn += 1;
        let record = entry.build(self.before, self.generation, self.lsn, bytes);
        self.before = word(&record, 0);
        self.media.write(self.base(self.half) + self.at, &record)?;
        self.at += len;
        Ok(())
    }

    fn state(&mut self) -> io::Result<()> {
        let set = self.set;
        let entry = Entry::new(STATE, 0, self.epoch, self.since);
        self.append(Entry { set, ..entry }, &[])
    }

    /// Copies the records that are still needed to the other half of the log.
    fn turn(&mut self) -> io::Result<()> {
        self.media.sync()?;
        self.synced(self.lsn)?;
        // Make the cells durable before discarding the records with their content.
        self.media.sync()?;
        self.half ^= 1;
        self.generation += 1;
        (self.at, self.before) = (0, 0);
        self.state()?;
        for owner in 0..NODES {
            self.append(Entry::new(FLOOR, owner as u8, self.floors[owner], 0), &[])?;
        }
        let names: Vec<_> = self.records.keys().copied().collect();
        for (owner, seq) in names {
            let Some(record) = self.records.get(&(owner, seq)).cloned() else {
                continue;
            };
            let entry = Entry {
                lost: record.lost,
                cell: record.span.cell.number(),
                block: record.span.block,
                blocks: record.span.blocks,
                ..Entry::new(WRITE, owner, seq, record.span.stripe)
            };
            if self.at + (2 * RECORD + entry.len()) as u64 > self.half_len {
                return Err(bad("its log is full of what other nodes may need"));
            }
            self.append(entry, &[&record.delta])?;
        }
        self.append(Entry::new(WHOLE, 0, 0, 0), &[])?;
        self.media.sync()?;
        self.durable = self.lsn;
        Ok(())
    }

    /// Writes the cells that waited for the log to be durable up to `lsn`.
    pub fn synced(&mut self, lsn: u64) -> io::Result<()> {
        self.durable = self.durable.max(lsn);
        while self
            .pending
            .front()
            .is_some_and(|(end, ..)| *end <= self.durable)
        {
            let Some((end, place, bytes, bad)) = self.pending.pop_front() else {
                break;
            };
            self.apply(place, &bytes, &bad)?;
            for block in place..place + (bytes.len() / BLOCK) as u64 {
                if self
                    .overlay
                    .get(&block)
                    .is_some_and(|(last, _)| *last == end)
                {
                    self.overlay.remove(&block);
                }
            }
        }
        Ok(())
    }

    /// Makes the whole log durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.media.sync()?;
        self.synced(self.lsn)
    }

    /// Logs new content of a cell of this node.
    pub fn rebuilt(&mut self, span: Span, bytes: Vec<u8>) -> io::Result<()> {
        let entry = Entry {
            row: span.cell.row,
            cell: span.cell.number(),
            block: span.block,
            blocks: span.blocks,
            ..Entry::new(CONTENT, 0, 0, span.stripe)
        };
        self.append(entry, &[&bytes])?;
        self.content(span.place(&self.size), bytes.into(), Vec::new());
        Ok(())
    }

    /// Logs that a block of a cell of this node is bad, until it is written.
    pub fn lose(&mut self, span: Span) -> io::Result<()> {
        let (bytes, mut map) = (vec![0; span.len()], vec![1; usize::from(span.blocks)]);
        map.resize(BLOCK, 0);
        let entry = Entry {
            content: SOME_NEW,
            row: span.cell.row,
            cell: span.cell.number(),
            block: span.block,
            blocks: span.blocks,
            ..Entry::new(CONTENT, 0, 0, span.stripe)
        };
        self.append(entry, &[&bytes, &map])?;
        let bad = vec![true; usize::from(span.blocks)];
        self.content(span.place(&self.size), bytes.into(), bad);
        Ok(())
    }

    /// Logs that no other node needs the write `seq` of this node.
    pub fn done(&mut self, seq: u64) -> io::Result<()> {
        self.append(Entry::new(DONE, self.number, seq, 0), &[])?;
        self.records.remove(&(self.number, seq));
        Ok(())
    }

    /// Raises the floor of another node: no node sends writes of that node with a smaller number.
    /// If the log record is lost on power failure, more records are kept, which is harmless.
    pub fn raise(&mut self, owner: u8, floor: u64) -> io::Result<()> {
        let place = &mut self.floors[usize::from(owner)];
        if floor <= *place {
            return Ok(());
        }
        *place = floor;
        let all = self.records.len();
        self.records
            .retain(|(o, seq), _| *o != owner || *seq >= floor);
        if self.records.len() == all {
            return Ok(());
        }
        self.append(Entry::new(FLOOR, owner, floor, 0), &[])
    }

    /// Logs an epoch and makes it durable. Later writes of this node get numbers of this epoch.
    pub fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.epoch = epoch;
        self.begin_numbers();
        self.state()?;
        self.flush()
    }

    /// Discards all records, because the cells are invalid, and joins `set`. `since` is the epoch
    /// in which the node was admitted, at most `epoch`.
    pub fn wipe(&mut self, epoch: u64, since: u64, set: u64) -> io::Result<()> {
        self.flush()?;
        self.records.clear();
        self.floors = [0; NODES];
        (self.epoch, self.since, self.set) = (epoch, since, set);
        self.begin_numbers();
        self.turn()
    }
}
