// SPDX-License-Identifier: GPL-2.0

//! A subnet manager configures a fabric: it finds all nodes, assigns LIDs and routes, brings ports
//! to ACTIVE, and receives traps about cables.

mod vfab;

use srp_host::vfab::{
    changes::Changes,
    link::{Physical, State},
    mad::{
        attribute,
        info::{Notice, PortInfo, SwitchInfo, PORT_STATE_CHANGE},
        Lrh, Smp, GET, PERMISSIVE, SET, TRAP, TRAP_REPRESS,
    },
    switch::Next,
};
use vfab::{directed, smp, Fabric, Manager};

const CA: u64 = 0x0002_c900_0000_0100;
const SWITCH: u64 = 0x0002_c900_0000_1000;

/// Two adapters at ports 1 and 4 of a switch; the manager is on the first one.
fn small() -> (Fabric, Manager) {
    let mut fabric = Fabric::default();
    let switch = fabric.switch(SWITCH, 4);
    for (n, port) in [(1, 1), (2, 4)] {
        let ca = fabric.ca(CA * n, 1);
        fabric.plug((ca, 1), (switch, port));
    }
    (fabric, Manager::new((1, 1)))
}

/// A chain of switches, with adapters at both ends and in the middle.
fn chain(switches: usize) -> (Fabric, Manager) {
    let mut fabric = Fabric::default();
    for n in 0..switches {
        let switch = fabric.switch(SWITCH * (n as u64 + 1), 8);
        if n > 0 {
            fabric.plug((switch - 1, 7), (switch, 2));
        }
    }
    for n in 0..switches {
        let ca = fabric.ca(CA * (n as u64 + 1), 2);
        fabric.plug((ca, 2), (n, 5));
    }
    (fabric, Manager::new((switches, 2)))
}

fn sweep(fabric: &mut Fabric, manager: &mut Manager) {
    manager.discover(fabric);
    manager.configure(fabric);
}

#[test]
fn two_adapters_and_a_switch() {
    let (mut fabric, mut manager) = small();
    manager.discover(&mut fabric);
    let mut found: Vec<_> = manager
        .nodes
        .iter()
        .map(|(guid, found)| (*guid, found.info.node_type, found.path.clone()))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            (CA, 1, vec![]),
            (SWITCH, 2, vec![1]),
            (CA * 2, 1, vec![1, 4])
        ]
    );
    // Only SMPs pass before the ports are ACTIVE.
    assert_eq!(fabric.deliver((1, 1), 3), None);
    manager.configure(&mut fabric);
    for (node, lid) in [(1, 1), (2, 3)] {
        let port = fabric.get_ca(node).port(1).unwrap();
        assert_eq!((port.lid(), port.sm_lid(), port.link.mtu()), (lid, 1, 5));
        assert_eq!(port.prefix(), 0xfec0_0000_0000_0001);
        assert!(port.is_active());
    }
    let switch = fabric.get_switch(0);
    assert_eq!((switch.zero().lid(), switch.zero().sm_lid()), (2, 1));
    assert_eq!(
        [1, 2, 3, 4].map(|port| switch.carries(port)),
        [true, false, false, true]
    );
    assert_eq!(fabric.deliver((1, 1), 3), Some((2, 1)));
    assert_eq!(fabric.deliver((2, 1), 1), Some((1, 1)));
    assert_eq!(fabric.deliver((2, 1), 2), Some((0, 0)));
    assert_eq!(fabric.deliver((2, 1), 4), None);

    // Only LIDs up to LinearFDBTop are forwarded; 0 and LIDs beyond the table have no port.
    let mut data = manager.get(&mut fabric, &[1], attribute::SWITCH_INFO, 0);
    assert_eq!(data[6..8], [0, 3]);
    data[7] = 2;
    manager.set(&mut fabric, &[1], attribute::SWITCH_INFO, 0, &data);
    assert_eq!(fabric.deliver((1, 1), 3), None);
    assert_eq!(fabric.deliver((2, 1), 1), Some((1, 1)));
    data[7] = 3;
    manager.set(&mut fabric, &[1], attribute::SWITCH_INFO, 0, &data);
    for lid in [0, 4, 1024, 0xbfff, 0xffff] {
        assert_eq!(fabric.get_switch(0).forward(lid), None, "{lid}");
    }

    // The device reports each change once.
    let told = |node, bits| {
        fabric
            .changes
            .iter()
            .filter(|(at, c)| *at == node && c.has(bits))
            .count()
    };
    for node in [1, 2] {
        for bits in [Changes::LID, Changes::SM, Changes::GID, Changes::ACTIVE] {
            assert_eq!(told(node, bits), 1, "{bits:#x} of {node}");
        }
        assert_eq!(
            told(node, Changes::PKEY | Changes::ERROR | Changes::LINK),
            0
        );
    }
    fabric.changes.clear();
    // A second sweep changes nothing.
    sweep(&mut fabric, &mut manager);
    assert_eq!(fabric.changes, []);
}

