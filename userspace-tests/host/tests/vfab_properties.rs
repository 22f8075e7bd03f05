// SPDX-License-Identifier: GPL-2.0

//! Properties of the agents: no bytes panic, and no SMP changes anything without the right to.

mod vfab;

use proptest::{collection::vec, prelude::*};
use srp_host::vfab::{
    ca::{Ca, Outcome},
    changes::Changes,
    mad::{
        attribute, info::PortInfo, Data, Lrh, Mad, Smp, BASE_VERSION, CLASS_DIRECTED,
        CLASS_LID_ROUTED, CLASS_VERSION, GET, LEN, PERMISSIVE, SET,
    },
    switch::{Next, Switch},
};

/// Bytes that are often a valid SMP.
fn mad() -> impl Strategy<Value = Mad> {
    let header = (
        prop_oneof![Just(CLASS_LID_ROUTED), Just(CLASS_DIRECTED), any::<u8>()],
        prop_oneof![9 => Just(CLASS_VERSION), 1 => any::<u8>()],
        prop_oneof![3 => Just(GET), 6 => Just(SET), 1 => Just(7), 1 => any::<u8>()],
        prop_oneof![7 => 0x10_u16..0x1c, 1 => any::<u16>()],
        prop_oneof![
            Just(0_u32),
            0..20_u32,
            (0..5_u32, 0..5_u32).prop_map(|(a, b)| a << 16 | b),
            any::<u32>()
        ],
        prop_oneof![Just(0_u64), Just(KEY), any::<u64>()],
        (
            prop_oneof![Just(PERMISSIVE), 0..5_u16],
            prop_oneof![Just(PERMISSIVE), 0..5_u16],
        ),
    );
    let path = (
        0..70_u8,
        0..70_u8,
        any::<bool>(),
        vec(0..6_u8, 64),
        vec(0..6_u8, 64),
    );
    (any::<[u8; 32]>(), any::<[u8; 32]>(), header, path, 0..8_u8).prop_map(
        |(low, high, (class, version, method, attr_id, attr_mod, mkey, lids), path, sober)| {
            let mut mad = [0; LEN];
            let smp = Smp::of_mut(&mut mad);
            smp.base_version = BASE_VERSION;
            smp.mgmt_class = class;
            smp.class_version = version;
            smp.method = method;
            smp.attr_id = attr_id.into();
            smp.attr_mod = attr_mod.into();
            smp.mkey = mkey.into();
            (smp.dr_slid, smp.dr_dlid) = (lids.0.into(), lids.1.into());
            (smp.hop_ptr, smp.hop_cnt) = (path.0, path.1);
            // Only short paths lead to a node.
            if sober > 2 {
                (smp.hop_ptr, smp.hop_cnt) = (path.0 % 5, path.1 % 5);
            }
            smp.status = if path.2 && sober < 4 { 0x8000 } else { 0 }.into();
            smp.initial_path.copy_from_slice(&path.3);
            smp.return_path.copy_from_slice(&path.4);
            smp.data[..32].copy_from_slice(&low);
            smp.data[32..].copy_from_slice(&high);
            if sober > 1 {
                // Fields of PortInfo whose random values would mostly be refused.
                let info = PortInfo::of_mut(&mut smp.data);
                info.lid = (info.lid.get() % 4 + 1).into();
                info.sm_lid = (info.sm_lid.get() % 4 + 1).into();
                info.protect_lmc &= 0xc0;
                info.link_width_enabled &= 3;
                info.speeds &= 7;
                info.physical_down &= 0x21;
                info.speed_state &= 0x03;
                info.mtu_sm_sl = info.mtu_sm_sl % 0x60;
                info.vls_enforce = info.vls_enforce % 0x50;
                info.mkey = [0, KEY, KEY + 1][usize::from(info.vl_high_limit % 3)].into();
            }
            mad
        },
    )
}

const KEY: u64 = 0x1234_5678_9abc_def0;

fn info(key: u64) -> Data {
    let mut data = [0; 64];
    let info = PortInfo::of_mut(&mut data);
    (info.lid, info.sm_lid) = (2.into(), 1.into());
    info.mkey = key.into();
    info.protect_lmc = 0x80;
    data
}

