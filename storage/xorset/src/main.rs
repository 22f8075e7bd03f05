// SPDX-License-Identifier: GPL-2.0

//! `xorset`: see `--help`.

use std::process::ExitCode;

use srp_target::program;
use xorset::{
    fabric::{check, serve},
    options::{Options, HELP, SCHEMA},
};

fn main() -> ExitCode {
    program::configured(("xorset", HELP, SCHEMA), Options::parse, check, serve)
}