#[test]
fn many_switches() {
    for switches in [2, 3, 9] {
        let (mut fabric, mut manager) = chain(switches);
        sweep(&mut fabric, &mut manager);
        assert_eq!(manager.nodes.len(), 2 * switches);
        let longest = manager.nodes.values().map(|found| found.path.len()).max();
        assert_eq!(longest, Some(switches + 1));
        for from in switches..2 * switches {
            for to in switches..2 * switches {
                let lid = fabric.get_ca(to).port(2).unwrap().lid();
                assert_ne!(lid, 0);
                assert_eq!(fabric.get_ca(to).port(1).unwrap().lid(), 0);
                if from != to {
                    assert_eq!(fabric.deliver((from, 2), lid), Some((to, 2)));
                }
            }
        }
        // The same nodes respond at their LIDs.
        for found in manager
            .nodes
            .values()
            .filter(|found| !found.path.is_empty())
        {
            let lrh = Lrh {
                slid: 1,
                dlid: found.lid,
                sl: 0,
            };
            let mad = smp(GET, attribute::NODE_INFO, 0, &[0; 64]);
            let (back, reply) = fabric.request(manager.at, lrh, mad).expect("a response");
            assert_eq!(
                back,
                Lrh {
                    slid: found.lid,
                    dlid: 1,
                    sl: 0
                }
            );
            let info: &[u8] = &Smp::of(&reply).data;
            assert_eq!(info[12..20], found.info.node_guid.get().to_be_bytes());
            assert_eq!(
                (Smp::of(&reply).method, Smp::of(&reply).status.get()),
                (0x81, 0)
            );
        }
    }
}

/// A path with a LID-routed part at either end.
#[test]
fn paths_with_lids() {
    let (mut fabric, mut manager) = chain(3);
    sweep(&mut fabric, &mut manager);
    let lid = |manager: &Manager, guid: u64| manager.nodes[&guid].lid;
    let (middle, last) = (lid(&manager, SWITCH * 2), lid(&manager, CA * 3));
    let ask = |fabric: &mut Fabric, path: &[u8], slid: u16, dlid: u16, lrh: Lrh| {
        let mut mad = directed(smp(GET, attribute::NODE_INFO, 0, &[0; 64]), path);
        let fields = Smp::of_mut(&mut mad);
        fields.dr_slid = slid.into();
        fields.dr_dlid = dlid.into();
        let (_, reply) = fabric.request((3, 2), lrh, mad)?;
        let smp = Smp::of(&reply);
        assert_eq!((smp.method, smp.status.get()), (0x81, 0x8000));
        Some(u64::from_be_bytes(smp.data[12..20].try_into().unwrap()))
    };
    let by_lid = Lrh {
        slid: 1,
        dlid: middle,
        sl: 0,
    };
    // The SMP is routed by LID to the middle switch, and from there by ports to the last switch
    // and its adapter.
    assert_eq!(
        ask(&mut fabric, &[7], 1, PERMISSIVE, by_lid),
        Some(SWITCH * 3)
    );
    assert_eq!(
        ask(&mut fabric, &[7, 5], 1, PERMISSIVE, by_lid),
        Some(CA * 3)
    );
    assert_eq!(
        ask(&mut fabric, &[], 1, PERMISSIVE, by_lid),
        Some(SWITCH * 2)
    );
    // By ports to the middle switch, and from there by LID, also to the middle switch itself.
    let lrh = Lrh::PERMISSIVE;
    assert_eq!(
        ask(&mut fabric, &[2, 7], PERMISSIVE, last, lrh),
        Some(CA * 3)
    );
    assert_eq!(
        ask(&mut fabric, &[2, 7], PERMISSIVE, middle, lrh),
        Some(SWITCH * 2)
    );
    // The response immediately goes back by ports.
    let mut mad = directed(smp(GET, attribute::NODE_INFO, 0, &[0; 64]), &[2, 7]);
    let fields = Smp::of_mut(&mut mad);
    (fields.hop_ptr, fields.dr_dlid) = (2, middle.into());
    fields.return_path[1] = 5;
    let mut header = Lrh::PERMISSIVE;
    let next = fabric.get_switch(1).smp(2, &mut header, &mut mad);
    assert_eq!(next, Next::Out(2, Changes::none(2)));
    assert_eq!((header, Smp::of(&mad).hop_ptr), (Lrh::PERMISSIVE, 2));
    // By LID, by ports, by LID.
    assert_eq!(ask(&mut fabric, &[7], 1, last, by_lid), Some(CA * 3));
    // To an unknown LID, out of ports without a cable, back to an unknown LID.
    assert_eq!(ask(&mut fabric, &[2, 7], PERMISSIVE, 999, lrh), None);
    assert_eq!(ask(&mut fabric, &[2, 3], PERMISSIVE, PERMISSIVE, lrh), None);
    assert_eq!(ask(&mut fabric, &[2, 0], PERMISSIVE, PERMISSIVE, lrh), None);
    assert_eq!(
        ask(&mut fabric, &[2, 99], PERMISSIVE, PERMISSIVE, lrh),
        None
    );
    assert_eq!(ask(&mut fabric, &[7], 999, PERMISSIVE, by_lid), None);
    // Through the same port in and out.
    assert_eq!(
        ask(&mut fabric, &[2, 7, 2, 7, 5], PERMISSIVE, PERMISSIVE, lrh),
        Some(CA * 2)
    );
}

