// SPDX-License-Identifier: GPL-2.0

//! Protection by the M_Key, and its lease; traps of an adapter.

mod vfab;

use srp_host::vfab::{
    ca::{Ca, Outcome},
    mad::{
        attribute,
        info::{Notice, PortInfo},
        Data, Lrh, Mad, Smp, GET, SET, TRAP_REPRESS,
    },
};
use vfab::{
    agent::{ca, port_info, process, said, set},
    directed, smp,
};

/// Protects port 1 of `ca`.
fn protect(ca: &mut Ca, key: u64, protect: u8, lease: u16) {
    let mut data: Data = zerocopy::transmute!(port_info(ca, 1));
    let info = PortInfo::of_mut(&mut data);
    info.mkey = key.into();
    info.protect_lmc = protect << 6;
    info.mkey_lease_period = lease.into();
    (info.lid, info.sm_lid) = (4.into(), 1.into());
    (info.speed_state, info.physical_down) = (0, 0);
    set(ca, 1, attribute::PORT_INFO, 0, &data).unwrap();
}

/// Sends a request with a key. Returns the M_Key in the response, if there is a response.
fn with_key(ca: &mut Ca, method: u8, key: u64) -> Option<u64> {
    let mut data: Data = zerocopy::transmute!(*PortInfo::of(&[0; 64]));
    PortInfo::of_mut(&mut data).lid = 4.into();
    PortInfo::of_mut(&mut data).sm_lid = 1.into();
    PortInfo::of_mut(&mut data).mkey = 0x55.into();
    let mut mad = smp(method, attribute::PORT_INFO, 0, &data);
    Smp::of_mut(&mut mad).mkey = key.into();
    match process(ca, 1, &mad) {
        (Outcome::Reply(_), reply) => {
            let data = said(&reply).expect("not refused");
            Some(PortInfo::of(&data).mkey.get())
        }
        (Outcome::Consumed, _) => None,
        (Outcome::Ignored, _) => panic!("ignored"),
    }
}

#[test]
fn mkey() {
    const KEY: u64 = 0xabcd_ef01_2345_6789;
    for level in 0..4 {
        let mut ca = ca();
        protect(&mut ca, KEY, level, 0);
        let shown = [Some(KEY), Some(0), None, None][usize::from(level)];
        assert_eq!(with_key(&mut ca, GET, 0), shown, "level {level}");
        assert_eq!(with_key(&mut ca, GET, KEY ^ 1), shown, "level {level}");
        assert_eq!(with_key(&mut ca, GET, KEY), Some(KEY), "level {level}");
        let before = ca.port(1).unwrap().mkey.violations;
        assert_eq!(before, if level < 2 { 0 } else { 2 });
        assert_eq!(with_key(&mut ca, SET, 0), None);
        assert_eq!(with_key(&mut ca, SET, !KEY), None);
        let port = ca.port(1).unwrap();
        assert_eq!((port.mkey.violations, port.mkey.key), (before + 2, KEY));
        // The key also protects other attributes.
        for method in [SET, TRAP_REPRESS] {
            let mad = smp(method, attribute::PKEY_TABLE, 0, &[0; 64]);
            assert_eq!(process(&mut ca, 1, &mad).0, Outcome::Consumed);
        }
        assert_eq!(ca.port(1).unwrap().pkey(0), Some(0xffff));
        // The other port is not protected, but access to the first port through it is.
        let mut data: Data = zerocopy::transmute!(port_info(&mut ca, 2));
        PortInfo::of_mut(&mut data).lid = 9.into();
        PortInfo::of_mut(&mut data).sm_lid = 1.into();
        PortInfo::of_mut(&mut data).speed_state = 0;
        PortInfo::of_mut(&mut data).physical_down = 0;
        assert_eq!(
            set(&mut ca, 2, attribute::PKEY_TABLE, 0, &[0xff; 64]).map(|c| c.port),
            Ok(2)
        );
        let (_, reply) = process(&mut ca, 2, &smp(SET, attribute::PORT_INFO, 1, &data));
        assert_eq!(said(&reply), Err(0x1c));
        assert_eq!(ca.port(1).unwrap().lid(), 4);
        set(&mut ca, 2, attribute::PORT_INFO, 2, &data).expect("the same for itself");
        assert_eq!(with_key(&mut ca, SET, KEY), Some(0x55));
    }
}

