// SPDX-License-Identifier: GPL-2.0

//! Says that the atomics are loom's, to this crate and no other.

fn main() {
    println!("cargo:rustc-cfg=loom");
}
