// SPDX-License-Identifier: GPL-2.0

//! The files and the programs that the checks read.

use crate::sysfs::{self, Sysfs};
use nix::sys::memfd::{memfd_create, MemFdCreateFlag};
use serde::de::DeserializeOwned;
use std::{
    cell::RefCell,
    fs::File,
    io::{self, ErrorKind, Read, Seek},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time that a program may take. One that reads a disk waits as long as the disk is away.
const LIMIT: Duration = Duration::from_secs(20);
/// The end of the sentence about a program that takes longer.
const LATE: &str = "has not ended within 20 s";

/// The output of a program, or a sentence that says why there is none.
pub type Output = Result<Vec<u8>, String>;

/// Runs a program.
type Run<'a> = dyn Fn(&[&str]) -> Output + 'a;

/// A machine to check. Tests have one of files and outputs.
pub struct Machine<'a> {
    pub sysfs: &'a Sysfs,
    run: Box<Run<'a>>,
    /// The commands that were killed, and a sentence about each.
    late: RefCell<Vec<(String, String)>>,
}

/// Runs a program. None of those that the checks run changes anything.
fn run(command: &[&str], limit: Duration) -> Output {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program}: {e}"),
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
                // One that waits for a disk ends with the wait, so this does not wait for it.
                let _ = child.kill();
                return Err(format!("{program} {LATE}"));
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
    let said = String::from_utf8_lossy(&said);
    let said = said.lines().next().unwrap_or("failed without a message");
    Err(format!("{program}: {said}"))
}

impl<'a> Machine<'a> {
    pub fn new(sysfs: &'a Sysfs) -> Self {
        Self {
            sysfs,
            run: Box::new(|command| run(command, LIMIT)),
            late: RefCell::default(),
        }
    }

    /// Returns what a program prints, as bytes.
    pub fn bytes(&self, command: &[&str]) -> Output {
        let output = (self.run)(command);
        if let Err(why) = &output {
            if why.ends_with(LATE) {
                let mut late = self.late.borrow_mut();
                late.push((command.join(" "), why.clone()));
            }
        }
        output
    }

    /// Returns the commands that were killed since the last call, and a sentence about each.
    pub fn late(&self) -> Vec<(String, String)> {
        self.late.take()
    }

    /// Returns what a program prints.
    pub fn output(&self, command: &[&str]) -> Result<String, String> {
        let bytes = self.bytes(command)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns what a program prints as JSON.
    pub fn json<T: DeserializeOwned>(&self, command: &[&str]) -> Result<T, String> {
        let bytes = self.bytes(command)?;
        serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", command.join(" ")))
    }

    /// Returns `active`, `inactive`, `failed` and so on.
    pub fn unit_state(&self, unit: &str) -> Result<String, String> {
        let state = self.output(&["systemctl", "show", "-p", "ActiveState", "--value", unit])?;
        Ok(state.trim().to_string())
    }

    /// Returns the text of a file, without white space at the end.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        sysfs::text(self.sysfs.path(path))
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.sysfs.path(path).exists()
    }

