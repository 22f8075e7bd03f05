// SPDX-License-Identifier: GPL-2.0

//! Gives srpctl the version of the packages.

use std::fs;

const CHANGELOG: &str = "../../debian/changelog";

fn main() {
    println!("cargo::rerun-if-changed={CHANGELOG}");
    let text = fs::read_to_string(CHANGELOG).expect(CHANGELOG);
    let version = text.split(['(', ')']).nth(1);
    println!(
        "cargo::rustc-env=SRP_VERSION={}",
        version.expect("debian/changelog has no version")
    );
}
