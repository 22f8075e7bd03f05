// SPDX-License-Identifier: GPL-2.0

//! Multicast groups across several switches: each member gets one copy, from any sender.

mod vfab;

use srp_host::vfab::mad::{attribute, Data, SET};
use vfab::{smp, End, Fabric, Manager};

const CA: u64 = 0x0002_c900_0000_0100;
const SWITCH: u64 = 0x0002_c900_0000_1000;
const SWITCHES: usize = 4;
const TABLE: u16 = attribute::MCAST_FORWARD_TABLE;
/// Ports of each switch: to the previous switch, to its adapter, and to the next switch.
const BEFORE: u8 = 2;
const ADAPTER: u8 = 5;
const NEXT: u8 = 15;

/// A chain of switches, each with an adapter, all ACTIVE.
fn chain() -> (Fabric, Manager) {
    let mut fabric = Fabric::default();
    for n in 0..SWITCHES {
        let switch = fabric.switch(SWITCH * (n as u64 + 1), 16);
        if n > 0 {
            fabric.plug((switch - 1, NEXT), (switch, BEFORE));
        }
    }
    for n in 0..SWITCHES {
        let ca = fabric.ca(CA * (n as u64 + 1), 1);
        fabric.plug((ca, 1), (n, ADAPTER));
    }
    let mut manager = Manager::new((SWITCHES, 1));
    manager.discover(&mut fabric);
    manager.configure(&mut fabric);
    (fabric, manager)
}

/// The port of the adapter at switch `n`.
fn adapter(n: usize) -> End {
    (SWITCHES + n, 1)
}

/// The multicast table block that sends group 0xc000 + `at` to these ports.
fn block(at: usize, ports: &[u8]) -> Data {
    let mut data = [0; 64];
    let bits = ports.iter().fold(0_u16, |bits, port| bits | 1 << port);
    data[2 * at..][..2].copy_from_slice(&bits.to_be_bytes());
    data
}

/// Makes the adapters at the switches `members` the members of group 0xc000 + `at`.
fn join(fabric: &mut Fabric, manager: &Manager, at: usize, members: &[usize]) {
    for n in 0..SWITCHES {
        let mut ports = Vec::new();
        if members.contains(&n) {
            ports.push(ADAPTER);
        }
        if members.iter().any(|m| *m < n) {
            ports.push(BEFORE);
        }
        if members.iter().any(|m| *m > n) {
            ports.push(NEXT);
        }
        let path = manager.nodes[&(SWITCH * (n as u64 + 1))].path.clone();
        manager.set(fabric, &path, TABLE, 0, &block(at, &ports));
    }
}

#[test]
fn one_copy_for_each_member() {
    let (mut fabric, manager) = chain();
    let members = [0, 2, 3];
    join(&mut fabric, &manager, 9, &members);
    for from in 0..SWITCHES {
        let wanted: Vec<_> = members
            .into_iter()
            .filter(|n| *n != from)
            .map(adapter)
            .collect();
        assert_eq!(fabric.spread(adapter(from), 0xc009), wanted, "from {from}");
        for mlid in [0xc008, 0xc00a, 0xc000 + 63, 0xc000 + 64, 0xfffe, 0xffff, 1] {
            assert_eq!(fabric.spread(adapter(from), mlid), [], "{mlid:#x}");
        }
    }
    // Unicast packets are routed as without groups.
    assert_eq!(
        fabric.deliver(adapter(1), 1),
        Some(adapter(0)),
        "to the manager"
    );

    // A cable in the middle is unplugged: each half works on its own.
    fabric.pull((1, NEXT));
    assert_eq!(fabric.spread(adapter(0), 0xc009), []);
    assert_eq!(fabric.spread(adapter(1), 0xc009), [adapter(0)]);
    assert_eq!(fabric.spread(adapter(2), 0xc009), [adapter(3)]);
}

#[test]
fn members_leave() {
    let (mut fabric, manager) = chain();
    join(&mut fabric, &manager, 31, &[1, 2]);
    assert_eq!(fabric.spread(adapter(0), 0xc01f), [adapter(1), adapter(2)]);
    join(&mut fabric, &manager, 31, &[1]);
    assert_eq!(fabric.spread(adapter(0), 0xc01f), [adapter(1)]);
    assert_eq!(fabric.spread(adapter(1), 0xc01f), []);
    join(&mut fabric, &manager, 31, &[]);
    for n in 0..SWITCHES {
        assert_eq!(fabric.spread(adapter(n), 0xc01f), []);
    }
}

#[test]
fn what_is_refused_changes_no_group() {
    let (mut fabric, manager) = chain();
    join(&mut fabric, &manager, 0, &[0, 1]);
    let path = manager.nodes[&SWITCH].path.clone();
    let before = fabric.get_switch(0).clone();
    // A block that does not exist, and positions of ports above 31.
    for attr_mod in [2, 0x0fff_ffff, 2 << 28, 15 << 28] {
        let said = manager.ask(
            &mut fabric,
            &path,
            smp(SET, TABLE, attr_mod, &block(0, &[1])),
        );
        assert_eq!(said, Some(Err(0x1c)), "{attr_mod:#x}");
    }
    assert!(*fabric.get_switch(0) == before);
    assert_eq!(fabric.spread(adapter(0), 0xc000), [adapter(1)]);
}
