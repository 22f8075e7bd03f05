// SPDX-License-Identifier: GPL-2.0

//! Standard output.

use std::{
    fmt,
    io::{stdout, ErrorKind, Write},
    process::exit,
};

/// Writes text. Who has read enough ends the program, which is no error.
pub fn write(text: fmt::Arguments<'_>) {
    if let Err(e) = stdout().write_fmt(text) {
        exit(i32::from(e.kind() != ErrorKind::BrokenPipe));
    }
}

/// As `println!`, which panics where nobody reads.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::out::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use say;
