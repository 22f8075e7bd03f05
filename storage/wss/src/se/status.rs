// SPDX-License-Identifier: GPL-2.0

//! What the status tells of an SE.

use std::collections::BTreeMap;

use serde_json::{json, Value};
use srp_target::target::Buffer;

use super::Engine;

impl<B: Buffer> Engine<B> {
    /// What the status tells of the SE.
    pub fn status(&self) -> Value {
        let mut owned = BTreeMap::<u32, u64>::new();
        let mut extents = 0;
        for extent in self.maps.iter().flat_map(|map| map.all()) {
            extents += 1;
            if let Some(owner) = extent.owner {
                *owned.entry(owner.member).or_default() += 1;
            }
        }
        let stores = self.stores.iter().enumerate().map(|(n, store)| {
            json!({
                "name": store.number.map_or_else(|| format!("--rs {n}"), |n| n.to_string()),
                "up": store.state.up(),
                "fenced": store.fenced,
            })
        });
        let members = self.members.iter().map(|(n, member)| {
            json!({
                "name": n.to_string(),
                "up": member.up(),
                "epoch": member.epoch,
                "extents": owned.get(n).copied().unwrap_or(0),
                "stores_to_fence": member.unfenced.len(),
                "sessions": self.sessions.values().filter(|s| s.reach.contains_key(n)).count(),
            })
        });
        let mut all = self.target.status();
        all["epoch"] = self.settings.epoch.into();
        all["stores"] = stores.collect();
        all["members"] = members.collect();
        all["extents"] = extents.into();
        all["commands_at_members"] = self.jobs.len().into();
        all["requests_to_stores"] = self.requests.len().into();
        all
    }
}
