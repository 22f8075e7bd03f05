// SPDX-License-Identifier: GPL-2.0

//! The firmware's login, if it booted from an SRP disk.

use super::{machine::Machine, Report};
use crate::{
    error::Error,
    firmware::{names, state, State},
};

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let names = names(machine.sysfs);
    if names.is_empty() {
        return report.ok("no table sBFT: the firmware has not booted from an SRP disk");
    }
    for name in names {
        let (state, other) = state(machine.sysfs, &name);
        if let Some(why) = other {
            let todo = "LIO: make an ACL with the GUID of the port, too";
            report.warning(format!("{name}: {why}"), todo);
        }
        let login = format!("srpctl connect --firmware={name}");
        match state {
            State::Wrong(error @ Error::NotRoot(_)) => {
                report.note(error.to_string(), "srpctl doctor, as root");
            }
            State::Wrong(error) => {
                report.error(error.to_string(), "boot with another version of iPXE");
            }
            State::NoPort(gid) => report.error(
                format!("{name}: no RDMA port with the GID {gid}, which the firmware has used"),
                "rdma link; load the driver of its adapter",
            ),
            State::None => report.warning(format!("{name}: not logged in"), login),
            State::Session(session, None) => report.error(
                format!("{name}: {} lacks the disk of the firmware", session.name()),
                format!(
                    "map that LUN on the target; srpctl rescan {}",
                    session.name()
                ),
            ),
            State::Session(session, Some(disk)) => {
                report.ok(format!("{name}: {} has the disk {disk}", session.name()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        doctor::machine::tests::Made,
        firmware::{
            tests::{booted, table},
            FOLDER,
        },
        sysfs::Sysfs,
    };
    use std::fs;

    #[test]
    fn the_login_of_the_firmware_is_there_or_missed() {
        assert_eq!(Made::new().bad(check), [""; 0]);
        let folder = booted();
        let sysfs = Sysfs::below(folder.path());
        let findings = || {
            let mut report = Report::new("firmware");
            check(&Machine::new(&sysfs, false), &mut report);
            let found = report.findings.into_iter();
            let all: Vec<String> = found
                .map(|one| format!("{}: {}", one.level, one.what))
                .collect();
            all.join("; ")
        };
        let path = sysfs.path(FOLDER).join("sBFT");
        let disk = "/dev/disk/by-path/srp-rxe1";
        assert_eq!(findings(), format!("ok: sBFT: host10 has the disk {disk}"));
        fs::write(&path, table(4)).unwrap();
        assert_eq!(
            findings(),
            "error: sBFT: host10 lacks the disk of the firmware"
        );
        fs::remove_dir_all(sysfs.path("/sys/class/scsi_host/host10")).unwrap();
        assert_eq!(findings(), "warning: sBFT: not logged in");
        fs::remove_dir_all(sysfs.path("/sys/class/infiniband/rxe1")).unwrap();
        assert!(findings().starts_with("error: sBFT: no RDMA port with the GID fe80:"));
        fs::write(&path, "sBFT").unwrap();
        let said = findings();
        assert!(
            said.ends_with("sBFT: length: bytes 4 to 7 of a table of 4"),
            "{said}"
        );
    }
}
