// SPDX-License-Identifier: GPL-2.0

//! The driver, ib_srp.

use crate::{
    error::{Error, Result},
    program::{self, Failure},
    sysfs::Sysfs,
};
use std::time::Duration;

/// Time to load it. The driver then finds all ports.
/// Only this project's driver has this parameter.
pub const OURS: &str = "/sys/module/ib_srp/parameters/keep_alive";

const LIMIT: Duration = Duration::from_secs(60);

/// Loads the driver unless its files are in sysfs.
pub fn load(sysfs: &Sysfs) -> Result {
    if sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    match program::within(LIMIT, &["modprobe", "ib_srp"]) {
        Ok(_) => Ok(()),
        Err(Failure::Failed(_, said)) => {
            let advice = advice(&said);
            Err(Error::NoModule(format!(" and cannot be: {said}{advice}")))
        }
        Err(why) => Err(Error::NoModule(format!(": {why}"))),
    }
}

/// Returns advice for an error message of modprobe, or an empty string.
fn advice(said: &str) -> &'static str {
    if said.contains("Key was rejected") {
        "; Secure Boot does not know the key that signed it: mokutil --import \
         /var/lib/dkms/mok.pub, reboot, confirm"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_known() {
        let said = "modprobe: ERROR: could not insert 'ib_srp': Key was rejected by service";
        assert!(advice(said).contains("mokutil --import"));
        assert_eq!(
            advice("modprobe: FATAL: Module ib_srp not found in directory"),
            ""
        );
    }
}
