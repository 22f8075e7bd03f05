// SPDX-License-Identifier: GPL-2.0

//! Any text as an address: an accepted address parses to the same value after it is printed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{address::Address, number};

fuzz_target!(|text: &str| {
    if let Ok(address) = Address::parse(text) {
        let printed = address.to_string();
        assert_eq!(Address::parse(&printed), Ok(address));
    }
    if let Ok(value) = number::hex(text) {
        assert_eq!(number::hex(&format!("{value:#x}")), Ok(value));
    }
    if let Ok(value) = number::int(text) {
        assert_eq!(number::int(&value.to_string()), Ok(value));
    }
    if let Ok(bytes) = number::hex128(text) {
        assert_eq!(
            format!("{:032x}", u128::from_be_bytes(bytes)),
            text.to_ascii_lowercase()
        );
    }
});