fn ca(key: u64) -> Ca {
    let mut ca = Ca::new(0x100, 2);
    for port in [1, 2] {
        ca.link(port, true);
        let mad = vfab::smp(SET, attribute::PORT_INFO, 0, &info(key));
        assert!(matches!(
            ca.process(port, 0, &mad, &mut [0; LEN]),
            Outcome::Reply(_)
        ));
    }
    ca
}

fn switch(key: u64) -> Switch {
    let mut switch = Switch::new(0x200, 4);
    for port in 1..=3 {
        switch.link(port, true);
    }
    let mut table = [0xff; 64];
    table[1..4].copy_from_slice(&[1, 0, 3]);
    let top: Data = std::array::from_fn(|n| if n == 7 { 9 } else { 0 });
    for (attr_id, data) in [
        (attribute::LINEAR_FORWARD_TABLE, table),
        (attribute::SWITCH_INFO, top),
        (attribute::PORT_INFO, info(key)),
    ] {
        let mut mad = vfab::smp(SET, attr_id, 0, &data);
        let next = switch.smp(1, &mut Lrh::PERMISSIVE.clone(), &mut mad);
        assert!(matches!(next, Next::Out(1, _)), "{attr_id:#x}");
        assert_eq!(Smp::of(&mad).status.get(), 0);
    }
    switch
}