#[test]
fn longest_path() {
    let (mut fabric, manager) = small();
    // Back and forth between the switch and an adapter, which cannot forward the SMP.
    let said = manager.ask(
        &mut fabric,
        &[1, 1, 1],
        smp(GET, attribute::NODE_INFO, 0, &[0; 64]),
    );
    assert_eq!(said, None);
    let mut mad = directed(smp(GET, attribute::NODE_INFO, 0, &[0; 64]), &[1]);
    let fields = Smp::of_mut(&mut mad);
    fields.hop_cnt = 64;
    fields.hop_ptr = 1;
    assert_eq!(fabric.request((1, 1), Lrh::PERMISSIVE, mad), None);
    // Pointers beyond the path, out and back.
    for (status, last) in [(0, 2), (0x8000, 2)] {
        for at in 0..=255 {
            let mut mad = directed(smp(GET, attribute::NODE_INFO, 0, &[0; 64]), &[1, 1]);
            let fields = Smp::of_mut(&mut mad);
            fields.status = status.into();
            fields.hop_ptr = at;
            fields.return_path = [1; 64];
            let next = fabric
                .get_switch(0)
                .smp(1, &mut Lrh::PERMISSIVE.clone(), &mut mad);
            // A returning SMP is not for the switch either, since it has no manager.
            let lost = at > last + 1 || status != 0 && at < 2;
            assert_eq!(next == Next::Drop, lost, "{status:#x} at {at}");
        }
    }
    // The switch does not execute an SMP with the direction bit set: it is a response.
    let table = smp(SET, attribute::LINEAR_FORWARD_TABLE, 0, &[1; 64]);
    let mut mad = directed(table, &[1]);
    Smp::of_mut(&mut mad).status = 0x8000.into();
    let before = fabric.get_switch(0).clone();
    let next = fabric
        .get_switch(0)
        .smp(1, &mut Lrh::PERMISSIVE.clone(), &mut mad);
    assert_eq!(next, Next::Drop);
    assert!(*fabric.get_switch(0) == before);
}

/// Returns PortStateChange of SwitchInfo.
fn state_change(fabric: &mut Fabric, manager: &Manager) -> bool {
    let data = manager.get(fabric, &[1], attribute::SWITCH_INFO, 0);
    SwitchInfo::of(&data).life_state & PORT_STATE_CHANGE != 0
}

