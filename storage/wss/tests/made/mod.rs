// SPDX-License-Identifier: GPL-2.0

//! A fake etcd: an HTTP server with keys and leases that can fail its answers. It has several
//! endpoints, which fail independently.

use std::{
    collections::{btree_map::Entry, BTreeMap},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// The handling of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Behaviour {
    Good,
    /// Not executed; answers with an error.
    Refuses,
    /// Not executed; no answer.
    Silent,
    /// Executed; the answer is delayed.
    Late(Duration),
    /// Executed; the answer is truncated.
    Torn,
    /// Transactions are executed without an answer; leases are not revoked.
    Forgets,
}

pub struct Key {
    pub value: String,
    pub lease: u64,
    pub created: u64,
}

struct Lease {
    ttl: Duration,
    until: Instant,
}

#[derive(Default)]
pub struct State {
    /// Keys are in base64.
    pub keys: BTreeMap<String, Key>,
    leases: BTreeMap<u64, Lease>,
    /// The last revision.
    pub revision: u64,
    next: u64,
    /// Time of the last renewal request.
    pub kept: Option<Instant>,
    /// Number of requests by endpoint.
    pub asked: Vec<u64>,
}

impl State {
    fn sweep(&mut self) {
        let now = Instant::now();
        let over: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, l)| l.until <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.revoke(id);
        }
    }

    pub fn revoke(&mut self, id: u64) -> bool {
        let keys = self.keys.len();
        self.keys.retain(|_, key| key.lease != id);
        self.revision += u64::from(self.keys.len() < keys);
        self.leases.remove(&id).is_some()
    }

    /// The body of the answer, or an HTTP error status.
    fn answer(&mut self, path: &str, body: &str) -> Result<String, &'static str> {
        self.sweep();
        let text = |name: &str| {
            let at = body.find(&format!("\"{name}\":\""))? + name.len() + 4;
            Some(body[at..].split('"').next().unwrap().to_string())
        };
        let number = |name: &str| text(name).and_then(|t| t.parse::<u64>().ok());
        let mut rest = String::new();
        match path {
            "lease/grant" => {
                let ttl = Duration::from_secs(number("TTL").ok_or("400 Bad Request")?);
                self.next += 1;
                let until = Instant::now() + ttl;
                self.leases.insert(self.next, Lease { ttl, until });
                rest = format!(",\"ID\":\"{}\",\"TTL\":\"{}\"", self.next, ttl.as_secs());
            }
            "lease/keepalive" => {
                let id = number("ID").ok_or("400 Bad Request")?;
                self.kept = Some(Instant::now());
                rest = format!(",\"ID\":\"{id}\"");
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.until = Instant::now() + lease.ttl;
                    rest += &format!(",\"TTL\":\"{}\"", lease.ttl.as_secs());
                }
            }
            "lease/revoke" => {
                let id = number("ID").ok_or("400 Bad Request")?;
                if !self.revoke(id) {
                    return Err("404 Not Found");
                }
            }
            "kv/range" => {
                let (from, to) = (text("key").unwrap(), text("range_end").unwrap());
                assert!(
                    to.starts_with(&from[..from.len() - 4]),
                    "one key is asked for"
                );
                if let Some(key) = self.keys.get(&from) {
                    rest = format!(
                        ",\"kvs\":[{{\"key\":\"{from}\",\"create_revision\":\"{0}\",\"mod_revision\":\"{0}\",\"version\":\"1\",\
                         \"value\":\"{1}\",\"lease\":\"{2}\"}}],\"count\":\"1\"",
                        key.created, key.value, key.lease
                    );
                }
            }
            "kv/txn" => {
                assert!(body.contains(
                    "\"target\":\"CREATE\",\"result\":\"EQUAL\",\"createRevision\":\"0\""
                ));
                let (key, value) = (text("key").unwrap(), text("value").unwrap());
                let lease = number("lease").ok_or("400 Bad Request")?;
                if !self.leases.contains_key(&lease) {
                    return Err("404 Not Found");
                }
                if let Entry::Vacant(place) = self.keys.entry(key) {
                    self.revision += 1;
                    place.insert(Key {
                        value,
                        lease,
                        created: self.revision,
                    });
                    rest = ",\"succeeded\":true".into();
                }
            }
            _ => return Err("404 Not Found"),
        }
        Ok(format!(
            "{{\"header\":{{\"cluster_id\":\"1\",\"revision\":\"{}\"}}{rest}}}",
            self.revision
        ))
    }
}

