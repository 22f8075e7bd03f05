// SPDX-License-Identifier: GPL-2.0

//! The status of a node.

use serde_json::{json, Value};

use super::Node;
use crate::{journal::Media, layout::NODES};

impl<M: Media> Node<M> {
    /// Returns the status of the node.
    pub fn status(&self) -> Value {
        let others = (0..NODES).filter(|n| *n != self.number).map(|n| {
            let waits = self.relays.values().filter(|r| r.waits & 1 << n != 0);
            json!({
                "name": n.to_string(),
                "up": self.links[n].up(),
                "deltas_waiting": waits.count(),
            })
        });
        let journal = &self.journal;
        json!({
            "state": if self.opened { "serving" } else { "waiting" },
            "number": self.number,
            "epoch": journal.epoch(),
            "admitted_in_epoch": journal.since(),
            "set": journal.set().to_string(),
            "stripes": journal.size().stripes,
            "client_up": self.client.is_some(),
            "nodes": others.collect::<Value>(),
            "log": {
                "records": journal.lsn(),
                "durable_records": journal.durable(),
                "kept_writes": journal.records().len(),
            },
            "scrub_stripe": self.scrub.0,
            "requests_waiting": self.waiting.len(),
            "requests_in_flight": self.gathers.len() + self.rebuilds.len() + self.relays.len(),
            "sync_overdue": self.waits(),
        })
    }
}
