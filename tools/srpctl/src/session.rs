// SPDX-License-Identifier: GPL-2.0

//! Sessions: SCSI hosts of ib_srp.

use crate::{
    adapter,
    connect::elsewhere,
    disk::Disk,
    error::{Error, Result},
    owner::{Owner, OURS},
    port::Port,
    sysfs::{self, Sysfs},
    target::Target,
};
use serde::Serialize;
use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Session {
    /// Number of the session's SCSI host.
    pub host: u32,
    /// Identifier extension of the target. `id_ext` and `ioc_guid` together identify it.
    pub id_ext: String,
    /// I/O controller GUID of the target.
    pub ioc_guid: String,
    /// Name of the local RDMA device.
    pub device: String,
    /// Port number on the RDMA device, starting at 1.
    pub port: u32,
    /// Address of the target: `IPv4:PORT`, `[IPv6]:PORT`, or a GID.
    pub address: String,
    /// State of the remote port: `running`, `blocked`, `fail-fast` or `lost`.
    pub state: String,
    /// Number of channels.
    pub channels: u32,
    /// Creator of the session, `srpctl` or `initramfs`; `None` if there is no record of it.
    pub owner: Option<String>,
    /// Initiator extension; `None` if the driver does not show it (the C driver) and there is no
    /// record of the session.
    pub initiator_ext: Option<String>,
    /// Name of the target's file in `/etc/srp/targets.d`, if it is on record.
    pub target: Option<String>,
    /// Time (seconds since 1970) and reason of the last lost connection or failed reconnect.
    pub last_error: Option<String>,
    /// Disks of the session.
    pub disks: Vec<Disk>,
}

impl Session {
    /// Returns all sessions, without their disks.
    pub fn hosts(sysfs: &Sysfs) -> Vec<Self> {
        let hosts = sysfs.entries("/sys/class/scsi_host");
        hosts
            .iter()
            .filter(|path| sysfs::text(path.join("proc_name")).as_deref() == Some("ib_srp"))
            .filter_map(|path| {
                let host = sysfs::name(path).strip_prefix("host")?.parse().ok()?;
                let mut session = Self {
                    host,
                    id_ext: sysfs::text(path.join("id_ext"))?,
                    ioc_guid: sysfs::text(path.join("ioc_guid"))?,
                    device: sysfs::text(path.join("local_ib_device"))?,
                    port: sysfs::number(path.join("local_ib_port"))?,
                    address: ["dest", "dgid"]
                        .iter()
                        .filter_map(|file| sysfs::text(path.join(file)))
                        .find(|text| !text.is_empty())
                        .unwrap_or_default(),
                    state: sysfs::text(Self::remote_port(sysfs, host).join("state"))
                        .unwrap_or_else(|| "lost".into()),
                    channels: sysfs::number(path.join("ch_count")).unwrap_or(0),
                    owner: None,
                    initiator_ext: sysfs::text(path.join("initiator_ext")),
                    target: None,
                    last_error: sysfs::text(path.join("last_error"))
                        .filter(|text| !text.is_empty()),
                    disks: Vec::new(),
                };
                if let Some(owner) = Owner::of(sysfs, &session) {
                    session.owner = Some(owner.owner);
                    session.initiator_ext.get_or_insert(owner.initiator_ext);
                    session.target = owner.target;
                }
                Some(session)
            })
            .collect()
    }

    /// Returns all sessions with their disks.
    pub fn all(sysfs: &Sysfs) -> Vec<Self> {
        let mut all = Self::hosts(sysfs);
        let hosts: Vec<u32> = all.iter().map(|session| session.host).collect();
        let mut disks = Disk::all(sysfs, &hosts);
        for session in &mut all {
            session.disks = disks.remove(&session.host).unwrap_or_default();
        }
        all
    }

    /// Returns the sysfs directory of the host's remote port, in the SRP transport class.
    pub fn remote_port(sysfs: &Sysfs, host: u32) -> PathBuf {
        sysfs.path(format!("/sys/class/srp_remote_ports/port-{host}:1"))
    }

    /// Returns the sysfs directory of the session's SCSI host, which has the driver's files.
    pub fn folder(&self, sysfs: &Sysfs) -> PathBuf {
        sysfs.path(format!("/sys/class/scsi_host/{}", self.name()))
    }

    /// Returns the name of the SCSI host, such as `host7`.
    pub fn name(&self) -> String {
        format!("host{}", self.host)
    }

