// SPDX-License-Identifier: GPL-2.0

//! The status of a CE.

use serde_json::{json, Value};

use super::Engine;

impl Engine {
    /// Returns the status of the CE.
    pub fn status(&self) -> Value {
        let stores = self.stores.iter().enumerate().map(|(n, link)| {
            json!({
                "name": link.number.map_or_else(|| format!("--rs {n}"), |n| n.to_string()),
                "up": link.state.up(),
            })
        });
        let [hits, misses] = self.hits;
        json!({
            "state": if self.attached() { "serving" } else { "waiting" },
            "member": self.settings.member,
            "epoch": self.epoch,
            "engine_up": self.se.state.up(),
            "stores": stores.collect::<Value>(),
            "sessions": self.answers.len(),
            "logins_waiting": self.answers.waiting(),
            "commands_in_flight": self.jobs.len(),
            "transfers_in_flight": self.flights.len(),
            "cache": {
                "lines": self.cache.len(),
                "line_bytes": self.settings.line,
                "used_lines": self.cache.used(),
                "pinned_lines": self.cache.len() - self.cache.free(),
            },
            "counters": {
                "commands": self.next_job - 1,
                "transfers": self.next_flight - 1,
                "cached_reads": hits,
                "other_reads": misses,
                "given": self.given,
            },
        })
    }
}
