// SPDX-License-Identifier: GPL-2.0

//! The files and the programs that the checks read.

use crate::{
    program::{self, Failure, Output},
    sysfs::{self, Sysfs},
};
use serde::de::DeserializeOwned;
use std::{cell::RefCell, collections::BTreeMap, io, net::SocketAddr, path::Path};

/// Runs a program.
type Run<'a> = dyn Fn(&[&str]) -> Output + 'a;

/// A machine to check. Tests have one of files and outputs.
pub struct Machine<'a> {
    pub sysfs: &'a Sysfs,
    /// Whether targets may be asked.
    pub asks: bool,
    run: Box<Run<'a>>,
    /// The output of each command. Several checks read some of them.
    outputs: RefCell<BTreeMap<String, Output>>,
    /// The commands that were killed, and a sentence about each.
    late: RefCell<Vec<(String, String)>>,
}

impl<'a> Machine<'a> {
    pub fn new(sysfs: &'a Sysfs, asks: bool) -> Self {
        Self {
            sysfs,
            asks,
            // None of the programs changes anything.
            run: Box::new(program::run),
            outputs: RefCell::default(),
            late: RefCell::default(),
        }
    }

    /// Returns what a program prints, as bytes. Each command is run once.
    pub fn bytes(&self, command: &[&str]) -> Output {
        let line = command.join(" ");
        if let Some(known) = self.outputs.borrow().get(&line) {
            return known.clone();
        }
        let output = (self.run)(command);
        if let Err(why @ Failure::Late(..)) = &output {
            let mut late = self.late.borrow_mut();
            late.push((line.clone(), why.to_string()));
        }
        self.outputs.borrow_mut().insert(line, output.clone());
        output
    }

    /// Returns the commands that were killed since the last call, and a sentence about each.
    pub fn late(&self) -> Vec<(String, String)> {
        self.late.take()
    }

    /// Returns what a program prints.
    pub fn output(&self, command: &[&str]) -> Result<String, Failure> {
        let bytes = self.bytes(command)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns what a program prints as JSON.
    pub fn json<T: DeserializeOwned>(&self, command: &[&str]) -> Result<T, Failure> {
        let bytes = self.bytes(command)?;
        let failed = |e: serde_json::Error| Failure::Failed(command.join(" "), e.to_string());
        serde_json::from_slice(&bytes).map_err(failed)
    }

    /// Returns the addresses of a host name, within the time limit of a program.
    pub fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let text = match self.output(&["getent", "ahosts", name]) {
            // Without a message there is no such name.
            Err(Failure::Failed(_, said)) if said.is_empty() => String::new(),
            output => output.map_err(io::Error::other)?,
        };
        let words = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let addresses = words.filter_map(|word| word.parse().ok());
        Ok(addresses.map(|ip| SocketAddr::new(ip, 0)).collect())
    }

    /// Returns `active`, `inactive`, `failed` and so on.
    pub fn unit_state(&self, unit: &str) -> Result<String, Failure> {
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
    use std::{fs, path::PathBuf, time::Duration};

    /// A made-up machine.
    pub struct Made {
        root: tempfile::TempDir,
        sysfs: Sysfs,
        outputs: BTreeMap<String, Output>,
        pub asks: bool,
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
                asks: false,
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

        /// Sets what a program says when it fails.
        pub fn fails(&mut self, command: &str, said: &str) {
            let program = command.split(' ').next().unwrap().to_string();
            let why = Failure::Failed(program, said.into());
            self.outputs.insert(command.to_string(), Err(why));
        }

        /// Makes a program hang.
        pub fn hangs(&mut self, command: &str) {
            let program = command.split(' ').next().unwrap().to_string();
            let why = Failure::Late(program, Duration::from_secs(20));
            self.outputs.insert(command.to_string(), Err(why));
        }

        /// Removes a program.
        pub fn lacks(&mut self, command: &str) {
            self.outputs.remove(command);
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
                asks: self.asks,
                run: Box::new(|command| {
                    let said = self.outputs.get(&command.join(" ")).cloned();
                    said.unwrap_or_else(|| Err(Failure::Missing(command[0].into())))
                }),
                outputs: RefCell::default(),
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
    fn a_program_that_does_not_end_is_told_once() {
        let mut made = Made::new();
        made.hangs("multipath -t");
        let machine = made.machine();
        for _ in 0..2 {
            assert!(machine.output(&["multipath", "-t"]).is_err());
        }
        assert!(machine.output(&["multipath", "-l"]).is_err());
        let why = "multipath has not ended within 20 s".to_string();
        assert_eq!(machine.late(), [("multipath -t".to_string(), why)]);
        assert_eq!(machine.late(), []);
    }

    #[test]
    fn a_host_name_has_addresses() {
        let mut made = Made::new();
        let addresses = |made: &Made| made.machine().addresses("storage");
        let error = addresses(&made).unwrap_err();
        assert_eq!(error.to_string(), "getent is not installed");
        made.fails("getent ahosts storage", "");
        assert_eq!(addresses(&made).unwrap(), []);
        let text = "192.0.2.1       STREAM storage\n2001:db8::1     STREAM\n";
        made.says("getent ahosts storage", text);
        let found = ["192.0.2.1:0", "[2001:db8::1]:0"].map(|one| one.parse().unwrap());
        assert_eq!(addresses(&made).unwrap(), found);
    }
}
