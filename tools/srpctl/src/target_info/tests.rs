// SPDX-License-Identifier: GPL-2.0

//! Tests with made-up trees of LIO and SCST.

use super::*;
use crate::schema;
use std::fs;
use tempfile::TempDir;

const GID: &str = "fe800000000000000202c9fffe1d2c3b";
const GUID: &str = "0202c9fffe1d2c3a";
const DEVICE: &str = "sys/class/infiniband/mlx5_7/ports/1";

struct Machine(TempDir);

impl Machine {
    /// A machine with an RDMA port.
    fn new(layer: &str) -> Self {
        let machine = Self(tempfile::tempdir().expect("folder"));
        let groups: Vec<&str> = (0..8).map(|n| &GID[4 * n..4 * n + 4]).collect();
        machine.file(&format!("{DEVICE}/gids/0"), &groups.join(":"));
        machine.file(&format!("{DEVICE}/gid_attrs/ndevs/0"), "eth7\n");
        machine.file(&format!("{DEVICE}/link_layer"), layer);
        machine.file(&format!("{DEVICE}/pkeys/0"), "0x8001\n");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        fs::write(path, text).expect("file");
    }

    fn folder(&self, path: &str) {
        fs::create_dir_all(self.0.path().join(path.trim_start_matches('/'))).expect("folder");
    }

    /// Adds a target port of LIO without LUN and ACL, and returns the folder of its group.
    fn lio(&self, name: &str, cm_port: &str) -> String {
        let group = format!("{LIO}/{name}/{name}");
        self.file(&format!("{group}/enable"), "1\n");
        self.folder(&format!("{group}/acls"));
        self.file(&format!("{LIO}/discovery_auth/rdma_cm_port"), cm_port);
        self.file(
            &format!("{PARAMETERS}/srpt_service_guid"),
            &format!("0x{GUID}\n"),
        );
        group
    }

    /// Adds LUN 0, and an ACL that has it.
    fn lun(&self, group: &str) {
        self.folder(&format!("{group}/lun/lun_0"));
        self.folder(&format!("{group}/acls/192.0.2.2/lun_0"));
    }

    /// Returns the only target port. Its network interface has two addresses.
    fn port(&self) -> TargetPort {
        let addresses = |interfaces: &BTreeSet<String>| {
            let known = interfaces.contains("eth7");
            let all = ["192.0.2.1", "2001:db8::1"].into_iter().filter(|_| known);
            all.map(|text| text.parse().expect("address")).collect()
        };
        let mut found = find(&Sysfs::below(self.0.path()), &addresses).expect("a port");
        assert_eq!(found.len(), 1);
        schema::check("target-info", &found);
        found.remove(0)
    }

    fn error(&self) -> Error {
        find(&Sysfs::below(self.0.path()), &|_| Vec::new()).expect_err("no target")
    }
}

fn by_rdma_cm(address: &str) -> String {
    format!("srpctl connect --dest {address}:5555 --id-ext {GUID} --ioc-guid {GUID}")
}

fn by_ib_cm(pkey: &str) -> String {
    format!(
        "srpctl connect --dgid {GID} --pkey {pkey} --service-id {GUID} --id-ext {GUID} \
         --ioc-guid {GUID}"
    )
}

fn missing(port: &TargetPort) -> Vec<(&str, &str)> {
    let all = port.missing.iter();
    all.map(|m| (m.what.as_str(), m.command.as_str())).collect()
}

#[test]
fn lio_has_a_login_for_each_address() {
    // Both forms of the name mean this port.
    for name in [format!("0x{GID}"), "0202:c9ff:fe1d:2c3b".into()] {
        let machine = Machine::new("Ethernet\n");
        machine.lun(&machine.lio(&name, "5555\n"));
        let port = machine.port();
        assert_eq!(port.port.as_deref(), Some("mlx5_7/1"), "{name}");
        assert_eq!(
            port.logins,
            [by_rdma_cm("192.0.2.1"), by_rdma_cm("[2001:db8::1]")]
        );
        assert_eq!(missing(&port), [], "{name}");
        assert_eq!(port.initiators, ["192.0.2.2"]);
        let said = text(&port);
        assert!(
            said.starts_with("mlx5_7/1: LIO, enabled, 1 LUN, 1 initiator\n  srpctl connect "),
            "{said}"
        );
        machine.file(&format!("{LIO}/{name}/{name}/enable"), "0\n");
        assert_eq!(machine.port().logins, [""; 0]);
    }
}

#[test]
fn lio_on_infiniband_has_a_login_by_gid() {
    let machine = Machine::new("InfiniBand\n");
    machine.lun(&machine.lio(&format!("0x{GID}"), "0\n"));
    let port = machine.port();
    assert_eq!(port.logins, [by_ib_cm("8001")]);
    assert_eq!(missing(&port), []);
    machine.file(&format!("{LIO}/discovery_auth/rdma_cm_port"), "5555\n");
    assert_eq!(machine.port().logins.len(), 3);
}

