// SPDX-License-Identifier: GPL-2.0

//! `srp-hostile`: attacks an SRP target over RDMA with traffic that no initiator sends. After each
//! case the target must still serve an honest session. See `--help`.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

mod cases;
mod peer;

use std::process::ExitCode;

use srp_target::{
    program,
    proto::{guid::IoClass, ids::PortId},
};

use cases::CASES;
use peer::Peer;

const HELP: &str = "\
srp-hostile ADDRESS:PORT ID_EXT IOC_GUID [CASE]...
violates the protocol in each of these ways (default: all) at a target with at least two units.
Writes data to unit 1 only.
";

struct Options {
    peer: Peer,
    cases: Vec<String>,
}

fn parse(args: Vec<std::ffi::OsString>) -> Result<Options, String> {
    let mut args = args.iter().map(|a| a.to_string_lossy().into_owned());
    let mut next = |what: &str| args.next().ok_or_else(|| format!("there is no {what}"));
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
    let cases: Vec<_> = args.collect();
    for name in &cases {
        if !CASES.iter().any(|c| c.name == name) {
            return Err(format!("there is no case '{name}'"));
        }
    }
    let peer = Peer::new(to, target).map_err(|e| e.to_string())?;
    Ok(Options { peer, cases })
}

fn run(mut options: Options) -> Result<(), String> {
    for case in CASES {
        let chosen = options.cases.iter().any(|c| c == case.name);
        if !(chosen || options.cases.is_empty() && case.ends) {
            continue;
        }
        let said = (case.run)(&mut options.peer).map_err(|e| format!("{}: {e}", case.name))?;
        let alive = options.peer.honest();
        alive.map_err(|e| format!("after {}, an honest session: {e}", case.name))?;
        println!("{}: {said}", case.name);
    }
    println!("ended");
    Ok(())
}

fn main() -> ExitCode {
    program::main("srp-hostile", HELP, parse, run)
}
