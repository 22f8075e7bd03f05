// SPDX-License-Identifier: GPL-2.0

//! `srp-storage`: see `--help`.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{value_parser, Arg, ArgAction, Command};
use srp_storage::{as_json, as_prometheus, as_text, ask, sockets, FOLDER};

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        let flag = Arg::new(name).long(name).action(ArgAction::SetTrue);
        flag.help(help)
    };
    let socket = Arg::new("socket")
        .value_name("SOCKET")
        .num_args(0..)
        .value_parser(value_parser!(PathBuf))
        .help("Sockets of --status of the processes [default: all in /run/srp-storage]");
    Command::new("srp-storage")
        .about("Looks at the processes srp-target, wss and xorset of this machine")
        .subcommand_required(true)
        .subcommand(
            Command::new("status")
                .about("Prints the status of the processes; exits with 1 if one is dead")
                .arg(flag("json", "Prints JSON").conflicts_with("prometheus"))
                .arg(flag("prometheus", "Prints the text format of Prometheus"))
                .arg(socket),
        )
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let Some(("status", matches)) = matches.subcommand() else {
        return ExitCode::from(2);
    };
    let mut paths: Vec<PathBuf> = matches
        .get_many("socket")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if paths.is_empty() {
        paths = match sockets(Path::new(FOLDER)) {
            Ok(paths) => paths,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => {
                eprintln!("srp-storage: {FOLDER}: {e}");
                return ExitCode::FAILURE;
            }
        };
    }
    let answers: Vec<_> = paths.iter().map(|p| ask(p)).collect();
    let text = if matches.get_flag("json") {
        as_json(&answers)
    } else if matches.get_flag("prometheus") {
        as_prometheus(&answers)
    } else if answers.is_empty() {
        format!("no process has a socket in {FOLDER}: does one run, with --status?\n")
    } else {
        as_text(&answers)
    };
    // A reader such as head may have gone.
    let _ = io::stdout().write_all(text.as_bytes());
    match answers.iter().all(|a| a.told.is_ok()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