#[test]
fn what_lio_lacks_is_said() {
    let machine = Machine::new("Ethernet\n");
    let name = "0202:c9ff:fe1d:2c3b";
    let group = machine.lio(name, "0\n");
    machine.file(&format!("{group}/enable"), "0\n");
    machine.file(&format!("{DEVICE}/gid_attrs/ndevs/0"), "eth8\n");
    let core = "/sys/kernel/config/target/core/fileio_0/disk";
    machine.file(&format!("{core}/enable"), "1\n");
    let port = machine.port();
    assert_eq!(port.logins, [""; 0]);
    let commands: Vec<&str> = missing(&port).iter().map(|(_, command)| *command).collect();
    assert_eq!(
        commands,
        [
            &format!("echo 5555 >{LIO}/discovery_auth/rdma_cm_port"),
            "ip addr add ADDRESS/PREFIX dev eth8",
            &format!("mkdir {group}/lun/lun_0 && ln -s {core} {group}/lun/lun_0"),
            &format!("mkdir {group}/acls/ACL"),
            &format!("echo 1 >{group}/enable"),
        ]
    );
    assert!(text(&port).contains("ACL is the address that the initiator logs in from\n    mkdir "));
    // An ACL without a LUN.
    machine.folder(&format!("{group}/acls/192.0.2.2"));
    machine.folder(&format!("{group}/lun/lun_3"));
    let acl = format!("{group}/acls/192.0.2.2/lun_3");
    assert!(missing(&machine.port()).contains(&(
        "a LUN of the initiator 192.0.2.2",
        &format!("mkdir {acl} && ln -s {group}/lun/lun_3 {acl}")
    )));
}

#[test]
fn a_target_port_may_have_lost_its_rdma_port() {
    let machine = Machine::new("Ethernet\n");
    machine.lun(&machine.lio("0xfe80000000000000dead", "5555\n"));
    let port = machine.port();
    assert_eq!((port.port.as_deref(), port.logins.len()), (None, 0));
    assert_eq!(
        missing(&port),
        [("an RDMA port with this GID", "rdma link")]
    );
    // A port without a group.
    let machine = Machine::new("Ethernet\n");
    machine.folder(&format!("{LIO}/0x{GID}"));
    let command = format!("mkdir {LIO}/0x{GID}/0x{GID}");
    assert_eq!(
        missing(&machine.port()),
        [("a target portal group", command.as_str())]
    );
}

#[test]
fn scst_has_the_logins_that_it_names() {
    for (layer, count) in [("InfiniBand\n", 3), ("Ethernet\n", 2)] {
        let machine = Machine::new(layer);
        let target = format!("{SCST}/mlx5_7");
        let info =
            format!("tid_ext={GUID},ioc_guid={GUID},pkey=ffff,dgid={GID},service_id={GUID}\n");
        machine.file(&format!("{target}/login_info"), &info);
        machine.file(&format!("{target}/enabled"), "1\n");
        machine.file(&format!("{PARAMETERS}/rdma_cm_port"), "5555\n");
        machine.folder(&format!("{target}/luns/0"));
        let port = machine.port();
        assert_eq!(port.logins.len(), count);
        assert_eq!(port.logins[0], by_rdma_cm("192.0.2.1"));
        assert_eq!(
            port.logins.get(2).cloned(),
            (count == 3).then(|| by_ib_cm("ffff"))
        );
        assert!(text(&port).starts_with("mlx5_7/1: SCST, enabled, 1 LUN, any initiator\n"));
        assert_eq!(missing(&port), []);
    }
}

#[test]
fn what_scst_lacks_is_said() {
    let machine = Machine::new("Ethernet\n");
    let target = format!("{SCST}/mlx5_7");
    let info = format!("tid_ext=1,ioc_guid=2,pkey=ffff,dgid={GID},service_id=3\n");
    machine.file(&format!("{target}/login_info"), &info);
    machine.file(&format!("{target}/enabled"), "0\n");
    machine.file(&format!("{PARAMETERS}/rdma_cm_port"), "0\n");
    let port = machine.port();
    assert_eq!(port.logins, [""; 0]);
    let commands: Vec<&str> = missing(&port).iter().map(|(_, command)| *command).collect();
    assert_eq!(
        commands,
        [
            "modprobe -r ib_srpt && modprobe ib_srpt rdma_cm_port=5555",
            &format!("echo 'add DEVICE 0' >{target}/luns/mgmt"),
            &format!("echo 1 >{target}/enabled"),
        ]
    );
    // The LUNs and the initiators of a group.
    machine.folder(&format!("{target}/ini_groups/a/luns/0"));
    machine.file(&format!("{target}/ini_groups/a/initiators/mgmt"), "");
    machine.file(&format!("{target}/ini_groups/a/initiators/{GID}"), "");
    let port = machine.port();
    assert_eq!((port.luns, port.initiators), (1, vec![GID.to_string()]));
}

#[test]
fn without_a_target_there_is_a_way_to_one() {
    let error = Machine::new("Ethernet\n").error();
    assert_eq!(error.status(), 6);
    let made = format!("mkdir -p {LIO}/0x{GID}/0x{GID}` makes mlx5_7/1");
    assert!(error.to_string().contains(&made), "{error}");
    let error = Machine(tempfile::tempdir().expect("folder")).error();
    assert!(error.to_string().contains("no RDMA port"), "{error}");
}
