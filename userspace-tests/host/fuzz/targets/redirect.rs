// SPDX-License-Identifier: GPL-2.0

//! Any additional information of any REJ.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{
    guid::Gid,
    reject::{Redirect, Reject},
};

fuzz_target!(|input: (u16, bool, u64, &[u8])| {
    let (reason, topspin, prefix, info) = input;
    let _ = format!("{}", Reject::from_status(reason.into()));
    // So the fuzzer need not guess the reasons.
    let reason = match reason % 4 {
        0 => 24,
        1 => 25,
        _ => reason,
    };
    match Redirect::parse(reason, info, topspin) {
        None => assert!(reason != 24 && (reason != 25 || !topspin)),
        Some(Err(error)) => {
            let _ = format!("{error}");
        }
        Some(Ok(redirect)) => {
            assert!(info.len() >= if reason == 24 { 72 } else { 16 });
            assert!(redirect.gid.is_some() || redirect.lid.is_some());
            assert!(redirect
                .gid
                .is_none_or(|gid| gid.0[0] != 0xff && gid.0 != [0; 16]));
            assert!(redirect.lid != Some(0));
            assert!(redirect.pkey.is_none_or(|pkey| pkey & 0x7fff != 0));
            assert!(redirect.qpn.is_none_or(|qpn| (1..1 << 24).contains(&qpn)));
            let to = redirect.gid.map(|gid| gid.subnet_prefix());
            let from = Gid((u128::from(prefix) << 64).to_be_bytes());
            match redirect.follow(&from, 0) {
                Ok(_) => assert!(to.is_none_or(|to| to == prefix)),
                Err(_) => assert!(to.is_some_and(|to| to != prefix)),
            }
        }
    }
});
