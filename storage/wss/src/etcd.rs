// SPDX-License-Identifier: GPL-2.0

//! An etcd client for the JSON gateway (`/v3/...`, see the etcd API reference).

mod access;

use std::{
    io,
    net::SocketAddr,
    sync::mpsc::{channel, RecvTimeoutError},
    thread,
    time::Duration,
};

use serde_json::{json, Value};

use access::Access;
pub use access::Cluster;

/// The usual timeout until the answer is complete.
pub const PATIENCE: Duration = Duration::from_millis(700);
/// An endpoint without an answer for this time may be dead: the next one is asked as well.
const LATE: Duration = Duration::from_millis(200);
/// The timeout for the answer to a password, which etcd hashes slowly on purpose.
const PASSWORD_PATIENCE: Duration = Duration::from_secs(2);

/// A key-value pair.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// create_revision.
    pub created: u64,
    /// mod_revision.
    pub modified: u64,
}

/// A consistent snapshot of keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct View {
    /// The revision of the snapshot. Later changes have greater revisions.
    pub revision: u64,
    /// The pairs, sorted by key.
    pub pairs: Vec<Pair>,
}

/// The etcd endpoints. Requests are synchronous. A failed request may still have been executed.
#[derive(Clone)]
pub struct Etcd {
    access: Access,
    /// Index of the endpoint to try first.
    first: usize,
    /// Timeout until an answer is complete.
    patience: Duration,
    /// The token of the user. etcd forgets tokens after a time.
    token: Option<String>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Encodes bytes in base64 (RFC 4648).
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

/// Returns the values of all fields with this name, without quotes. Values are numbers, base64 and
/// words without quotes, so no value looks like a name. White space is permitted between tokens.
fn fields<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let name = format!("\"{name}\"");
    let parts = text.split(name.as_str()).skip(1);
    let values = parts.filter_map(|rest| rest.trim_start().strip_prefix(':'));
    let end = |c| matches!(c, '"' | ',' | '}' | ']') || char::is_whitespace(c);
    let value = |rest: &'a str| rest.trim_start().trim_start_matches('"').split(end).next();
    values.filter_map(value).collect()
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| bad("no number"))
}

/// The revision in the header of an answer.
fn revision(answer: &str) -> io::Result<u64> {
    let first = fields(answer, "revision").first().copied();
    number(first.ok_or_else(|| bad("an answer without a revision"))?)
}

fn succeeded(answer: &str) -> bool {
    fields(answer, "succeeded") == ["true"]
}

/// The text of an answer of etcd with an error: JSON, a line, or the status line.
fn refusal(status: &str, rest: &str) -> String {
    let json = rest.find('{').zip(rest.rfind('}'));
    let json = json.and_then(|(from, to)| rest.get(from..=to));
    let value = json.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let text = |name| value.as_ref()?.get(name)?.as_str();
    let line = Some(rest.trim()).filter(|line| line.contains(' ') && !line.contains('\n'));
    let text = text("message").or_else(|| text("error")).or(line);
    text.unwrap_or(status).into()
}

/// The body of a complete response (RFC 9112), or what etcd refuses.
fn body(response: &str) -> io::Result<Result<String, String>> {
    let part = || bad("its answer is not whole");
    let (head, mut rest) = response.split_once("\r\n\r\n").ok_or_else(part)?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        return Ok(Err(refusal(status, rest)));
    }
    let mut len = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            len = Some(value.trim().parse::<usize>().map_err(|_| part())?);
        }
    }
    if let Some(len) = len {
        return Ok(Ok(rest.get(..len).ok_or_else(part)?.into()));
    }
    // A chunked body ends with an empty chunk.
    let mut all = String::new();
    loop {
        let (size, behind) = rest.split_once("\r\n").ok_or_else(part)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        match usize::from_str_radix(size, 16).map_err(|_| part())? {
            0 => return Ok(Ok(all)),
            size => {
                all.push_str(behind.get(..size).ok_or_else(part)?);
                rest = behind[size..].strip_prefix("\r\n").ok_or_else(part)?;
            }
        }
    }
}

impl Etcd {
    /// Creates a client that uses the first endpoint that answers. Reads the files of the cluster;
    /// the error names a wrong one.
    pub fn new(cluster: Cluster) -> io::Result<Self> {
        Ok(Self {
            access: Access::open(cluster)?,
            first: 0,
            patience: PATIENCE,
            token: None,
        })
    }

