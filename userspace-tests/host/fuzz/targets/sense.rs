// SPDX-License-Identifier: GPL-2.0

//! Any bytes as sense data, and as an event report.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{message::AerReq, sense::Sense};

fn check(bytes: &[u8]) {
    let Some(sense) = Sense::parse(bytes) else {
        let has_key = bytes.len() > 2;
        assert!(!has_key || bytes[0] & 0x70 != 0x70);
        return;
    };
    let code = bytes[0] & 0x7f;
    assert_eq!(sense.deferred, code & 1 == 1);
    let at = if code < 0x72 { [2, 12, 13] } else { [1, 2, 3] };
    assert_eq!(sense.key, bytes[at[0]] & 15);
    // Each code is the byte at its offset, or 0.
    for (code, at) in [(sense.asc, at[1]), (sense.ascq, at[2])] {
        assert!(code == 0 || code == bytes[at]);
    }
    if sense.is_reported_luns_changed() {
        assert_eq!(bytes[at[1]..=at[2]], [0x3f, 0x0e]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if let Ok(event) = AerReq::parse(bytes) {
        assert!(AerReq::LEN + event.sense.len() <= bytes.len());
        check(event.sense);
    }
});
