// SPDX-License-Identifier: GPL-2.0

//! Tests of what srpctl does with output that it cannot write.

use std::{
    fs::File,
    process::{Command, Stdio},
};

/// Runs srpctl, and returns its exit status.
fn status(arguments: &[&str], out: Stdio, err: Stdio) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srpctl"));
    let command = command.args(arguments).stdout(out).stderr(err);
    command.status().unwrap().code()
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    // wait() would close it.
    let pipe = child.stdin.take().unwrap();
    child.wait().unwrap();
    pipe.into()
}

#[test]
fn an_error_that_has_no_reader_keeps_its_status() {
    // There is no such session on any machine.
    let gone = ["show", "host4294967295"];
    for err in [full(), closed(), Stdio::null()] {
        assert_eq!(status(&gone, Stdio::null(), err), Some(6));
    }
    let wrong = ["check", "/dev/null"];
    assert_eq!(status(&wrong, closed(), closed()), Some(2));
    assert_eq!(status(&["nosuch"], closed(), closed()), Some(2));
}

#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    for page in ["--help", "--version"] {
        assert_eq!(status(&[page], full(), Stdio::null()), Some(1), "{page}");
        assert_eq!(status(&[page], closed(), Stdio::null()), Some(0), "{page}");
    }
    assert_eq!(status(&["help", "list"], full(), Stdio::null()), Some(1));
}
