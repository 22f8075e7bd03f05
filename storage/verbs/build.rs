// SPDX-License-Identifier: GPL-2.0

//! Compiles the C files into this crate, and `tests/fake_*.c` for its tests.

use std::{env, fs, path::Path, process::Command};

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Compiles files into `libNAME.a`.
fn library(out: &Path, name: &str, files: &[&str]) {
    let archive = out.join(format!("lib{name}.a"));
    // `ar` keeps the objects of an earlier build, also those with other names.
    let _ = fs::remove_file(&archive);
    let compiler = env::var("CC").unwrap_or("gcc".into());
    for (n, file) in files.iter().enumerate() {
        let object = out.join(format!("{name}{n}.o"));
        run(Command::new(&compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c", file])
            .arg("-o")
            .arg(&object));
        run(Command::new("ar").arg("crs").arg(&archive).arg(&object));
        println!("cargo:rerun-if-changed={file}");
    }
}

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    library(Path::new(&out), "shim", &["shim.c", "ib.c"]);
    library(
        Path::new(&out),
        "fake",
        &["tests/fake_cm.c", "tests/fake_verbs.c"],
    );
    println!("cargo:rerun-if-changed=tests/fake.h");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=shim");
    println!("cargo:rustc-link-lib=rdmacm");
    println!("cargo:rustc-link-lib=ibverbs");
}