#[test]
fn cables() {
    let (mut fabric, mut manager) = small();
    assert!(state_change(&mut fabric, &manager));
    sweep(&mut fabric, &mut manager);
    // There was no manager yet when the cables were plugged in.
    assert_eq!(fabric.trap(), None);
    // Writing back a 1 that was read clears PortStateChange.
    assert!(!state_change(&mut fabric, &manager));

    fabric.pull((2, 1));
    let port = fabric.get_ca(2).port(1).unwrap();
    assert_eq!(
        (port.link.state(), port.link.physical()),
        (State::Down, Physical::Polling)
    );
    assert_eq!(port.lid(), 3, "a port keeps its LID");
    assert_eq!(fabric.deliver((1, 1), 3), None);
    assert!(state_change(&mut fabric, &manager));
    assert!(state_change(&mut fabric, &manager), "a Get clears nothing");
    let mut data = manager.get(&mut fabric, &[1], attribute::SWITCH_INFO, 0);
    data[11] &= !PORT_STATE_CHANGE;
    manager.set(&mut fabric, &[1], attribute::SWITCH_INFO, 0, &data);
    assert!(state_change(&mut fabric, &manager), "nor does a zero");

    let (node, port, lrh, mad) = fabric.trap().expect("a trap");
    assert_eq!(
        (node, port, lrh),
        (
            0,
            1,
            Lrh {
                slid: 2,
                dlid: 1,
                sl: 0
            }
        )
    );
    let trap = Smp::of(&mad);
    assert_eq!(
        (trap.mgmt_class, trap.method, trap.attr_id.get()),
        (1, TRAP, attribute::NOTICE)
    );
    let notice: Notice = zerocopy::transmute!(trap.data);
    assert_eq!((notice.kind, notice.producer), (0x81, [0, 0, 2]));
    assert_eq!((notice.number.get(), notice.issuer.get()), (128, 2));
    assert_eq!(notice.details[..2], [0, 2]);
    assert_eq!(fabric.trap(), None, "once");

    // The trap is repeated each second until the manager represses it.
    let represses = |fabric: &mut Fabric, tid: u64| {
        let mut repress = smp(TRAP_REPRESS, attribute::NOTICE, 0, &trap.data);
        Smp::of_mut(&mut repress).tid = tid.into();
        let lrh = Lrh {
            slid: 1,
            dlid: 2,
            sl: 0,
        };
        assert_eq!(fabric.request((1, 1), lrh, repress), None);
        fabric.get_switch(0).tick();
        fabric.trap()
    };
    let tid = trap.tid.get();
    assert_eq!(represses(&mut fabric, tid + 1), Some((0, 1, lrh, mad)));
    assert_eq!(represses(&mut fabric, tid), None);

    // The same cable is plugged into another port of the switch.
    fabric.plug((2, 1), (0, 3));
    assert_ne!(fabric.trap(), None);
    let port = fabric.get_ca(2).port(1).unwrap();
    assert_eq!(
        (port.link.state(), port.link.physical()),
        (State::Init, Physical::LinkUp)
    );
    assert_eq!(fabric.deliver((1, 1), 3), None);
    sweep(&mut fabric, &mut manager);
    assert_eq!(manager.nodes[&(CA * 2)].path, [1, 3]);
    assert_eq!(fabric.deliver((1, 1), 3), Some((2, 1)));
}