    /// Returns the names of the files in a folder.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let paths = self.sysfs.entries(folder);
        paths.into_iter().map(sysfs::name).collect()
    }

    /// Returns the release of the running kernel.
    pub fn release(&self) -> String {
        self.text("/proc/sys/kernel/osrelease").unwrap_or_default()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::doctor::{Check, Finding, Level, Report};
    use std::{collections::BTreeMap, fs, path::PathBuf};

    /// A made-up machine.
    pub struct Made {
        root: tempfile::TempDir,
        sysfs: Sysfs,
        outputs: BTreeMap<String, Output>,
    }

    impl Made {
        pub fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let sysfs = Sysfs::below(root.path());
            let outputs = BTreeMap::new();
            let made = Self {
                root,
                sysfs,
                outputs,
            };
            made.put("/proc/sys/kernel/osrelease", "7.3.4\n");
            made
        }

        /// Writes a file.
        pub fn put(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
            let path = self.sysfs.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        pub fn remove(&self, path: &str) {
            let path = self.sysfs.path(path);
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }

        /// Sets what a program prints.
        pub fn says(&mut self, command: &str, text: &str) {
            self.outputs.insert(command.to_string(), Ok(text.into()));
        }

        /// Sets why a program fails.
        pub fn fails(&mut self, command: &str, why: &str) {
            self.outputs.insert(command.to_string(), Err(why.into()));
        }

        /// Writes the file of a target with LIO's identifiers.
        pub fn target(&self, name: &str, more: &str) {
            let text = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"192.0.2.1:5555\"\n";
            self.put(
                &format!("/etc/srp/targets.d/{name}.conf"),
                format!("{text}{more}"),
            );
        }

        /// Makes a session of a target with the identifiers of [`Made::target`].
        pub fn session(&self, host: u32, more: &[(&str, &str)]) {
            let folder = format!("/sys/class/scsi_host/host{host}");
            let files = [
                ("proc_name", "ib_srp"),
                ("id_ext", "0x0000000000000001"),
                ("ioc_guid", "0x0000000000000002"),
                ("initiator_ext", "0x0000000000000000"),
                ("local_ib_device", "rxe0"),
                ("local_ib_port", "1"),
                ("dest", "192.0.2.1:5555"),
                ("ch_count", "4"),
            ];
            for (file, text) in files.iter().chain(more) {
                self.put(&format!("{folder}/{file}"), format!("{text}\n"));
            }
            let port = format!("/sys/class/srp_remote_ports/port-{host}:1");
            self.put(&format!("{port}/state"), "running\n");
        }

        pub fn machine(&self) -> Machine<'_> {
            Machine {
                sysfs: &self.sysfs,
                run: Box::new(|command| {
                    let said = self.outputs.get(&command.join(" ")).cloned();
                    said.unwrap_or_else(|| Err(format!("{} is not installed", command[0])))
                }),
                late: RefCell::default(),
            }
        }

        pub fn path(&self, path: &str) -> PathBuf {
            self.root.path().join(path.trim_start_matches('/'))
        }

        /// Returns the findings of a check.
        pub fn check(&self, check: Check) -> Vec<Finding> {
            let mut report = Report::new("test");
            check(&self.machine(), &mut report);
            report.findings
        }

        /// Returns each finding that is not ok as its level, what is wrong, and what to type.
        pub fn bad(&self, check: Check) -> Vec<String> {
            let found = self.check(check).into_iter();
            let bad = found.filter(|finding| finding.level != Level::Ok);
            bad.map(|finding| {
                let todo = finding.todo.unwrap_or_default();
                format!("{}: {} -> {todo}", finding.level, finding.what)
            })
            .collect()
        }
    }

    #[test]
    fn a_program_says_what_it_prints() {
        let run = |command: &[&str]| run(command, LIMIT);
        // More than a pipe holds.
        let long = run(&["head", "-c", "300000", "/dev/zero"]).unwrap();
        assert_eq!(long.len(), 300_000);
        let failed = run(&["sh", "-c", "echo no; echo why >&2; echo more >&2; false"]);
        assert_eq!(failed.unwrap_err(), "sh: why");
        let missing = run(&["no-such-program"]).unwrap_err();
        assert_eq!(missing, "no-such-program is not installed");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let start = Instant::now();
        let why = run(&["sleep", "60"], Duration::from_millis(100)).unwrap_err();
        assert_eq!(why, "sleep has not ended within 20 s");
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());

        let mut made = Made::new();
        made.fails("multipath -t", &why);
        let machine = made.machine();
        assert!(machine.output(&["multipath", "-t"]).is_err());
        assert!(machine.output(&["multipath", "-l"]).is_err());
        assert_eq!(machine.late(), [("multipath -t".to_string(), why)]);
        assert_eq!(machine.late(), []);
    }
}
