// SPDX-License-Identifier: GPL-2.0

//! The responses of agents: each attribute, and each field that they refuse.

mod vfab;

use srp_host::vfab::{
    ca::{Ca, Outcome},
    changes::Changes,
    mad::{
        attribute,
        info::{NodeInfo, PortInfo, SwitchInfo},
        Data, Smp, GET, SET,
    },
    port::capability,
    switch::Switch,
};
use vfab::{
    agent::{ca, get, port_info, process, said, set, GUID},
    directed, smp, Fabric, Manager,
};

#[test]
fn node_info() {
    let mut ca = ca();
    for port in [1, 2] {
        let data = get(&mut ca, port, attribute::NODE_INFO, 0).unwrap();
        let info: NodeInfo = zerocopy::transmute!(data);
        assert_eq!((info.base_version, info.class_version), (1, 1));
        assert_eq!((info.node_type, info.num_ports), (1, 2));
        assert_eq!((info.sys_guid.get(), info.node_guid.get()), (GUID, GUID));
        assert_eq!(info.port_guid.get(), GUID + u64::from(port));
        assert_eq!((info.partition_cap.get(), info.local_port_num), (16, port));
        assert_eq!(data[40..], [0; 24]);
    }
    assert_eq!(
        process(&mut ca, 0, &smp(GET, attribute::NODE_INFO, 0, &[0; 64])).0,
        Outcome::Ignored
    );
    assert_eq!(
        process(&mut ca, 3, &smp(GET, attribute::NODE_INFO, 0, &[0; 64])).0,
        Outcome::Ignored
    );
    let mut description = [0; 64];
    description[..4].copy_from_slice(b"vfab");
    ca.set_description(&description);
    assert_eq!(get(&mut ca, 1, attribute::NODE_DESC, 0), Ok(description));
    assert_eq!((Ca::new(1, 9).ports(), Switch::new(1, 99).ports()), (4, 16));
}

#[test]
fn port_info_fields() {
    let mut ca = ca();
    let info = port_info(&mut ca, 2);
    assert_eq!((info.speed_state, info.physical_down), (0x72, 0x52));
    assert_eq!((info.link_width_supported, info.link_width_active), (3, 2));
    assert_eq!((info.mtu_sm_sl, info.init_reply_mtu_cap), (0x10, 5));
    assert_eq!((info.gid_prefix.get(), info.guid_cap), (0xfe80 << 48, 8));
    assert_eq!(info.local_port_num, 2);
    assert_eq!(ca.port(2).unwrap().capability(), info.cap_mask.get());
    assert_ne!(info.cap_mask.get() & capability::CLIENT_REREGISTER, 0);

    let mut data: Data = zerocopy::transmute!(info);
    let wanted = PortInfo::of_mut(&mut data);
    wanted.lid = 0xbfff.into();
    wanted.sm_lid = 9.into();
    wanted.mtu_sm_sl = 0x43;
    wanted.gid_prefix = 5.into();
    wanted.init_reply_mtu_cap = 0xa0;
    wanted.vls_enforce = 0x30;
    wanted.vl_high_limit = 6;
    wanted.stall_hoq = 0x72;
    wanted.thresholds = 0x88;
    wanted.reregister_timeout = 0x80 | 18;
    wanted.link_width_enabled = 0xff;
    wanted.speeds = 0x01;
    wanted.speed_state = 3;
    wanted.physical_down = 0x01;
    let (outcome, reply) = process(&mut ca, 1, &smp(SET, attribute::PORT_INFO, 2, &data));
    let Outcome::Reply(changes) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(changes.port, 2, "the port that was named");
    let mut wanted_changes = Changes::none(2);
    let bits = Changes::LID | Changes::SM | Changes::GID | Changes::REREGISTER;
    wanted_changes.add(bits, true);
    assert_eq!(changes, wanted_changes);
    let info: PortInfo = zerocopy::transmute!(said(&reply).unwrap());
    assert_eq!(
        (info.lid.get(), info.sm_lid.get(), info.mtu_sm_sl),
        (0xbfff, 9, 0x43)
    );
    assert_eq!((info.init_reply_mtu_cap, info.vls_enforce), (0xa5, 0x30));
    assert_eq!(
        (info.vl_high_limit, info.stall_hoq, info.thresholds),
        (6, 0x72, 0x88)
    );
    assert_eq!(
        (info.link_width_enabled, info.speeds),
        (3, 0x41),
        "not before it trains again"
    );
    assert_eq!((info.speed_state, info.physical_down), (0x73, 0x51));
    assert_eq!(
        info.reregister_timeout,
        0x80 | 18,
        "the response shows that it was set"
    );
    assert_eq!(info.local_port_num, 1);
    assert_eq!(
        port_info(&mut ca, 2).reregister_timeout,
        18,
        "and nothing does later"
    );
    assert_eq!(
        port_info(&mut ca, 1).lid.get(),
        0,
        "the other port is another one"
    );
    let port = ca.port(2).unwrap();
    assert_eq!(
        (port.sm_sl(), port.subnet_timeout(), port.init_type_reply()),
        (3, 18, 10)
    );

    // Zeros change nothing.
    let mut data: Data = zerocopy::transmute!(info);
    let wanted = PortInfo::of_mut(&mut data);
    (wanted.link_width_enabled, wanted.speeds, wanted.vls_enforce) = (0, 0, 0);
    (
        wanted.speed_state,
        wanted.physical_down,
        wanted.reregister_timeout,
    ) = (0, 0, 18);
    wanted.mtu_sm_sl &= 0x0f;
    let before = ca.port(2).cloned();
    assert_eq!(
        set(&mut ca, 2, attribute::PORT_INFO, 0, &data),
        Ok(Changes::none(2))
    );
    assert_eq!(ca.port(2), before.as_ref());
    // A link that trains again has the enabled width and speed.
    ca.link(2, false);
    ca.link(2, true);
    assert_eq!(port_info(&mut ca, 2).speeds, 0x11);
    assert_eq!(
        (
            ca.port(2).unwrap().link.speed(),
            ca.port(2).unwrap().link.width()
        ),
        (1, 2)
    );
}