    /// Returns the RDMA device and its port, such as `mlx5_0/1`.
    pub fn port_name(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }

    /// Returns the name of the target, or `id_ext:ioc_guid` if the name is not on record.
    pub fn label(&self) -> String {
        match &self.target {
            Some(name) => name.clone(),
            None => format!("{}:{}", self.id_ext, self.ioc_guid),
        }
    }

    /// Returns whether the session has a connection. With fast_io_fail_tmo and dev_loss_tmo off,
    /// the transport class reports `running` without one.
    pub fn is_connected(&self) -> bool {
        self.state == "running" && self.channels > 0
    }

    /// Returns whether the session matches `target`. Unknown and unspecified values match.
    pub fn is_of(
        &self,
        sysfs: &Sysfs,
        target: &Target,
        (id_ext, ioc_guid, initiator_ext): &(String, String, String),
    ) -> bool {
        self.id_ext == *id_ext
            && self.ioc_guid == *ioc_guid
            && self
                .initiator_ext
                .as_ref()
                .is_none_or(|known| known == initiator_ext)
            && target
                .device
                .as_ref()
                .is_none_or(|device| adapter::is(sysfs, device, &self.device))
            && target.port.is_none_or(|port| port == self.port)
    }

    /// Returns the sessions with `target` through `port`, without their disks.
    pub fn to(sysfs: &Sysfs, target: &Target, port: &Port) -> Result<Vec<Self>> {
        let key = target.key()?;
        let mut all = Self::hosts(sysfs);
        all.retain(|session| {
            session.is_of(sysfs, target, &key)
                && session.device == port.device
                && session.port == port.number
        });
        Ok(all)
    }

    /// Returns the sessions that `argument` names: a SCSI host, its number, or a target.
    pub fn meant(sysfs: &Sysfs, argument: &str) -> Result<Vec<Self>> {
        let mut all = Self::all(sysfs);
        if let Some(host) = host(argument) {
            all.retain(|session| session.host == host);
            if all.is_empty() {
                return Err(Error::NotFound(format!(
                    "host{host} is not a session of ib_srp; `srpctl list` lists the sessions"
                )));
            }
            return Ok(all);
        }
        Self::named(sysfs, all, argument)
    }

    /// Returns the sessions with the target `name`.
    pub fn named(sysfs: &Sysfs, mut all: Vec<Self>, name: &str) -> Result<Vec<Self>> {
        // Sessions recorded under that name take precedence over those that match the file.
        let is_known = |session: &Self| session.target.as_deref() == Some(name);
        if all.iter().any(is_known) {
            all.retain(is_known);
            return Ok(all);
        }
        // Otherwise, the sessions that match the file and are not on record under another one.
        let target = Target::named(sysfs, name)?;
        let key = target.key()?;
        // A session whose file is gone belongs to another file only if it leads to the same place.
        let leads_there = |session: &Self| {
            session.target.is_none()
                || target.host().is_some()
                || elsewhere(sysfs, session, &target).is_ok_and(|place| place.is_none())
        };
        all.retain(|session| {
            !session.has_file(sysfs) && session.is_of(sysfs, &target, &key) && leads_there(session)
        });
        Ok(all)
    }

    /// Parses the driver's `last_error`.
    pub fn last_error(&self) -> Option<(SystemTime, &str)> {
        let (seconds, why) = self.last_error.as_deref()?.split_once(' ')?;
        let since = Duration::from_secs(seconds.parse().ok()?);
        Some((UNIX_EPOCH.checked_add(since)?, why))
    }

    /// Returns whether srpctl has made the session, so that it may log out of it.
    pub fn is_ours(&self) -> bool {
        self.owner.as_deref() == Some(OURS)
    }

    /// Returns whether the session is on record under the name of a file. The file may have been
    /// renamed or removed since, and the initramfs has the files of the day it was made.
    pub fn has_file(&self, sysfs: &Sysfs) -> bool {
        let path = |name: &String| Target::path(sysfs, name).ok();
        let path = self.target.as_ref().and_then(path);
        path.is_some_and(|path| path.try_exists().unwrap_or(true))
    }
}

