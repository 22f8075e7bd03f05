// SPDX-License-Identifier: GPL-2.0

//! Hostile roles: each ends its own connection and nothing else.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::world::scene::settings;
use srp_target::auth::{Guard, Identity, KeyFile, Verdict, Wanted, LEN, PENDING, TIME};
use wss::{
    ce,
    message::{Message, Role, Scope, Status},
    peer::{fits, CE, RS, SE, SILENCE},
    rs::{Action, Settings, Store},
};

const SYSTEM: [u8; 16] = *b"wss-auth-000002 ";
const THE_RS: Identity = Identity {
    role: RS,
    number: 7,
};
const THE_SE: Identity = Identity {
    role: SE,
    number: 0,
};
const A_CE: Identity = Identity {
    role: CE,
    number: 1,
};
const SOME_RS: Wanted = Wanted {
    role: RS,
    number: None,
};

/// A key file, removed on drop.
struct Keys(PathBuf);

impl Keys {
    fn new(keys: &[u8]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wss-keys-{}-{number}", std::process::id());
        let this = Self(std::env::temp_dir().join(name));
        this.write(keys);
        this
    }

    /// Writes keys of 32 times the same byte.
    fn write(&self, keys: &[u8]) {
        let lines: Vec<_> = keys.iter().map(|k| format!("{k:02x}").repeat(32)).collect();
        self.text(&format!("# keys\n{}\n", lines.join("\n")));
    }