#[test]
fn counts_of_violations() {
    let mut ca = ca();
    let port = ca.port_mut(1).unwrap();
    port.bad_pkey();
    port.bad_pkey();
    port.bad_qkey();
    let info = port_info(&mut ca, 1);
    assert_eq!(
        (info.pkey_violations.get(), info.qkey_violations.get()),
        (2, 1)
    );
    let mut data: Data = zerocopy::transmute!(info);
    PortInfo::of_mut(&mut data).speed_state = 0;
    PortInfo::of_mut(&mut data).physical_down = 0;
    PortInfo::of_mut(&mut data).pkey_violations = 0.into();
    PortInfo::of_mut(&mut data).qkey_violations = 77.into();
    set(&mut ca, 1, attribute::PORT_INFO, 0, &data).unwrap();
    let port = ca.port(1).unwrap();
    assert_eq!((port.pkey_violations(), port.qkey_violations()), (0, 1));
}

/// Each field that can have an invalid value.
#[test]
fn refused_fields() {
    type Change = fn(&mut PortInfo);
    let bad: &[(&str, Change)] = &[
        ("LID of a group", |info| info.lid = 0xc000.into()),
        ("permissive LID", |info| info.lid = 0xffff.into()),
        ("LID of the SM", |info| info.sm_lid = 0xc000.into()),
        ("LMC", |info| info.protect_lmc = 1),
        ("width", |info| info.link_width_enabled = 4),
        ("widths", |info| info.link_width_enabled = 0x13),
        ("speed", |info| info.speeds = 8),
        ("default state", |info| info.physical_down = 3),
        ("MTU", |info| info.mtu_sm_sl = 0x60),
        ("lanes", |info| info.vls_enforce = 0x50),
        ("state", |info| info.speed_state = 2),
        ("jump", |info| info.speed_state = 4),
        ("physical state", |info| info.physical_down = 0x50),
        ("state and physical state", |info| {
            info.speed_state = 3;
            info.physical_down = 0x20;
        }),
    ];
    let mut ca = ca();
    for (name, change) in bad {
        let mut data: Data = zerocopy::transmute!(port_info(&mut ca, 1));
        let info = PortInfo::of_mut(&mut data);
        (info.speed_state, info.physical_down) = (0, 0);
        // Valid fields beside the invalid one.
        info.lid = 5.into();
        info.reregister_timeout = 0x92;
        info.mkey = 99.into();
        change(info);
        assert_eq!(
            set(&mut ca, 1, attribute::PORT_INFO, 0, &data),
            Err(0x1c),
            "{name}"
        );
        let mut fabric = Fabric::default();
        let switch = fabric.switch(1, 3);
        let other = fabric.ca(2, 1);
        fabric.plug((other, 1), (switch, 2));
        let before = fabric.get_switch(0).clone();
        let port = if name.contains("LID") || *name == "LMC" {
            0
        } else {
            2
        };
        let manager = Manager::new((1, 1));
        let said = manager.ask(
            &mut fabric,
            &[1],
            smp(SET, attribute::PORT_INFO, port, &data),
        );
        assert_eq!(said, Some(Err(0x1c)), "{name} of a switch");
        assert!(*fabric.get_switch(0) == before, "{name} of a switch");
    }
    let mut data: Data = zerocopy::transmute!(port_info(&mut ca, 1));
    PortInfo::of_mut(&mut data).lid = 5.into();
    PortInfo::of_mut(&mut data).speed_state = 0;
    PortInfo::of_mut(&mut data).physical_down = 0;
    assert_eq!(
        set(&mut ca, 1, attribute::PORT_INFO, 3, &data),
        Err(0x1c),
        "no such port"
    );
    assert_eq!(
        set(&mut ca, 1, attribute::PORT_INFO, 0x100, &data),
        Err(0x1c),
        "no such modifier"
    );
    assert!(set(&mut ca, 1, attribute::PORT_INFO, 0x8000_0001, &data)
        .unwrap()
        .has(Changes::LID));
    PortInfo::of_mut(&mut data).lid = 0.into();
    assert_eq!(
        set(&mut ca, 1, attribute::PORT_INFO, 0, &data),
        Err(0x1c),
        "a LID is not taken back"
    );
}

