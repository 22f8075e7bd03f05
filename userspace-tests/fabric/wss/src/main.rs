// SPDX-License-Identifier: GPL-2.0

//! `wss`: see `--help`.

use std::{env, process::ExitCode};

use wss::{
    fabric::serve,
    options::{Options, HELP},
};

fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    if args.iter().any(|a| a == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(e) => {
            eprintln!("wss: {e}; see --help");
            return ExitCode::from(2);
        }
    };
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("wss: {e}");
            ExitCode::FAILURE
        }
    }
}