#[test]
fn states() {
    let (mut fabric, mut manager) = small();
    let bring = |fabric: &mut Fabric, path: &[u8], port: u32, state: u8, physical: u8| {
        let mut data = manager.get(fabric, path, attribute::PORT_INFO, port);
        let info = PortInfo::of_mut(&mut data);
        info.speed_state = info.speed_state & 0xf0 | state;
        info.physical_down = info.physical_down & 0x0f | physical << 4;
        let said = manager.ask(fabric, path, smp(SET, attribute::PORT_INFO, port, &data));
        said.expect("a response")
            .map(|data| PortInfo::of(&data).speed_state & 0x0f)
    };
    const BAD: Result<u8, u16> = Err(0x1c);
    for (path, port) in [(&[1, 4][..], 1), (&[1][..], 4)] {
        // DOWN is 1, INIT 2, ARMED 3, ACTIVE 4.
        for (state, said) in [
            (4, BAD),
            (2, BAD),
            (5, BAD),
            (0, Ok(2)),
            (3, Ok(3)),
            (3, Ok(3)),
            (2, BAD),
            (4, Ok(4)),
            (4, Ok(4)),
            (3, BAD),
            (15, BAD),
        ] {
            assert_eq!(
                bring(&mut fabric, path, port, state, 0),
                said,
                "{state} at {path:?}"
            );
        }
        assert_eq!(bring(&mut fabric, path, port, 4, 2), BAD);
        assert_eq!(bring(&mut fabric, path, port, 0, 4), BAD);
        assert_eq!(bring(&mut fabric, path, port, 0, 15), BAD);
    }
    // A link that is taken down comes up by itself, at both ends.
    bring(&mut fabric, &[1], 4, 1, 0).unwrap();
    assert_eq!(
        fabric.get_switch(0).link_of(4).unwrap().state(),
        State::Init
    );
    assert_eq!(fabric.get_ca(2).port(1).unwrap().link.state(), State::Init);
    // A disabled link comes up only after it is enabled.
    bring(&mut fabric, &[1], 4, 1, 3).unwrap();
    let link = fabric.get_switch(0).link_of(4).unwrap();
    assert_eq!(
        (link.state(), link.physical()),
        (State::Down, Physical::Disabled)
    );
    assert_eq!(
        fabric.get_ca(2).port(1).unwrap().link.physical(),
        Physical::Polling
    );
    assert_eq!(bring(&mut fabric, &[1], 4, 3, 0), BAD);
    bring(&mut fabric, &[1], 4, 1, 0).unwrap();
    assert!(!fabric.get_switch(0).trains(4), "down is not enabled");
    bring(&mut fabric, &[1], 4, 1, 2).unwrap();
    assert_eq!(
        fabric.get_switch(0).link_of(4).unwrap().state(),
        State::Init
    );
    assert_eq!(fabric.get_ca(2).port(1).unwrap().link.state(), State::Init);
    // Port 0 is always ACTIVE.
    assert_eq!(bring(&mut fabric, &[1], 0, 0, 0), Ok(4));
    assert_eq!(bring(&mut fabric, &[1], 0, 4, 0), Ok(4));
    for (state, physical) in [(1, 0), (3, 0), (0, 3)] {
        assert_eq!(bring(&mut fabric, &[1], 0, state, physical), BAD);
    }
    sweep(&mut fabric, &mut manager);
    assert_eq!(fabric.deliver((1, 1), 3), Some((2, 1)));
}

#[test]
fn groups() {
    let (mut fabric, manager) = small();
    let mut table = [0; 64];
    // Group 0xc001 at ports 0, 1 and 4; group 0xc002 at ports from 15 on, which do not exist.
    table[2..4].copy_from_slice(&0x0013_u16.to_be_bytes());
    table[4..6].copy_from_slice(&0x8000_u16.to_be_bytes());
    let table_of = attribute::MCAST_FORWARD_TABLE;
    manager.set(&mut fabric, &[1], table_of, 0, &table);
    assert_eq!(manager.get(&mut fabric, &[1], table_of, 0), table);
    assert_eq!(manager.get(&mut fabric, &[1], table_of, 1 << 28), [0; 64]);
    manager.set(&mut fabric, &[1], table_of, 1 << 28, &table);
    let switch = fabric.get_switch(0);
    assert_eq!(switch.multicast(0xc000, 1), 0);
    assert_eq!(switch.multicast(0xc001, 1), 0x0013_0011);
    assert_eq!(switch.multicast(0xc001, 4), 0x0013_0003);
    assert_eq!(switch.multicast(0xc002, 4), 0x8000_8000);
    for lid in [0, 1, 0xbfff, 0xffff] {
        assert_eq!(switch.multicast(lid, 1), 0, "{lid:#x} is no group");
    }
    assert_eq!(switch.forward(0xc001), None);
    // Groups beyond the table use the default ports, if there are any.
    assert_eq!(switch.multicast(0xc000 + 64, 1), 0);
    let mut data = manager.get(&mut fabric, &[1], attribute::SWITCH_INFO, 0);
    assert_eq!(data[9..11], [0xff, 0xff]);
    data[9..11].copy_from_slice(&[2, 3]);
    manager.set(&mut fabric, &[1], attribute::SWITCH_INFO, 0, &data);
    let switch = fabric.get_switch(0);
    assert_eq!(switch.multicast(0xc000 + 64, 1), 1 << 2);
    assert_eq!(switch.multicast(0xfffe, 2), 1 << 3);
}
