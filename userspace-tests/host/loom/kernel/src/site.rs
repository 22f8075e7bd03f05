// SPDX-License-Identifier: GPL-2.0

//! The orderings that the driver's files need, and those that this run weakens.
//!
//! `WEAKEN=FILE:LINE:ORDER,...` weakens the operations at these lines to `ORDER`, if they need an
//! ordering one step stronger. `SITES=FILE` logs each place that needs an ordering to that file
//! when it is first reached.

use std::{
    collections::HashSet,
    io::Write,
    panic::Location,
    sync::{Mutex, OnceLock},
};

/// A memory ordering. `Nothing` is that of a barrier or read-side section that is left out.
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

    /// Whether an operation that needs `other` can be weakened to `self` in one step.
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

/// The ordering, in this run, of operation `what` at `at`, which needs the ordering `kind`.
pub fn order(at: &Location<'_>, what: &str, kind: Kind) -> Kind {
    if kind == Kind::Relaxed {
        return kind;
    }
    let path = at.file();
    // Code outside the driver's files belongs to the model.
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
