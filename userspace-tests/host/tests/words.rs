// SPDX-License-Identifier: GPL-2.0

//! The words of task management requests and of probes: fields read back as set, and no two words
//! are equal.

use srp_host::{
    logic::{
        probe,
        task::{self, State},
    },
    proto::tmf::TmfStatus,
};

const GENERATIONS: [u32; 5] = [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX];

fn answers() -> impl Iterator<Item = TmfStatus> {
    (0..=u8::MAX)
        .map(TmfStatus::new)
        .chain([TmfStatus::Missing])
}

fn no_two_are_the_same(mut words: Vec<u64>) {
    let count = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), count);
}

#[test]
fn a_task_has_its_state_and_generation() {
    let mut raw = Vec::new();
    for generation in GENERATIONS {
        let mut words = vec![
            (task::Word::idle(generation), State::Idle),
            (task::Word::waiting(generation), State::Waiting),
            (task::Word::stuck(generation), State::Stuck),
        ];
        words.extend(answers().map(|status| {
            let word = task::Word::answered(generation, status);
            (word, State::Answered)
        }));
        for (word, state) in words {
            let word = task::Word::from_raw(word.raw());
            assert_eq!((word.state(), word.generation()), (state, generation));
            // Bit 63 belongs to `StateCell`.
            assert_eq!(word.raw() >> 63, 0);
            raw.push(word.raw());
        }
    }
    no_two_are_the_same(raw);
    assert_eq!(task::Word::default(), task::Word::idle(0));
}

#[test]
fn a_task_has_the_answer_of_its_generation() {
    for status in answers() {
        let word = task::Word::answered(7, status);
        assert_eq!(word.answer(7), Some(status));
        assert_eq!(word.answer(8), None);
    }
    for word in [
        task::Word::idle(7),
        task::Word::waiting(7),
        task::Word::stuck(7),
    ] {
        assert_eq!(word.answer(7), None);
    }
}

#[test]
fn an_answer_is_known_by_its_code() {
    for code in 0..=u8::MAX {
        assert_eq!(task::code(TmfStatus::new(code)), u16::from(code));
    }
    assert_eq!(task::code(TmfStatus::Missing), 256);
}

#[test]
fn a_probe_is_out_until_it_is_recalled() {
    let mut raw = vec![probe::Word::IDLE.raw()];
    for generation in GENERATIONS {
        let (out, recalled) = (
            probe::Word::out(generation),
            probe::Word::recalled(generation),
        );
        assert!(!out.is_free() && recalled.is_free());
        assert_eq!((out.recall(), recalled.recall()), (Some(recalled), None));
        assert_eq!(probe::Word::from_raw(out.raw()), out);
        assert_eq!((out.raw() | recalled.raw()) >> 63, 0);
        raw.extend([out.raw(), recalled.raw()]);
    }
    no_two_are_the_same(raw);
    assert!(probe::Word::IDLE.is_free());
    assert_eq!(probe::Word::IDLE.recall(), None);
    assert_eq!(probe::Word::default(), probe::Word::IDLE);
}
