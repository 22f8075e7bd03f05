// SPDX-License-Identifier: GPL-2.0

//! The blocks of the cells in the file, and their checksums, which are in pages behind the cells. A
//! power failure may leave a block without its checksum; the log then has both to write again.

use std::io;

use super::{Journal, Media, HEADER};
use crate::layout::{Size, BLOCK, ROWS};

/// The error of a block that cannot be read, or is not what was written.
#[derive(Debug)]
pub(super) struct Unreadable(u64, String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} of its cells: {}", self.0, self.1)
    }
}

impl std::error::Error for Unreadable {}

/// The error of a block that is bad by the log.
pub(super) fn tainted(place: u64) -> Unreadable {
    Unreadable(place, "it lacks a write".into())
}

/// Returns whether an error of [`Journal::read`] or [`Journal::write`] concerns only the blocks
/// read. Then nothing was done.
pub fn unreadable(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|e| e.is::<Unreadable>())
}

/// CRC-32C of a block of zeros.
const ZEROS: u32 = 0x30fc_edc0;

/// Checksum of a block; 0 for zeros, as in a new file.
fn digest(block: &[u8]) -> u32 {
    crc32c::crc32c(block) ^ ZEROS
}

/// Length of a checksum, in bytes.
pub(super) const DIGEST: u64 = 4;
/// Size of the pages in which a file is read and written, in bytes.
pub(super) const PAGE: u64 = 4096;

impl<M: Media> Journal<M> {
    /// Offset of the checksums, and number of blocks.
    pub(super) fn digests_at(size: &Size, half: u64) -> (u64, u64) {
        let blocks = size.stripes * (ROWS * usize::from(size.cell)) as u64;
        let cells = HEADER + 2 * half;
        let at = (cells + blocks * BLOCK as u64).next_multiple_of(PAGE);
        (at, blocks)
    }

    /// Offset of the checksum of a block.
    fn digest_at(&self, place: u64) -> u64 {
        Self::digests_at(&self.size, self.half_len).0 + place * DIGEST
    }

    pub(super) fn in_place(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.base(2) + place * BLOCK as u64;
        if self.media.write(at, bytes).is_err() {
            self.whole_pages(place, bytes)?;
        }
        let sums = bytes.chunks(BLOCK).flat_map(|b| digest(b).to_le_bytes());
        let sums: Vec<u8> = sums.collect();
        self.set_sums(place, &sums)
    }

    /// Writes blocks of the cells with the rest of their pages: a page with an unreadable sector
    /// cannot be written in part. Other blocks of it that cannot be read become zeros with a wrong
    /// checksum.
    fn whole_pages(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        let (base, size) = (self.base(2), BLOCK as u64);
        let (digests, blocks) = Self::digests_at(&self.size, self.half_len);
        let at = base + place * size;
        let from = (at / PAGE * PAGE).max(base);
        let to = (at + bytes.len() as u64)
            .next_multiple_of(PAGE)
            .min(digests);
        let mut all = vec![0; (to - from) as usize];
        for (block, at) in all.chunks_mut(BLOCK).zip((from..).step_by(BLOCK)) {
            let other = (at - base) / size;
            let mine = (place..place + bytes.len() as u64 / size).contains(&other);
            if !mine && other < blocks && self.media.read(at, block).is_err() {
                block.fill(0);
                self.set_sums(other, &(digest(block) ^ 1).to_le_bytes())?;
            }
        }
        let offset = (at - from) as usize;
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.media.write(from, &all)
    }

    /// Gives a block a wrong checksum, so that it is unreadable until it is written.
    pub(super) fn taint(&mut self, place: u64) -> io::Result<()> {
        let (mut block, at) = ([0; BLOCK], self.base(2) + place * BLOCK as u64);
        // A block that cannot be read may have any content later.
        let _ = self.media.read(at, &mut block);
        self.set_sums(place, &(digest(&block) ^ 1).to_le_bytes())
    }

    fn set_sums(&mut self, place: u64, sums: &[u8]) -> io::Result<()> {
        let at = self.digest_at(place);
        match self.media.write(at, sums) {
            Ok(()) => Ok(()),
            Err(_) => self.renew(at, sums),
        }
    }

    /// Writes checksums at an offset with the rest of their pages: a page with an unreadable sector
    /// cannot be written in part. A block whose checksum cannot be read gets a wrong one, which
    /// makes it unreadable until it is written.
    fn renew(&mut self, at: u64, sums: &[u8]) -> io::Result<()> {
        let (start, blocks) = Self::digests_at(&self.size, self.half_len);
        let end = at + sums.len() as u64;
        let (from, to) = (at / PAGE * PAGE, end.next_multiple_of(PAGE));
        let mut all = Vec::new();
        for sector in (from..to).step_by(BLOCK) {
            let mut known = vec![0; BLOCK];
            if self.media.read(sector, &mut known).is_err() {
                known.clear();
                let first = (sector - start) / DIGEST;
                for place in first..first + BLOCK as u64 / DIGEST {
                    let (mut block, at) = ([0; BLOCK], self.base(2) + place * BLOCK as u64);
                    if place < blocks {
                        // A block that cannot be read may have any content later.
                        let _ = self.media.read(at, &mut block);
                    }
                    known.extend((digest(&block) ^ 1).to_le_bytes());
                }
            }
            all.extend(known);
        }
        let offset = (at - from) as usize;
        all[offset..offset + sums.len()].copy_from_slice(sums);
        self.media.write(from, &all)
    }

    /// Reads blocks from the cells, and compares their checksums.
    pub(super) fn checked(&mut self, place: u64, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let failed = |e: io::Error| Unreadable(place, e.to_string());
        let at = self.base(2) + place * BLOCK as u64;
        self.media.read(at, bytes).map_err(failed)?;
        let mut sums = vec![0; bytes.len() / BLOCK * DIGEST as usize];
        let at = self.digest_at(place);
        self.media.read(at, &mut sums).map_err(failed)?;
        let pairs = bytes.chunks(BLOCK).zip(sums.chunks(DIGEST as usize));
        for (place, (block, sum)) in (place..).zip(pairs) {
            if digest(block).to_le_bytes() != *sum {
                return Err(Unreadable(place, "it is not what was written".into()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_have_no_checksum() {
        assert_eq!(digest(&[0; BLOCK]), 0);
        assert_eq!(digest(&[1; BLOCK]), crc32c::crc32c(&[1; BLOCK]) ^ ZEROS);
    }
}
