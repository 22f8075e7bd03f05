// SPDX-License-Identifier: GPL-2.0

//! RDMA ports: state, GID, and the network interface that RDMA/CM needs.

use super::{machine::Machine, Level, Report};
use crate::{
    adapter, boot,
    port::{self, Link},
    sysfs,
    target::Target,
};
use serde::Deserialize;
use std::{collections::BTreeSet, net::IpAddr};

/// Header bytes of RoCE in the longest packet of I/O, and those that drivers of adapters reserve.
const HEADERS: u32 = 80;
const RESERVED: u32 = 96;

/// A port of an RDMA device, also of one that ib_srp does not use.
#[derive(Clone, Debug)]
pub struct Port {
    port: port::Port,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Network interfaces.
    pub netdevs: BTreeSet<String>,
    /// Whether it is an iWARP port.
    pub iwarp: bool,
    /// Whether the kernel's network stack carries its packets.
    pub software: bool,
}

impl Port {
    /// Returns all ports.
    pub fn all(machine: &Machine<'_>) -> Vec<Self> {
        let links: Vec<Link> = machine.json(&port::LINKS).unwrap_or_default();
        let mut found = Vec::new();
        for device in machine.names("/sys/class/infiniband") {
            let folder = format!("/sys/class/infiniband/{device}");
            let text = |file: &str| machine.text(format!("{folder}/{file}")).unwrap_or_default();
            let iwarp = text("node_type").contains("RNIC");
            // An adapter has a parent device. Soft-iWARP may have that of its network interface.
            let software = !machine.exists(format!("{folder}/device"))
                || text("node_desc").starts_with("Software iWARP");
            for folder in machine.sysfs.entries(format!("{folder}/ports")) {
                let Ok(number) = sysfs::name(&folder).parse() else {
                    continue;
                };
                let port = port::Port {
                    folder,
                    device: device.clone(),
                    number,
                };
                found.push(Self {
                    link_layer: port.link_layer(machine.sysfs).unwrap_or_default(),
                    netdevs: port.interfaces(machine.sysfs, &links),
                    port,
                    iwarp,
                    software,
                });
            }
        }
        found
    }

    pub fn name(&self) -> String {
        self.port.name()
    }

    /// Returns whether the target's file names the port or its adapter.
    pub fn is_of(&self, machine: &Machine<'_>, target: &Target) -> bool {
        let device = target.device.as_ref();
        device.is_some_and(|device| adapter::is(machine.sysfs, device, &self.port.device))
            && target.port.is_none_or(|number| number == self.port.number)
    }

    pub fn is_active(&self) -> bool {
        self.state() == "ACTIVE"
    }

    /// Returns `ACTIVE`, `DOWN`, `INIT` and so on.
    fn state(&self) -> String {
        let text = sysfs::text(self.port.folder.join("state")).unwrap_or_default();
        let name = text.split(": ").nth(1);
        name.unwrap_or("in an unknown state").to_string()
    }

    fn is_infiniband(&self) -> bool {
        self.link_layer == "InfiniBand"
    }

    fn has_gid(&self, machine: &Machine<'_>) -> bool {
        let gids = machine.sysfs.entries(format!(
            "/sys/class/infiniband/{}/ports/{}/gids",
            self.port.device, self.port.number
        ));
        let is_set = |gid: String| gid.contains(|c: char| c != '0' && c != ':');
        gids.iter().filter_map(sysfs::text).any(is_set)
    }
}

/// An interface of `ip -j addr`.
#[derive(Clone, Deserialize)]
struct Interface {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    mtu: Option<u32>,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Clone, Deserialize)]
struct Address {
    local: Option<IpAddr>,
    #[serde(default)]
    scope: String,
}

impl Interface {
    fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// Returns the first address with one of these scopes.
    fn address(&self, scopes: &[&str]) -> Option<IpAddr> {
        let mut all = self.addr_info.iter();
        all.find(|one| scopes.contains(&one.scope.as_str()))?.local
    }
}

/// Returns the active MTU of a port from the output of ibv_devinfo.
fn active_mtu(text: &str, port: &Port) -> Option<u32> {
    let (mut device, mut number) = (None, None);
    for line in text.lines() {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        match key.trim() {
            "hca_id" => device = Some(value),
            "port" => number = value.parse().ok(),
            "active_mtu"
                if device == Some(&port.port.device) && number == Some(port.port.number) =>
            {
                return value.split_whitespace().next()?.parse().ok();
            }
            _ => {}
        }
    }
    None
}