    /// Waits so long for each answer.
    pub fn waits(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Tries the endpoints in turn until one answers. If none does, reads the files again: etcd may
    /// have another certificate, user or password.
    fn post(&mut self, path: &str, body: &str) -> io::Result<String> {
        let mut result = Err(bad("no endpoint"));
        for _ in 0..self.access.at().len() {
            let at = self.access.at()[self.first];
            result = self.ask(at, path, body);
            if result.is_ok() {
                return result;
            }
            self.first = (self.first + 1) % self.access.at().len();
        }
        self.access.refresh();
        result
    }

    /// The same for a request that may be executed twice: asks the next endpoint as soon as one is
    /// late, and takes the first answer. So dead endpoints do not use up a lease.
    fn post_to_all(&mut self, path: &str, body: &str) -> io::Result<String> {
        let count = self.access.at().len();
        let (tell, answers) = channel();
        // When the last one is dropped, all have answered.
        let mut tells = vec![tell; count].into_iter();
        let mut result = Err(bad("no endpoint"));
        loop {
            if let Some(tell) = tells.next() {
                let n = (self.first + count - tells.len() - 1) % count;
                let (mut one, path, body) = (self.clone(), path.to_string(), body.to_string());
                let ask = move || {
                    let answer = one.ask(one.access.at()[n], &path, &body);
                    // The receiver is gone if another endpoint has answered.
                    let _ = tell.send((n, one.token, answer));
                };
                thread::Builder::new().name("etcd".into()).spawn(ask)?;
            }
            let wait = match tells.len() {
                // Each request has a timeout.
                0 => Duration::MAX,
                _ => LATE,
            };
            match answers.recv_timeout(wait) {
                Ok((n, token, Ok(answer))) => {
                    (self.first, self.token) = (n, token);
                    return Ok(answer);
                }
                Ok((_, token, refused)) => (self.token, result) = (token, refused),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.access.refresh();
                    return result;
                }
            }
        }
    }

    /// Asks an endpoint, with the token of the user.
    fn ask(&mut self, at: SocketAddr, path: &str, question: &str) -> io::Result<String> {
        let mut answer = self.try_token(at, path, question)?;
        let old = |e: &String| {
            e.contains("invalid auth token") || e.contains("revision of auth store is old")
        };
        if answer.as_ref().is_err_and(old) && self.token.take().is_some() {
            answer = self.try_token(at, path, question)?;
        }
        let answer = answer.map_err(|e| self.access.error(at, self.access.meaning(&e)))?;
        // An answer without a revision is an error message.
        revision(&answer).map_err(|e| self.access.error(at, e))?;
        Ok(answer)
    }