/// Parses the name of a SCSI host, `host7` or `7`.
pub fn host(argument: &str) -> Option<u32> {
    let text = argument.strip_prefix("host").unwrap_or(argument);
    // Neither +7 nor 07.
    text.parse().ok().filter(|n: &u32| n.to_string() == text)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{cli::List, list, schema};
    use std::{fs, os::unix::fs::symlink, path::Path};

    /// A machine with two sessions, two paths to one disk, and a disk of another driver.
    pub fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let link = |path: &str, to: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, path).unwrap();
        };
        put("sys/class/scsi_host/host0/proc_name", "ahci\n");
        for (host, device, disk) in [(10, "rxe1", "sdc"), (9, "rxe0", "sdb")] {
            put(
                &format!("sys/class/scsi_host/host{host}/dest"),
                "10.0.0.1:5555\n",
            );
            let host_folder = format!("sys/class/scsi_host/host{host}");
            for (file, text) in [
                ("proc_name", "ib_srp"),
                ("id_ext", "0x0000000000000001"),
                ("ioc_guid", "0x0000000000000002"),
                ("local_ib_device", device),
                ("local_ib_port", "1"),
                ("ch_count", "4"),
            ] {
                put(&format!("{host_folder}/{file}"), &format!("{text}\n"));
            }
            put(
                &format!("sys/class/srp_remote_ports/port-{host}:1/state"),
                "running\n",
            );
            let scsi = format!("sys/devices/{host}:0:0:3");
            put(&format!("{scsi}/vendor"), "LIO-ORG \n");
            put(&format!("{scsi}/model"), "disk            \n");
            put(&format!("{scsi}/wwid"), "naa.6001\n");
            put(&format!("{scsi}/state"), "running\n");
            put(&format!("sys/class/block/{disk}/size"), "524288\n");
            link(
                &format!("sys/class/block/{disk}/device"),
                &format!("../../../devices/{host}:0:0:3"),
            );
            link(
                &format!("dev/disk/by-path/srp-{device}"),
                &format!("../../{disk}"),
            );
        }
        link("dev/srp0", "sdb");
        put("sys/class/block/sda/size", "1\n");
        link("sys/class/block/sda/device", "../../../devices/0:0:0:0");
        let file =
            "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"10.0.0.1:5555\"\ndevice = \"rxe1\"\n";
        put("etc/srp/targets.d/one.conf", file);
        folder
    }

    fn below(folder: &Path) -> Sysfs {
        Sysfs::below(folder)
    }

    #[test]
    fn sessions_have_their_disks() {
        let folder = machine();
        let sysfs = below(folder.path());
        let all = Session::all(&sysfs);
        let hosts: Vec<u32> = all.iter().map(|session| session.host).collect();
        assert_eq!(hosts, [9, 10]);
        assert_eq!(all[0].port_name(), "rxe0/1");
        assert_eq!(all[0].state, "running");
        assert_eq!(all[0].address, "10.0.0.1:5555");
        let disk = &all[0].disks[0];
        assert_eq!(all[0].disks.len(), 1);
        assert_eq!(
            (disk.name.as_str(), disk.lun, disk.size),
            ("sdb", 3, 256 << 20)
        );
        assert_eq!(disk.link.as_deref(), Some("/dev/srp0"));
        assert_eq!(disk.by_path.as_deref(), Some("/dev/disk/by-path/srp-rxe0"));
        assert_eq!(disk.model, "LIO-ORG disk");
        assert_eq!(disk.paths, ["sdb", "sdc"]);
        schema::check("list", &all);
        list::run(&sysfs, &List { json: true }).unwrap();
        let table = list::table(&all).to_string();
        let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "host9 0x0000000000000001:0x0000000000000002 10.0.0.1:5555 rxe0/1 4 running sdb 3 256 MiB LIO-ORG disk 2 \
             srp-rxe0"
        );
    }

    #[test]
    fn the_last_error_has_a_time() {
        let of = |text: &str| Session {
            last_error: Some(text.into()),
            ..Session::default()
        };
        let known = of("1000 connection lost: why");
        let time = UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(known.last_error(), Some((time, "connection lost: why")));
        for text in [
            "connection lost",
            "soon lost",
            &format!("{} lost", u64::MAX),
        ] {
            assert_eq!(of(text).last_error(), None, "{text}");
        }
    }

    #[test]
    fn a_session_is_meant_by_host_or_target() {
        let folder = machine();
        let sysfs = below(folder.path());
        let hosts = |argument: &str| -> Vec<u32> {
            let meant = Session::meant(&sysfs, argument).unwrap();
            meant.iter().map(|session| session.host).collect()
        };
        assert_eq!(hosts("host9"), [9]);
        assert_eq!(hosts("10"), [10]);
        assert_eq!(hosts("one"), [10]);
        assert_eq!(Session::meant(&sysfs, "+9").unwrap_err().status(), 2);
        assert_eq!(Session::meant(&sysfs, "host09").unwrap_err().status(), 6);
        // The file names the adapter by its GUID.
        adapter::tests::put(folder.path(), "rxe1", "0000:00ff:fe00:0001");
        let file = folder.path().join("etc/srp/targets.d/one.conf");
        let text = fs::read_to_string(&file).unwrap();
        for (guid, found) in [
            ("0x000000fffe000001", &[10][..]),
            ("0x000000fffe000002", &[]),
        ] {
            fs::write(&file, text.replace("rxe1", guid)).unwrap();
            assert_eq!(hosts("one"), found);
        }
        assert_eq!(Session::meant(&sysfs, "host0").unwrap_err().status(), 6);
        assert_eq!(Session::meant(&sysfs, "two").unwrap_err().status(), 6);
    }

    #[test]
    fn what_is_on_record_counts_for_that_session_only() {
        let folder = machine();
        let sysfs = below(folder.path());
        let session = &Session::all(&sysfs)[0];
        Owner::record(
            &sysfs,
            session,
            "srpctl",
            Some("one"),
            "0x0000000000000000",
            None,
        )
        .unwrap();
        assert_eq!(Session::all(&sysfs)[0].owner.as_deref(), Some("srpctl"));
        // host9 is recorded as `one` although it does not match the file; host10 has no record.
        let meant = Session::meant(&sysfs, "one").unwrap();
        assert_eq!(meant.iter().map(|s| s.host).collect::<Vec<_>>(), [9]);
        // With a record the target's file is not needed, and may be invalid or missing.
        let file = folder.path().join("etc/srp/targets.d/one.conf");
        let good = fs::read(&file).unwrap();
        fs::write(&file, "queue_sise = 1\n").unwrap();
        assert_eq!(Session::meant(&sysfs, "one").unwrap()[0].host, 9);
        fs::remove_file(&file).unwrap();
        assert_eq!(Session::meant(&sysfs, "one").unwrap()[0].host, 9);
        fs::write(&file, good).unwrap();
        // The host number is reused for a login to the same target.
        let host = folder.path().join("sys/class/scsi_host/host9");
        let gone = folder.path().join("gone");
        fs::rename(&host, &gone).unwrap();
        fs::create_dir(&host).unwrap();
        for file in fs::read_dir(&gone).unwrap().flatten() {
            fs::copy(file.path(), host.join(file.file_name())).unwrap();
        }
        assert_eq!(Session::all(&sysfs)[0].owner, None);
        assert_eq!(Session::meant(&sysfs, "one").unwrap()[0].host, 10);
    }

    #[test]
    fn another_initiator_extension_is_another_session() {
        let folder = machine();
        let sysfs = below(folder.path());
        let session = &Session::all(&sysfs)[1];
        Owner::record(&sysfs, session, "srpctl", None, "0x0000000000000001", None).unwrap();
        assert!(Session::meant(&sysfs, "one").unwrap().is_empty());
        Owner::record(&sysfs, session, "srpctl", None, "0x0000000000000000", None).unwrap();
        assert_eq!(Session::meant(&sysfs, "one").unwrap()[0].host, 10);
        // The driver's value takes precedence over the record.
        let host = session.folder(&sysfs);
        fs::write(host.join("initiator_ext"), "0x0000000000000001\n").unwrap();
        assert!(Session::meant(&sysfs, "one").unwrap().is_empty());
    }

    #[test]
    fn a_record_of_a_file_that_is_gone_names_no_target() {
        let folder = machine();
        let sysfs = below(folder.path());
        let session = &Session::all(&sysfs)[1];
        let zero = "0x0000000000000000";
        Owner::record(&sysfs, session, "initramfs", Some("root"), zero, None).unwrap();
        assert_eq!(Session::meant(&sysfs, "one").unwrap()[0].host, 10);
        assert_eq!(Session::meant(&sysfs, "root").unwrap()[0].host, 10);
        let file = folder.path().join("etc/srp/targets.d");
        fs::copy(file.join("one.conf"), file.join("root.conf")).unwrap();
        assert!(Session::meant(&sysfs, "one").unwrap().is_empty());
    }
}