#[test]
fn leases() {
    let mut ca = ca();
    protect(&mut ca, 77, 2, 3);
    for _ in 0..10 {
        ca.tick();
    }
    assert_eq!(with_key(&mut ca, GET, 0), None, "no violation, no lease");
    ca.tick();
    ca.tick();
    assert_eq!(with_key(&mut ca, GET, 77), Some(77), "its manager lives");
    for _ in 0..10 {
        ca.tick();
    }
    assert_eq!(with_key(&mut ca, GET, 0), None, "so the protection stays");
    ca.tick();
    assert_eq!(
        with_key(&mut ca, GET, 0),
        None,
        "a second attempt does not prolong it"
    );
    ca.tick();
    ca.tick();
    assert_eq!(with_key(&mut ca, GET, 0), Some(77));
    assert_eq!(ca.port(1).unwrap().mkey.protect, 0);
    assert_eq!(with_key(&mut ca, SET, 0), None, "the key itself stays");
}

fn notice(trap: Option<(u8, Lrh, Mad)>) -> (u16, u8, [u8; 54]) {
    let (port, lrh, mad) = trap.expect("a trap");
    assert_eq!(
        (port, lrh),
        (
            1,
            Lrh {
                slid: 4,
                dlid: 1,
                sl: 0
            }
        )
    );
    let notice: Notice = zerocopy::transmute!(Smp::of(&mad).data);
    assert_eq!((notice.producer, notice.issuer.get()), ([0, 0, 1], 4));
    assert_eq!(Smp::of(&mad).mkey.get(), 0);
    (notice.number.get(), notice.kind, notice.details)
}

#[test]
fn traps() {
    let mut ca = ca();
    ca.set_capability(1, 1 << 1, 0);
    ca.set_description(&[b'x'; 64]);
    assert_eq!(ca.trap(), None, "there is no manager to tell");
    protect(&mut ca, 77, 2, 0);
    ca.tick();
    assert_eq!(ca.trap(), None, "it has just asked");

    ca.set_capability(1, 1 << 19, 1 << 1);
    let mask = ca.port(1).unwrap().capability();
    assert_eq!(mask & (1 << 19 | 1 << 1), 1 << 19);
    let (number, kind, details) = notice(ca.trap());
    assert_eq!((number, kind), (144, 0x84));
    assert_eq!(
        (&details[2..4], details[5], &details[6..10]),
        (&[0, 4][..], 0, &mask.to_be_bytes()[..])
    );
    assert_eq!(ca.trap(), None);
    ca.set_capability(1, 1 << 19, 1 << 1);
    assert_eq!(ca.trap(), None, "nothing new");

    ca.set_description(&[b'y'; 64]);
    let (number, _, details) = notice(ca.trap());
    assert_eq!((number, details[5], details[11]), (144, 1, 1));

    let mut mad = directed(smp(SET, attribute::PKEY_TABLE, 0x0102, &[0; 64]), &[1; 35]);
    Smp::of_mut(&mut mad).mkey = 0x99.into();
    Smp::of_mut(&mut mad).return_path = [6; 64];
    assert_eq!(process(&mut ca, 1, &mad).0, Outcome::Consumed);
    let (number, kind, details) = notice(ca.trap());
    assert_eq!((number, kind), (256, 0x82));
    assert_eq!(details[2..6], [0, 7, 0xff, 0xff], "from LID 7, by a path");
    assert_eq!((details[6], &details[8..10]), (SET, &[0, 0x16][..]));
    assert_eq!(details[10..22], [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0x99]);
    assert_eq!(details[23], 0x80 | 0x40 | 30, "a path that does not fit");
    assert_eq!(details[24..], [6; 30]);

    // Both traps are repeated until each is repressed.
    ca.tick();
    let (first, second) = (ca.trap().unwrap(), ca.trap().unwrap());
    assert_eq!(ca.trap(), None);
    for trap in [first, second] {
        let mut repress = smp(TRAP_REPRESS, attribute::NOTICE, 0, &Smp::of(&trap.2).data);
        Smp::of_mut(&mut repress).tid = Smp::of(&trap.2).tid;
        Smp::of_mut(&mut repress).mkey = 77.into();
        assert_eq!(process(&mut ca, 1, &repress).0, Outcome::Consumed);
    }
    ca.tick();
    assert_eq!(ca.trap(), None);
}
