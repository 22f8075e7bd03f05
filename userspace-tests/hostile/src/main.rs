// SPDX-License-Identifier: GPL-2.0

//! `srp-hostile`: attacks an SRP target over RDMA with traffic that no initiator sends, or a role
//! of `wss` or `xorset` with traffic that no role sends. After each case the target must still
//! serve an honest session, and the role take a role with its key. See `--help`.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

mod answers;
mod cases;
mod handshake;
mod peer;
mod roles;
mod set;

use std::{path::Path, process::ExitCode};

use srp_target::{
    auth, program,
    proto::{guid::IoClass, ids::PortId},
};

use answers::Answers;
use cases::CASES;
use handshake::Attack;
use peer::Peer;
use wss::peer::{RS, SE};
use xorset::fabric::NODE;

const HELP: &str = "\
srp-hostile ADDRESS:PORT ID_EXT IOC_GUID [CASE]...
violates the protocol in each of these ways (default: all) at a target with at least two units.
Writes data to unit 1 only.

srp-hostile se|rs|node NUMBER ADDRESS:PORT ID_EXT IOC_GUID KEY INITIATOR
attacks a role of wss with this number, 0 for an SE, or a node of xorset, as other roles: without
its key, which is the first line of a file, with another one, as an initiator that may log in, and
with the key.

srp-hostile ce|answers ADDRESS:PORT ID_EXT IOC_GUID SE:PORT INITIATOR VICTIM
attacks the answer channels of a CE, or of an RS, as initiators: INITIATOR may log in and has no
session, VICTIM has one.
";

enum Options {
    Target { peer: Peer, cases: Vec<String> },
    Role(Box<Attack>),
    Answers(Answers),
}

fn parse(args: Vec<std::ffi::OsString>) -> Result<Options, String> {
    let mut args = args
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .peekable();
    let role = match args.peek().map(String::as_str) {
        Some("se") => Some(SE),
        Some("rs") => Some(RS),
        Some("node") => Some(NODE),
        _ => None,
    };
    let is = |first: Option<&String>, name: &str| first.is_some_and(|a| a == name);
    let node = is(args.peek(), "node");
    let rs = is(args.peek(), "answers");
    let answers = rs || is(args.peek(), "ce");
    if role.is_some() || answers {
        args.next();
    }
    let mut next = |what: &str| args.next().ok_or_else(|| format!("there is no {what}"));
    let number = match role {
        Some(_) => next("NUMBER")?.parse().map_err(|_| "NUMBER is no number")?,
        None => 0,
    };
    let to = next("address")?;
    let to = to
        .parse()
        .map_err(|_| format!("'{to}' is no address with a port"))?;
    let mut guid = |what| {
        let text = next(what)?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| format!("{what}: '{text}' is no GUID"))
    };
    let target = PortId::new(IoClass::Rev16a, guid("ID_EXT")?, guid("IOC_GUID")?);
    if let Some(role) = role {
        let (key, listed) = (next("KEY")?, next("INITIATOR")?);
        let called = (role, number);
        let protocol = match node {
            // Another node than the one under attack.
            true => set::protocol((number + 1) % 4),
            false => roles::protocol(),
        };
        let text = auth::secret(Path::new(&key)).map_err(|e| format!("{key}: {e}"))?;
        let key = bytes(text.lines().next().unwrap_or_default());
        let listed = bytes(listed.trim_start_matches("0x")).ok_or("INITIATOR is no identifier")?;
        return Ok(Options::Role(Box::new(Attack {
            peer: Peer::new(to, target).map_err(|e| e.to_string())?,
            called,
            key: key.ok_or("KEY is no file with a key")?,
            listed: PortId(listed),
            protocol,
        })));
    }
    if answers {
        let se = next("SE")?;
        let mut initiator = |what| {
            let text = next(what)?;
            let all = bytes(text.trim_start_matches("0x"));
            all.map(PortId).ok_or(format!("{what} is no identifier"))
        };
        return Ok(Options::Answers(Answers {
            listed: initiator("INITIATOR")?,
            victim: initiator("VICTIM")?,
            peer: Peer::new(to, target).map_err(|e| e.to_string())?,
            to,
            roles: rs,
            se: se
                .parse()
                .map_err(|_| format!("'{se}' is no address with a port"))?,
        }));
    }
    let cases: Vec<_> = args.collect();
    for name in &cases {
        if !CASES.iter().any(|c| c.name == name) {
            return Err(format!("there is no case '{name}'"));
        }
    }
    let peer = Peer::new(to, target).map_err(|e| e.to_string())?;
    Ok(Options::Target { peer, cases })
}

/// Bytes in hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    (text.len() == 2 * N).then_some(bytes)
}

fn run(options: Options) -> Result<(), String> {
    let (mut peer, cases) = match options {
        Options::Target { peer, cases } => (peer, cases),
        Options::Role(attack) => return attack.run(),
        Options::Answers(attack) => return attack.run(),
    };
    for case in CASES {
        let chosen = cases.iter().any(|c| c == case.name);
        if !(chosen || cases.is_empty() && case.ends) {
            continue;
        }
        let said = (case.run)(&mut peer).map_err(|e| format!("{}: {e}", case.name))?;
        let alive = peer.honest();
        alive.map_err(|e| format!("after {}, an honest session: {e}", case.name))?;
        println!("{}: {said}", case.name);
    }
    println!("ended");
    Ok(())
}

fn main() -> ExitCode {
    program::main("srp-hostile", HELP, parse, run)
}