pub struct Made {
    pub state: Arc<Mutex<State>>,
    pub at: Vec<SocketAddr>,
    behaviours: Vec<Arc<Mutex<Behaviour>>>,
}

/// Reads a request: path and body.
fn question(stream: &mut TcpStream) -> Option<(String, String)> {
    let (mut all, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let text = String::from_utf8(all.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head
                .lines()
                .find_map(|l| l.strip_prefix("Content-Length: "))?;
            if body.len() == len.parse::<usize>().unwrap() {
                let path = head.strip_prefix("POST /v3/")?.split(' ').next()?;
                return Some((path.into(), body.into()));
            }
        }
        match stream.read(&mut part) {
            Ok(n @ 1..) => all.extend_from_slice(&part[..n]),
            _ => return None,
        }
    }
}

fn serve(
    mut stream: TcpStream,
    behaviour: &Mutex<Behaviour>,
    endpoint: usize,
    state: &Mutex<State>,
) {
    let Some((path, body)) = question(&mut stream) else {
        return;
    };
    let behaviour = *behaviour.lock().unwrap();
    state.lock().unwrap().asked[endpoint] += 1;
    let refused = match behaviour {
        Behaviour::Refuses => true,
        Behaviour::Forgets => path == "lease/revoke",
        _ => false,
    };
    if behaviour == Behaviour::Silent {
        // Longer than any timeout.
        return thread::sleep(Duration::from_secs(3));
    }
    let answer = match refused {
        true => Err("503 Service Unavailable"),
        false => state.lock().unwrap().answer(&path, &body),
    };
    let bytes = match answer {
        // etcd answers this request as a stream.
        Ok(text) if path == "lease/keepalive" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
            text.len()
        ),
        Ok(text) => format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ),
        Err(status) => format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}"),
    };
    let bytes = bytes.as_bytes();
    // The client may have closed the connection.
    let _ = match behaviour {
        Behaviour::Late(time) => {
            thread::sleep(time);
            stream.write_all(bytes)
        }
        // The truncated answer contains the header with the revision.
        Behaviour::Torn => stream.write_all(&bytes[..bytes.len() - 6]),
        Behaviour::Forgets if path == "kv/txn" => Ok(()),
        _ => stream.write_all(bytes),
    };
}

/// A client of these endpoints.
pub fn plain(at: Vec<SocketAddr>) -> wss::etcd::Etcd {
    wss::etcd::Etcd::new(wss::etcd::Cluster::plain(at)).unwrap()
}

impl Made {
    /// Starts a server with this number of endpoints.
    pub fn new(endpoints: usize) -> Self {
        let asked = vec![0; endpoints];
        let first = State {
            asked,
            revision: 40,
            ..State::default()
        };
        let mut this = Self {
            state: Arc::new(Mutex::new(first)),
            at: Vec::new(),
            behaviours: Vec::new(),
        };
        for endpoint in 0..endpoints {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            this.at.push(listener.local_addr().unwrap());
            let behaviour = Arc::new(Mutex::new(Behaviour::Good));
            this.behaviours.push(Arc::clone(&behaviour));
            let state = Arc::clone(&this.state);
            // The thread ends with the process.
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (behaviour, state) = (Arc::clone(&behaviour), Arc::clone(&state));
                    thread::spawn(move || serve(stream.unwrap(), &behaviour, endpoint, &state));
                }
            });
        }
        this
    }

    pub fn etcd(&self, endpoint: usize) -> wss::etcd::Etcd {
        plain(vec![self.at[endpoint]])
    }

    pub fn set(&self, endpoint: usize, behaviour: Behaviour) {
        *self.behaviours[endpoint].lock().unwrap() = behaviour;
    }

    /// create_revision of the only key, if it exists.
    pub fn created(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap();
        state.sweep();
        assert!(state.keys.len() <= 1);
        state.keys.values().next().map(|key| key.created)
    }

    pub fn asked(&self, endpoint: usize) -> u64 {
        self.state.lock().unwrap().asked[endpoint]
    }
}
