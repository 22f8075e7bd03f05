// SPDX-License-Identifier: GPL-2.0

//! Encoding of log records.

use super::RECORD;
use crate::layout::{Mask, BLOCK};

pub(super) const STATE: u8 = 1;

pub(super) const WRITE: u8 = 2;

pub(super) const DONE: u8 = 3;

pub(super) const CONTENT: u8 = 4;

pub(super) const FLOOR: u8 = 5;

pub(super) const WHOLE: u8 = 6;

/// The payload of a write has no content of a cell of this node.
pub(super) const NO_NEW: u8 = 0;
/// It has the new content of all its blocks.
pub(super) const NEW: u8 = 1;
/// It has the new content, and a block with a byte for each of its blocks: 0, or 1 if the block is
/// bad and the content does not count.
pub(super) const SOME_NEW: u8 = 2;

/// The header of a log record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) kind: u8,
    pub(super) owner: u8,
    pub(super) lost: Mask,
    /// What the payload of a write has after the delta: [`NO_NEW`], [`NEW`] or [`SOME_NEW`], which
    /// also [`CONTENT`] may be.
    pub(super) content: u8,
    /// Row of the cell with the new content.
    pub(super) row: u8,
    pub(super) cell: u8,
    pub(super) block: u16,
    pub(super) blocks: u16,
    pub(super) seq: u64,
    pub(super) stripe: u64,
    pub(super) set: u64,
}

pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Returns a checksum that detects torn records, and records that do not follow the one with the
/// checksum `before`. The length of `bytes` must be a multiple of 8.
pub(super) fn sum(before: u64, bytes: &[u8]) -> u64 {
    // Parts of a fixed length make a third of the instructions.
    bytes
        .chunks_exact(8)
        .fold(before ^ 0xcbf2_9ce4_8422_2325, |h: u64, w| {
            (h ^ word(w, 0))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
}

impl Entry {
    pub(super) fn new(kind: u8, owner: u8, seq: u64, stripe: u64) -> Self {
        Self {
            kind,
            owner,
            lost: 0,
            content: NO_NEW,
            row: 0,
            cell: 0,
            block: 0,
            blocks: 0,
            seq,
            stripe,
            set: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        let parts = match self.kind {
            WRITE => 1 + usize::from(self.content != NO_NEW),
            CONTENT => 1,
            _ => 0,
        };
        let map = usize::from(self.content == SOME_NEW);
        (parts * usize::from(self.blocks) + map) * BLOCK
    }

    pub(super) fn build(&self, before: u64, generation: u64, lsn: u64, bytes: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0; RECORD];
        out[8..16].copy_from_slice(&generation.to_le_bytes());
        out[16..24].copy_from_slice(&lsn.to_le_bytes());
        let small = [
            self.kind,
            self.owner,
            self.lost,
            self.content,
            self.row,
            self.cell,
        ];
        out[24..30].copy_from_slice(&small);
        out[30..32].copy_from_slice(&self.block.to_le_bytes());
        out[32..34].copy_from_slice(&self.blocks.to_le_bytes());
        out[40..48].copy_from_slice(&self.seq.to_le_bytes());
        out[48..56].copy_from_slice(&self.stripe.to_le_bytes());
        out[56..64].copy_from_slice(&self.set.to_le_bytes());
        for part in bytes {
            out.extend_from_slice(part);
        }
        let sum = sum(before, &out[8..]);
        out[..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(super) fn parse(head: &[u8; RECORD]) -> Self {
        let half = |at| u16::from_le_bytes([head[at], head[at + 1]]);
        Self {
            kind: head[24],
            owner: head[25],
            lost: head[26],
            content: head[27],
            row: head[28],
            cell: head[29],
            block: half(30),
            blocks: half(32),
            seq: word(head, 40),
            stripe: word(head, 48),
            set: word(head, 56),
        }
    }
}
