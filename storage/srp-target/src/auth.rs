// SPDX-License-Identifier: GPL-2.0

//! Roles of a storage system prove to each other that they have a key, before anything else is
//! accepted on a connection.
//!
//! The side that connects sends HELLO, the other side CHALLENGE, the first one PROOF. Each side
//! sends a nonce, and the HMAC-SHA-256 of the direction, both identities and both nonces. So a
//! recorded message is wrong for any other connection, direction and role. Like the other engines,
//! [`Guard`] has no connections and no clock: the reactor, or a test, carries out its verdicts.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Number of a connection, assigned by the caller. Numbers increase and are never reused.
pub type Link = u64;

/// Length of each message of the handshake, in bytes.
pub const LEN: usize = 80;
/// Time in milliseconds within which a handshake must end.
pub const TIME: u64 = 3000;
/// Maximum number of unfinished handshakes that others began. One more ends the oldest.
pub const PENDING: usize = 32;

const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 32;
const MAC_LEN: usize = 32;

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;

/// A shared key.
#[derive(Clone, Eq, PartialEq)]
pub struct Key([u8; KEY_LEN]);

/// Parses the content of a key file. The error names the line.
pub fn parse(text: &str) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        keys.push(key(line).ok_or_else(|| {
            // The line may be a key with an error, so it is not named.
            format!(
                "line {}: no key of {} hexadecimal digits",
                n + 1,
                2 * KEY_LEN
            )
        })?);
    }
    if keys.is_empty() {
        return Err("it has no key; `openssl rand -hex 32` makes one".into());
    }
    Ok(keys)
}

fn key(line: &str) -> Option<Key> {
    if line.len() != 2 * KEY_LEN || !line.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_LEN];
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(Key(key))
}

/// Reads a file that only its owner may access.
pub fn secret(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    let mode = file.metadata().map_err(|e| e.to_string())?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "mode {mode:04o} lets others access it; use `chmod 600`"
        ));
    }
    file.read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

fn read(path: &Path) -> Result<Vec<Key>, String> {
    parse(&secret(path)?)
}

/// A file of keys. The first key proves this side, each of them proves the other side.
pub struct KeyFile {
    path: PathBuf,
    keys: Vec<Key>,
    wrong: Option<String>,
}

impl KeyFile {
    /// Reads a file. The error names it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let named = |e| io::Error::other(format!("{}: {e}", path.display()));
        Ok(Self {
            path: path.to_path_buf(),
            keys: read(path).map_err(named)?,
            wrong: None,
        })
    }

    /// Reads the file again. If it is wrong, the keys stay. Returns a line for the log if that is
    /// new.
    fn refresh(&mut self) -> Option<String> {
        let wrong = match read(&self.path) {
            Ok(keys) => {
                self.keys = keys;
                None
            }
            Err(e) => Some(format!(
                "{}: {e}; the keys read earlier stay",
                self.path.display()
            )),
        };
        let new = (wrong != self.wrong).then(|| wrong.clone()).flatten();
        self.wrong = wrong;
        new
    }
}

/// The identity of a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Kind of role; each storage system numbers its own.
    pub role: u8,
    /// Number of the role; 0 if there is one of its kind.
    pub number: u32,
}

impl Identity {
    fn bytes(self) -> [u8; 5] {
        let n = self.number.to_be_bytes();
        [self.role, n[0], n[1], n[2], n[3]]
    }
}

/// The role that a side connects to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Its kind.
    pub role: u8,
    /// Its number, if known.
    pub number: Option<u32>,
}

/// The input of both HMACs, without the direction.
#[derive(Clone, Copy)]
struct Talk {
    system: [u8; 16],
    caller: Identity,
    called: Identity,
    nonces: [[u8; NONCE_LEN]; 2],
}

impl Talk {
    fn mac(&self, key: &Key, kind: u8) -> Hmac<Sha256> {
        // HMAC takes keys of any length.
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&key.0)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        for part in [
            &self.system[..],
            &[kind],
            &self.caller.bytes(),
            &self.called.bytes(),
            &self.nonces[0],
            &self.nonces[1],
        ] {
            mac.update(part);
        }
        mac
    }

    /// Compares in constant time.
    fn proven(&self, keys: &[Key], kind: u8, mac: &[u8]) -> bool {
        let mut all = keys.iter();
        all.any(|key| self.mac(key, kind).verify_slice(mac).is_ok())
    }
}

