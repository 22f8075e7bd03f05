// SPDX-License-Identifier: GPL-2.0

//! The status of an SE.

use serde_json::{json, Value};
use srp_target::target::Buffer;

use super::Engine;
use crate::map::Map;

impl<B: Buffer> Engine<B> {
    /// Returns the status of the SE.
    pub fn status(&self) -> Value {
        // Each second: counts only, as there may be millions of extents.
        let owned = |n: u32| -> u64 { self.maps.iter().map(|map| map.owned(n)).sum() };
        let extents: u64 = self.maps.iter().map(Map::count).sum();
        let stores = self.stores.iter().enumerate().map(|(n, store)| {
            json!({
                "name": store.number.map_or_else(|| format!("--rs {n}"), |n| n.to_string()),
                "up": store.state.up(),
                "fenced": store.fenced,
                "sessions": store.number.map_or(0, |n| self.sessions.stored(n)),
            })
        });
        let members = self.members.iter().map(|(n, member)| {
            json!({
                "name": n.to_string(),
                "up": member.up(),
                "epoch": member.epoch,
                "extents": owned(*n),
                "stores_to_fence": member.unfenced.len(),
                "sessions": self.sessions.reached(*n),
            })
        });
        let mut all = self.target.status();
        all["epoch"] = self.settings.epoch.into();
        all["stores"] = stores.collect();
        all["members"] = members.collect();
        all["extents"] = extents.into();
        all["commands_at_members"] = self.jobs.len().into();
        all["commands_waiting"] = self.waiting.len().into();
        all["counters"]["retries"] = self.retries.into();
        all["requests_to_stores"] = self.requests.len().into();
        all
    }
}
