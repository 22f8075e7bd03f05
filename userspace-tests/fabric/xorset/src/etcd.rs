// SPDX-License-Identifier: GPL-2.0

//! etcd, by the JSON that its gateway for HTTP speaks (`/v3/...`, as its API reference has it).

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    coordinator::{Answer, Coordinator, Key, Request, View, TTL},
    layout::NODES,
};

/// Whoever does not answer for so long is not asked any more.
const PATIENCE: Duration = Duration::from_millis(700);

/// etcd, for one process.
pub struct Etcd {
    at: Vec<SocketAddr>,
    /// Which one is asked first.
    first: usize,
    /// What all keys begin with.
    prefix: String,
    /// The lease of the key that is held.
    lease: Option<(Key, String)>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Base 64, RFC 4648.
fn encode(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        for i in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= part.len() { letter.into() } else { '=' });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut number, mut bits) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        number = number << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits) as u8);
            number &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// The values of all fields with this name, without the quotes. They are numbers, base 64 and words, which have no quotes in
/// them, so no value can look like a name. There may be spaces anywhere between.
fn fields<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let name = format!("\"{name}\"");
    let parts = text.split(name.as_str()).skip(1);
    let values = parts.filter_map(|rest| rest.trim_start().strip_prefix(':'));
    let end = |c| matches!(c, '"' | ',' | '}' | ']') || char::is_whitespace(c);
    let value = |rest: &'a str| rest.trim_start().trim_start_matches('"').split(end).next();
    values.filter_map(value).collect()
}

/// A transaction was carried out.
fn succeeded(answer: &str) -> bool {
    fields(answer, "succeeded") == ["true"]
}

impl Etcd {
    /// For a set with this name.
    pub fn new(at: Vec<SocketAddr>, set: &str) -> Self {
        Self {
            at,
            first: 0,
            prefix: format!("/xorset/{set}/"),
            lease: None,
        }
    }

    fn key(&self, key: Key) -> String {
        let name = match key {
            Key::Client => "client".to_string(),
            Key::Node(n) => format!("node/{n}"),
        };
        encode(format!("{}{name}", self.prefix).as_bytes())
    }

    /// Asks one after the other until somebody answers.
    fn post(&mut self, path: &str, body: &str) -> io::Result<String> {
        let mut result = Err(bad("nobody to ask"));
        for _ in 0..self.at.len() {
            result = Self::post_to(self.at[self.first], path, body);
            if result.is_ok() {
                break;
            }
            self.first = (self.first + 1) % self.at.len();
        }
        result
    }

    fn post_to(at: SocketAddr, path: &str, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST /v3/{path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut all = String::new();
        stream.read_to_string(&mut all)?;
        if !all.starts_with("HTTP/1.1 200 ") {
            return Err(bad(all.lines().next().unwrap_or_default()));
        }
        // Every answer has one; a part of one does not count.
        if !all.contains("\"revision\"") {
            return Err(bad("its answer is not whole"));
        }
        Ok(all)
    }

    fn hold(&mut self, key: Key, value: u64) -> io::Result<bool> {
        if let Some((_, lease)) = self.lease.clone().filter(|(k, _)| *k == key) {
            let answer = self.post("lease/keepalive", &format!("{{\"ID\":\"{lease}\"}}"))?;
            let lives = fields(&answer, "TTL").iter().any(|ttl| *ttl != "0");
            if !lives {
                self.lease = None;
            }
            return Ok(lives);
        }
        let answer = self.post("lease/grant", &format!("{{\"TTL\":\"{}\"}}", TTL / 1000))?;
        let lease = fields(&answer, "ID")
            .first()
            .ok_or_else(|| bad("a lease without a number"))?
            .to_string();
        let (key_text, value) = (self.key(key), encode(value.to_string().as_bytes()));
        let body = format!(
            "{{\"compare\":[{{\"key\":\"{key_text}\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"createRevision\":\"0\"}}],\
             \"success\":[{{\"requestPut\":{{\"key\":\"{key_text}\",\"value\":\"{value}\",\"lease\":\"{lease}\"}}}}]}}"
        );
        let answer = self.post("kv/txn", &body)?;
        let held = succeeded(&answer);
        if held {
            self.lease = Some((key, lease));
        }
        Ok(held)
    }

    fn look(&mut self) -> io::Result<View> {
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        let (from, to) = (encode(self.prefix.as_bytes()), encode(end.as_bytes()));
        let answer = self.post(
            "kv/range",
            &format!("{{\"key\":\"{from}\",\"range_end\":\"{to}\"}}"),
        )?;
        let (keys, values) = (fields(&answer, "key"), fields(&answer, "value"));
        let revisions = fields(&answer, "mod_revision");
        if keys.len() != values.len() || keys.len() != revisions.len() {
            return Err(bad("keys without values"));
        }
        let text = |text: &str| {
            decode(text)
                .and_then(|b| String::from_utf8(b).ok())
                .ok_or_else(|| bad("what it has"))
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad("no number"));
        let mut view = View::default();
        for ((key, value), revision) in keys.iter().zip(values).zip(revisions) {
            let (key, value) = (text(key)?, text(value)?);
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            if name == "map" {
                view.map = Some((number(revision)?, value));
            } else if let Some(n) = name.strip_prefix("node/") {
                let n = number(n)? as usize;
                if n < NODES {
                    view.nodes[n] = Some(number(&value)?);
                }
            }
        }
        Ok(view)
    }

    fn change(&mut self, revision: u64, client: u64, map: &str) -> io::Result<bool> {
        let key = encode(format!("{}map", self.prefix).as_bytes());
        let (holder, value) = (self.key(Key::Client), encode(client.to_string().as_bytes()));
        let map = encode(map.as_bytes());
        let body = format!(
            "{{\"compare\":[{{\"key\":\"{key}\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"modRevision\":\"{revision}\"}},\
             {{\"key\":\"{holder}\",\"target\":\"VALUE\",\"result\":\"EQUAL\",\"value\":\"{value}\"}}],\
             \"success\":[{{\"requestPut\":{{\"key\":\"{key}\",\"value\":\"{map}\"}}}}]}}"
        );
        Ok(succeeded(&self.post("kv/txn", &body)?))
    }
}

impl Coordinator for Etcd {
    fn ask(&mut self, request: &Request) -> Answer {
        let result = match request {
            Request::Hold { key, value } => self.hold(*key, *value).map(Answer::Held),
            Request::Look => self.look().map(Answer::Looked),
            Request::Change {
                revision,
                client,
                map,
            } => self.change(*revision, *client, map).map(Answer::Changed),
        };
        result.unwrap_or_else(|e| {
            eprintln!("etcd: {e}");
            Answer::Failed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(decode("a\""), None);
    }

    #[test]
    fn fields_of_an_answer() {
        let answer = r#"{"header":{"revision":"7"},"kvs":[{"key":"YQ==", "mod_revision":"5","value" : "MQ=="},{"key":"Yg==","mod_revision": "6","value":"Mg=="}], "succeeded": true}"#;
        assert_eq!(fields(answer, "key"), ["YQ==", "Yg=="]);
        assert_eq!(fields(answer, "mod_revision"), ["5", "6"]);
        assert_eq!(fields(answer, "value"), ["MQ==", "Mg=="]);
        assert!(fields(answer, "lease").is_empty());
        assert!(succeeded(answer) && !succeeded("{\"succeeded\":false}"));
    }
}