    fn text(&self, text: &str) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(&self.0).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn guard(&self, ours: Identity, callers: &'static [u8]) -> Guard {
        Guard::new(SYSTEM, ours, callers, KeyFile::open(&self.0).unwrap())
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// An RS behind its guard, as the reactor runs it, with an SE that is attached.
struct Rs {
    guard: Guard,
    store: Store,
    now: u64,
    next: u64,
    /// Messages sent.
    sent: Vec<(u64, Vec<u8>)>,
    /// Connections ended.
    ended: Vec<u64>,
    se: u64,
    /// The last connection of the honest CE.
    ce: u64,
    opened: u64,
}

impl Rs {
    fn new(keys: &Keys) -> Self {
        let settings = Settings {
            number: THE_RS.number,
            ..settings()
        };
        let mut rs = Self {
            guard: keys.guard(THE_RS, &[SE, CE]),
            store: Store::new(settings, vec![64], 0),
            now: 0,
            next: 0,
            sent: Vec::new(),
            ended: Vec::new(),
            se: 0,
            ce: 0,
            opened: 0,
        };
        rs.se = rs.attach(&mut keys.guard(THE_SE, &[CE]), THE_SE).unwrap();
        // The CE of this epoch is valid.
        let fence = Message::Fence {
            scope: Scope::Member,
            member: A_CE.number,
            epoch: 1,
        };
        rs.message(rs.se, &fence.build());
        rs
    }

    /// A new connection of another side.
    fn connect(&mut self) -> u64 {
        self.next += 1;
        if let Some(oldest) = self.guard.called(self.next, self.now) {
            self.end(oldest);
        }
        self.next
    }

    fn end(&mut self, link: u64) {
        self.guard.ended(link);
        self.store.closed(link);
        self.ended.push(link);
    }

    fn message(&mut self, link: u64, bytes: &[u8]) {
        assert!(!self.ended.contains(&link), "connection {link} has ended");
        match self.guard.message(link, bytes) {
            Verdict::Wait => {}
            Verdict::Send(message) => self.sent.push((link, message)),
            Verdict::Proven(message) => {
                self.sent.extend(message.map(|m| (link, m)));
                self.store.connected(link);
            }
            Verdict::End(_) => self.end(link),
            Verdict::Pass => {
                let who = self.guard.peer(link).expect("a proven role");
                if Message::parse(bytes).is_ok_and(|m| !fits(who, &m)) {
                    return self.end(link);
                }
                self.store.message(link, bytes);
            }
        }
        for action in self.store.actions() {
            match action {
                Action::Send { peer, message } => self.sent.push((peer, message.build())),
                Action::Close { peer } => self.ended.push(peer),
                _ => {}
            }
        }
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        for link in self.guard.late(self.now) {
            self.end(link);
        }
    }

    /// The last message, which must be to this connection.
    fn said(&mut self, link: u64) -> Vec<u8> {
        let (to, message) = self.sent.pop().expect("a message");
        assert_eq!(to, link);
        message
    }

    /// A handshake until the caller has made its proof. Returns the connection and HELLO, CHALLENGE
    /// and PROOF, or why the caller ends it.
    fn meet(&mut self, caller: &mut Guard) -> Result<(u64, [Vec<u8>; 3]), String> {
        let link = self.connect();
        caller.calls(link, SOME_RS);
        let Verdict::Send(hello) = caller.connected(link, self.now) else {
            panic!("no HELLO");
        };
        self.message(link, &hello);
        let challenge = self.said(link);
        match caller.message(link, &challenge) {
            Verdict::Proven(Some(proof)) => Ok((link, [hello, challenge, proof])),
            Verdict::End(why) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    /// Connects and attaches an honest role. Returns why it is refused, or the connection.
    fn attach(&mut self, caller: &mut Guard, who: Identity) -> Result<u64, String> {
        if who == A_CE {
            self.guard.ended(self.ce);
            self.store.closed(self.ce);
        }
        let (link, [_, _, proof]) = self.meet(caller)?;
        assert_eq!(caller.peer(link), Some(THE_RS));
        self.message(link, &proof);
        if self.ended.contains(&link) {
            return Err("the RS ended it".into());
        }
        self.message(link, &attach(who));
        // The connection manager may be late.
        assert_eq!(self.guard.connected(link, self.now), Verdict::Wait);
        let answer = Message::parse(&self.said(link)).unwrap();
        assert!(matches!(answer, Message::Attached { number: 7, .. }));
        caller.ended(link);
        if who == A_CE {
            self.ce = link;
        }
        Ok(link)
    }

    /// Checks that only this connection has ended, and that the SE is served.
    fn only(&mut self, link: u64, what: &str) {
        assert_eq!(self.ended, [link], "{what}");
        self.ended.clear();
        self.serves(what);
    }

    fn serves(&mut self, what: &str) {
        assert!(self.ended.is_empty(), "{what}");
        self.sent.clear();
        self.opened += 1;
        let open = Message::Open {
            id: self.opened,
            object: 0,
        };
        self.message(self.se, &open.build());
        let done = Message::Done {
            status: Status::Good,
            id: self.opened,
            value: 64,
        };
        assert_eq!(self.said(self.se), done.build(), "{what}");
    }
}

fn attach(who: Identity) -> Vec<u8> {
    let role = if who.role == SE { Role::Se } else { Role::Ce };
    let message = Message::Attach {
        role,
        member: who.number,
        epoch: 1,
    };
    message.build()
}

/// HELLO of a role without a key.
fn hello(who: Identity) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    (bytes[0], bytes[1]) = (1, who.role);
    bytes[2..6].copy_from_slice(&who.number.to_be_bytes());
    bytes[16..48].fill(0x55);
    bytes
}

#[test]
fn a_role_without_a_key() {
    let keys = Keys::new(&[1]);
    let mut rs = Rs::new(&keys);
    for (what, bytes) in [
        ("ATTACH", attach(A_CE)),
        ("nothing", Vec::new()),
        ("noise", vec![0xa5; LEN]),
        ("a long message", vec![1; 448]),
        ("a proof", [&[3, 2][..], &[0; LEN - 2]].concat()),
    ] {
        let link = rs.connect();
        rs.message(link, &bytes);
        rs.only(link, what);
    }
    for (what, mac) in [("no HMAC", 0), ("a guess", 0x77)] {
        let link = rs.connect();
        rs.message(link, &hello(A_CE));
        let mut proof = hello(A_CE);
        proof[0] = 3;
        proof[16..48].fill(0);
        proof[48..].fill(mac);
        rs.message(link, &proof);
        rs.only(link, what);
    }
    // ATTACH in the place of the proof.
    let link = rs.connect();
    rs.message(link, &hello(A_CE));
    rs.message(link, &attach(A_CE));
    rs.only(link, "ATTACH after HELLO");
}

#[test]
fn a_role_with_a_wrong_key() {
    let (keys, other) = (Keys::new(&[1]), Keys::new(&[2]));
    let mut rs = Rs::new(&keys);
    // This caller also accepts the key of the RS.
    let both = Keys::new(&[2, 1]);
    let mut caller = both.guard(A_CE, &[]);
    assert!(rs.attach(&mut caller, A_CE).is_err());
    let link = rs.next;
    rs.only(link, "a wrong key");
    // An honest caller ends the connection to an RS with another key.
    let why = rs.attach(&mut other.guard(A_CE, &[]), A_CE).unwrap_err();
    assert!(why.contains("has none of the keys"), "{why}");
    rs.serves("a caller that went away");
}

#[test]
fn a_replayed_handshake() {
    let keys = Keys::new(&[1]);
    let mut rs = Rs::new(&keys);
    let (link, [hello, challenge, proof]) = rs.meet(&mut keys.guard(A_CE, &[])).unwrap();
    rs.message(link, &proof);
    let again = rs.connect();
    rs.message(again, &hello);
    assert_ne!(rs.said(again), challenge);
    rs.message(again, &proof);
    rs.only(again, "a replayed caller");
    // A replayed RS.
    let mut caller = keys.guard(A_CE, &[]);
    caller.calls(5, SOME_RS);
    assert_ne!(caller.connected(5, 0), Verdict::Send(hello));
    assert!(matches!(caller.message(5, &challenge), Verdict::End(_)));
    assert_eq!(caller.peer(5), None);
}

#[test]
fn a_reflected_handshake() {
    let keys = Keys::new(&[1]);
    let mut rs = Rs::new(&keys);
    // The caller returns the HMAC of the RS as its own.
    let link = rs.connect();
    rs.message(link, &hello(A_CE));
    let mut proof = rs.said(link);
    proof[0] = 3;
    proof[1..6].copy_from_slice(&hello(A_CE)[1..6]);
    proof[16..48].fill(0);
    rs.message(link, &proof);
    rs.only(link, "its own HMAC");

    // A node connects to a hostile one, which has the node itself answer.
    let node = |number| Identity { role: 2, number };
    let mut first = keys.guard(node(0), &[2]);
    let wanted = Wanted {
        role: 2,
        number: Some(1),
    };
    for as_other in [false, true] {
        first.calls(1, wanted);
        assert_eq!(first.called(2, 0), None);
        let Verdict::Send(hello) = first.connected(1, 0) else {
            panic!();
        };
        let Verdict::Send(mut challenge) = first.message(2, &hello) else {
            panic!();
        };
        if as_other {
            challenge[1..6].copy_from_slice(&[2, 0, 0, 0, 1]);
        }
        assert!(matches!(first.message(1, &challenge), Verdict::End(_)));
        assert_eq!(first.peer(1), None);
        first.ended(1);
        first.ended(2);
    }
}

#[test]
fn a_handshake_that_stops() {
    let keys = Keys::new(&[1]);
    let mut rs = Rs::new(&keys);
    for (what, first) in [("silence", None), ("HELLO", Some(hello(A_CE)))] {
        let link = rs.connect();
        if let Some(first) = first {
            // The time counts from the beginning.
            rs.pass(TIME - 2);
            rs.message(link, &first);
            rs.pass(1);
        } else {
            rs.pass(TIME - 1);
        }
        rs.serves(what);
        rs.pass(1);
        rs.only(link, what);
    }
    // An RS that does not answer.
    let mut caller = keys.guard(A_CE, &[]);
    caller.calls(1, SOME_RS);
    let _ = caller.connected(1, 0);
    assert_eq!(
        (caller.late(TIME - 1), caller.late(TIME)),
        (vec![], vec![1])
    );
    // Many unfinished connections end one another, and not an honest one.
    let all: Vec<_> = (0..PENDING).map(|_| rs.connect()).collect();
    let honest = rs.attach(&mut keys.guard(A_CE, &[]), A_CE).unwrap();
    rs.only(all[0], "one more than there may be");
    for _ in 0..3 * PENDING {
        rs.connect();
    }
    assert!(!rs.ended.contains(&honest) && !rs.ended.contains(&rs.se));
    rs.pass(TIME);
    rs.ended.clear();
    rs.serves("many handshakes");
}

#[test]
fn a_key_and_then_garbage() {
    let keys = Keys::new(&[1]);
    let mut rs = Rs::new(&keys);
    let proven = |rs: &mut Rs| {
        let (link, [_, _, proof]) = rs.meet(&mut keys.guard(A_CE, &[])).unwrap();
        (link, proof)
    };
    let other = Identity {
        role: CE,
        number: 2,
    };
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("noise", vec![0xa5; 64]),
        ("a long message", vec![6; 448]),
        ("HELLO", hello(A_CE)),
        ("another CE", attach(other)),
        ("the SE", attach(THE_SE)),
        ("no ATTACH", Message::Open { id: 1, object: 0 }.build()),
    ] {
        let (link, proof) = proven(&mut rs);
        rs.message(link, &proof);
        assert!(rs.ended.is_empty(), "{what}");
        rs.message(link, &bytes);
        rs.only(link, what);
    }
    // A proof for one role by another, and a second proof.
    let (link, mut proof) = proven(&mut rs);
    proof[1..6].copy_from_slice(&hello(other)[1..6]);
    rs.message(link, &proof);
    rs.only(link, "another identity");
    let (link, proof) = proven(&mut rs);
    rs.message(link, &proof);
    rs.message(link, &proof);
    rs.only(link, "a second proof");
    // An RS may not be a caller.
    let link = rs.connect();
    rs.message(link, &hello(THE_RS));
    rs.only(link, "an RS that calls");
    // Nor is a CE an RS.
    let mut caller = keys.guard(THE_SE, &[CE]);
    caller.calls(1, SOME_RS);
    let Verdict::Send(hello) = caller.connected(1, 0) else {
        panic!();
    };
    let mut ce = keys.guard(A_CE, &[SE]);
    assert_eq!(ce.called(1, 0), None);
    let Verdict::Send(challenge) = ce.message(1, &hello) else {
        panic!();
    };
    assert!(matches!(caller.message(1, &challenge), Verdict::End(_)));
    let attached = |number| Message::Attached {
        status: Status::Good,
        number,
        epoch: 1,
        boot: 1,
    };
    assert!(fits(THE_RS, &attached(7)) && !fits(THE_RS, &attached(8)));
    assert!(fits(THE_SE, &attached(8)));
}

#[test]
fn keys_change_without_a_stop() {
    let (here, there) = (Keys::new(&[1]), Keys::new(&[1]));
    let mut rs = Rs::new(&here);
    let mut ce = there.guard(A_CE, &[]);
    // A new key as a second one, then as the first one, then alone; one side after the other.
    for step in [&[1, 2][..], &[2, 1], &[2]] {
        for keys in [&here, &there] {
            keys.write(step);
            rs.attach(&mut ce, A_CE).unwrap();
            rs.serves("a change of keys");
        }
    }
    // Invalid files change nothing, and are reported once.
    let lines = [
        ("", "it has no key"),
        ("# no key\n\n", "it has no key"),
        ("\n12345\n", "line 2: no key of 64 hexadecimal digits"),
    ];
    for (text, wanted) in lines {
        here.text(text);
        rs.guard.says();
        rs.attach(&mut ce, A_CE).unwrap();
        let said = rs.guard.says();
        let fits = said.len() == 1 && said[0].contains(wanted);
        // Two wrong files in a row may be wrong alike.
        assert!(fits || said.is_empty() && text.starts_with('#'), "{said:?}");
        let Err(error) = KeyFile::open(&here.0) else {
            panic!("{text:?} is taken");
        };
        assert!(error.to_string().contains(wanted), "{error}");
    }
    here.write(&[3]);
    assert!(rs.attach(&mut ce, A_CE).is_err());
    let link = rs.next;
    // The caller has ended it, the RS waits.
    rs.pass(TIME);
    rs.only(link, "an old key");
    for mode in [0o640, 0o604, 0o620, 0o602] {
        fs::set_permissions(&here.0, Permissions::from_mode(mode)).unwrap();
        let Err(error) = KeyFile::open(&here.0) else {
            panic!("mode {mode:o} is taken");
        };
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}

/// While the arena is registered for an RS, the CE is not silent, and takes only ALIVE.
#[test]
fn an_rs_answers_before_it_is_asked() {
    let settings = ce::Settings {
        member: 1,
        id: [0; 16],
        lines: 4,
        line: 4096,
        engines: 1,
        stores: vec![1],
    };
    let attached = |number, epoch| Message::Attached {
        status: Status::Good,
        number,
        epoch,
        boot: 0,
    };
    let connects = |ce: &mut ce::Engine| {
        let all = ce.actions().into_iter().filter_map(|a| match a {
            ce::Action::Connect { peer, .. } => Some(peer),
            _ => None,
        });
        all.last().expect("a connection")
    };
    for early in [false, true] {
        let mut ce = ce::Engine::new(settings.clone(), 0);
        ce.tick(0);
        let se = connects(&mut ce);
        ce.connected(se, 0, 0);
        ce.message(se, &attached(1, 5).build());
        let rs = connects(&mut ce);
        ce.proven(rs);
        let mut said = Vec::new();
        for now in (0..4 * SILENCE).step_by(SILENCE as usize / 8) {
            ce.tick(now);
            ce.message(se, &Message::Alive.build());
            ce.message(rs, &Message::Alive.build());
            said.extend(ce.actions().into_iter().filter_map(|a| match a {
                ce::Action::Send { peer, message } if peer == rs => Some(message),
                ce::Action::Close { .. } => panic!("{a:?}"),
                _ => None,
            }));
        }
        assert!(said.len() > 4 && said.iter().all(|m| *m == Message::Alive));
        if !early {
            ce.connected(rs, 4096, 7);
        }
        ce.message(rs, &attached(7, 5).build());
        let closed = ce::Action::Close { peer: rs };
        assert_eq!(ce.actions().contains(&closed), early);
    }
}