    /// Asks with a new token if there is none.
    fn try_token(
        &mut self,
        at: SocketAddr,
        path: &str,
        question: &str,
    ) -> io::Result<Result<String, String>> {
        if let (None, Some((name, password))) = (&self.token, self.access.user()) {
            let who = json!({"name": name, "password": password}).to_string();
            let answer = match self.request(at, "auth/authenticate", &who, PASSWORD_PATIENCE)? {
                Ok(answer) => answer,
                Err(e) => return Ok(Err(e)),
            };
            // The token becomes a part of the head of a request.
            let good = |t: &&str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic());
            let token = fields(&answer, "token").first().copied().filter(good);
            self.token = Some(token.ok_or_else(|| bad("a user without a token"))?.into());
        }
        self.request(at, path, question, self.patience)
    }

    fn request(
        &self,
        at: SocketAddr,
        path: &str,
        question: &str,
        patience: Duration,
    ) -> io::Result<Result<String, String>> {
        let token = self.token.as_ref();
        let token = token.map_or(String::new(), |t| format!("Authorization: {t}\r\n"));
        // Without Accept and a token it is a request of the user that the certificate of etcd
        // names.
        let request = format!(
            "POST /v3/{path} HTTP/1.1\r\nHost: {at}\r\n{token}Accept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
             {question}",
            question.len()
        );
        let answer = self.access.exchange(at, request.as_bytes(), patience)?;
        let text = String::from_utf8(answer).map_err(|_| bad("its answer is no text"));
        text.and_then(|text| body(&text))
            .map_err(|e| self.access.error(at, e))
    }

    /// Creates a lease with a TTL in seconds; returns its ID.
    pub fn grant(&mut self, seconds: u64) -> io::Result<String> {
        let answer = self.post("lease/grant", &format!("{{\"TTL\":\"{seconds}\"}}"))?;
        let lease = fields(&answer, "ID").first().map(|id| id.to_string());
        lease.ok_or_else(|| bad("a lease without a number"))
    }

    /// Renews a lease. Returns false if it has expired.
    pub fn keep_alive(&mut self, lease: &str) -> io::Result<bool> {
        let answer = self.post_to_all("lease/keepalive", &format!("{{\"ID\":\"{lease}\"}}"))?;
        Ok(fields(&answer, "TTL").iter().any(|ttl| *ttl != "0"))
    }

    /// Revokes a lease and deletes its keys.
    pub fn revoke(&mut self, lease: &str) -> io::Result<()> {
        self.post("lease/revoke", &format!("{{\"ID\":\"{lease}\"}}"))
            .map(|_| ())
    }

    /// Creates a key with a lease. Returns the revision, or `None` if the key exists.
    pub fn create(&mut self, key: &str, value: &str, lease: &str) -> io::Result<Option<u64>> {
        let (key, value) = (encode(key.as_bytes()), encode(value.as_bytes()));
        let answer = self.post("kv/txn", &format!(
            "{{\"compare\":[{{\"key\":\"{key}\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"createRevision\":\"0\"}}],\
             \"success\":[{{\"requestPut\":{{\"key\":\"{key}\",\"value\":\"{value}\",\"lease\":\"{lease}\"}}}}]}}"
        ))?;
        succeeded(&answer).then(|| revision(&answer)).transpose()
    }

    /// Sets `key` if its mod_revision is `modified` (0: it does not exist) and the key `holder` has
    /// the value `name`.
    pub fn replace(
        &mut self,
        (key, modified, value): (&str, u64, &str),
        (holder, name): (&str, &str),
    ) -> io::Result<bool> {
        let [key, value, holder, name] =
            [key, value, holder, name].map(|text| encode(text.as_bytes()));
        let answer = self.post("kv/txn", &format!(
            "{{\"compare\":[{{\"key\":\"{key}\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"modRevision\":\"{modified}\"}},\
             {{\"key\":\"{holder}\",\"target\":\"VALUE\",\"result\":\"EQUAL\",\"value\":\"{name}\"}}],\
             \"success\":[{{\"requestPut\":{{\"key\":\"{key}\",\"value\":\"{value}\"}}}}]}}"
        ))?;
        Ok(succeeded(&answer))
    }

    /// All keys from `from` (inclusive) to `to` (exclusive).
    pub fn look(&mut self, from: &str, to: &str) -> io::Result<View> {
        let (from, to) = (encode(from.as_bytes()), encode(to.as_bytes()));
        let question = format!("{{\"key\":\"{from}\",\"range_end\":\"{to}\"}}");
        let answer = self.post_to_all("kv/range", &question)?;
        let all = ["key", "value", "create_revision", "mod_revision"];
        let all = all.map(|name| fields(&answer, name));
        let [keys, values, created, modified] = &all;
        if all.iter().any(|list| list.len() != keys.len()) {
            return Err(bad("keys without values"));
        }
        let text = |text: &str| {
            decode(text)
                .and_then(|b| String::from_utf8(b).ok())
                .ok_or_else(|| bad("what it has"))
        };
        let pair = |n: usize| {
            Ok(Pair {
                key: text(keys[n])?,
                value: text(values[n])?,
                created: number(created[n])?,
                modified: number(modified[n])?,
            })
        };
        let pairs: io::Result<Vec<_>> = (0..keys.len()).map(pair).collect();
        Ok(View {
            revision: revision(&answer)?,
            pairs: pairs?,
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
        assert_eq!(revision(answer).unwrap(), 7);
    }

    #[test]
    fn a_response_is_taken_as_a_whole() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let plain = format!("{ok}content-length: 4\r\nDate: x\r\n\r\n{{\"a\"");
        assert_eq!(body(&plain).unwrap().unwrap(), "{\"a\"");
        let chunks = format!(
            "{ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n"
        );
        assert_eq!(body(&chunks).unwrap().unwrap(), "abc0123456789");
        // A truncated response must be rejected.
        for len in 0..plain.len() {
            assert!(body(&plain[..len]).is_err(), "{len}");
        }
        for len in 0..chunks.len() - "\r\n\r\n".len() {
            assert!(body(&chunks[..len]).is_err(), "{len}");
        }
        for (refused, why) in [
            (
                "503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 503 Service Unavailable",
            ),
            (
                "401 Unauthorized\r\n\r\n{\"error\":\"no token\",\"code\":16}",
                "no token",
            ),
            (
                "400 Bad Request\r\n\r\n18\r\n{\"message\":\"\\\"a\\\" is wrong\"}\r\n0\r\n\r\n",
                "\"a\" is wrong",
            ),
            (
                "400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
                "Client sent an HTTP request to an HTTPS server.",
            ),
        ] {
            let refused = format!("HTTP/1.1 {refused}");
            assert_eq!(body(&refused).unwrap(), Err(why.to_string()), "{refused}");
        }
    }
}