/// Returns `ca` without the traces of a wrong key: the count, the lease and the trap.
fn blameless(ca: &Ca) -> Ca {
    let mut ca = ca.clone();
    for port in [1, 2] {
        let port = ca.port_mut(port).unwrap();
        port.mkey.violations = 0;
        let mut mad = [0; LEN];
        Smp::of_mut(&mut mad).mkey = port.mkey.key.into();
        assert!(
            port.mkey.admits(Smp::of(&mad)),
            "the right key ends a lease"
        );
        port.traps = srp_host::vfab::traps::Traps::NONE;
    }
    ca
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), LEN), inport: u8, slid: u16, dlid: u16) {
        let mad: Mad = bytes.try_into().unwrap();
        let (mut ca, mut switch) = (ca(0), switch(0));
        let _ = ca.process(inport % 4, slid, &mad, &mut [0; LEN]);
        let _ = switch.smp(inport % 6, &mut Lrh { slid, dlid, sl: 0 }, &mut mad.clone());
    }

    #[test]
    fn adapters(mads in vec((mad(), 0..4_u8), 1..20), key in prop_oneof![Just(0), Just(KEY)]) {
        let mut ca = ca(key);
        for (mad, port) in mads {
            let before = ca.clone();
            let mut reply = [0xee; LEN];
            let outcome = ca.process(port, 3, &mad, &mut reply);
            let asked = Smp::of(&mad);
            let Outcome::Reply(changes) = outcome else {
                prop_assert_eq!(reply, [0xee; LEN]);
                prop_assert_eq!(blameless(&ca), blameless(&before));
                continue;
            };
            let said = Smp::of(&reply);
            prop_assert_eq!(said.method, 0x81);
            prop_assert_eq!((said.tid, said.attr_id, said.attr_mod), (asked.tid, asked.attr_id, asked.attr_mod));
            prop_assert_eq!((said.hop_ptr, said.hop_cnt), (asked.hop_ptr, asked.hop_cnt));
            prop_assert_eq!((said.initial_path, said.return_path), (asked.initial_path, asked.return_path));
            prop_assert_eq!(said.status.get() & 0x8000 != 0, asked.is_directed());
            let refused = said.status.get() & 0x7fff != 0;
            if asked.method != SET || refused {
                prop_assert!(changes.is_empty());
                prop_assert_eq!(blameless(&ca), blameless(&before));
            }
            if asked.method == SET {
                // An accepted Set has the keys of two ports: the one at which it arrived, and the
                // one that it names.
                for port in [port, changes.port] {
                    let mkey = &before.port(port).unwrap().mkey;
                    prop_assert!(mkey.key == 0 || asked.mkey.get() == mkey.key || refused && port == changes.port);
                }
                let other = 3 - changes.port;
                if !refused {
                    prop_assert_eq!(blameless(&ca).port(other).cloned(), blameless(&before).port(other).cloned());
                }
            }
            for port in [1, 2] {
                let (now, was) = (ca.port(port).unwrap(), before.port(port).unwrap());
                let so = |bits| changes.port == port && changes.has(bits);
                prop_assert_eq!(so(Changes::LID), now.lid() != was.lid());
                prop_assert_eq!(so(Changes::SM), (now.sm_lid(), now.sm_sl()) != (was.sm_lid(), was.sm_sl()));
                prop_assert_eq!(so(Changes::ACTIVE), now.is_active() && !was.is_active());
                prop_assert_eq!(so(Changes::PKEY), (0..16).any(|n| now.pkey(n) != was.pkey(n)));
                prop_assert_eq!(so(Changes::GID), now.prefix() != was.prefix() || (0..8).any(|n| now.guid(n) != was.guid(n)));
                prop_assert_eq!(now.guid(0), was.guid(0));
                prop_assert_eq!(now.capability(), was.capability());
                prop_assert!(now.lid() > 0 && now.lid() < 0xc000);
                if changes.has(Changes::LINK) && changes.port == port {
                    let (up, trains) = (now.is_active(), ca.trains(port));
                    let changes = ca.link(port, false);
                    prop_assert_eq!(changes.has(Changes::ERROR), up);
                    prop_assert_eq!(ca.trains(port), trains);
                    ca.link(port, true);
                }
            }
        }
    }

    #[test]
    fn switches(mads in vec((mad(), 0..6_u8, 0..6_u16, 0..6_u16), 1..20), key in prop_oneof![Just(0), Just(KEY)]) {
        let mut switch = switch(key);
        for (mut mad, inport, slid, dlid) in mads {
            let before = switch.clone();
            let asked = mad;
            let asked = Smp::of(&asked);
            let mut lrh = if dlid == 0 { Lrh::PERMISSIVE } else { Lrh { slid, dlid, sl: 0 } };
            let next = switch.smp(inport, &mut lrh, &mut mad);
            let said = Smp::of(&mad);
            let key = before.zero().mkey.key;
            let admitted = key == 0 || asked.mkey.get() == key;
            let mut same = switch.clone();
            // An SMP that is not a Set, is not admitted or is refused leaves nothing except a trap.
            let obeyed = matches!(next, Next::Out(..)) && said.method == 0x81 && asked.method == SET;
            if !obeyed && (asked.method != SET || !admitted) || obeyed && said.status.get() & 0x7fff != 0 {
                same.set_description(&[1; 64]);
                let mut was = before.clone();
                was.set_description(&[1; 64]);
                prop_assert_eq!(same.forward(3), was.forward(3));
                prop_assert_eq!(same.zero().lid(), was.zero().lid());
                prop_assert_eq!(same.zero().mkey.key, key);
                for port in 1..=4 {
                    prop_assert_eq!(same.link_of(port), was.link_of(port));
                }
            }
            if obeyed {
                prop_assert!(admitted);
            }
            if let Next::Out(port, changes) = next {
                // An SMP never leaves by a port without a link, and never goes to the switch
                // itself.
                prop_assert!(before.is_up(inport));
                prop_assert!(switch.is_up(port), "port {}", port);
                prop_assert_eq!((said.tid, said.attr_id, said.attr_mod), (asked.tid, asked.attr_id, asked.attr_mod));
                prop_assert!(said.hop_ptr.abs_diff(asked.hop_ptr) <= 1);
                prop_assert_eq!(said.initial_path, asked.initial_path);
                if said.method == asked.method {
                    prop_assert!(changes.is_empty());
                    prop_assert_eq!(said.data, asked.data, "what is passed on stays as it is");
                    prop_assert_eq!(&switch, &before);
                }
                if changes.has(Changes::LINK) {
                    switch.link(changes.port, false);
                    if switch.trains(changes.port) {
                        switch.link(changes.port, true);
                    }
                }
            }
        }
    }
}
