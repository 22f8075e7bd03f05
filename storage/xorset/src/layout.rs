// SPDX-License-Identifier: GPL-2.0

//! The erasure code of the paper (figure 3), and the placement of cells.
//!
//! A stripe has four rows and five columns, one column per node. In the first four columns each row
//! has three data cells and their XOR, the row parity, which is in column 3 - row. A cell of row r
//! and column c is on diagonal (r + c) mod 5. The last column has the XOR of the data cells of each
//! diagonal, except diagonal 3, which has the row parities. So a data cell contributes to two
//! parities, on two other nodes. Columns rotate: column c of stripe s is on node (c + s) mod 5.

/// Number of nodes of a set, and of columns of a stripe.
pub const NODES: usize = 5;
/// Number of rows of a stripe, and of cells per node.
pub const ROWS: usize = 4;
/// Number of data cells of a stripe.
pub const DATA: usize = 12;
/// Block size in bytes.
pub const BLOCK: usize = 512;
/// The diagonal stored in each row of the last column.
const DIAGONALS: [u8; ROWS] = [0, 1, 2, 4];

/// A cell of a stripe.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Cell {
    /// Row, 0 to 3.
    pub row: u8,
    /// Column, 0 to 4.
    pub column: u8,
}

impl Cell {
    /// The cell with this number, 0 to 19.
    pub fn from_number(number: u8) -> Option<Self> {
        let (row, column) = (number / NODES as u8, number % NODES as u8);
        (usize::from(row) < ROWS).then_some(Self { row, column })
    }

    /// Number of the cell.
    pub fn number(self) -> u8 {
        self.row * NODES as u8 + self.column
    }

    /// The data cell with this number in the stripe, 0 to 11.
    pub fn data(number: u8) -> Self {
        let (row, place) = (number / 3, number % 3);
        let parity = 3 - row;
        let column = if place < parity { place } else { place + 1 };
        Self { row, column }
    }

    /// Returns whether the cell is a data cell.
    pub fn is_data(self) -> bool {
        self.column != 4 && self.column != 3 - self.row
    }

    /// The row parity and the diagonal parity of a data cell.
    pub fn parities(self) -> [Self; 2] {
        let diagonal = (self.row + self.column) % NODES as u8;
        let row = DIAGONALS.iter().position(|d| *d == diagonal).unwrap_or(0) as u8;
        [
            Self {
                row: self.row,
                column: 3 - self.row,
            },
            Self { row, column: 4 },
        ]
    }

    fn bit(self) -> u32 {
        1 << self.number()
    }
}

/// A set of nodes, as a bitmask.
pub type Mask = u8;

/// All nodes.
pub const ALL: Mask = (1 << NODES) - 1;

/// Returns whether the mask contains the node.
pub fn has(mask: Mask, node: usize) -> bool {
    mask >> node & 1 != 0
}

/// The node of a column in a stripe.
pub fn node(stripe: u64, column: u8) -> usize {
    ((stripe % NODES as u64) as usize + usize::from(column)) % NODES
}

/// The column of a node in a stripe.
pub fn column(stripe: u64, node: usize) -> u8 {
    ((node + NODES - (stripe % NODES as u64) as usize) % NODES) as u8
}

/// Sets of cells, as bitmasks, that XOR to zero.
fn equations() -> [u32; 8] {
    let mut all = [0; 8];
    for row in 0..ROWS as u8 {
        all[usize::from(row)] = Cell {
            row,
            column: 3 - row,
        }
        .bit();
        all[ROWS + usize::from(row)] = Cell { row, column: 4 }.bit();
    }
    for number in 0..DATA as u8 {
        let cell = Cell::data(number);
        let [row, diagonal] = cell.parities();
        all[usize::from(row.row)] |= cell.bit();
        all[ROWS + usize::from(diagonal.row)] |= cell.bit();
    }
    all
}

