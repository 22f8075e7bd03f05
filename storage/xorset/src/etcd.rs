// SPDX-License-Identifier: GPL-2.0

//! The coordinator in etcd.

use std::io;

use wss::etcd;

use crate::{
    coordinator::{Answer, Coordinator, Key, Request, View, TTL},
    layout::NODES,
};

/// The etcd client of one process.
pub struct Etcd {
    client: etcd::Etcd,
    /// Prefix of all keys.
    prefix: String,
    /// The held key and its lease.
    lease: Option<(Key, String)>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Etcd {
    /// Creates a client for the set with this name.
    pub fn new(at: etcd::Cluster, set: &str) -> io::Result<Self> {
        Ok(Self {
            client: etcd::Etcd::new(at)?,
            prefix: format!("/xorset/{set}/"),
            lease: None,
        })
    }

    /// Waits longer for each answer if the lease of the key, in milliseconds, is longer. A limit,
    /// because the next request waits for that.
    pub fn with_lease(self, lease: u64) -> Self {
        let times = (lease / TTL).clamp(1, 3) as u32;
        let client = self.client.waits(etcd::PATIENCE * times);
        Self { client, ..self }
    }

    fn key(&self, key: Key) -> String {
        let name = match key {
            Key::Client => "client".to_string(),
            Key::Node(n) => format!("node/{n}"),
        };
        format!("{}{name}", self.prefix)
    }

    fn hold(&mut self, key: Key, value: u64, ttl: u64) -> io::Result<bool> {
        if let Some((_, lease)) = self.lease.clone().filter(|(k, _)| *k == key) {
            let lives = self.client.keep_alive(&lease)?;
            if !lives {
                self.lease = None;
            }
            return Ok(lives);
        }
        let lease = self.client.grant(ttl / 1000)?;
        let name = self.key(key);
        let held = self.client.create(&name, &value.to_string(), &lease)?;
        if held.is_some() {
            self.lease = Some((key, lease));
        }
        Ok(held.is_some())
    }

    fn look(&mut self) -> io::Result<View> {
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad("no number"));
        let mut view = View::default();
        for pair in self.client.look(&self.prefix, &end)?.pairs {
            let name = pair.key.strip_prefix(&self.prefix).unwrap_or_default();
            if name == "map" {
                view.map = Some((pair.modified, pair.value));
            } else if name == "client" {
                view.client = Some(number(&pair.value)?);
            } else if let Some(n) = name.strip_prefix("node/") {
                let n = number(n)? as usize;
                if n < NODES {
                    view.nodes[n] = Some(number(&pair.value)?);
                }
            }
        }
        Ok(view)
    }

    fn change(&mut self, revision: u64, client: u64, map: &str) -> io::Result<bool> {
        let (key, holder) = (format!("{}map", self.prefix), self.key(Key::Client));
        self.client
            .replace((&key, revision, map), (&holder, &client.to_string()))
    }
}

impl Coordinator for Etcd {
    fn ask(&mut self, request: &Request) -> Answer {
        let result = match request {
            Request::Hold { key, value, ttl } => self.hold(*key, *value, *ttl).map(Answer::Held),
            Request::Look => self.look().map(Answer::Looked),
            Request::Change {
                revision,
                client,
                map,
            } => self.change(*revision, *client, map).map(Answer::Changed),
        };
        result.unwrap_or_else(|e| {
            tracing::warn!("etcd: {e}");
            Answer::Failed
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
        time::Duration,
    };

    use super::*;

    /// Answers each request with success, after this time.
    fn slow(time: Duration) -> etcd::Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                thread::sleep(time);
                let body = r#"{"header":{"revision":"2"},"ID":"7","TTL":"9","succeeded":true}"#;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all((head + body).as_bytes());
            }
        });
        etcd::Cluster::plain(vec![at])
    }

    #[test]
    fn a_longer_lease_allows_a_slower_etcd() {
        for (lease, held) in [(TTL, Answer::Failed), (3 * TTL, Answer::Held(true))] {
            let slow = slow(etcd::PATIENCE + etcd::PATIENCE / 2);
            let mut etcd = Etcd::new(slow, "set").unwrap().with_lease(lease);
            let key = Key::Client;
            let answer = etcd.ask(&Request::Hold {
                key,
                value: 1,
                ttl: lease,
            });
            assert_eq!(answer, held, "{lease}");
        }
    }
}
