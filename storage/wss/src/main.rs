// SPDX-License-Identifier: GPL-2.0

//! `wss`: see `--help`.

use std::process::ExitCode;

use srp_target::program;
use wss::{
    fabric::serve,
    options::{Options, HELP},
};

fn main() -> ExitCode {
    program::main("wss", HELP, Options::parse, serve)
}
