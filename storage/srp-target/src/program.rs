// SPDX-License-Identifier: GPL-2.0

//! `main` of the programs of this workspace.

use std::{env, ffi::OsString, fmt::Display, process::ExitCode, sync::Arc};

use sd_notify::NotifyState;

use crate::{
    config::{Given, Schema},
    log,
    status::Board,
};

/// The `main` of the program `name`: prints its help, or parses the arguments with `parse` and
/// calls `act`. Exits with status 2 if the arguments are wrong, and with 1 if `act` fails.
pub fn main<O, E: Display, F: Display>(
    name: &str,
    help: &str,
    parse: impl FnOnce(Vec<OsString>) -> Result<O, E>,
    act: impl FnOnce(O) -> Result<(), F>,
) -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    if args.iter().any(|a| a == "--help") {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(e) => {
            eprintln!("{name}: {e}; see --help");
            return ExitCode::from(2);
        }
    };
    log::begin();
    match act(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Like [`main`], for a program whose options may be in a file of `--config` ([`crate::config`]).
/// With `--check` calls `check` instead of `act`, which gets the board of `--status`.
pub fn configured<O, F: Display>(
    (name, help, schema): (&str, &str, Schema),
    parse: impl FnOnce(Vec<OsString>) -> Result<O, String>,
    check: impl FnOnce(O) -> Result<(), F>,
    act: impl FnOnce(O, Option<Arc<Board>>) -> Result<(), F>,
) -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    if args.iter().any(|a| a == "--help") {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    let given = match Given::take(args, schema) {
        Ok(given) => given,
        Err(e) => {
            eprintln!("{name}: {e}");
            return ExitCode::from(2);
        }
    };
    let options = match parse(given.args.clone()) {
        Ok(options) => options,
        Err(e) => {
            eprintln!("{name}: {}", given.explain(&e));
            return ExitCode::from(2);
        }
    };
    if !given.check {
        log::begin();
        let role = match schema {
            [("", _)] => "target".into(),
            _ => given.args.first().cloned().unwrap_or_default(),
        };
        // The thread of the board must not take the signals, which would end the process.
        let board = verbs::os::signals()
            .and_then(|_| Board::new(given.status.as_deref(), name, &role.to_string_lossy()));
        let board = match board {
            Ok(board) => board,
            Err(e) => return end(name, Err(format!("--status: {e}"))),
        };
        let result = act(options, board);
        if let (Some(path), true) = (given.status, result.is_ok()) {
            // Without its socket the role is stopped; with it, it has failed.
            let _ = std::fs::remove_file(path);
        }
        return end(name, result);
    }
    let result = check(options).map(|()| println!("{name}: nothing is wrong"));
    end(name, result)
}

/// Tells systemd that the program serves, and what it does.
pub fn ready(what: &str) {
    tracing::info!("{what}");
    // Without systemd there is no socket.
    let _ = sd_notify::notify(false, &[NotifyState::Ready, NotifyState::Status(what)]);
}

/// Tells systemd that the program ends.
pub fn stopping() {
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
}

fn end<F: Display>(name: &str, result: Result<(), F>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}
