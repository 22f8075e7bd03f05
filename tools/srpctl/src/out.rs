// SPDX-License-Identifier: GPL-2.0

//! Standard output and standard error.

use std::{
    fmt,
    io::{self, stderr, stdout, ErrorKind, Write},
    process::exit,
};

/// Writes text to standard error. There is no place to report an error of that.
pub fn error(text: fmt::Arguments<'_>) {
    let _ = stderr().write_all(clean(text).as_bytes());
}

/// Writes a line that begins with `srpctl: ` to standard error. `eprintln!` panics if that has no
/// reader.
macro_rules! tell {
    ($($text:tt)*) => {{
        $crate::out::error(format_args!("srpctl: {}\n", format_args!($($text)*)));
    }};
}
pub(crate) use tell;

/// Writes text. Returns whether there is a reader: without one, a command does its work to the end.
/// Other errors end the program with status 1.
pub fn write(text: fmt::Arguments<'_>) -> bool {
    check(stdout().write_all(clean(text).as_bytes()))
}

/// Replaces control characters: names of files, their contents and lines of the log may have those
/// that a terminal obeys.
fn clean(text: fmt::Arguments<'_>) -> String {
    let text = text.to_string();
    let is_bad = |c: char| c.is_control() && !"\n\t".contains(c);
    match text.contains(is_bad) {
        true => text.replace(is_bad, "\u{fffd}"),
        false => text,
    }
}

/// Returns whether what was written to standard output has a reader.
pub fn check(written: io::Result<()>) -> bool {
    has_reader(written).unwrap_or_else(|e| {
        tell!("standard output: {e}");
        exit(1);
    })
}

fn has_reader(written: io::Result<()>) -> io::Result<bool> {
    match written {
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
    fn a_terminal_has_nothing_to_obey() {
        let said = |text: &str| clean(format_args!("{text}: {}\n", 7));
        assert_eq!(said("a\tb\nÄ"), "a\tb\nÄ: 7\n");
        let (name, shown) = (
            "\u{1b}[2J\u{9b}1A\r\0",
            "\u{fffd}[2J\u{fffd}1A\u{fffd}\u{fffd}",
        );
        assert_eq!(said(name), format!("{shown}: 7\n"));
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut writer = File::from(writer);
        assert!(has_reader(writer.write_all(b"1")).unwrap());
        drop(reader);
        assert!(!has_reader(writer.write_all(b"2")).unwrap());
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        assert!(has_reader(full.write_all(b"3")).is_err());
    }
}