#[test]
fn refused_attributes() {
    let mut ca = ca();
    let zeros = [0; 64];
    for attr_id in [
        attribute::NOTICE,
        attribute::SWITCH_INFO,
        attribute::LINEAR_FORWARD_TABLE,
        attribute::MCAST_FORWARD_TABLE,
        0x001a,
        0x0030,
        0x0031,
        0xff90,
        0,
    ] {
        assert_eq!(get(&mut ca, 1, attr_id, 0), Err(0x0c), "Get {attr_id:#x}");
        assert_eq!(
            set(&mut ca, 1, attr_id, 0, &zeros),
            Err(0x0c),
            "Set {attr_id:#x}"
        );
    }
    for attr_id in [attribute::NODE_INFO, attribute::NODE_DESC] {
        assert_eq!(
            set(&mut ca, 1, attr_id, 0, &zeros),
            Err(0x0c),
            "Set {attr_id:#x}"
        );
    }
    for (attr_id, attr_mod) in [
        (attribute::PORT_INFO, 3),
        (attribute::PKEY_TABLE, 1),
        (attribute::PKEY_TABLE, 1 << 16),
        (attribute::GUID_INFO, 1),
        (attribute::VL_ARB_TABLE, 0),
        (attribute::VL_ARB_TABLE, 2 << 16),
        (attribute::VL_ARB_TABLE, 4 << 16),
        (attribute::VL_ARB_TABLE, 5 << 16),
    ] {
        assert_eq!(
            get(&mut ca, 1, attr_id, attr_mod),
            Err(0x1c),
            "Get {attr_id:#x} {attr_mod:#x}"
        );
        assert_eq!(
            set(&mut ca, 1, attr_id, attr_mod, &zeros),
            Err(0x1c),
            "Set {attr_id:#x} {attr_mod:#x}"
        );
    }
    // These SMPs are not for the agent: requests to a subnet manager, responses, other classes.
    let others: [fn(&mut Smp); 9] = [
        |smp| smp.attr_id = attribute::SM_INFO.into(),
        |smp| smp.method = 0x81,
        |smp| smp.method = 0x05,
        |smp| smp.method = 0x03,
        |smp| smp.method = 0x06,
        |smp| smp.method = 0x87,
        |smp| smp.mgmt_class = 0x04,
        |smp| smp.base_version = 2,
        |smp| {
            smp.mgmt_class = 0x81;
            smp.status = 0x8000.into();
        },
    ];
    for (n, change) in others.iter().enumerate() {
        let mut mad = smp(GET, attribute::NODE_INFO, 0, &zeros);
        change(Smp::of_mut(&mut mad));
        assert_eq!(process(&mut ca, 1, &mad).0, Outcome::Ignored, "case {n}");
    }
    for (method, version, status) in [
        (0x12, 1, 0x08),
        (0x00, 1, 0x08),
        (GET, 2, 0x04),
        (SET, 0, 0x04),
    ] {
        let mut mad = smp(method, attribute::NODE_INFO, 0, &zeros);
        Smp::of_mut(&mut mad).class_version = version;
        assert_eq!(
            said(&process(&mut ca, 1, &mad).1),
            Err(status),
            "{method:#x} {version}"
        );
    }
    // The status of a directed-route response has the direction bit, refused or not.
    for (attr_id, status) in [(attribute::NODE_INFO, 0x8000), (0x0031, 0x800c)] {
        let (_, reply) = process(&mut ca, 1, &directed(smp(GET, attr_id, 0, &zeros), &[]));
        assert_eq!(Smp::of(&reply).status.get(), status);
    }
}

