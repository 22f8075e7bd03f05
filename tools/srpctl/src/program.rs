// SPDX-License-Identifier: GPL-2.0

//! Programs that are run for what they print.

use nix::sys::memfd::{memfd_create, MemFdCreateFlag};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time that a program may take. A program that reads a disk blocks while the disk is unreachable.
const LIMIT: Duration = Duration::from_secs(20);

/// Why a program has no output.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    #[error("{0} is not installed")]
    Missing(String),
    /// The program has exceeded its time, and is killed.
    #[error("{} has not ended within {} s", .0, .1.as_secs_f32())]
    Late(String, Duration),
    /// The program has failed, with this output.
    #[error("{}: {}", .0, .1.lines().next().unwrap_or("failed without a message"))]
    Failed(String, String),
}

pub type Output = Result<Vec<u8>, Failure>;

/// Runs a program.
pub fn run(command: &[&str]) -> Output {
    within(LIMIT, command)
}

/// Runs a program that may take this time.
pub fn within(limit: Duration, command: &[&str]) -> Output {
    let (program, arguments) = command.split_first().unwrap_or((&"", &[]));
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => Failure::Missing(program.to_string()),
        _ => Failure::Failed(program.to_string(), e.to_string()),
    };
    // Unlike pipes, these have room for all output, and no child of the program keeps them open.
    let memory = || memfd_create(c"output", MemFdCreateFlag::MFD_CLOEXEC).map(File::from);
    let mut out = memory().map_err(|e| failed(e.into()))?;
    let mut err = memory().map_err(|e| failed(e.into()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(failed)?)
        .stderr(err.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            None => {
                // A program that waits for a disk cannot end earlier, so do not wait for its end.
                let _ = child.kill();
                return Err(Failure::Late(program.to_string(), limit));
            }
        }
    };
    let read = |file: &mut File| {
        let mut content = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut content).map(|_| content)
    };
    if status.success() {
        return read(&mut out).map_err(failed);
    }
    let said = read(&mut err).map_err(failed)?;
    let said = String::from_utf8_lossy(&said).trim().to_string();
    Err(Failure::Failed(program.to_string(), said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_says_what_it_prints() {
        // More than a pipe holds.
        let long = run(&["head", "-c", "300000", "/dev/zero"]).unwrap();
        assert_eq!(long.len(), 300_000);
        let failed = run(&["sh", "-c", "echo no; echo why >&2; echo more >&2; false"]);
        let failed = failed.unwrap_err();
        assert_eq!(failed.to_string(), "sh: why");
        assert_eq!(failed, Failure::Failed("sh".into(), "why\nmore".into()));
        let silent = run(&["false"]).unwrap_err().to_string();
        assert_eq!(silent, "false: failed without a message");
        let missing = run(&["no-such-program"]).unwrap_err();
        assert_eq!(missing.to_string(), "no-such-program is not installed");
        assert_eq!(missing, Failure::Missing("no-such-program".into()));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        // Only this one has the argument.
        let time = format!("60.{}", std::process::id());
        let limit = Duration::from_millis(100);
        let why = within(limit, &["sleep", &time]).unwrap_err();
        assert_eq!(why.to_string(), "sleep has not ended within 0.1 s");
        let runs = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let mut lines = all.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
            lines.any(|line| line == format!("sleep\0{time}\0").as_bytes())
        };
        let start = Instant::now();
        while runs() {
            assert!(start.elapsed() < Duration::from_secs(20), "it still runs");
            thread::sleep(limit);
        }
    }
}
