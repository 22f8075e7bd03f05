// SPDX-License-Identifier: GPL-2.0

//! The files and the programs that the checks read.

use crate::sysfs::{self, Sysfs};
use serde::de::DeserializeOwned;
use std::{io::ErrorKind, path::Path, process::Command};

/// The output of a program, or a sentence that says why there is none.
pub type Output = Result<Vec<u8>, String>;

/// Runs a program.
type Run<'a> = dyn Fn(&[&str]) -> Output + 'a;

/// A machine to check. Tests have one of files and outputs.
pub struct Machine<'a> {
    pub sysfs: &'a Sysfs,
    run: Box<Run<'a>>,
}

/// Runs a program. None of those that the checks run changes anything.
fn run(command: &[&str]) -> Output {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let out = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .output();
    let out = out.map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program}: {e}"),
    })?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().next().unwrap_or("failed without a message");
    Err(format!("{program}: {said}"))
}

impl<'a> Machine<'a> {
    pub fn new(sysfs: &'a Sysfs) -> Self {
        Self {
            sysfs,
            run: Box::new(run),
        }
    }

    /// Returns what a program prints, as bytes.
    pub fn bytes(&self, command: &[&str]) -> Output {
        (self.run)(command)
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
}
