// SPDX-License-Identifier: GPL-2.0

//! The status of a client.

use serde_json::{json, Value};

use super::{Client, Memory};
use crate::{layout::NODES, map::State};

impl<B: Memory> Client<B> {
    /// Returns the status of the client.
    pub fn status(&self) -> Value {
        let map = self.map.as_ref();
        let stripes = self.size.map_or(0, |s| s.stripes);
        let nodes = (0..NODES).map(|n| {
            let partner = &self.partners[n];
            let state = map.map(|m| match m.states[n] {
                State::Up => "up",
                State::Out => "out",
                State::Rebuilding => "rebuilding",
            });
            json!({
                "name": n.to_string(),
                "state": state.unwrap_or("unknown"),
                "up": state == Some("up"),
                "connected": partner.link.up(),
                "admitted_in_epoch": map.map_or(0, |m| m.since[n]),
                "stripes_to_rebuild": map.map_or(0, |_| partner.cells.missing(stripes)),
                "stripes_not_rebuildable": partner.hard.len(),
                "counters": { "stripes_repaired": partner.repaired },
            })
        });
        let state = match (self.held, self.open()) {
            (None, _) => "waiting for the set",
            (Some(_), false) => "settling",
            (Some(_), true) => "serving",
        };
        json!({
            "state": state,
            "client": self.settings.id.to_string(),
            "has_the_set": self.held.is_some(),
            "open": self.open(),
            "whole": self.whole(),
            "epoch": map.map_or(0, |m| m.epoch),
            "set": map.map_or(0, |m| m.set).to_string(),
            "stripes": stripes,
            "nodes": nodes.collect::<Value>(),
            "commands_in_set": self.commands.len(),
            "parts_in_flight": self.parts.len(),
        })
    }
}
