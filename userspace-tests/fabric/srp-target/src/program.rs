// SPDX-License-Identifier: GPL-2.0

//! What the programs of this workspace do before their work and after it.

use std::{env, ffi::OsString, fmt::Display, process::ExitCode};

/// The `main` of a program with this name: its help, or what `act` does with the arguments as `parse` reads them. Ends with
/// status 2 if they are wrong, and with 1 if `act` fails.
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
    match act(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}
