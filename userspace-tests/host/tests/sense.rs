// SPDX-License-Identifier: GPL-2.0

//! Sense data, and the event reports that carry it.

mod common;

use common::hex;
use srp_host::proto::{
    ids::Lun,
    message::{AerReq, Message},
    message_error::ProtocolError,
    sense::Sense,
};

const FIXED: &str = "70 00 06 00000000 0a 00000000 3f 0e 00 000000";
const DESCRIPTOR: &str = "72 06 3f 0e 000000 00";

/// Builds an event report for unit 3 with `sense`.
fn report(sense: &[u8]) -> Vec<u8> {
    let mut bytes = hex("82 00 0000 00000001 1122334455667788 00000000 0003000000000000");
    bytes.extend((sense.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(sense);
    bytes
}

#[test]
fn both_formats() {
    for (deferred, key, text) in [
        (false, 6, FIXED),
        (false, 6, DESCRIPTOR),
        (true, 6, "71 00 06 00000000 0a 00000000 3f 0e 00 000000"),
        (true, 6, "73 06 3f 0e 000000 00"),
        // Bits beside response code and sense key: VALID, FILEMARK, EOM, ILI, reserved bits.
        (false, 6, "f0 00 e6 12345678 0a 00000000 3f 0e 00 000000"),
        (false, 15, "f2 ff 3f 0e 800000 00"),
        // With descriptors; and without additional length beyond ASC and ASCQ.
        (
            false,
            0,
            "72 00 3f 0e 000000 0c 00 0a 80 00 0000000000001234",
        ),
        (false, 2, "70 00 02 00000000 06 00000000 3f 0e"),
    ] {
        let sense = Sense::parse(&hex(text)).expect(text);
        let expected = Sense {
            deferred,
            key,
            asc: 0x3f,
            ascq: 0x0e,
            information: sense.information,
        };
        assert_eq!(sense, expected, "{text}");
        assert!(sense.is_reported_luns_changed(), "{text}");
    }
}

#[test]
fn only_reported_luns() {
    for (text, asc, ascq) in [
        ("70 00 06 00000000 0a 00000000 3f 0f 00 000000", 0x3f, 0x0f),
        ("70 00 06 00000000 0a 00000000 0e 3f 00 000000", 0x0e, 0x3f),
        ("72 06 29 00 000000 00", 0x29, 0),
        ("72 06 3e 0e 000000 00", 0x3e, 0x0e),
        // The codes are at the offsets of the other format.
        ("70 06 3f 0e 000000 0a 00000000 00 00 00 000000", 0, 0),
        ("72 00 00 00 000000 0a 00000000 3f 0e 00 000000", 0, 0),
    ] {
        let sense = Sense::parse(&hex(text)).expect(text);
        assert_eq!((sense.asc, sense.ascq), (asc, ascq), "{text}");
        assert!(!sense.is_reported_luns_changed(), "{text}");
    }
}

#[test]
fn other_codes() {
    let mut bytes = hex(FIXED);
    for code in 0..=255u8 {
        bytes[0] = code;
        let sense = Sense::parse(&bytes);
        // Reserved codes are read as by scsi_normalize_sense().
        assert_eq!(sense.is_some(), code & 0x70 == 0x70, "{code:#04x}");
        if let Some(sense) = sense {
            let key = if code & 0x7f < 0x72 { 6 } else { 0 };
            assert_eq!(
                (sense.deferred, sense.key),
                (code & 1 != 0, key),
                "{code:#04x}"
            );
        }
        assert_eq!(Sense::parse(&bytes[..1]), None);
    }
    assert_eq!(Sense::parse(&[]), None);
}

#[test]
fn broken_off() {
    for (text, key, asc, ascq) in [(FIXED, 2, 12, 13), (DESCRIPTOR, 1, 2, 3)] {
        let bytes = hex(text);
        for len in 0..=bytes.len() {
            let sense = Sense::parse(&bytes[..len]);
            if len <= key {
                assert_eq!(sense, None);
                continue;
            }
            let expected = Sense {
                deferred: false,
                key: 6,
                asc: if len > asc { 0x3f } else { 0 },
                ascq: if len > ascq { 0x0e } else { 0 },
                information: None,
            };
            assert_eq!(sense, Some(expected), "{len} bytes of {text}");
        }
    }
}

/// The additional length of the fixed format determines whether ASC and ASCQ are present.
#[test]
fn additional_length() {
    let mut bytes = hex(FIXED);
    for more in 0..=255 {
        bytes[7] = more;
        let sense = Sense::parse(&bytes).unwrap();
        assert_eq!(sense.key, 6);
        assert_eq!(sense.asc, if more >= 5 { 0x3f } else { 0 }, "{more}");
        assert_eq!(sense.ascq, if more >= 6 { 0x0e } else { 0 }, "{more}");
    }
    let mut bytes = hex(DESCRIPTOR);
    for more in 0..=255 {
        bytes[7] = more;
        assert!(Sense::parse(&bytes).unwrap().is_reported_luns_changed());
    }
}

#[test]
fn information() {
    let last = "72 03 11 00 000000 12 02 04 0000 8000 00 0a 80 00 0000000100000007";
    for (text, expected) in [
        (
            "f0 00 03 12345678 0a 00000000 11 00 00 000000",
            Some(0x1234_5678),
        ),
        ("f1 00 03 00000000 0a 00000000 11 00 00 000000", Some(0)),
        ("70 00 03 12345678 0a 00000000 11 00 00 000000", None),
        (
            "72 03 11 00 000000 0c 00 0a 80 00 ffffffffffffffff",
            Some(u64::MAX),
        ),
        (
            "73 03 11 00 000000 0c 00 0a 80 00 0000000000001234",
            Some(0x1234),
        ),
        (last, Some(0x1_0000_0007)),
        // Length 0, wrong descriptor length, truncated, no descriptor; formats without descriptors.
        ("72 03 11 00 000000 00 00 0a 80 00 0000000000001234", None),
        ("72 03 11 00 000000 0c 00 0b 80 00 0000000000001234", None),
        ("72 03 11 00 000000 0c 00 0a 80 00 00000000000012", None),
        ("72 03 11 00 000000 02 02 ff", None),
        ("72 03 11 00 000000 01 00", None),
        ("72 03 11 00 000000 00", None),
        ("f2 03 11 00 000000 0c 00 0a 80 00 0000000000001234", None),
        ("74 03 11 00 000000 0c 00 0a 80 00 0000000000001234", None),
    ] {
        let sense = Sense::parse(&hex(text)).expect(text);
        assert_eq!(sense.information, expected, "{text}");
        let bad = expected.filter(|_| !sense.deferred);
        assert_eq!(sense.bad_block(), bad, "{text}");
    }
    let bytes = hex(last);
    for len in 3..bytes.len() {
        assert_eq!(Sense::parse(&bytes[..len]).unwrap().information, None);
    }
}

#[test]
fn in_an_event_report() {
    for text in [FIXED, DESCRIPTOR] {
        let sense = hex(text);
        let bytes = report(&sense);
        let Ok(Message::AerReq(event)) = Message::parse(&bytes) else {
            panic!("{text}")
        };
        assert_eq!((event.lun, event.sense), (Lun::from_int(3), &sense[..]));
        assert!(Sense::parse(event.sense)
            .unwrap()
            .is_reported_luns_changed());
        // Less than the fixed part and the claimed sense data.
        for len in AerReq::LEN..bytes.len() {
            assert_eq!(
                AerReq::parse(&bytes[..len]),
                Err(ProtocolError::Length {
                    claimed: bytes.len() as u64,
                    got: len
                })
            );
        }
        // Bytes after the claimed length are not sense data.
        let mut longer = bytes.clone();
        longer.extend([0xff; 20]);
        assert_eq!(AerReq::parse(&longer).unwrap().sense, &sense[..]);
    }
    assert_eq!(AerReq::parse(&report(&[])).unwrap().sense, &[0u8; 0]);
}