#[test]
fn tables() {
    let mut ca = ca();
    let mut pkeys = [0; 64];
    pkeys[..2].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(get(&mut ca, 1, attribute::PKEY_TABLE, 0), Ok(pkeys));
    pkeys[30..34].copy_from_slice(&[0x80, 0x01, 0x80, 0x02]);
    let changes = set(&mut ca, 1, attribute::PKEY_TABLE, 0, &pkeys).unwrap();
    assert!(changes.has(Changes::PKEY) && changes.port == 1);
    pkeys[32..].fill(0);
    assert_eq!(
        get(&mut ca, 1, attribute::PKEY_TABLE, 0),
        Ok(pkeys),
        "16 entries and no more"
    );
    assert_eq!(
        (ca.port(1).unwrap().pkey(15), ca.port(1).unwrap().pkey(16)),
        (Some(0x8001), None)
    );
    assert_eq!(ca.port(2).unwrap().pkey(15), Some(0));
    assert_eq!(
        set(&mut ca, 1, attribute::PKEY_TABLE, 0, &pkeys),
        Ok(Changes::none(1))
    );

    let mut guids = get(&mut ca, 2, attribute::GUID_INFO, 0).unwrap();
    assert_eq!(guids[..8], (GUID + 2).to_be_bytes());
    assert_eq!(guids[8..], [0; 56]);
    guids[0] ^= 0xff;
    guids[63] = 7;
    assert!(set(&mut ca, 2, attribute::GUID_INFO, 0, &guids)
        .unwrap()
        .has(Changes::GID));
    let port = ca.port(2).unwrap();
    assert_eq!(
        (port.guid(0), port.guid(7), port.guid(8)),
        (Some(GUID + 2), Some(7), None)
    );

    let lanes = get(&mut ca, 1, attribute::SL_TO_VL_TABLE, 0).unwrap();
    assert_eq!(lanes[..8], [0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67]);
    assert_eq!(lanes[8..], [0; 56]);
    set(&mut ca, 1, attribute::SL_TO_VL_TABLE, 0, &[0x11; 64]).unwrap();
    assert_eq!(
        get(&mut ca, 1, attribute::SL_TO_VL_TABLE, 0).unwrap()[..9],
        [0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0]
    );

    for (block, byte) in [(1, 0x21), (3, 0x43)] {
        set(
            &mut ca,
            1,
            attribute::VL_ARB_TABLE,
            block << 16,
            &[byte; 64],
        )
        .unwrap();
    }
    for (block, byte) in [(1, 0x21), (3, 0x43)] {
        let data = get(&mut ca, 1, attribute::VL_ARB_TABLE, block << 16).unwrap();
        assert_eq!(
            (&data[..16], &data[16..]),
            (&[byte; 16][..], &[0; 48][..]),
            "8 entries"
        );
    }
}