fn build(kind: u8, who: Identity, nonce: &[u8], mac: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = kind;
    bytes[1..6].copy_from_slice(&who.bytes());
    bytes[16..16 + nonce.len()].copy_from_slice(nonce);
    bytes[48..48 + mac.len()].copy_from_slice(mac);
    bytes
}

fn nonce() -> Result<[u8; NONCE_LEN], String> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|e| format!("no random numbers: {e}"))?;
    Ok(nonce)
}

enum Stage {
    /// This side connects, and is not connected.
    Connecting(Wanted),
    /// This side has sent HELLO.
    Called(Wanted, [u8; NONCE_LEN]),
    /// The other side has to send HELLO.
    Open,
    /// This side has sent CHALLENGE.
    Challenged(Talk),
}

struct Handshake {
    stage: Stage,
    since: u64,
    theirs: bool,
}

/// What the caller does with a message or an event of a connection.
#[derive(Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is no part of a handshake: the role handles it.
    Pass,
    /// Nothing.
    Wait,
    /// Send the message. The connection is not yet the role's.
    Send(Vec<u8>),
    /// Send the message, if any. Then the connection is the role's.
    Proven(Option<Vec<u8>>),
    /// End the connection, for this reason.
    End(String),
}

/// The handshakes of all connections of a process.
pub struct Guard {
    system: [u8; 16],
    ours: Identity,
    /// Kinds of roles that may connect.
    callers: &'static [u8],
    keys: KeyFile,
    handshakes: BTreeMap<Link, Handshake>,
    proven: BTreeMap<Link, Identity>,
    say: Vec<String>,
}

impl Guard {
    /// Creates a guard for the role `ours` of a kind of storage system.
    pub fn new(system: [u8; 16], ours: Identity, callers: &'static [u8], keys: KeyFile) -> Self {
        Self {
            system,
            ours,
            callers,
            keys,
            handshakes: BTreeMap::new(),
            proven: BTreeMap::new(),
            say: Vec::new(),
        }
    }

    /// Creates a guard with the keys of a file; `None` if there is no file, with a warning.
    pub fn open(
        system: &[u8; 16],
        ours: Identity,
        callers: &'static [u8],
        file: Option<&Path>,
    ) -> io::Result<Option<Self>> {
        let Some(file) = file else {
            tracing::warn!("there is no --key: each host that reaches this port may be any role");
            return Ok(None);
        };
        let keys = KeyFile::open(file)?;
        Ok(Some(Self::new(*system, ours, callers, keys)))
    }

    /// Private data of connections to other roles.
    pub fn system(&self) -> &[u8; 16] {
        &self.system
    }

    /// Adds a connection that this side makes.
    pub fn calls(&mut self, link: Link, wanted: Wanted) {
        self.add(link, Stage::Connecting(wanted), 0, false);
    }

    /// Adds a connection that another side makes. Returns the connection that has to end for it.
    #[must_use]
    pub fn called(&mut self, link: Link, now: u64) -> Option<Link> {
        self.add(link, Stage::Open, now, true);
        let theirs = self.handshakes.iter().filter(|(_, h)| h.theirs);
        let many = theirs.clone().count() > PENDING;
        theirs.map(|(l, _)| *l).next().filter(|_| many)
    }

    fn add(&mut self, link: Link, stage: Stage, since: u64, theirs: bool) {
        let handshake = Handshake {
            stage,
            since,
            theirs,
        };
        self.handshakes.insert(link, handshake);
    }

    /// The proven identity of the other side.
    pub fn peer(&self, link: Link) -> Option<Identity> {
        self.proven.get(&link).copied()
    }

    /// Forgets a connection that has ended.
    pub fn ended(&mut self, link: Link) {
        self.handshakes.remove(&link);
        self.proven.remove(&link);
    }