/// Returns the smallest set of cells that XOR to this cell, none of them on a lost node; `None` if
/// there is no such set. If the cell itself is not lost, the set is that cell.
pub fn plan(stripe: u64, lost: Mask, cell: Cell) -> Option<Vec<Cell>> {
    let gone = |c: Cell| has(lost, node(stripe, c.column));
    if !gone(cell) {
        return Some(vec![cell]);
    }
    let cells = (0..(NODES * ROWS) as u8).filter_map(Cell::from_number);
    let unknown: u32 = cells.clone().filter(|c| gone(*c)).map(Cell::bit).sum();
    let equations = equations();
    let mut best: Option<u32> = None;
    for choice in 1u32..1 << equations.len() {
        let chosen = equations
            .iter()
            .enumerate()
            .filter(|(i, _)| choice >> i & 1 != 0);
        let sum = chosen.fold(0, |sum, (_, e)| sum ^ e);
        if sum & unknown == cell.bit() && best.is_none_or(|b| sum.count_ones() < b.count_ones()) {
            best = Some(sum);
        }
    }
    let others = best? ^ cell.bit();
    Some(cells.filter(|c| others & c.bit() != 0).collect())
}

/// Size of a set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// Number of blocks per cell, 1 to 128.
    pub cell: u16,
    /// Number of stripes.
    pub stripes: u64,
}

impl Size {
    /// Returns whether a set may have this size.
    pub fn is_valid(&self) -> bool {
        (1..=128).contains(&self.cell) && (1..1 << 32).contains(&self.stripes)
    }

    /// Number of blocks of user data.
    pub fn blocks(&self) -> u64 {
        self.stripes * DATA as u64 * u64::from(self.cell)
    }

    /// Describes the option of `xorset format` in which this size and `other` differ.
    pub fn option(&self, other: &Self) -> String {
        match self.stripes == other.stripes {
            true => format!("--cell {} and not {}", self.cell / 2, other.cell / 2),
            false => format!("--stripes {} and not {}", self.stripes, other.stripes),
        }
    }

    /// Size of a cell, in bytes.
    pub fn cell_bytes(&self) -> usize {
        usize::from(self.cell) * BLOCK
    }
}

/// A range of blocks of one cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The stripe.
    pub stripe: u64,
    /// The cell.
    pub cell: Cell,
    /// First block in the cell.
    pub block: u16,
    /// Number of blocks.
    pub blocks: u16,
}

impl Span {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        usize::from(self.blocks) * BLOCK
    }

    /// Returns whether the range has no blocks, which is never true in a message.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The same blocks of another cell of the stripe.
    pub fn of(&self, cell: Cell) -> Self {
        Self { cell, ..*self }
    }

    /// The node that has the cell.
    pub fn node(&self) -> usize {
        node(self.stripe, self.cell.column)
    }

    /// Returns whether the range is inside of a set of this size.
    pub fn fits(&self, size: &Size) -> bool {
        let end = u32::from(self.block) + u32::from(self.blocks);
        self.stripe < size.stripes && self.blocks > 0 && end <= u32::from(size.cell)
    }

    /// Index of the first block among all blocks of the node.
    pub fn place(&self, size: &Size) -> u64 {
        let cell = self.stripe * ROWS as u64 + u64::from(self.cell.row);
        cell * u64::from(size.cell) + u64::from(self.block)
    }

    /// Returns whether both ranges have common block numbers in the same stripe, even in different
    /// cells.
    pub fn meets(&self, other: &Self) -> bool {
        self.stripe == other.stripe
            && self.block < other.block + other.blocks
            && other.block < self.block + self.blocks
    }
}

/// Splits a range of blocks of user data at cell boundaries.
pub fn spans(size: &Size, lba: u64, count: u64) -> Vec<Span> {
    let cell = u64::from(size.cell);
    let (mut at, end, mut list) = (lba, lba + count, Vec::new());
    while at < end {
        let blocks = (cell - at % cell).min(end - at);
        let number = at / cell;
        list.push(Span {
            stripe: number / DATA as u64,
            cell: Cell::data((number % DATA as u64) as u8),
            block: (at % cell) as u16,
            blocks: blocks as u16,
        });
        at += blocks;
    }
    list
}

