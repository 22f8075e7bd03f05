// SPDX-License-Identifier: GPL-2.0

//! An adapter of two ports, and the responses of its agent.

use super::smp;
use srp_host::vfab::{
    ca::{Ca, Outcome},
    changes::Changes,
    mad::{attribute, info::PortInfo, Data, Mad, Smp, GET, LEN, SET},
};

pub const GUID: u64 = 0x1122_3344_5566_7700;

pub fn ca() -> Ca {
    let mut ca = Ca::new(GUID, 2);
    ca.link(1, true);
    ca.link(2, true);
    ca
}

pub fn process(ca: &mut Ca, port: u8, mad: &Mad) -> (Outcome, Mad) {
    let mut reply = [0xee; LEN];
    let outcome = ca.process(port, 7, mad, &mut reply);
    if !matches!(outcome, Outcome::Reply(_)) {
        assert_eq!(reply, [0xee; LEN], "no reply is no reply");
    }
    (outcome, reply)
}

pub fn get(ca: &mut Ca, port: u8, attr_id: u16, attr_mod: u32) -> Result<Data, u16> {
    let (outcome, reply) = process(ca, port, &smp(GET, attr_id, attr_mod, &[0; 64]));
    assert_eq!(
        outcome,
        Outcome::Reply(Changes::none(port)),
        "a Get changes nothing"
    );
    said(&reply)
}

pub fn set(
    ca: &mut Ca,
    port: u8,
    attr_id: u16,
    attr_mod: u32,
    data: &Data,
) -> Result<Changes, u16> {
    let before = ca.clone();
    let (outcome, reply) = process(ca, port, &smp(SET, attr_id, attr_mod, data));
    let Outcome::Reply(changes) = outcome else {
        panic!("{outcome:?}");
    };
    said(&reply).map(|_| changes).inspect_err(|_| {
        assert!(changes.is_empty());
        assert_eq!(*ca, before, "what is refused changes nothing");
    })
}

pub fn said(reply: &Mad) -> Result<Data, u16> {
    let smp = Smp::of(reply);
    assert_eq!(smp.method, 0x81);
    match smp.status.get() {
        0 => Ok(smp.data),
        refused => Err(refused),
    }
}

pub fn port_info(ca: &mut Ca, port: u8) -> PortInfo {
    zerocopy::transmute!(get(ca, port, attribute::PORT_INFO, 0).unwrap())
}
