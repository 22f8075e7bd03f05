// SPDX-License-Identifier: GPL-2.0

//! Enables loom's atomics for this crate only.

fn main() {
    println!("cargo:rustc-cfg=loom");
}
