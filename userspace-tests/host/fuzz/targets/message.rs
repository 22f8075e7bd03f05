// SPDX-License-Identifier: GPL-2.0

//! Any bytes on an established channel; the last 5 bytes describe the command that they answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{
    cmd::Direction,
    message::{logout_reason, Message},
    rsp::{Good, MAX_SENSE_LEN},
};

fuzz_target!(|input: (u32, u8, &[u8])| {
    let (data_len, direction, bytes) = input;
    let direction = match direction % 3 {
        0 => Direction::None,
        1 => Direction::ToDevice,
        _ => Direction::FromDevice,
    };
    let within = |part: &[u8]| part.is_empty() || bytes.as_ptr_range().contains(&part.as_ptr());
    let good = Good::parse(bytes);
    match Message::parse(bytes) {
        Ok(Message::Rsp(rsp)) => {
            assert!(bytes.len() >= 36);
            if let Some(good) = good {
                assert_eq!((good.req_lim_delta, good.tag), (rsp.req_lim_delta, rsp.tag));
                let outcome = rsp.outcome(data_len, direction).expect("no fault");
                assert_eq!((outcome.status, outcome.resid), (0, 0));
                assert!(!outcome.overrun && outcome.sense.is_empty());
            }
            let _ = format!("{}", rsp.tmf_status());
            match rsp.outcome(data_len, direction) {
                Ok(outcome) => {
                    assert!(outcome.resid <= data_len);
                    assert!(outcome.sense.len() <= MAX_SENSE_LEN && within(outcome.sense));
                    assert!(outcome.sense.len() <= bytes.len() - 36);
                }
                Err(fault) => {
                    let _ = format!("{fault}");
                }
            }
        }
        _ if good.is_some() => panic!("good, but no response"),
        Ok(Message::AerReq(aer)) => {
            assert!(aer.sense.len() <= bytes.len() - 36 && within(aer.sense))
        }
        Ok(Message::CredReq { .. }) => assert!(bytes.len() >= 16),
        Ok(Message::TLogout(reason)) => {
            assert!(bytes.len() >= 16 && !logout_reason(reason).is_empty())
        }
        Err(error) => {
            let _ = format!("{error}");
        }
    }
});
