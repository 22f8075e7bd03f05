// SPDX-License-Identifier: GPL-2.0

//! Who has a part in the set. There is one map, in etcd; whoever changes it makes a new epoch.

use crate::layout::{Mask, Size, NODES};

/// What a node is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It has its cells.
    Up,
    /// It has nothing, and gets nothing.
    Out,
    /// Its cells are being made again. Those that are made are kept up.
    Rebuilding,
}

/// A map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Map {
    /// Larger than all before.
    pub epoch: u64,
    /// Who has made it.
    pub client: u64,
    /// No node had any cells before, so all are zeros.
    pub new: bool,
    /// What each node is.
    pub states: [State; NODES],
    /// The epoch in which each node was let in the last time.
    pub since: [u64; NODES],
    /// How large the set is, which never changes.
    pub size: Size,
    /// Names the set: who has made its first map. It never changes either.
    pub set: u64,
}

impl Map {
    /// That of a set that nobody has used.
    pub fn first(client: u64, size: Size) -> Self {
        Self {
            epoch: 1,
            client,
            new: true,
            states: [State::Up; NODES],
            since: [1; NODES],
            size,
            set: client,
        }
    }

    /// Nodes with this state.
    pub fn mask(&self, state: State) -> Mask {
        let nodes = self.states.iter().enumerate().filter(|(_, s)| **s == state);
        nodes.fold(0, |mask, (n, _)| mask | 1 << n)
    }

    /// As text: `EPOCH CLIENT new|used`, for each node its state (`u`, `o`, `r`) with the epoch behind it,
    /// `STRIPESxBLOCKS`, of a cell, and the set.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} {} {}",
            self.epoch,
            self.client,
            if self.new { "new" } else { "used" }
        );
        for (state, since) in self.states.iter().zip(self.since) {
            let letter = match state {
                State::Up => 'u',
                State::Out => 'o',
                State::Rebuilding => 'r',
            };
            text.push_str(&format!(" {letter}{since}"));
        }
        text + &format!(" {}x{} {}", self.size.stripes, self.size.cell, self.set)
    }

    /// From such a text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let size = Size {
            cell: 0,
            stripes: 0,
        };
        let mut map = Self::first(0, size);
        map.epoch = words.next()?.parse().ok()?;
        map.client = words.next()?.parse().ok()?;
        map.new = match words.next()? {
            "new" => true,
            "used" => false,
            _ => return None,
        };
        for (state, since) in map.states.iter_mut().zip(&mut map.since) {
            let word = words.next()?;
            *state = match word.get(..1)? {
                "u" => State::Up,
                "o" => State::Out,
                "r" => State::Rebuilding,
                _ => return None,
            };
            *since = word.get(1..)?.parse().ok()?;
        }
        let (stripes, cell) = words.next()?.split_once('x')?;
        map.size.stripes = stripes.parse().ok()?;
        map.size.cell = cell.parse().ok()?;
        map.set = words.next()?.parse().ok()?;
        (words.next().is_none() && map.text() == text).then_some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let size = Size {
            cell: 128,
            stripes: 10,
        };
        let mut map = Map::first(66, size);
        map.client = 77;
        map.new = false;
        map.epoch = 9;
        map.states[2] = State::Out;
        map.states[4] = State::Rebuilding;
        map.since[4] = 8;
        assert_eq!(map.text(), "9 77 used u1 u1 o1 u1 r8 10x128 66");
        assert_eq!(Map::parse(&map.text()), Some(map));
        for bad in [
            "",
            "9 77 used u1 u1 o1 u1 10x128 66",
            "9 77 used u1 u1 o1 u1 r8 66",
            "9 77 used u1 u1 o1 u1 r8 10x128",
            "9 77 used u1 u1 o1 u1 r8 10x128 66 ",
            "9 77 odd u1 u1 o1 u1 r8 10x128 66",
            "9 77 new u1 u1 x1 u1 r8 10x128 66",
            "9 77 new u1 u1 o1 u1 r08 10x128 66",
            "9 77 new u1 u1 o1 u1 r8 10x 66",
        ] {
            assert_eq!(Map::parse(bad), None, "{bad}");
        }
    }
}