/// `into` ^= `other`.
pub fn xor(into: &mut [u8], other: &[u8]) {
    for (a, b) in into.iter_mut().zip(other) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Cell> {
        (0..20).filter_map(Cell::from_number)
    }

    /// A stripe of random numbers, with parities computed from the definition in the paper.
    fn stripe(seed: u64) -> [u64; 20] {
        let mut cells = [0; 20];
        let mut rng = seeded::Rng(seed);
        for c in all().filter(|c| c.is_data()) {
            cells[c.number() as usize] = rng.next();
        }
        for row in 0..4u8 {
            let data = all().filter(|c| c.row == row && c.is_data());
            let parity = data.fold(0, |sum, c| sum ^ cells[c.number() as usize]);
            cells[(row * 5 + 3 - row) as usize] = parity;
        }
        for (row, diagonal) in [(0, 0), (1, 1), (2, 2), (3, 4)] {
            let on = |c: &Cell| c.is_data() && (c.row + c.column) % 5 == diagonal;
            let parity = all()
                .filter(on)
                .fold(0, |sum, c| sum ^ cells[c.number() as usize]);
            cells[row * 5 + 4] = parity;
        }
        cells
    }

    #[test]
    fn cells_are_where_the_paper_has_them() {
        let data: Vec<_> = (0..12).map(Cell::data).collect();
        assert!(data.iter().all(|c| c.is_data()) && data.is_sorted());
        assert_eq!(all().filter(|c| c.is_data()).count(), 12);
        for c in data {
            let [row, diagonal] = c.parities();
            assert!(row.row == c.row && row.column == 3 - c.row && row.column != c.column);
            assert_eq!(diagonal.column, 4);
            assert_eq!([0, 1, 2, 4][diagonal.row as usize], (c.row + c.column) % 5);
        }
    }

    #[test]
    fn any_two_nodes_may_be_lost() {
        for s in 0..5 {
            let cells = stripe(s + 1);
            for lost in 0..32u8 {
                let lose = lost.count_ones();
                let mut all_found = true;
                for c in all() {
                    let Some(plan) = plan(s, lost, c) else {
                        all_found = false;
                        continue;
                    };
                    assert!(plan.iter().all(|p| !has(lost, node(s, p.column))));
                    let sum = plan
                        .iter()
                        .fold(0, |sum, p| sum ^ cells[p.number() as usize]);
                    assert_eq!(sum, cells[c.number() as usize], "{lost:05b} {c:?}");
                }
                // No code on five equal nodes survives the loss of three.
                assert_eq!(all_found, lose <= 2, "{lost:05b}");
            }
        }
    }

    #[test]
    fn columns_go_round() {
        for s in 0..10 {
            for c in 0..5 {
                assert_eq!(column(s, node(s, c)), c);
            }
        }
        assert_eq!((node(0, 4), node(1, 4), node(3, 4)), (4, 0, 2));
    }

    #[test]
    fn spans_are_all_blocks_once() {
        let size = Size {
            cell: 4,
            stripes: 2,
        };
        assert_eq!(size.blocks(), 96);
        let mut places = std::collections::BTreeSet::new();
        for lba in 0..96 {
            let [one] = spans(&size, lba, 1)[..] else {
                panic!("{lba}")
            };
            assert!(one.fits(&size) && one.cell.is_data());
            assert!(places.insert((one.node(), one.place(&size))));
            for count in 1..=96 - lba {
                let mut at = lba;
                for span in spans(&size, lba, count) {
                    assert_eq!(spans(&size, at, 1)[0].place(&size), span.place(&size));
                    at += u64::from(span.blocks);
                }
                assert_eq!(at, lba + count);
            }
        }
        assert!(places.iter().all(|(_, place)| *place < 32));
    }
}
