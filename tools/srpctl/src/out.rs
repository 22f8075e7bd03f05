// SPDX-License-Identifier: GPL-2.0

//! Standard output.

use std::{
    fmt,
    io::{stdout, ErrorKind, Write},
    process::exit,
};

/// Writes text. If the reader has closed the pipe, exits with status 0; other errors give status 1.
pub fn write(text: fmt::Arguments<'_>) {
    if let Err(e) = stdout().write_fmt(text) {
        if e.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("srpctl: standard output: {e}");
        exit(1);
    }
}

/// Like `println!`, but does not panic if the pipe is closed.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::out::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use say;
