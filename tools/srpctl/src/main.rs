// SPDX-License-Identifier: GPL-2.0

//! Logs in to SRP targets, logs out and shows sessions: srpctl(8).

#![forbid(unsafe_code)]
// These panic if the reader of a pipe has gone.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod adapter;
mod apply;
mod boot;
mod check;
mod cli;
mod complete;
mod connect;
mod device_management;
mod disconnect;
mod discover;
mod disk;
mod doctor;
mod draft;
mod driver;
mod edit;
mod error;
mod event;
mod events;
mod examples;
mod explain;
mod firmware;
mod generate;
mod holder;
mod kernel_log;
mod list;
mod lock;
mod look;
mod losses;
mod lun;
mod manual;
#[cfg(test)]
mod monitoring;
mod mount;
mod multipath;
mod out;
mod owner;
mod page;
mod patience;
mod pattern;
mod port;
mod program;
mod rescan;
mod resolve;
mod retry;
mod roce;
#[cfg(test)]
mod schema;
mod session;
mod show;
mod signals;
mod statistics;
mod stats;
mod sysfs;
mod target;
mod target_info;
mod timeouts;
mod turn;
mod uevent;
mod unit;
mod version;
mod watch;

/// The driver's own parser of login strings, so that both accept the same strings.
#[path = "../../../rust/ib_srp/srp/proto"]
#[allow(dead_code)]
mod proto {
    pub mod address;
    pub mod guid;
    pub mod number;
    pub mod option_error;
    pub mod options;
    pub mod texts;
}

use clap::{error::ErrorKind::DisplayVersion, Parser};
use cli::{Cli, Command};
use out::{say, tell};
use std::process::ExitCode;
use sysfs::Sysfs;

fn main() -> ExitCode {
    complete::answer();
    let sysfs = Sysfs::system();
    let cli = match Cli::try_parse() {
        Err(asked) if asked.kind() == DisplayVersion => {
            say!("{}", version::all(&sysfs));
            return ExitCode::SUCCESS;
        }
        // clap ignores the error of a page that cannot be written.
        Err(asked) if !asked.use_stderr() => {
            out::check(asked.print());
            return ExitCode::SUCCESS;
        }
        other => other.unwrap_or_else(|error| error.exit()),
    };
    let result = match cli.command {
        Command::Connect(args) => connect::run(&sysfs, &args),
        Command::Disconnect(args) => disconnect::run(&sysfs, &args),
        Command::Apply(args) => apply::run(&sysfs, &args),
        Command::Edit(args) => edit::run(&sysfs, &args),
        Command::Check(args) => check::run(&sysfs, &args),
        Command::Rescan(args) => rescan::run(&sysfs, &args),
        Command::List(args) => list::run(&sysfs, &args),
        Command::Show(args) => show::run(&sysfs, &args),
        Command::Watch(args) => watch::run(&sysfs, &args),
        Command::Stats(args) => stats::run(&sysfs, &args),
        Command::Events(args) => events::run(&sysfs, &args),
        Command::Discover(args) => discover::run(&sysfs, &args),
        Command::Doctor(args) => doctor::run(&sysfs, &args),
        Command::Explain(args) => explain::run(&args),
        Command::TargetInfo(args) => target_info::run(&sysfs, &args),
        Command::Firmware(args) => firmware::run(&sysfs, &args),
        Command::Generate(args) => generate::run(&args),
        Command::Generator(args) => boot::generator(&sysfs, &args),
        Command::Targets(args) => boot::targets(&args),
        Command::Restore => unit::restore(&sysfs),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("{error}");
            ExitCode::from(error.status())
        }
    }
}
