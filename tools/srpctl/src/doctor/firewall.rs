// SPDX-License-Identifier: GPL-2.0

//! Whether this machine's firewall drops the packets of RDMA connections.

use super::{
    machine::Machine,
    nft::{Flow, Ruleset},
    port::Port,
    Report,
};
use crate::boot;
use serde_json::Value;
use std::collections::BTreeSet;

/// The UDP port of RoCEv2. Requests and replies both go there, so connection tracking never sees a
/// reply of the other direction.
const ROCE: u64 = 4791;

/// Families and TCP ports of targets.
type Ends = BTreeSet<(&'static str, Option<u16>)>;

/// Returns the families and ports of all targets.
fn ends(machine: &Machine<'_>) -> Ends {
    let targets = boot::files(machine.sysfs).into_iter();
    let targets = targets.filter_map(|(_, target)| target.ok());
    // The check of targets reports a host name without an address.
    let lookup = |host: &str| machine.addresses(host);
    let all = targets.flat_map(|target| target.resolved(&lookup).unwrap_or_default());
    let ends = all.filter_map(|target| target.ends().ok()?);
    let mut found: BTreeSet<_> = ends
        .map(|(_, dest)| match dest.ip.to_canonical().is_ipv4() {
            true => ("ip", dest.port),
            false => ("ip6", dest.port),
        })
        .collect();
    if found.is_empty() {
        found.insert(("ip", None));
    }
    found
}

/// Returns whether the kernel has nf_tables now. A built-in one is in no file of sysfs.
fn has_nf_tables(machine: &Machine<'_>) -> bool {
    let builtin = format!("/lib/modules/{}/modules.builtin", machine.release());
    let builtin = machine.text(builtin).unwrap_or_default();
    machine.exists("/sys/module/nf_tables") || builtin.contains("/nf_tables.ko")
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let ports = Port::all(machine);
    let (software, hardware): (Vec<Port>, Vec<Port>) = ports
        .into_iter()
        .filter(|port| port.link_layer == "Ethernet")
        .partition(|p| p.software);
    for port in &hardware {
        report.ok(format!(
            "{}: its packets do not pass this machine's firewall",
            port.name()
        ));
    }
    if software.is_empty() {
        if hardware.is_empty() {
            report.ok("there is no RDMA port on Ethernet");
        }
        return;
    }
    // nft would load the module. Without it there are no rules.
    let ruleset = match has_nf_tables(machine) {
        true => machine.json(&["nft", "-j", "list", "ruleset"]),
        false => Ok(Value::Null),
    };
    let output = match ruleset {
        Ok(output) => output,
        Err(why) => {
            let what = format!("whether a firewall drops UDP {ROCE} is not known: {why}");
            return report.note(what, "apt install nftables; srpctl doctor, as root");
        }
    };
    // The old iptables has rules of its own.
    for file in ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"] {
        if machine.text(file).is_some_and(|names| !names.is_empty()) {
            let what = format!("{file}: iptables-legacy has rules, which are not checked");
            report.note(what, "iptables-legacy -S; ip6tables-legacy -S");
        }
    }
    let rules = Ruleset::new(&output);
    let ends = ends(machine);
    for port in &software {
        for netdev in &port.netdevs {
            on(&ends, port, netdev, &rules, report);
        }
    }
}

