// SPDX-License-Identifier: GPL-2.0

//! `wss`: see `--help`.

use std::process::ExitCode;

use srp_target::program;
use wss::{
    fabric::{check, serve},
    options::{Options, HELP, SCHEMA},
};

fn main() -> ExitCode {
    program::configured(("wss", HELP, SCHEMA), Options::parse, check, serve)
}
