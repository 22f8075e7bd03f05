// SPDX-License-Identifier: GPL-2.0

//! Membership of the set. There is one map, in etcd; each change starts a new epoch.

use crate::layout::{Mask, Size, NODES};

/// State of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The cells are valid.
    Up,
    /// The node is excluded and not used.
    Out,
    /// The cells are being rebuilt. Those already rebuilt are kept up to date.
    Rebuilding,
}

/// A map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Map {
    /// Epoch of the map, larger than all earlier ones.
    pub epoch: u64,
    /// The client that made the map.
    pub client: u64,
    /// Whether no node has written cells, so all are zeros.
    pub new: bool,
    /// State of each node.
    pub states: [State; NODES],
    /// Epoch in which each node was last admitted.
    pub since: [u64; NODES],
    /// Size of the set, which never changes.
    pub size: Size,
    /// Identifier of the set: the client that made its first map. It never changes.
    pub set: u64,
}

impl Map {
    /// The map of a new set.
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

    /// Nodes in this state.
    pub fn mask(&self, state: State) -> Mask {
        let nodes = self.states.iter().enumerate().filter(|(_, s)| **s == state);
        nodes.fold(0, |mask, (n, _)| mask | 1 << n)
    }

    /// Returns the map as text: `EPOCH CLIENT new|used`, for each node its state (`u`, `o`, `r`)
    /// and the epoch of its admission, `STRIPESxBLOCKS` (blocks per cell), and the set.
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

    /// Parses the text of [`Map::text`].
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
