// SPDX-License-Identifier: GPL-2.0

//! Adoption of a map.

use std::io;

use wss::peer::Peer;

use super::relay::Relay;
use super::Node;
use crate::{
    journal::{Media, Name, Record},
    layout::NODES,
    map::{Map, State},
};

impl<M: Media> Node<M> {
    /// Handles the floor of a node. The floor is ignored until all nodes have settled, because
    /// another node may still send deltas that the node created before it was admitted.
    pub(super) fn raise(&mut self, n: usize, floor: u64) -> io::Result<()> {
        let counts = |m: &Map| m.states[n] != State::Out && m.since[n] <= floor >> 32;
        if self.opened && self.map.as_ref().is_some_and(counts) {
            self.journal.raise(n as u8, floor)?;
        }
        Ok(())
    }

    /// Returns whether the owner of a write has been in the set since the write, so that it can
    /// resend the delta.
    pub(super) fn lives(map: &Map, (owner, seq): Name) -> bool {
        let n = usize::from(owner);
        map.states[n] != State::Out && map.since[n] <= seq >> 32
    }

    pub(super) fn epoch(&mut self, peer: Peer, epoch: u64, payload: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(payload).ok();
        let Some(map) = text.and_then(Map::parse).filter(|m| m.epoch == epoch) else {
            self.close(peer, "its map is wrong");
            return Ok(());
        };
        let set = self.journal.set();
        if set != 0 && set != map.set {
            let what = format!(
                "its map is of set {}, and the file here of set {set}",
                map.set
            );
            self.close(peer, &what);
            return Ok(());
        }
        let (state, size) = (map.states[self.number], self.journal.size());
        if size != map.size {
            let what = size.option(&map.size);
            return Err(io::Error::other(format!(
                "the set does not take its file, which has {what}"
            )));
        }
        if epoch < self.journal.epoch() || state == State::Out {
            self.close(
                peer,
                &format!("its map of epoch {epoch} is old, or leaves this node out"),
            );
            return Ok(());
        }
        let (since, mine) = (map.since[self.number], self.journal.since());
        if since != mine {
            let fresh = state == State::Rebuilding || (map.new && mine == 0);
            if !fresh {
                self.close(peer, "this node's file is not the one that the map means");
                return Ok(());
            }
            self.say(format!("let in with epoch {since}"));
            self.relays.clear();
            self.acks.clear();
            self.journal.wipe(epoch, since, map.set)?;
        } else if epoch > self.journal.epoch() {
            self.journal.enter(epoch)?;
        }
        if let Some(old) = self.client.filter(|c| *c != peer) {
            self.close(old, "there is another client");
        }
        self.forget_client();
        self.client = Some(peer);
        self.telling = true;
        self.opened = false;
        self.map = Some(map.clone());
        let me = self.number as u8;
        let ours = |name: &Name| name.0 == me || !Self::lives(&map, *name);
        let records: Vec<(Name, Record)> = self
            .journal
            .records()
            .iter()
            .filter(|(name, _)| ours(name))
            .map(|(name, r)| (*name, r.clone()))
            .collect();
        for (name, record) in records {
            let targets = self.targets(name, &record.span, record.lost);
            let relay = self.relays.entry(name).or_insert(Relay {
                waits: targets,
                due: 0,
                again: 0,
                lsn: record.lsn,
                sent: [0; NODES],
            });
            relay.waits &= targets;
            relay.due = relay.waits;
        }
        // If the owner of a write is back, it resends the delta itself.
        let records = self.journal.records();
        self.relays
            .retain(|name, _| ours(name) && records.contains_key(name));
        self.say(format!(
            "epoch {epoch}, {} writes to be passed on",
            self.relays.len()
        ));
        Ok(())
    }

    /// Discards deltas of excluded nodes, and deltas that a node created before it was admitted.
    /// Called when all nodes have settled.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let Some(map) = self.map.clone() else {
            return Ok(());
        };
        self.opened = true;
        for owner in (0..NODES).filter(|n| *n != self.number) {
            let floor = match map.states[owner] {
                State::Out => map.epoch << 32,
                _ => map.since[owner] << 32,
            };
            self.journal.raise(owner as u8, floor)?;
        }
        Ok(())
    }
}
