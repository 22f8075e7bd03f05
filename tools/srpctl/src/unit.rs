// SPDX-License-Identifier: GPL-2.0

//! `srp-connect@.service`, which logs in to a target of targets.d at boot. srp-generator(8) enables
//! it for each file.

use crate::error::{Error, Result};
use std::{path::Path, process::Command};

/// Returns whether systemd manages this machine.
fn is_there() -> bool {
    Path::new("/run/systemd/system").exists()
}

fn run(arguments: &[&str]) -> Result {
    if !is_there() {
        return Ok(());
    }
    let out = Command::new("systemctl")
        .arg("--quiet")
        .args(arguments)
        .output()
        .map_err(|e| Error::Program(format!("systemctl: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::Program(format!(
        "systemctl {}: {}",
        arguments.join(" "),
        said.trim()
    )))
}

/// Makes systemd run the generator again.
pub fn reload() -> Result {
    run(&["daemon-reload"])
}

/// Runs systemctl on the unit of a target.
pub fn systemctl(verb: &[&str], name: &str) -> Result {
    let unit = format!("srp-connect@{name}.service");
    let mut arguments = verb.to_vec();
    arguments.push(&unit);
    run(&arguments)
}
