// SPDX-License-Identifier: GPL-2.0

//! Connections between all processes.

use super::*;

pub(super) enum Item {
    Message(Vec<u8>, Payload),
    Closed,
}

pub(super) struct Conn {
    pub(super) ends: [(Who, u64); 2],
    /// Items in flight to each side.
    pub(super) queues: [VecDeque<Item>; 2],
    pub(super) open: [bool; 2],
}

impl World {
    /// Closes one side of a connection: some of what it has sent may still arrive.
    pub(super) fn hang_up(&mut self, id: u64, side: usize, silent: bool) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.open[side] = false;
        conn.queues[side].clear();
        let left = conn.queues[1 - side].len() as u64;
        let keep = self.rng.below(left + 1) as usize;
        conn.queues[1 - side].truncate(keep);
        if !silent {
            conn.queues[1 - side].push_back(Item::Closed);
        }
        if !conn.open[1 - side] {
            self.conns.remove(&id);
        }
    }

    pub fn cut(&mut self, a: Who, b: Who) {
        self.cuts.insert((a, b));
        self.cuts.insert((b, a));
    }

    /// Separates these processes from all others.
    pub fn partition(&mut self, some: &[Who]) {
        self.note(|| format!("partition {some:?}"));
        for other in self.participants() {
            for one in some {
                if !some.contains(&other) {
                    self.cut(*one, other);
                }
            }
        }
    }

    pub(super) fn find(&self, who: Who, peer: u64) -> Option<(u64, usize)> {
        self.conns.iter().find_map(|(id, c)| {
            let side = c.ends.iter().position(|e| *e == (who, peer))?;
            c.open[side].then_some((*id, side))
        })
    }

    /// The ends of a connection, the own one first.
    pub(super) fn both_ends(&self, who: Who, peer: u64) -> Option<((Who, u64), (Who, u64))> {
        let (id, side) = self.find(who, peer)?;
        let ends = self.conns[&id].ends;
        Some((ends[side], ends[1 - side]))
    }

    pub(super) fn put(&mut self, who: Who, peer: u64, message: Message, payload: Payload) {
        if let Some((id, side)) = self.find(who, peer) {
            self.note(|| {
                let conn = &self.conns[&id];
                format!(
                    "{who:?} -> {:?} {message:?} +{}",
                    conn.ends[1 - side].0,
                    payload.len()
                )
            });
            let conn = self.conns.get_mut(&id).unwrap();
            if conn.open[1 - side] {
                conn.queues[1 - side].push_back(Item::Message(message.build().to_vec(), payload));
            }
        }
    }

    pub(super) fn connect(&mut self, who: Who, peer: u64, to: usize) {
        let at = self.now + self.rng.below(20);
        self.connects.push((at, who, peer, to));
    }

    pub(super) fn deliver(&mut self, id: u64, side: usize) {
        let conn = self.conns.get_mut(&id).unwrap();
        let (who, peer) = conn.ends[side];
        match conn.queues[side].pop_front() {
            Some(Item::Message(bytes, payload)) => self.told(
                who,
                |n| n.message(peer, &bytes, &payload),
                |c| c.message(peer, &bytes, &payload),
            ),
            Some(Item::Closed) => {
                self.conns.remove(&id);
                self.told(who, |n| n.closed(peer), |c| c.closed(peer));
            }
            None => {}
        }
    }
}