    /// The connections whose handshake takes too long. They have to end.
    pub fn late(&self, now: u64) -> Vec<Link> {
        let all = self.handshakes.iter();
        let begun = |h: &Handshake| !matches!(h.stage, Stage::Connecting(_));
        all.filter(|(_, h)| begun(h) && now >= h.since + TIME)
            .map(|(l, _)| *l)
            .collect()
    }

    /// Takes the lines for the log.
    pub fn says(&mut self) -> Vec<String> {
        std::mem::take(&mut self.say)
    }

    /// Handles an established connection. The other side may have proven itself before.
    pub fn connected(&mut self, link: Link, now: u64) -> Verdict {
        let ours = self.ours;
        let Some(handshake) = self.handshakes.get_mut(&link) else {
            return match self.proven.contains_key(&link) {
                true => Verdict::Wait,
                false => Verdict::Pass,
            };
        };
        let Stage::Connecting(wanted) = handshake.stage else {
            return Verdict::Wait;
        };
        match nonce() {
            Ok(nonce) => {
                (handshake.stage, handshake.since) = (Stage::Called(wanted, nonce), now);
                Verdict::Send(build(HELLO, ours, &nonce, &[]))
            }
            Err(why) => Verdict::End(why),
        }
    }

    /// Handles a message.
    pub fn message(&mut self, link: Link, bytes: &[u8]) -> Verdict {
        let Some(handshake) = self.handshakes.remove(&link) else {
            return Verdict::Pass;
        };
        match self.step(link, handshake, bytes) {
            Ok(verdict) => verdict,
            Err(why) => Verdict::End(why),
        }
    }

    fn step(&mut self, link: Link, from: Handshake, bytes: &[u8]) -> Result<Verdict, String> {
        let unused = |r: std::ops::Range<usize>| bytes[r].iter().all(|b| *b == 0);
        if bytes.len() != LEN || !unused(6..16) {
            return Err("its first messages are no handshake".into());
        }
        let mut words = [[0; 32]; 2];
        words[0].copy_from_slice(&bytes[16..48]);
        words[1].copy_from_slice(&bytes[48..80]);
        let [theirs, mac] = words;
        let who = Identity {
            role: bytes[1],
            number: u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]),
        };
        self.say.extend(self.keys.refresh());
        let keys = &self.keys.keys;
        match (from.stage, bytes[0]) {
            (Stage::Open, HELLO) if unused(48..80) => {
                if !self.callers.contains(&who.role) {
                    return Err(format!("{who:?} may not connect"));
                }
                let ours = nonce()?;
                let talk = Talk {
                    system: self.system,
                    caller: who,
                    called: self.ours,
                    nonces: [theirs, ours],
                };
                let mac: [u8; MAC_LEN] =
                    talk.mac(&keys[0], CHALLENGE).finalize().into_bytes().into();
                let since = from.since;
                self.add(link, Stage::Challenged(talk), since, true);
                Ok(Verdict::Send(build(CHALLENGE, self.ours, &ours, &mac)))
            }
            (Stage::Called(wanted, ours), CHALLENGE) => {
                if who.role != wanted.role || wanted.number.is_some_and(|n| n != who.number) {
                    return Err(format!("it is {who:?}, not {wanted:?}"));
                }
                let talk = Talk {
                    system: self.system,
                    caller: self.ours,
                    called: who,
                    nonces: [ours, theirs],
                };
                if !talk.proven(keys, CHALLENGE, &mac) {
                    return Err(format!("{who:?} has none of the keys of --key"));
                }
                let mac: [u8; MAC_LEN] = talk.mac(&keys[0], PROOF).finalize().into_bytes().into();
                self.proven.insert(link, who);
                let proof = build(PROOF, self.ours, &[], &mac);
                Ok(Verdict::Proven(Some(proof)))
            }
            (Stage::Challenged(talk), PROOF) if unused(16..48) && who == talk.caller => {
                if !talk.proven(keys, PROOF, &mac) {
                    return Err(format!("{who:?} has none of the keys of --key"));
                }
                self.proven.insert(link, who);
                Ok(Verdict::Proven(None))
            }
            (_, kind) => Err(format!("message {kind} of the handshake is out of place")),
        }
    }
}