/// Returns the largest MTU of InfiniBand that fits into packets of the network interface.
fn fitting(mtu: u32, headers: u32) -> Option<u32> {
    let sizes = [4096, 2048, 1024, 512, 256];
    sizes.into_iter().find(|size| size + headers <= mtu)
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let ports = Port::all(machine);
    if ports.is_empty() {
        return report.error(
            "there is no RDMA device",
            "lspci; load the adapter's driver; or rdma link add rxe0 type rxe netdev NETDEV",
        );
    }
    let files = boot::files(machine.sysfs);
    let targets = files.iter().filter_map(|(_, target)| target.as_ref().ok());
    let targets: Vec<_> = targets.collect();
    let ends = targets.iter().filter_map(|target| target.ends().ok()?);
    // The scopes of addresses that a login can use.
    let scopes: &[&str] = match ends.map(|(_, dest)| dest.ip).any(is_link_local) {
        true => &["global", "link"],
        false => &["global"],
    };
    let interfaces = machine.json::<Vec<Interface>>(&["ip", "-j", "addr"]);
    let devinfo = machine.output(&["ibv_devinfo"]);
    let is_usable = |port: &Port| {
        let all = interfaces.as_deref().unwrap_or_default();
        let mut own = all.iter().filter(|one| port.netdevs.contains(&one.ifname));
        let has_address = own.any(|one| one.is_up() && one.address(scopes).is_some());
        port.is_active() && port.has_gid(machine) && (has_address || port.is_infiniband())
    };
    let any_usable = ports.iter().any(is_usable);
    for port in &ports {
        let is_named = targets.iter().any(|target| port.is_of(machine, target));
        // An adapter may have ports that no target needs.
        let level = match is_named || !any_usable {
            true => Level::Error,
            false => Level::Note,
        };
        if !port.is_active() {
            is_down(port, level, report);
            continue;
        }
        if !port.has_gid(machine) {
            report.add(level, format!("{} has no GID", port.name()), Some(up(port)));
        }
        let srp = format!(
            "/sys/class/infiniband_srp/srp-{}-{}",
            port.port.device, port.port.number
        );
        if machine.exists("/sys/class/infiniband_srp") && !machine.exists(srp) {
            let what = format!("{}: the driver does not use this port", port.name());
            report.warning(what, "journalctl -k -g ib_srp");
        }
        match &interfaces {
            Ok(all) => {
                let mut own = all.clone();
                own.retain(|one| port.netdevs.contains(&one.ifname));
                network(port, &own, scopes, level, report);
                let text = devinfo.as_deref().unwrap_or_default();
                for one in own.iter().filter(|one| one.address(scopes).is_some()) {
                    mtu(port, one, text, report);
                }
            }
            Err(why) => report.note(
                format!("{}: its addresses are not known: {why}", port.name()),
                "apt install iproute2; srpctl doctor",
            ),
        }
    }
    if let Err(why) = devinfo {
        let what = format!("the ports' active MTU is not known: {why}");
        report.note(what, "apt install ibverbs-utils; srpctl doctor");
    }
}

/// Returns how to set the port's network interface up.
fn up(port: &Port) -> String {
    let name = port.netdevs.first().map_or("NETDEV", String::as_str);
    format!("ip link set {name} up; ip addr show {name}; rdma link")
}

fn is_down(port: &Port, level: Level, report: &mut Report) {
    let state = port.state();
    let what = format!("{} is {state}", port.name());
    let todo = match state.as_str() {
        "INIT" | "ARMED" => "sminfo; or systemctl start opensm, for a subnet manager".into(),
        _ => format!("check the cable and the switch; {}", up(port)),
    };
    report.add(level, what, Some(todo));
}

