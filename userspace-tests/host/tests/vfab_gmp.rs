// SPDX-License-Identifier: GPL-2.0

//! Datagrams of queue pair 1: their kinds by name, and the BUSY reply of the subnet administrator.

use srp_host::vfab::{
    gmp::{is_sa, kind, refuse, NAMES},
    mad::{Mad, LEN},
};

/// A datagram of a class, with a method and an attribute.
fn mad(class: u8, method: u8, attribute: u16) -> Mad {
    let mut mad = [0x5a; LEN];
    mad[..4].copy_from_slice(&[1, class, 2, method]);
    mad[4..6].copy_from_slice(&[0, 0]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad
}

#[test]
fn kinds() {
    for (class, method, attribute, name) in [
        (0x03, 0x01, 0x35, "sa-path"),
        (0x03, 0x12, 0x35, "sa-path"),
        (0x03, 0x81, 0x35, "sa-answer"),
        (0x03, 0x92, 0x11, "sa-answer"),
        (0x03, 0x02, 0x38, "sa-request"),
        (0x06, 0x01, 0x10, "device"),
        (0x07, 0x03, 0x10, "cm-req"),
        (0x07, 0x03, 0x11, "cm-mra"),
        (0x07, 0x03, 0x12, "cm-rej"),
        (0x07, 0x03, 0x13, "cm-rep"),
        (0x07, 0x03, 0x14, "cm-rtu"),
        (0x07, 0x03, 0x15, "cm-dreq"),
        (0x07, 0x03, 0x16, "cm-drep"),
        (0x07, 0x03, 0x17, "cm-other"),
        (0x07, 0x03, 0x0f, "cm-other"),
        (0x07, 0x03, 0x110, "cm-other"),
        (0x04, 0x01, 0x10, "other"),
    ] {
        let kind = kind(&mad(class, method, attribute));
        assert_eq!(NAMES[kind], name, "{class:x} {method:x} {attribute:x}");
        assert_eq!(is_sa(kind), class == 0x03);
    }
}

#[test]
fn a_busy_administrator() {
    let asked = mad(0x03, 0x01, 0x35);
    let mut answer = asked;
    assert!(refuse(&mut answer));
    assert_eq!(answer[3..6], [0x81, 0, 1]);
    assert_eq!(answer[6..], asked[6..]);
    // A response gets no reply, and other classes get no BUSY reply.
    for mut other in [answer, mad(0x07, 0x03, 0x10)] {
        let before = other;
        assert!(!refuse(&mut other));
        assert_eq!(other, before);
    }
}
