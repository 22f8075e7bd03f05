// SPDX-License-Identifier: GPL-2.0

//! `xorset`: see `--help`.

use std::process::ExitCode;

use srp_target::program;
use xorset::{
    fabric::serve,
    options::{Options, HELP},
};

fn main() -> ExitCode {
    program::main("xorset", HELP, Options::parse, serve)
}