/// Reports on an active port and its network interfaces.
fn network(port: &Port, own: &[Interface], scopes: &[&str], level: Level, report: &mut Report) {
    let (name, layer) = (port.name(), &port.link_layer);
    let Some(first) = own.first().map(|one| &one.ifname) else {
        return match port.is_infiniband() {
            true => report.note(
                format!("{name} is ACTIVE, and without IPoIB: no login with dest, only with dgid"),
                "modprobe ib_ipoib; ip link",
            ),
            false => report.add(
                level,
                format!("{name} has no network interface in this namespace"),
                Some("rdma link; rdma system; ip link".into()),
            ),
        };
    };
    for one in own.iter().filter(|one| !one.is_up()) {
        let netdev = &one.ifname;
        let todo = format!("ip link set {netdev} up");
        report.add(level, format!("{name}: {netdev} is down"), Some(todo));
    }
    let addresses = own.iter().filter_map(|one| {
        let (netdev, address) = (&one.ifname, one.address(scopes)?);
        Some(format!("{netdev} has {address}"))
    });
    let addresses: Vec<String> = addresses.collect();
    match addresses.is_empty() {
        false => report.ok(format!(
            "{name} is ACTIVE, {layer}; {}",
            addresses.join("; ")
        )),
        true => report.add(
            level,
            format!("{name}: {first} has no address, which a login with dest needs"),
            Some(format!("ip addr add ADDRESS/BITS dev {first}")),
        ),
    }
}

