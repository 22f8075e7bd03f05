// SPDX-License-Identifier: GPL-2.0

//! The values of a command line, by the table of its options. All programs read theirs here.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

use crate::config::{Key, Kind};

/// The options that are not taken yet, in order.
pub struct Values {
    program: String,
    list: Vec<(String, OsString)>,
}

fn parsed<T: FromStr>(name: &str, text: &str, good: impl Fn(&T) -> bool) -> Result<T, String> {
    let value = text.parse().ok().filter(good);
    value.ok_or_else(|| format!("{name}: '{text}' is not what it can be"))
}

impl Values {
    /// Splits arguments into options, each in `keys`. Only a flag has no value. Errors name the
    /// option or the program.
    pub fn new(
        program: &str,
        keys: &[Key],
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, String> {
        let mut this = Self {
            program: program.into(),
            list: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy().into_owned();
            let known = |key: &&Key| name.strip_prefix("--") == Some(key.0);
            let value = match keys.iter().find(known) {
                None => return Err(format!("{program} has no option '{name}'")),
                Some((_, Kind::Flag)) => OsString::new(),
                Some(_) => args.next().ok_or_else(|| format!("{name} has no value"))?,
            };
            this.list.push((name, value));
        }
        Ok(this)
    }

    /// Takes all values of an option.
    pub fn all(&mut self, name: &str) -> Vec<OsString> {
        let list = std::mem::take(&mut self.list);
        let (taken, left): (Vec<_>, _) = list.into_iter().partition(|(n, _)| n == name);
        self.list = left;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// Takes all values of an option that has to be given.
    pub fn some(&mut self, name: &str) -> Result<Vec<OsString>, String> {
        let all = self.all(name);
        match all.is_empty() {
            true => Err(self.missing(name)),
            false => Ok(all),
        }
    }

    fn missing(&self, name: &str) -> String {
        format!("{} needs {name}", self.program)
    }

    /// Returns whether a flag is given.
    pub fn flag(&mut self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    /// Parses an option; the last occurrence counts.
    pub fn one<T: FromStr>(
        &mut self,
        name: &str,
        good: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, String> {
        let last = self.all(name).pop();
        let last = last.map(|text| parsed(name, &text.to_string_lossy(), good));
        last.transpose()
    }

    /// Parses an option that has to be given.
    pub fn needed<T: FromStr>(
        &mut self,
        name: &str,
        good: impl Fn(&T) -> bool,
    ) -> Result<T, String> {
        let value = self.one(name, good)?;
        value.ok_or_else(|| self.missing(name))
    }

    /// Parses a hexadecimal number, by default 1.
    pub fn hex(&mut self, name: &str) -> Result<u64, String> {
        let Some(text) = self.all(name).pop() else {
            return Ok(1);
        };
        let text = text.to_string_lossy();
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16).map_err(|_| format!("{name}: '{text}' is no GUID"))
    }

    /// Parses an option that may be a part of a path: letters, digits, - and _.
    pub fn word(&mut self, name: &str) -> Result<Option<String>, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        self.one(name, |n: &String| !n.is_empty() && n.chars().all(good))
    }

    /// Parses all addresses of an option, at least one.
    pub fn addresses(&mut self, name: &str) -> Result<Vec<SocketAddr>, String> {
        let all = self.some(name)?;
        let address = |text: &OsString| parsed(name, &text.to_string_lossy(), |_| true);
        all.iter().map(address).collect()
    }

    /// Takes a path.
    pub fn file(&mut self, name: &str) -> Option<PathBuf> {
        self.all(name).pop().map(PathBuf::from)
    }

    /// Takes a path that has to be given.
    pub fn needed_file(&mut self, name: &str) -> Result<PathBuf, String> {
        self.file(name).ok_or_else(|| self.missing(name))
    }

    /// Where a program listens: by default at this port of all addresses.
    pub fn listen(&mut self, port: u16) -> Result<SocketAddr, String> {
        let default = SocketAddr::from(([0, 0, 0, 0], port));
        Ok(self.one("--listen", |_| true)?.unwrap_or(default))
    }

    /// Credits of a channel of a target.
    pub fn queue_depth(&mut self) -> Result<u32, String> {
        let depth = self.one("--queue-depth", |n| (2..=1024).contains(n))?;
        Ok(depth.unwrap_or(64))
    }

    /// Maximum number of channels of a session of a target.
    pub fn channels(&mut self) -> Result<usize, String> {
        let channels = self.one("--channels", |n| (1..=64).contains(n))?;
        Ok(channels.unwrap_or(16))
    }

    /// Number of threads of a target that serve channels.
    pub fn reactors(&mut self) -> Result<usize, String> {
        let reactors = self.one("--reactors", |n| (1..=64).contains(n))?;
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(reactors.unwrap_or_else(|| cpus().min(8)))
    }

    /// Number of threads that read and write files.
    pub fn threads(&mut self) -> Result<usize, String> {
        let threads = self.one("--threads", |n| (1..=64).contains(n))?;
        Ok(threads.unwrap_or(4))
    }
}
