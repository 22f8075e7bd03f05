// SPDX-License-Identifier: GPL-2.0

//! Where the driver's files want an order, and which of these is weakened.
//!
//! `WEAKEN=FILE:LINE:ORDER,...` has the operations there that want the next stronger order be of
//! these orders, as if they were written so. With `SITES=FILE` each place that wants an order is
//! noted there when it is first met.

use std::{
    collections::HashSet,
    io::Write,
    panic::Location,
    sync::{Mutex, OnceLock},
};

/// An order, or what a barrier or a section is without.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    Nothing,
    Relaxed,
    Acquire,
    Release,
    Full,
    Barrier,
}

impl Kind {
    fn parse(text: &str) -> Self {
        match text {
            "Nothing" => Self::Nothing,
            "Relaxed" => Self::Relaxed,
            "Acquire" => Self::Acquire,
            "Release" => Self::Release,
            _ => panic!("WEAKEN: no order {text}"),
        }
    }

    /// An operation that wants the other one can be weakened to this, in one step.
    fn is_below(self, other: Self) -> bool {
        match other {
            Self::Full => matches!(self, Self::Acquire | Self::Release),
            Self::Acquire | Self::Release => self == Self::Relaxed,
            Self::Barrier => self == Self::Nothing,
            Self::Nothing | Self::Relaxed => false,
        }
    }
}

fn weakened() -> &'static [(String, u32, Kind)] {
    static WEAKEN: OnceLock<Vec<(String, u32, Kind)>> = OnceLock::new();
    let one = |text: &str| {
        let mut words = text.split(':');
        let mut word = || words.next().expect("WEAKEN is FILE:LINE:ORDER,...");
        let (file, line, order) = (word(), word(), word());
        (
            file.into(),
            line.parse().expect("a line"),
            Kind::parse(order),
        )
    };
    WEAKEN.get_or_init(|| match std::env::var("WEAKEN") {
        Ok(text) => text.split(',').map(one).collect(),
        Err(_) => Vec::new(),
    })
}

fn note(file: &str, line: u32, what: &str, kind: Kind) {
    static SITES: OnceLock<Option<Mutex<(std::fs::File, HashSet<(String, u32, Kind)>)>>> =
        OnceLock::new();
    let open = || {
        let name = std::env::var_os("SITES")?;
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(name)
            .expect("SITES");
        Some(Mutex::new((file, HashSet::new())))
    };
    if let Some(sites) = SITES.get_or_init(open) {
        let (out, known) = &mut *sites.lock().expect("sites");
        if known.insert((file.into(), line, kind)) {
            writeln!(out, "{file}\t{line}\t{what}\t{kind:?}").expect("SITES");
        }
    }
}

/// The order of an operation of this kind that wants `kind`, there.
pub fn order(at: &Location<'_>, what: &str, kind: Kind) -> Kind {
    if kind == Kind::Relaxed {
        return kind;
    }
    let path = at.file();
    // What is not the driver's is the model's.
    let Some(start) = path.rfind("/rust/") else {
        return kind;
    };
    let file = &path[start + 1..];
    if file.contains("..") {
        return kind;
    }
    note(file, at.line(), what, kind);
    let here = |(name, line, weak): &&(String, u32, Kind)| {
        name == file && *line == at.line() && weak.is_below(kind)
    };
    weakened()
        .iter()
        .find(here)
        .map_or(kind, |&(_, _, weak)| weak)
}
