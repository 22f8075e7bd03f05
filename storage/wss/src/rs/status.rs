// SPDX-License-Identifier: GPL-2.0

//! The status of an RS.

use serde_json::{json, Value};

use super::{Store, Who};

impl Store {
    /// Returns the status of the RS, without its files, which the caller knows.
    pub fn status(&self) -> Value {
        let members = self.members.iter().map(|(n, epoch)| {
            let here = |who| matches!(who, Who::Ce(m, _) if m == *n);
            json!({
                "name": n.to_string(),
                "epoch": epoch.max(&self.floor),
                "up": self.connections.values().any(|c| here(c.who)),
            })
        });
        let engine = self.connections.values().any(|c| c.who == Who::Se);
        json!({
            "state": if engine { "serving" } else { "waiting" },
            "number": self.number,
            "epoch": self.se,
            "engine_up": engine,
            "members": members.collect::<Value>(),
            "connections": self.connections.len(),
            "sessions": self.answers.len(),
            "logins_waiting": self.answers.waiting(),
            "operations_in_flight": self.ops.len(),
            "fences_waiting": self.fences.len(),
            "counters": { "operations": self.next - 1, "commands": self.answered },
        })
    }
}
