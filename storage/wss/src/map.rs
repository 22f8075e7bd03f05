// SPDX-License-Identifier: GPL-2.0

//! Location of the blocks of a unit: sorted extents of objects, each owned by one CE.

use std::collections::BTreeMap;

/// An object of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Object {
    /// The RS.
    pub store: u32,
    /// The object.
    pub object: u32,
    /// Number of blocks.
    pub blocks: u64,
}

/// The CE that may cache blocks of an extent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    /// The CE.
    pub member: u32,
    /// Ownership epoch.
    pub epoch: u64,
}

/// A range of blocks of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// First block in the unit.
    pub start: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The RS.
    pub store: u32,
    /// The object.
    pub object: u32,
    /// First block in the object.
    pub at: u64,
    /// The CE that may cache the blocks, if any.
    owner: Option<Owner>,
    /// Number of commands for these blocks in flight at the owner.
    pub busy: u32,
    /// Whether a command waits until `busy` is 0.
    pub wanted: bool,
    /// Whether the lines of the owner may have blocks that the RS has lost. The owner gets a new
    /// epoch when `busy` is 0.
    pub stale: bool,
}

impl Extent {
    /// The CE that may cache the blocks, if any.
    pub fn owner(&self) -> Option<Owner> {
        self.owner
    }
}

/// The blocks of a command in one extent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Index of the extent.
    pub extent: usize,
    /// First block in the object.
    pub at: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// The extents of a unit.
pub struct Map {
    extents: Vec<Extent>,
    /// Number of extents of each owner.
    owned: BTreeMap<u32, u64>,
}

impl Map {
    /// Concatenates objects, each split into extents of `size` blocks. The size of an object is
    /// rounded down to a multiple of `line` blocks, so that no line spans extents. `size` must be a
    /// multiple of `line`, too.
    pub fn new(objects: &[Object], size: u64, line: u64) -> Self {
        let mut extents = Vec::new();
        let mut start = 0;
        for o in objects {
            let all = o.blocks / line * line;
            let mut at = 0;
            while at < all {
                let blocks = size.min(all - at);
                extents.push(Extent {
                    start,
                    blocks,
                    store: o.store,
                    object: o.object,
                    at,
                    owner: None,
                    busy: 0,
                    wanted: false,
                    stale: false,
                });
                at += blocks;
                start += blocks;
            }
        }
        let owned = BTreeMap::new();
        Self { extents, owned }
    }

    /// Number of blocks of the unit.
    pub fn blocks(&self) -> u64 {
        self.extents.last().map_or(0, |e| e.start + e.blocks)
    }

    /// Number of extents.
    pub fn count(&self) -> u64 {
        self.extents.len() as u64
    }

    /// Number of extents that a CE owns.
    pub fn owned(&self, member: u32) -> u64 {
        self.owned.get(&member).copied().unwrap_or(0)
    }

    /// Gives an extent to an owner.
    pub fn own(&mut self, extent: usize, owner: Owner) {
        *self.owned.entry(owner.member).or_default() += 1;
        let before = self.extents[extent].owner.replace(owner);
        if let Some(n) = before.and_then(|b| self.owned.get_mut(&b.member)) {
            *n -= 1;
        }
    }

    /// All extents.
    pub fn extents(&mut self) -> &mut [Extent] {
        &mut self.extents
    }

    /// Location of blocks of the unit. The blocks must exist.
    pub fn pieces(&self, mut lba: u64, count: u32) -> Vec<Piece> {
        let (mut left, mut pieces) = (count, Vec::new());
        let mut n = self.extents.partition_point(|e| e.start + e.blocks <= lba);
        while let (1.., Some(e)) = (left, self.extents.get(n)) {
            let skip = lba - e.start;
            let blocks = (e.blocks - skip).min(left.into()) as u32;
            pieces.push(Piece {
                extent: n,
                at: e.at + skip,
                blocks,
            });
            lba += u64::from(blocks);
            left -= blocks;
            n += 1;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_where_the_blocks_are() {
        let object = |store, object, blocks| Object {
            store,
            object,
            blocks,
        };
        // Objects of 21 (20 used) and 12 blocks, in extents of 8 with lines of 4.
        let mut map = Map::new(&[object(1, 0, 21), object(2, 3, 12)], 8, 4);
        assert_eq!(map.blocks(), 32);
        let sizes: Vec<_> = map
            .extents()
            .iter()
            .map(|e| (e.start, e.blocks, e.at))
            .collect();
        assert_eq!(
            sizes,
            [(0, 8, 0), (8, 8, 8), (16, 4, 16), (20, 8, 0), (28, 4, 8)]
        );
        for lba in 0..32 {
            for count in 1..=32 - lba {
                let mut wanted = lba..lba + count;
                for piece in map.pieces(lba, count as u32) {
                    let e = map.extents[piece.extent];
                    for i in 0..u64::from(piece.blocks) {
                        let block = wanted.next().unwrap();
                        assert_eq!(e.start + piece.at - e.at + i, block);
                        let place = if block < 20 {
                            (1, 0, block)
                        } else {
                            (2, 3, block - 20)
                        };
                        assert_eq!((e.store, e.object, piece.at + i), place);
                    }
                }
                assert_eq!(wanted.next(), None);
            }
        }
        assert_eq!(map.pieces(30, 5).iter().map(|p| p.blocks).sum::<u32>(), 2);
    }
}
