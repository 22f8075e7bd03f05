// SPDX-License-Identifier: GPL-2.0

//! Which initiators may log in, and which units they see.

use std::{
    collections::HashSet,
    fs, io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// Maximum number of refused initiators that are remembered, as an initiator may have any name.
const TOLD: usize = 64;

/// The units that an initiator sees; `None`: all.
pub type Units = Option<Vec<RangeInclusive<usize>>>;

/// Returns whether an initiator sees a unit.
pub fn sees(units: &Units, unit: usize) -> bool {
    let some = |list: &Vec<RangeInclusive<usize>>| list.iter().any(|r| r.contains(&unit));
    units.as_ref().is_none_or(some)
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    initiator: [u8; 16],
    target: Option<[u8; 16]>,
    units: Units,
}

/// A list of initiators.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List(Vec<Entry>);

fn port(text: &str) -> Result<[u8; 16], String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u128::from_str_radix(digits, 16).ok();
    let number = number.filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    let wrong = || format!("'{text}' is no port identifier of 32 hexadecimal digits");
    Ok(number.ok_or_else(wrong)?.to_be_bytes())
}

fn units(text: &str) -> Result<Vec<RangeInclusive<usize>>, String> {
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u8, u8) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(first.into()..=last.into())
    };
    let all: Option<Vec<_>> = text.split(',').map(one).collect();
    all.ok_or_else(|| format!("luns='{text}' is no list like 0,2-5, of 0 to 255"))
}

impl List {
    /// Parses a list: each line has an initiator port identifier, and maybe `target=` with a target
    /// port identifier and `luns=` with LUNs. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut list = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let named = |e| format!("line {}: {e}", n + 1);
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace();
            let Some(first) = words.next() else {
                continue;
            };
            let mut entry = Entry {
                initiator: port(first).map_err(named)?,
                target: None,
                units: None,
            };
            for word in words {
                match word.split_once('=') {
                    Some(("target", id)) => entry.target = Some(port(id).map_err(named)?),
                    Some(("luns", luns)) => entry.units = Some(units(luns).map_err(named)?),
                    _ => return Err(named(format!("'{word}' is neither target= nor luns="))),
                }
            }
            let same = |e: &Entry| e.initiator == entry.initiator && e.target == entry.target;
            if list.iter().any(same) {
                return Err(named(format!("'{first}' is there twice")));
            }
            list.push(entry);
        }
        Ok(Self(list))
    }

    /// The units that an initiator sees at a target port; `None` if it may not log in. A line with
    /// the target counts more than one without.
    pub fn find(&self, initiator: &[u8; 16], target: &[u8; 16]) -> Option<&Units> {
        let of = |wanted: Option<[u8; 16]>| {
            let mut all = self.0.iter();
            all.find(|e| e.initiator == *initiator && e.target == wanted)
        };
        of(Some(*target)).or_else(|| of(None)).map(|e| &e.units)
    }
}

/// The list of a target, and the initiators that it has refused.
#[derive(Default)]
pub struct Access {
    list: Option<List>,
    refused: HashSet<[u8; 16]>,
}

impl Access {
    /// Sets the list.
    pub fn set(&mut self, list: List) {
        self.list = Some(list);
        self.refused.clear();
    }

    /// The units that an initiator sees. Without a list it is all of them. The error is whether
    /// to log the refusal.
    pub fn find(&mut self, initiator: &[u8; 16], target: &[u8; 16]) -> Result<Units, bool> {
        let Some(list) = &self.list else {
            return Ok(None);
        };
        match list.find(initiator, target) {
            Some(units) => Ok(units.clone()),
            None => Err(self.refused.len() < TOLD && self.refused.insert(*initiator)),
        }
    }
}

/// A file with a list.
pub struct ListFile {
    path: PathBuf,
    last: Result<List, String>,
}

impl ListFile {
    fn read(path: &Path) -> Result<List, String> {
        let text = fs::read_to_string(path).map_err(|e| e.to_string());
        let list = text.and_then(|text| List::parse(&text));
        list.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Reads a file. The error names it.
    pub fn open(path: &Path) -> io::Result<(Self, List)> {
        let list = Self::read(path).map_err(io::Error::other)?;
        let path = path.to_path_buf();
        let last = Ok(list.clone());
        Ok((Self { path, last }, list))
    }

    /// Reads the file again. Returns the list if it is new. If the file is wrong, logs that once.
    pub fn news(&mut self) -> Option<List> {
        let now = Self::read(&self.path);
        if now == self.last {
            return None;
        }
        self.last = now.clone();
        now.map_err(|e| tracing::warn!("{e}; the list read earlier stays"))
            .ok()
    }
}