/// Compares the port's MTU with that of its network interface.
fn mtu(port: &Port, interface: &Interface, text: &str, report: &mut Report) {
    let (Some(mtu), Some(active)) = (interface.mtu, active_mtu(text, port)) else {
        return;
    };
    let (name, netdev) = (port.name(), &interface.ifname);
    let what = format!("{name} has active MTU {active}, and {netdev} has MTU {mtu}");
    // IPoIB and iWARP choose their own sizes of packets.
    if !port.is_infiniband() && !port.iwarp {
        if fitting(mtu, HEADERS).is_none_or(|fits| active > fits) {
            let mtu = active + RESERVED;
            let todo = format!("ip link set {netdev} mtu {mtu}, also on switches and target");
            return report.error(format!("{what}: too little for its packets"), todo);
        }
        if fitting(mtu, RESERVED).is_some_and(|fits| active < fits) {
            let todo = "ibv_devinfo -v; check the limits of the adapter and its driver";
            return report.note(format!("{what}, which allows more"), todo);
        }
    }
    report.ok(what);
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    const ADDR: &str = r#"[{"ifname":"lo","flags":["UP"],"mtu":65536,"addr_info":[]},
        {"ifname":"eth1","flags":["UP"],"mtu":1500,"addr_info":[
        {"local":"fe80::1","scope":"link"},{"local":"192.0.2.2","scope":"global"}]}]"#;

    /// A machine with the soft-RoCE port rxe0/1 on eth1.
    pub fn rxe() -> Made {
        let mut made = Made::new();
        let port = "/sys/class/infiniband/rxe0/ports/1";
        made.put("/sys/class/infiniband/rxe0/node_type", "1: CA\n");
        made.put(&format!("{port}/state"), "4: ACTIVE\n");
        made.put(&format!("{port}/link_layer"), "Ethernet\n");
        made.put(
            &format!("{port}/gids/0"),
            "fe80:0000:0000:0000:0000:0000:0000:0001\n",
        );
        made.put(
            &format!("{port}/gids/1"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        );
        made.put(&format!("{port}/gid_attrs/ndevs/0"), "eth1\n");
        made.says("ip -j addr", ADDR);
        mtu(&mut made, 1024);
        made
    }

    fn mtu(made: &mut Made, mtu: u32) {
        let text = format!(
            "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t256 (1)\n\nhca_id:\trxe0\n\
             \ttransport:\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t{mtu} (3)\n"
        );
        made.says("ibv_devinfo", &text);
    }

    #[test]
    fn a_good_port_is_told() {
        let made = rxe();
        assert_eq!(made.bad(check), [""; 0]);
        let said: Vec<String> = made.check(check).into_iter().map(|f| f.what).collect();
        assert_eq!(
            said,
            [
                "rxe0/1 is ACTIVE, Ethernet; eth1 has 192.0.2.2",
                "rxe0/1 has active MTU 1024, and eth1 has MTU 1500"
            ]
        );
    }

    #[test]
    fn a_port_that_is_down_matters_if_a_target_needs_it() {
        let made = rxe();
        made.put("/sys/class/infiniband/rxe1/ports/1/state", "1: DOWN\n");
        assert!(made.bad(check)[0].starts_with("note: rxe1/1 is DOWN -> check the cable"));
        made.target("disk1", "device = \"rxe1\"\n");
        assert!(made.bad(check)[0].starts_with("error: rxe1/1 is DOWN"));
        // As --save writes it.
        made.put(
            "/sys/class/infiniband/rxe1/node_guid",
            "0200:00ff:fe00:0001\n",
        );
        made.target("disk1", "device = \"0x020000fffe000001\"\n");
        assert!(made.bad(check)[0].starts_with("error: rxe1/1 is DOWN"));
        made.target("disk1", "device = \"0x020000fffe000002\"\n");
        assert!(made.bad(check)[0].starts_with("note: rxe1/1 is DOWN"));
        made.remove("/etc/srp");
        made.put("/sys/class/infiniband/rxe0/ports/1/state", "2: INIT\n");
        let bad = made.bad(check);
        assert!(
            bad[0].starts_with("error: rxe0/1 is INIT -> sminfo"),
            "{bad:?}"
        );
        assert!(bad[1].starts_with("error: rxe1/1 is DOWN"));
        let made = Made::new();
        assert!(made.bad(check)[0].starts_with("error: there is no RDMA device"));
    }

    #[test]
    fn what_a_login_lacks_is_named() {
        let mut made = rxe();
        made.put("/sys/class/infiniband/rxe0/ports/1/gids/0", "0000:0000\n");
        assert!(made.bad(check)[0].starts_with("error: rxe0/1 has no GID -> ip link set eth1 up"));
        let mut no_address = rxe();
        no_address.says("ip -j addr", &ADDR.replace("global", "link"));
        assert_eq!(
            no_address.bad(check),
            [
                "error: rxe0/1: eth1 has no address, which a login with dest needs -> ip addr add \
              ADDRESS/BITS dev eth1"
            ]
        );
        let down = ADDR.replace(r#"["UP"],"mtu":1500"#, r#"[],"mtu":1500"#);
        no_address.says("ip -j addr", &down);
        assert_eq!(
            no_address.bad(check),
            ["error: rxe0/1: eth1 is down -> ip link set eth1 up"]
        );
        no_address.says("ip -j addr", "[]");
        assert!(no_address.bad(check)[0].starts_with("error: rxe0/1 has no network interface"));
        made.lacks("ip -j addr");
        assert!(made.bad(check)[1].starts_with("note: rxe0/1: its addresses are not known: ip is"));
        // For a target with a link-local address, one of the port suffices.
        no_address.says("ip -j addr", &ADDR.replace("global", "link"));
        no_address.put(
            "/etc/srp/targets.d/disk1.conf",
            "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"[fe80::9%eth1]:5555\"\n",
        );
        assert_eq!(no_address.bad(check), [""; 0]);
        // No target needs the second port.
        let port = "/sys/class/infiniband/rxe1/ports/1";
        no_address.put(&format!("{port}/state"), "4: ACTIVE\n");
        no_address.put(&format!("{port}/gids/0"), "fe80::1\n");
        assert!(no_address.bad(check)[0].starts_with("note: rxe1/1 has no network interface"));
    }

    #[test]
    fn the_mtu_fits_the_network_interface() {
        let mut made = rxe();
        mtu(&mut made, 2048);
        let bad = made.bad(check);
        let start = "error: rxe0/1 has active MTU 2048, and eth1 has MTU 1500: too little for its \
            packets -> ip link set eth1 mtu 2144";
        assert!(bad[0].starts_with(start), "{bad:?}");
        mtu(&mut made, 512);
        assert!(made.bad(check)[0].starts_with("note: rxe0/1 has active MTU 512"));
        made.lacks("ibv_devinfo");
        assert!(made.bad(check)[0].starts_with("note: the ports' active MTU is not known"));
        assert_eq!(fitting(9000, RESERVED), Some(4096));
        assert_eq!(fitting(300, HEADERS), None);
    }

    #[test]
    fn infiniband_needs_no_address() {
        let mut made = rxe();
        made.put(
            "/sys/class/infiniband/rxe0/ports/1/link_layer",
            "InfiniBand\n",
        );
        made.remove("/sys/class/infiniband/rxe0/ports/1/gid_attrs");
        assert!(made.bad(check)[0].starts_with("note: rxe0/1 is ACTIVE, and without IPoIB"));
        made.put("/sys/class/net/eth1/dev_port", "0\n");
        made.put("/sys/class/net/eth1/device/infiniband/rxe0/x", "");
        mtu(&mut made, 4096);
        assert_eq!(made.bad(check), [""; 0]);
        made.put("/sys/class/infiniband_srp/srp-rxe1-1/port", "1\n");
        assert!(made.bad(check)[0].starts_with("warning: rxe0/1: the driver does not use"));
    }
}
