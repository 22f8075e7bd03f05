// SPDX-License-Identifier: GPL-2.0

//! The atomic words of requests other than commands: fields read back as set, and no two words are
//! equal.

use srp_host::{
    logic::exchange::{self, Exchange, Phase},
    proto::tmf::TmfStatus,
};

const GENERATIONS: [u32; 5] = [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX];

fn responses() -> impl Iterator<Item = TmfStatus> {
    (0..=u8::MAX)
        .map(|code| TmfStatus(Some(code)))
        .chain([TmfStatus(None)])
}

#[test]
fn a_request_has_its_phase_and_generation() {
    let mut raw = Vec::new();
    for generation in GENERATIONS {
        let mut words: Vec<_> = [Phase::Idle, Phase::Waiting, Phase::Abandoned]
            .map(|phase| (Exchange::new(phase, generation), phase))
            .into();
        words.extend(responses().map(|status| {
            let word = Exchange::responded(generation, status);
            (word, Phase::Responded)
        }));
        for (word, phase) in words {
            let word = Exchange::from_raw(word.raw());
            assert_eq!((word.phase(), word.generation()), (phase, generation));
            let idle = Exchange::new(Phase::Idle, generation);
            assert_eq!(word.with_phase(Phase::Idle), idle);
            // Bit 63 belongs to `StateCell`.
            assert_eq!(word.raw() >> 63, 0);
            raw.push(word.raw());
        }
    }
    let count = raw.len();
    raw.sort_unstable();
    raw.dedup();
    assert_eq!(raw.len(), count);
    assert_eq!(Exchange::default(), Exchange::new(Phase::Idle, 0));
}

#[test]
fn a_request_has_the_response_of_its_generation() {
    for status in responses() {
        let word = Exchange::responded(7, status);
        assert_eq!(word.response(7), Some(status));
        assert_eq!(word.response(8), None);
    }
    for phase in [Phase::Idle, Phase::Waiting, Phase::Abandoned] {
        assert_eq!(Exchange::new(phase, 7).response(7), None);
    }
}

#[test]
fn a_request_is_unanswered_until_its_response() {
    let unanswered = |phase, generation| Exchange::new(phase, generation).unanswered();
    let waiting = unanswered(Phase::Waiting, 0);
    assert_ne!(waiting, 0);
    assert_eq!(waiting, unanswered(Phase::Abandoned, 0));
    assert_ne!(waiting, unanswered(Phase::Waiting, 1));
    assert_eq!(unanswered(Phase::Idle, 7), 0);
    for status in responses() {
        assert_eq!(Exchange::responded(7, status).unanswered(), 0);
    }
}

#[test]
fn a_response_is_known_by_its_code() {
    for code in 0..=u8::MAX {
        assert_eq!(exchange::code(TmfStatus(Some(code))), u16::from(code));
    }
    assert_eq!(exchange::code(TmfStatus(None)), 256);
}
