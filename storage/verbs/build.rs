// SPDX-License-Identifier: GPL-2.0

//! Compiles `shim.c` into this crate.

use std::{env, path::Path, process::Command};

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&out).join("shim.o");
    let archive = Path::new(&out).join("libshim.a");
    run(Command::new("gcc")
        .args([
            "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c", "shim.c", "-o",
        ])
        .arg(&object));
    run(Command::new("ar").arg("crs").arg(&archive).arg(&object));
    println!("cargo:rerun-if-changed=shim.c");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=shim");
    println!("cargo:rustc-link-lib=rdmacm");
    println!("cargo:rustc-link-lib=ibverbs");
}
