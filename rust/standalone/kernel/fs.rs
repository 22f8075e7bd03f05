// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `fs`: the name that `uaccess` and `debugfs` use.

/// Files.
pub mod file {
    /// A position in a file.
    pub type Offset = crate::bindings::loff_t;
}
