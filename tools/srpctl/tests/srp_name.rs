// SPDX-License-Identifier: GPL-2.0

//! Tests of `tools/udev/srp-name` with a made-up machine.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;

const GUID: &str = "0x506b4b030000a1b2";
const TARGET: &str = "0000000000000001-0000000000000002";

/// A machine with sessions through one adapter, and a copy of the script that uses it.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../udev/srp-name");
        let script = fs::read_to_string(script).unwrap();
        let root = machine.0.path().display();
        let script = script
            .replace("/sys/", &format!("{root}/sys/"))
            .replace("/run/", &format!("{root}/run/"));
        machine.put("srp-name", &script);
        machine.adapter("mlx5_0", "506b:4b03:0000:a1b2");
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn adapter(&self, name: &str, guid: &str) {
        let path = format!("sys/class/infiniband/{name}/node_guid");
        self.put(&path, &format!("{guid}\n"));
    }

    /// Makes a session through `adapter`, without `initiator_ext` as with the C driver.
    fn session(&self, host: u32, adapter: &str, initiator_ext: Option<u64>) {
        let extension = initiator_ext.map(|number| format!("{number:#018x}"));
        for (file, text) in [
            ("id_ext", Some("0x0000000000000001")),
            ("ioc_guid", Some("0x0000000000000002")),
            ("local_ib_device", Some(adapter)),
            ("local_ib_port", Some("1")),
            ("initiator_ext", extension.as_deref()),
        ] {
            let path = format!("sys/class/scsi_host/host{host}/{file}");
            if let Some(text) = text {
                self.put(&path, &format!("{text}\n"));
            }
        }
    }

    fn disk(&self, disk: &str, host: u32, lun: u32, sequence: u32) {
        let scsi = format!("sys/devices/{host}:0:0:{lun}");
        fs::create_dir_all(self.0.path().join(&scsi)).unwrap();
        let block = format!("sys/block/{disk}");
        self.put(&format!("{block}/diskseq"), &format!("{sequence}\n"));
        let link = self.0.path().join(&block).join("device");
        let _ = fs::remove_file(&link);
        symlink(format!("../../devices/{host}:0:0:{lun}"), link).unwrap();
    }

    fn remove(&self, disk: &str) {
        fs::remove_dir_all(self.0.path().join(format!("sys/block/{disk}"))).unwrap();
        self.run(&[disk]);
    }

    /// Runs the script, and returns what it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let out = Command::new("timeout")
            .args(["60", "sh"])
            .arg(self.0.path().join("srp-name"))
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(out.status.success(), "srp-name {arguments:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn property(&self, disk: &str, host: u32, name: &str) -> Option<String> {
        let said = self.run(&[disk, &format!("host{host}")]);
        let start = format!("{name}=");
        said.lines()
            .find_map(|line| Some(line.strip_prefix(&start)?.to_string()))
    }

    fn number(&self, disk: &str, host: u32) -> u32 {
        let number = self.property(disk, host, "ID_SRP_NUMBER").unwrap();
        number.parse().unwrap()
    }
}

#[test]
fn sessions_of_one_port_have_paths_of_their_own() {
    let machine = Machine::new();
    for (host, extension) in [(7, Some(0)), (8, Some(0x1f)), (9, None)] {
        machine.session(host, "mlx5_0", extension);
        machine.disk(&format!("sd{host}"), host, 3, host);
    }
    let path = |host: u32| machine.property(&format!("sd{host}"), host, "ID_SRP_PATH");
    let device = |host: u32| machine.property(&format!("sd{host}"), host, "ID_SRP_DEVICE_PATH");
    let number = |host: u32| machine.property(&format!("sd{host}"), host, "ID_SRP_INITIATOR_EXT");
    let plain = Some(format!("srp-{GUID}-1-{TARGET}-lun-3"));
    let by_name = Some(format!("srp-mlx5_0-1-{TARGET}-lun-3"));
    let extended = Some(format!("srp-{GUID}-1-000000000000001f-{TARGET}-lun-3"));
    assert_eq!(
        (path(7), path(8), path(9)),
        (plain.clone(), extended, plain)
    );
    // All sessions have the path by the adapter's name. By the rules, one without an extension gets
    // it.
    for host in 7..10 {
        assert_eq!(device(host), by_name, "host{host}");
    }
    let numbers = (number(7), number(8), number(9));
    assert_eq!(numbers, (None, Some("000000000000001f".into()), None));
}

