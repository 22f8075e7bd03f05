// SPDX-License-Identifier: GPL-2.0

//! Any private data as the response to any login request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{
    ids::PortId,
    login_iu::{it_iu_len, LoginRej, LoginRsp, MultiChannel, Requested},
    options::MIN_IT_IU_LEN,
    reject::Reject,
};

fuzz_target!(|input: (u8, u32, u32, bool, &[u8])| {
    let (descriptors, immediate, cap, multi, bytes) = input;
    let requested = Requested {
        // The right tag gets the fuzzer past the first check.
        tag: bytes
            .get(8..16)
            .map_or(0, |tag| u64::from_be_bytes(tag.try_into().unwrap())),
        max_it_iu_len: it_iu_len(descriptors, immediate, cap.max(MIN_IT_IU_LEN)),
        descriptors,
        immediate,
        multichannel: if multi {
            MultiChannel::Multi
        } else {
            MultiChannel::Single
        },
        initiator: PortId::default(),
        target: PortId::default(),
    };
    match LoginRsp::parse(bytes) {
        Ok(rsp) => match rsp.check(&requested) {
            Ok(granted) => {
                assert!((2..=65_535).contains(&granted.req_lim));
                assert!((MIN_IT_IU_LEN..=requested.max_it_iu_len).contains(&granted.max_it_iu_len));
                assert!(granted.descriptors <= descriptors && granted.immediate <= immediate);
                let room = granted.max_it_iu_len.saturating_sub(68);
                assert!(granted.immediate <= room && u32::from(granted.descriptors) * 16 <= room);
            }
            Err(error) => {
                let _ = format!("{error}");
            }
        },
        Err(error) => {
            let _ = format!("{error}");
        }
    }
    if let Ok(rej) = LoginRej::parse(bytes) {
        assert!(matches!(rej.reason(), Reject::Srp(_)));
        let _ = format!("{}", rej.reason());
    }
});