#[test]
fn switch_tables() {
    let mut fabric = Fabric::default();
    let switch = fabric.switch(1, 3);
    let ca = fabric.ca(2, 1);
    fabric.plug((ca, 1), (switch, 2));
    let manager = Manager::new((ca, 1));
    let ask = |fabric: &mut Fabric, method: u8, attr_id: u16, attr_mod: u32, byte: u8| {
        let before = fabric.get_switch(0).clone();
        let said = manager.ask(fabric, &[1], smp(method, attr_id, attr_mod, &[byte; 64]));
        if said.is_some_and(|said| said.is_err()) {
            assert!(
                *fabric.get_switch(0) == before,
                "what is refused changes nothing"
            );
        }
        said.expect("a response")
    };
    let good: &[(u16, u32)] = &[
        (attribute::LINEAR_FORWARD_TABLE, 0),
        (attribute::LINEAR_FORWARD_TABLE, 15),
        (attribute::MCAST_FORWARD_TABLE, 1),
        (attribute::MCAST_FORWARD_TABLE, 1 << 28),
    ];
    for (n, (attr_id, attr_mod)) in (1..).zip(good) {
        assert_eq!(ask(&mut fabric, SET, *attr_id, *attr_mod, n), Ok([n; 64]));
    }
    for (n, (attr_id, attr_mod)) in (1..).zip(good) {
        assert_eq!(
            ask(&mut fabric, GET, *attr_id, *attr_mod, 0),
            Ok([n; 64]),
            "each has its place"
        );
    }
    for attr_mod in [0x0001, 0x0302, 0x0203] {
        let data = ask(
            &mut fabric,
            SET,
            attribute::SL_TO_VL_TABLE,
            attr_mod,
            attr_mod as u8,
        )
        .unwrap();
        assert_eq!((data[7], data[8]), (attr_mod as u8, 0));
    }
    assert_eq!(
        ask(&mut fabric, GET, attribute::SL_TO_VL_TABLE, 0x0302, 0).unwrap()[0],
        2
    );
    assert_eq!(
        ask(&mut fabric, GET, attribute::SL_TO_VL_TABLE, 0x0102, 0).unwrap()[0],
        1
    );
    assert_eq!(
        ask(&mut fabric, SET, attribute::VL_ARB_TABLE, 0x1_0002, 9).unwrap()[15],
        9
    );
    assert_eq!(
        ask(&mut fabric, GET, attribute::VL_ARB_TABLE, 0x1_0003, 9).unwrap()[15],
        0
    );
    for (attr_id, attr_mod) in [
        (attribute::LINEAR_FORWARD_TABLE, 16),
        (attribute::LINEAR_FORWARD_TABLE, 1 << 31),
        (attribute::MCAST_FORWARD_TABLE, 2),
        (attribute::MCAST_FORWARD_TABLE, 2 << 28),
        (attribute::SL_TO_VL_TABLE, 0x0100),
        (attribute::SL_TO_VL_TABLE, 0x0104),
        (attribute::SL_TO_VL_TABLE, 0x0401),
        (attribute::SL_TO_VL_TABLE, 0x1_0001),
        (attribute::VL_ARB_TABLE, 0x1_0000),
        (attribute::VL_ARB_TABLE, 0x1_0004),
        (attribute::VL_ARB_TABLE, 0x2_0001),
        (attribute::PKEY_TABLE, 0x1_0000),
        (attribute::GUID_INFO, 1),
        (attribute::PORT_INFO, 4),
    ] {
        for method in [GET, SET] {
            assert_eq!(
                ask(&mut fabric, method, attr_id, attr_mod, 0),
                Err(0x1c),
                "{attr_id:#x} {attr_mod:#x}"
            );
        }
    }
    for attr_id in [attribute::SM_INFO, attribute::NOTICE, 0x1a, 0x31, 0xff90] {
        for method in [GET, SET] {
            assert_eq!(
                ask(&mut fabric, method, attr_id, 0, 0),
                Err(0x0c),
                "{attr_id:#x}"
            );
        }
    }
    assert_eq!(
        ask(&mut fabric, 0x12, attribute::NODE_INFO, 0, 0),
        Err(0x08)
    );
    let mut data = manager.get(&mut fabric, &[1], attribute::SWITCH_INFO, 0);
    let info: SwitchInfo = zerocopy::transmute!(data);
    assert_eq!(
        (info.linear_fdb_cap.get(), info.multicast_fdb_cap.get()),
        (1024, 64)
    );
    data[6..8].copy_from_slice(&1024_u16.to_be_bytes());
    let said = manager.ask(
        &mut fabric,
        &[1],
        smp(SET, attribute::SWITCH_INFO, 0, &data),
    );
    assert_eq!(said, Some(Err(0x1c)), "LinearFDBTop");
    // PortInfo is available for each port of a switch.
    for port in 0..=3 {
        let data = manager.get(&mut fabric, &[1], attribute::PORT_INFO, port);
        let info = PortInfo::of(&data);
        assert_eq!(info.local_port_num, 2, "the port by which it came");
        let state = [4, 1, 2, 1][port as usize];
        assert_eq!(info.speed_state & 0x0f, state);
        assert_eq!(info.cap_mask.get() != 0, port == 0);
        assert_eq!(info.guid_cap, u8::from(port == 0));
    }
}