#[test]
fn a_renamed_adapter_changes_only_the_path_by_its_name() {
    let machine = Machine::new();
    machine.session(7, "mlx5_0", Some(0));
    machine.disk("sda", 7, 300, 1);
    let path = || machine.property("sda", 7, "ID_SRP_PATH").unwrap();
    let before = path();
    assert!(before.ends_with("-lun-0x012c000000000000"), "{before}");
    machine.session(7, "rocep1s0", Some(0));
    fs::remove_dir_all(machine.0.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    machine.adapter("rocep1s0", "506b:4b03:0000:a1b2");
    assert_eq!(path(), before);
    let device = machine.property("sda", 7, "ID_SRP_DEVICE_PATH").unwrap();
    assert!(device.starts_with("srp-rocep1s0-1-"), "{device}");
    // An adapter may have no GUID.
    machine.adapter("rocep1s0", "0000:0000:0000:0000");
    assert_eq!(path(), device);
}

#[test]
fn adapters_with_one_guid_have_paths_by_their_names() {
    let machine = Machine::new();
    for (host, adapter) in [(7, "rxe0"), (8, "rxe1"), (9, "mlx5_0")] {
        machine.session(host, adapter, None);
        machine.disk(&format!("sd{host}"), host, 3, host);
    }
    machine.adapter("rxe0", "0200:00ff:fe00:0001");
    machine.adapter("rxe1", "0200:00ff:fe00:0001");
    for (host, adapter) in [(7, "rxe0"), (8, "rxe1"), (9, GUID)] {
        let path = machine.property(&format!("sd{host}"), host, "ID_SRP_PATH");
        assert_eq!(path, Some(format!("srp-{adapter}-1-{TARGET}-lun-3")));
    }
}

#[test]
fn an_adapter_with_a_random_address_has_a_path_by_its_name() {
    let machine = Machine::new();
    machine.session(7, "rxe0", None);
    machine.disk("sda", 7, 3, 1);
    machine.adapter("rxe0", "0200:00ff:fe00:0001");
    machine.put(
        "sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0",
        "veth0\n",
    );
    for (kind, adapter) in [
        ("0", "0x020000fffe000001"),
        ("1", "rxe0"),
        ("3", "0x020000fffe000001"),
    ] {
        machine.put("sys/class/net/veth0/addr_assign_type", &format!("{kind}\n"));
        let path = machine.property("sda", 7, "ID_SRP_PATH");
        assert_eq!(
            path,
            Some(format!("srp-{adapter}-1-{TARGET}-lun-3")),
            "{kind}"
        );
    }
}

#[test]
fn the_smallest_free_number_is_taken() {
    let machine = Machine::new();
    machine.session(7, "mlx5_0", None);
    for number in 0..4 {
        let disk = format!("sd{number}");
        machine.disk(&disk, 7, number, 10 + number);
        assert_eq!(machine.number(&disk, 7), number);
        assert_eq!(machine.number(&disk, 7), number);
    }
    machine.remove("sd2");
    machine.remove("sd1");
    // The name `sd1` has another sequence number, so the disk is another one.
    for (disk, lun, sequence, number) in [("sd9", 9, 20, 1), ("sd1", 1, 21, 2), ("sd8", 8, 22, 4)] {
        machine.disk(disk, 7, lun, sequence);
        assert_eq!(machine.number(disk, 7), number, "{disk}");
    }
    // A late event of the removed disk does not affect the new one.
    machine.run(&["sd1"]);
    machine.disk("sd7", 7, 7, 23);
    assert_eq!(machine.number("sd7", 7), 5);
    // A disk was removed without an event.
    machine.disk("sd0", 7, 0, 24);
    assert_eq!(machine.number("sd0", 7), 0);
    // Without the index the numbers stay.
    let run = machine.0.path().join("run/srp");
    fs::remove_dir_all(run.join("disks")).unwrap();
    fs::remove_file(run.join("free")).unwrap();
    for (disk, number) in [("sd1", 2), ("sd3", 3), ("sd9", 1), ("sd0", 0), ("sd8", 4)] {
        assert_eq!(machine.number(disk, 7), number, "{disk}");
    }
}

#[test]
fn a_broken_index_stops_no_disk() {
    let machine = Machine::new();
    machine.session(7, "mlx5_0", None);
    // A full /run leaves an empty file.
    for (number, text) in ["", "\n", "x\n"].into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        machine.put("run/srp/free", text);
        let disk = format!("sd{number}");
        machine.disk(&disk, 7, number, 10 + number);
        assert_eq!(machine.number(&disk, 7), number, "{text:?}");
    }
    machine.put("run/srp/free", "");
    machine.remove("sd1");
    machine.disk("sd9", 7, 9, 20);
    assert_eq!(machine.number("sd9", 7), 1);
}

#[test]
fn a_name_costs_the_same_with_many_disks() {
    let machine = Machine::new();
    machine.session(7, "mlx5_0", None);
    machine.disk("sda", 7, 0, 1);
    machine.number("sda", 7);
    for number in 1..1024 {
        let disk = format!("sd{number}");
        machine.disk(&disk, 7, number, number + 1);
        machine.put(
            &format!("run/srp/{number}"),
            &format!("{disk} {}\n", number + 1),
        );
        let entry = format!("{number} {}\n", number + 1);
        machine.put(&format!("run/srp/disks/{disk}"), &entry);
    }
    machine.put("run/srp/free", "1024\n");
    machine.disk("sdnew", 7, 2000, 5000);
    // A read of another disk's file never ends.
    for number in 0..1024 {
        let path = machine.0.path().join(format!("run/srp/{number}"));
        fs::remove_file(&path).unwrap();
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
    }
    assert_eq!(machine.number("sdnew", 7), 1024);
    assert_eq!(machine.number("sd500", 7), 500);
}
