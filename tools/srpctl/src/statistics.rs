// SPDX-License-Identifier: GPL-2.0

//! The driver's counters of a session, in `statistics/` of the SCSI host: either one value per
//! channel or one for the session.

use crate::sysfs::{self, Sysfs};
use serde::Serialize;
use std::collections::BTreeMap;

/// All counters by name.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Statistics(pub BTreeMap<String, Vec<u64>>);

impl Statistics {
    /// Returns the counters of a SCSI host; empty if the driver has no such files.
    pub fn of(sysfs: &Sysfs, host: u32) -> Self {
        let files = sysfs.entries(format!("/sys/class/scsi_host/host{host}/statistics"));
        let counters = files.iter().filter_map(|path| {
            let numbers: Option<Vec<u64>> = sysfs::text(path)?
                .split(' ')
                .map(|word| word.parse().ok())
                .collect();
            Some((sysfs::name(path), numbers?))
        });
        Self(counters.collect())
    }

    /// Returns the sum of a counter over all channels, 0 if there is no such counter.
    pub fn sum(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |numbers| numbers.iter().sum())
    }
}