/// Reports on a port of soft-RoCE or soft-iWARP on a network interface.
fn on(ends: &Ends, port: &Port, netdev: &str, rules: &Ruleset<'_>, report: &mut Report) {
    let mut told = BTreeSet::new();
    for (family, listens) in ends {
        let listens = listens.map(u64::from);
        let (protocol, number) = match port.iwarp {
            true => ("tcp", listens),
            false => ("udp", Some(ROCE)),
        };
        for incoming in [true, false] {
            let flow = Flow {
                family,
                protocol,
                interface: netdev,
                incoming,
                dport: number.filter(|_| !(port.iwarp && incoming)),
                sport: number.filter(|_| port.iwarp && incoming),
                state: if port.iwarp && incoming {
                    "established"
                } else {
                    "new"
                },
            };
            for drop in rules.drops(&flow) {
                let packets = match (port.iwarp, incoming) {
                    (false, true) => format!("incoming UDP {ROCE}"),
                    (false, false) => format!("outgoing UDP {ROCE}"),
                    (true, true) => "replies of the target".to_string(),
                    (true, false) => "connections to the target".to_string(),
                };
                if !told.insert((drop.chain.clone(), incoming)) {
                    continue;
                }
                let verb = if drop.surely { "drops" } else { "may drop" };
                let what = format!(
                    "{}: the chain '{}' {verb} {packets} on {netdev}",
                    port.name(),
                    drop.chain
                );
                let (name, to) = match incoming {
                    true => ("iifname", if port.iwarp { "sport" } else { "dport" }),
                    false => ("oifname", "dport"),
                };
                let number = number.map_or("PORT".into(), |number| number.to_string());
                let rule = format!(
                    "nft insert rule {} {name} {netdev} {protocol} {to} {number} accept; and the \
                     same in the firewall's configuration",
                    drop.chain
                );
                match drop.surely {
                    true => report.error(what, rule),
                    false => report.note(format!("{what}: for which ones is not known"), rule),
                }
            }
        }
    }
    if told.is_empty() {
        report.ok(format!(
            "{}: nft's rules let its packets pass on {netdev}",
            port.name()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::port::tests::rxe;

    const NFT: &str = "nft -j list ruleset";
    const CLOSED: &str = r#"{"nftables":[
        {"chain":{"family":"inet","table":"filter","name":"input","hook":"input","policy":"drop"}},
        {"rule":{"family":"inet","table":"filter","chain":"input","expr":[
        {"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}},
        {"accept":null}]}}]}"#;

    #[test]
    fn a_closed_input_stops_roce_and_lets_iwarp_pass() {
        let mut made = rxe();
        made.put("/sys/module/nf_tables/refcnt", "0\n");
        made.says(NFT, CLOSED);
        assert_eq!(
            made.bad(check),
            ["error: rxe0/1: the chain 'inet filter input' drops incoming UDP 4791 on eth1 -> nft \
              insert rule inet filter input iifname eth1 udp dport 4791 accept; and the same in \
              the firewall's configuration"]
        );
        made.put("/sys/class/infiniband/rxe0/node_type", "4: RNIC\n");
        assert_eq!(made.bad(check), [""; 0]);
        // An adapter sends and receives the packets itself.
        made.put("/sys/class/infiniband/rxe0/node_type", "1: CA\n");
        made.put("/sys/class/infiniband/rxe0/device/vendor", "0x15b3\n");
        assert_eq!(made.bad(check), [""; 0]);
    }

    #[test]
    fn a_closed_output_names_the_port_of_an_iwarp_target() {
        let mut made = rxe();
        made.put("/sys/class/infiniband/rxe0/node_type", "4: RNIC\n");
        made.target("disk1", "");
        made.put("/sys/module/nf_tables/refcnt", "0\n");
        made.says(NFT, &CLOSED.replace("input", "output"));
        let bad = made.bad(check);
        assert_eq!(bad.len(), 1);
        assert!(
            bad[0].contains("drops connections to the target on eth1"),
            "{bad:?}"
        );
        assert!(
            bad[0].contains("oifname eth1 tcp dport 5555 accept"),
            "{bad:?}"
        );
    }

    #[test]
    fn a_host_name_has_the_family_of_its_address() {
        let mut made = rxe();
        made.put("/sys/module/nf_tables/refcnt", "0\n");
        made.says(NFT, &CLOSED.replace("inet", "ip6"));
        made.put(
            "/etc/srp/targets.d/disk1.conf",
            "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"storage:5555\"\n",
        );
        assert_eq!(made.bad(check), [""; 0]);
        made.says("getent ahosts storage", "2001:db8::1 STREAM storage\n");
        let start = "error: rxe0/1: the chain 'ip6 filter input' drops";
        assert!(made.bad(check)[0].starts_with(start));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let mut made = rxe();
        let builtin = "kernel/net/netfilter/nf_tables.ko\n";
        made.put("/lib/modules/7.3.4/modules.builtin", builtin);
        let bad = made.bad(check);
        let start = "note: whether a firewall drops UDP 4791 is not known: nft is not installed";
        assert!(bad[0].starts_with(start), "{bad:?}");
        made.says(NFT, r#"{"nftables":[]}"#);
        assert_eq!(made.bad(check), [""; 0]);
        made.put("/proc/net/ip_tables_names", "filter\n");
        assert!(made.bad(check)[0].starts_with("note: /proc/net/ip_tables_names: iptables-legacy"));
    }

    #[test]
    fn nft_does_not_load_its_module() {
        let mut made = rxe();
        made.says(NFT, CLOSED);
        assert_eq!(made.bad(check), [""; 0]);
        made.put("/proc/net/ip_tables_names", "filter\n");
        assert!(made.bad(check)[0].starts_with("note: /proc/net/ip_tables_names: iptables-legacy"));
        made.put("/sys/module/nf_tables/refcnt", "0\n");
        assert!(made.bad(check)[1].starts_with("error: rxe0/1: the chain"));
    }
}
