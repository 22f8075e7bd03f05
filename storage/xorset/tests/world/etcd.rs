// SPDX-License-Identifier: GPL-2.0

//! A fake etcd with the functions that the set needs.

use std::collections::BTreeMap;

use xorset::{
    coordinator::{Answer, Coordinator, Key, Request, View},
    layout::NODES,
};

#[derive(Default)]
pub struct Etcd {
    pub now: u64,
    keys: BTreeMap<Key, (u64, u64)>,
    pub map: Option<(u64, String)>,
}

impl Etcd {
    pub fn holder(&self, key: Key) -> Option<u64> {
        self.keys
            .get(&key)
            .filter(|(_, until)| *until > self.now)
            .map(|(v, _)| *v)
    }
}

impl Coordinator for Etcd {
    fn ask(&mut self, request: &Request) -> Answer {
        match request {
            Request::Hold { key, value, ttl } => {
                let free = self.holder(*key).is_none_or(|v| v == *value);
                if free {
                    self.keys.insert(*key, (*value, self.now + ttl));
                }
                Answer::Held(free)
            }
            Request::Look => Answer::Looked(View {
                map: self.map.clone(),
                client: self.holder(Key::Client),
                nodes: std::array::from_fn::<_, NODES, _>(|n| self.holder(Key::Node(n as u8))),
            }),
            Request::Change {
                revision,
                client,
                map,
            } => {
                let seen = self.map.as_ref().map_or(0, |(r, _)| *r);
                let good = seen == *revision && self.holder(Key::Client) == Some(*client);
                if good {
                    self.map = Some((seen + 1, map.clone()));
                }
                Answer::Changed(good)
            }
        }
    }
}
