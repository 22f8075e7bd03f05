// SPDX-License-Identifier: GPL-2.0

//! The driver, ib_srp.

use crate::{
    error::{Error, Result},
    patience,
    program::{self, Failure},
    sysfs::Sysfs,
};
use nix::unistd::geteuid;
use std::time::Duration;

/// Only this project's driver has this parameter.
pub const OURS: &str = "/sys/module/ib_srp/parameters/keep_alive";

/// Time limit of `modprobe ib_srp`, which also waits until the driver has added all ports.
const LIMIT: Duration = Duration::from_secs(60);

/// Loads the driver unless its files are in sysfs.
pub fn load(sysfs: &Sysfs) -> Result {
    if sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    let load = || program::within(LIMIT, &["modprobe", "ib_srp"]);
    match patience::waiting("modprobe ib_srp", load) {
        Ok(_) => has_come(sysfs),
        Err(_) if !geteuid().is_root() => Err(Error::NotRoot("modprobe ib_srp".into())),
        Err(Failure::Failed(_, said)) => {
            let advice = advice(&said);
            Err(Error::NoModule(format!(" and cannot be: {said}{advice}")))
        }
        Err(why) => Err(Error::NoModule(format!(": {why}"))),
    }
}

/// Checks that modprobe, which has succeeded, has loaded the driver.
fn has_come(sysfs: &Sysfs) -> Result {
    if sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    Err(Error::NoModule(
        ", though modprobe has succeeded; look for a line `install ib_srp` in \
         `modprobe --showconfig`"
            .into(),
    ))
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
    fn a_success_of_modprobe_is_not_enough() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let error = has_come(&sysfs).unwrap_err();
        let said = "the module ib_srp is not loaded, though modprobe has succeeded; look for ";
        assert!(error.to_string().starts_with(said), "{error}");
        assert_eq!(error.status(), 5);
        std::fs::create_dir_all(root.path().join("sys/class/infiniband_srp")).unwrap();
        has_come(&sysfs).unwrap();
    }

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
