// SPDX-License-Identifier: GPL-2.0

//! Standard output.

use std::{
    fmt,
    io::{self, stdout, ErrorKind, Write},
    process::exit,
};

/// Writes text. Returns whether there is a reader: without one, a command does its work to the end.
/// Other errors end the program with status 1.
pub fn write(text: fmt::Arguments<'_>) -> bool {
    to(&mut stdout(), text).unwrap_or_else(|e| {
        eprintln!("srpctl: standard output: {e}");
        exit(1);
    })
}

fn to(out: &mut impl Write, text: fmt::Arguments<'_>) -> io::Result<bool> {
    match out.write_fmt(text) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Like `println!`, but does not panic if the pipe is closed.
macro_rules! say {
    ($($text:tt)*) => {{
        $crate::out::write(format_args!("{}\n", format_args!($($text)*)));
    }};
}
pub(crate) use say;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut writer = File::from(writer);
        assert!(to(&mut writer, format_args!("1\n")).unwrap());
        drop(reader);
        assert!(!to(&mut writer, format_args!("2\n")).unwrap());
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        assert!(to(&mut full, format_args!("3\n")).is_err());
    }
}
