// SPDX-License-Identifier: GPL-2.0

//! Tables and arithmetic of the driver.

#[path = "../../../rust/ib_srp/srp/slot/tests/events.rs"]
mod events;

use srp_host::logic::{
    backoff::Fill,
    credit,
    data_path::{DataPath, Thresholds},
    geometry::{self, Environment},
    recovery::{Recovery, MAX_STRIKES},
    send_queue::Slots,
    slot_state::{self, Event, Word},
    tag::{Kind, Tag, MAX_SLOTS},
    time::Ktime,
    watch::{credit_round_ms, removal_limit_ms, Credits, Policy, Verdict, Watch},
};
use srp_host::proto::cmd::Direction;
use srp_host::rdma::limits::Limits;

#[test]
fn credits() {
    assert_eq!(credit::take(0, 0), None);
    assert_eq!(credit::take(1, credit::RESERVE_TSK_MGMT), Some(0));
    assert_eq!(credit::take(1, credit::RESERVE_COMMAND), None);
    assert_eq!(credit::take(2, credit::RESERVE_COMMAND), Some(1));
    assert_eq!(credit::take(-1, credit::RESERVE_TSK_MGMT), None);
    assert_eq!(credit::take(i32::MIN, credit::RESERVE_TSK_MGMT), None);
    assert_eq!(credit::give(0, 0, 64), Some(0));
    assert_eq!(credit::give(63, 1, 64), Some(64));
    assert_eq!(credit::give(64, 1, 64), None);
    assert_eq!(credit::give(15, -15, 64), Some(0));
    // 60 of 62 credits are in use, and the target takes ten back: after nine responses one command
    // may be sent.
    assert_eq!(credit::give(2, -10, 64), Some(-8));
    assert_eq!(credit::give(-8, 9, 64), Some(1));
    assert_eq!(credit::give(0, -64, 64), Some(-64));
    assert_eq!(credit::give(0, -65, 64), None);
    assert_eq!(credit::give(-1, i32::MIN, credit::MAX), None);
    assert_eq!(credit::give(0, i32::MAX, credit::MAX), None);
    let most = credit::MAX as i32;
    for delta in [i32::MIN, i32::MAX, i32::MIN + most, i32::MAX - most] {
        assert_eq!(credit::give(most, delta, credit::MAX), None);
        assert_eq!(credit::give(-most, delta, credit::MAX), None);
    }
    assert_eq!(credit::give(-most, 2 * most, credit::MAX), Some(most));
    assert_eq!(credit::give(-most, 2 * most + 1, credit::MAX), None);
}

#[test]
fn a_removal_asks_before_it_gives_up() {
    let (slice, request) = (5_000, 30_000);
    let limit = removal_limit_ms(request);
    // A flush may take twice the request timeout, and the error handler follows.
    assert!(limit >= 2 * request + 30_000);
    assert_eq!(removal_limit_ms(u32::MAX), u32::MAX);
    let limit = limit / slice;
    let verdict = |rounds, due| Policy::Removal { rounds, limit }.verdict(true, due);
    for due in [false, true] {
        assert_eq!(verdict(0, due), Verdict::Wait);
        assert_eq!(verdict(limit + 1, due), Verdict::Stuck);
    }
    for rounds in 1..=limit {
        assert_eq!(verdict(rounds, false), Verdict::Ask);
        // A response is overdue only after all patience has run out.
        let overdue = match rounds {
            1 => Verdict::Wait,
            _ => Verdict::Silent,
        };
        assert_eq!(verdict(rounds, true), overdue);
    }
}

#[test]
fn tags() {
    let tag = Tag::command(0x1122_3344, 0x5566, 0x7788).unwrap();
    assert_eq!(tag.to_wire(), 0x1122_3344_5566_7788);
    assert_eq!(
        (tag.generation(), tag.channel(), tag.kind()),
        (0x1122_3344, 0x5566, Kind::Command(0x7788))
    );
    let tmf = Tag::tsk_mgmt(0x1122_3344, 0x5566, 0x7788).unwrap();
    assert_eq!(tmf.to_wire(), 0x1122_3344_5566_f788);
    assert_eq!(tmf.kind(), Kind::TskMgmt(0x7788));
    assert_ne!(tag, tmf);
    assert_eq!(Tag::from_wire(tag.to_wire()), tag);
    assert_eq!(Tag::command(0, 0, 0x8000), None);
    assert_eq!(Tag::tsk_mgmt(0, 0, 0xffff), None);
    assert_eq!(Tag::from_wire(u64::MAX).kind(), Kind::TskMgmt(0x7fff));
    assert_eq!(MAX_SLOTS, 0x8000);
}

#[test]
fn slot_table() {
    use slot_state::{next, Event::*, State::*};
    // Every pair of state and event; those not listed must be refused.
    let allowed = [
        (Free, Claim, Building),
        (Building, Cancel, Free),
        (Building, Post, Posted),
        (Building, Fail, Failed),
        (Posted, Respond, Responded),
        (Posted, Abort, Aborting),
        (Posted, Fail, Failed),
        (Aborting, Respond, Responded),
        (Aborting, Fail, Failed),
        (Responded, Invalidate, Invalidating),
        (Responded, Finish, Free),
        (Responded, Fail, Failed),
        (Invalidating, Finish, Free),
        (Invalidating, Fail, Failed),
        (Failed, Drained, Free),
    ];
    for state in (0..7).map(slot_state::State::from_number) {
        for event in events::ALL {
            let expected = allowed
                .iter()
                .find(|(from, by, _)| (*from, *by) == (state, event))
                .map(|(_, _, to)| *to);
            assert_eq!(next(state, event), expected, "{state:?} {event:?}");
            let word = Word::new(state, 41);
            let expected = expected.map(|to| Word::new(to, 41));
            if event == Claim {
                let claimed = |g| expected.map(|w| Word::new(w.state(), g));
                assert_eq!(word.claim(0), claimed(42));
                assert_eq!(word.claim(0xfedc), claimed(0xfedc_002a));
                assert_eq!(word.next(event), None);
            } else {
                assert_eq!(word.next(event), expected, "{state:?} {event:?}");
            }
        }
    }
    // A command that the target may know of becomes Free only by Finish or Drained.
    for state in [Posted, Aborting, Responded, Invalidating, Failed] {
        for event in events::ALL {
            assert!(next(state, event) != Some(Free) || matches!(event, Finish | Drained));
        }
    }
    for event in events::ALL {
        for state in [Posted, Aborting] {
            assert_ne!(next(state, event), Some(Free));
        }
    }
}

#[test]
fn slot_words() {
    for state in (0..7).map(slot_state::State::from_number) {
        for generation in [0, 1, 0x8000_0000, u32::MAX] {
            let word = Word::new(state, generation);
            assert_eq!((word.state(), word.generation()), (state, generation));
            assert_eq!(word.raw() >> 40, 0);
            assert_eq!(Word::from_raw(word.raw()), word);
            assert_eq!(Word::from_raw(word.raw() | 1 << 63), word);
        }
    }
    assert_eq!(Word::from_raw(7).state(), slot_state::State::Failed);
    assert_eq!(Word::from_raw(0xff).state(), slot_state::State::Failed);
    let last = Word::new(slot_state::State::Free, u32::MAX);
    assert_eq!(
        last.claim(u16::MAX),
        Some(Word::new(slot_state::State::Building, 0xffff_0000))
    );
    assert_eq!(Word::default(), Word::new(slot_state::State::Free, 0));
    assert_eq!(
        last.with_state(slot_state::State::Failed),
        Word::new(slot_state::State::Failed, u32::MAX)
    );
}

#[test]
fn pauses_before_missing_channels_grow_to_a_minute() {
    let now = Ktime::from_ns(0);
    let mut fill = Fill::default();
    assert_eq!(fill.begin(now, false, true), 0);
    // The target has just refused a channel.
    let mut pauses = vec![fill.begin(now, true, true)];
    for _ in 0..8 {
        let last = pauses[pauses.len() - 1];
        let (delay, longer) = fill.failed();
        assert_eq!(longer, delay > last);
        pauses.push(delay);
    }
    assert_eq!(pauses[..4], [1_000, 2_000, 4_000, 8_000]);
    assert!(pauses.windows(2).all(|two| two[0] <= two[1]));
    assert_eq!(pauses[8], 64_000);
    assert_eq!(fill.begin(now, true, true), 1_000);
}

#[test]
fn a_flapping_answer_channel_waits_longer_each_time() {
    let at = |ms| Ktime::from_ns(0).add_ms(ms);
    let mut fill = Fill::default();
    assert!(!fill.is_flapping(at(0)));
    fill.flap(at(0));
    assert!(fill.is_flapping(at(1_999)) && !fill.is_flapping(at(2_000)));
    fill.flap(at(2_000));
    assert!(fill.is_flapping(at(5_999)) && !fill.is_flapping(at(6_000)));
    assert_eq!(fill.begin(at(6_000), false, true), 4_000);
    // Ten minutes later it is forgotten.
    assert_eq!(fill.begin(at(602_000), false, true), 0);
    fill.flap(at(602_000));
    assert!(!fill.is_flapping(at(604_000)));
}

#[test]
fn times() {
    let at = Ktime::from_ns;
    assert_eq!(at(5).ns_since(at(7)), -2);
    assert_eq!(at(1_999_999).ms_since(at(0)), 1);
    assert_eq!(at(1_999_999).ms_since(at(1_000_000)), 0);
    assert_eq!(at(0).ms_since(at(5_000_000)), 0);
    assert_eq!(at(0).ms_since(Ktime::MIN), u32::MAX);
    assert_eq!(at(i64::MAX).ms_since(Ktime::MIN), u32::MAX);
    assert_eq!(at(7).add_ms(u32::MAX).ms_since(at(7)), u32::MAX);
    assert_eq!(at(i64::MAX - 1).add_ms(1), at(i64::MAX));
    assert!(Ktime::MIN < at(0) && at(0) < at(0).add_ms(1));
}

#[test]
fn five_violations_in_a_minute_are_too_many() {
    let second = 1_000_000_000;
    let mut session = Recovery::default();
    // One strike every twenty seconds for an hour: at most four within a minute.
    for n in 0..180 {
        session.strike(Ktime::from_ns(n * 20 * second));
        assert!(!session.state().banned, "{n}");
    }
    let mut session = Recovery::default();
    for n in 0..i64::from(MAX_STRIKES) {
        assert!(!session.state().banned);
        session.strike(Ktime::from_ns(n * 15 * second));
    }
    assert!(session.state().banned);
    session.strike(Ktime::from_ns(i64::MAX));
    assert!(session.state().banned);
}

/// The end of a round of a channel, `(stuck, ended, refused)`.
fn round(watch: &mut Watch, (stuck, ended, refused): (bool, i32, i32)) -> Credits {
    watch.credits(stuck, ended, refused)
}

#[test]
fn a_channel_starves_after_the_limit() {
    assert_eq!(credit_round_ms(30_000), 3_000);
    assert_eq!(credit_round_ms(30_001), 3_001);
    for held_back in [false, true] {
        let mut watch = Watch::default();
        for n in 1..=10 {
            // The midlayer may not even try to send while it waits for a command on another
            // channel.
            let refused = if held_back { 1 } else { n };
            assert_eq!(
                round(&mut watch, (true, 7, refused)),
                Credits::Missing,
                "{n}"
            );
        }
        assert_eq!(round(&mut watch, (true, 7, 10)), Credits::Starved);
    }
}

#[test]
fn progress_and_outstanding_commands_keep_a_channel() {
    // A command ends every three periods, so no three periods in a row are without progress.
    let mut watch = Watch::default();
    for n in 1..1000 {
        assert_eq!(round(&mut watch, (true, n / 3, n)), Credits::Missing, "{n}");
    }
    // Progress after ten periods: an outstanding command or a new credit, or an ended command.
    for progress in [(false, 0, 20), (true, 1, 20), (true, i32::MIN, 20)] {
        let mut watch = Watch::default();
        for n in 1..=10 {
            assert_eq!(round(&mut watch, (true, 0, n)), Credits::Missing);
        }
        let (_, ended, _) = progress;
        assert_eq!(round(&mut watch, progress), Credits::Missing);
        for n in 21..=29 {
            assert_eq!(
                round(&mut watch, (true, ended, n)),
                Credits::Missing,
                "{progress:?}"
            );
        }
    }
}

#[test]
fn a_channel_where_no_command_waits_is_left_alone() {
    let mut watch = Watch::default();
    assert_eq!(round(&mut watch, (true, 3, 0)), Credits::Enough);
    assert_eq!(round(&mut watch, (true, 3, 1)), Credits::Missing);
    assert_eq!(round(&mut watch, (false, 9, 1)), Credits::Enough);
    assert_eq!(round(&mut watch, (true, 9, 1)), Credits::Enough);
}

#[test]
fn data_paths() {
    let thresholds = Thresholds {
        immediate: 8192,
        static_read: 4096,
    };
    let none = Thresholds {
        immediate: 0,
        static_read: 0,
    };
    use Direction::{FromDevice, ToDevice};
    for (direction, len, with, without) in [
        (Direction::None, 0, DataPath::None, DataPath::None),
        (FromDevice, 0, DataPath::None, DataPath::None),
        (ToDevice, 0, DataPath::None, DataPath::None),
        (ToDevice, 1, DataPath::Immediate, DataPath::DynamicWrite),
        (ToDevice, 8192, DataPath::Immediate, DataPath::DynamicWrite),
        (
            ToDevice,
            8193,
            DataPath::DynamicWrite,
            DataPath::DynamicWrite,
        ),
        (FromDevice, 1, DataPath::Static, DataPath::DynamicRead),
        (FromDevice, 4096, DataPath::Static, DataPath::DynamicRead),
        (
            FromDevice,
            4097,
            DataPath::DynamicRead,
            DataPath::DynamicRead,
        ),
    ] {
        let is_write = direction == ToDevice && len > 0;
        for path in [with, without] {
            assert_eq!(path.is_write(), is_write);
            assert!((path as usize) < DataPath::COUNT);
        }
        assert!(with == DataPath::None || without.is_dynamic() && !DataPath::Static.is_dynamic());
        assert_eq!(
            [thresholds, none].map(|given| DataPath::choose(direction, len, given)),
            [with, without],
            "{direction:?} {len}"
        );
    }
}

#[test]
fn regions() {
    let shape = |pages, gaps| Limits {
        mr_page_size: 4096,
        max_pages_per_mr: pages,
        sg_gaps: gaps,
        memory_page: 4096,
        ..Limits::default()
    };
    // rxe has 512 pages per region. 512 KiB: one region. 2 MiB at an odd offset touch 513 pages.
    let rxe = shape(512, false);
    assert_eq!(rxe.mrs_per_command(1024, 128), 1);
    assert_eq!(rxe.mrs_per_command(4088, 128), 1);
    assert_eq!(rxe.mrs_per_command(4089, 128), 2);
    assert_eq!(rxe.mrs_per_command(4096, 128), 2);
    assert_eq!(rxe.max_sectors(1), 4088);
    assert_eq!(rxe.max_sectors(2), 8176);
    // siw has 256.
    let siw = shape(256, false);
    assert_eq!(siw.mrs_per_command(1024, 128), 1);
    assert_eq!(siw.mrs_per_command(2048, 128), 2);
    assert_eq!(siw.mrs_per_command(1 << 17, 2048), 65);
    assert_eq!(siw.max_sectors(0), 0);
    // With gaps entries count, not bytes.
    let gaps = shape(512, true);
    assert_eq!(gaps.mrs_per_command(1 << 17, 512), 1);
    assert_eq!(gaps.mrs_per_command(8, 513), 2);
    assert_eq!(gaps.mrs_per_command(8, 0), 1);
    // Without an explicit number of entries: 2 MiB at an odd offset touches 513 pages.
    assert_eq!(gaps.mrs_per_command(4088, 0), 1);
    assert_eq!(gaps.mrs_per_command(4096, 0), 2);
    assert_eq!(gaps.max_sectors(1), u32::MAX);
    // Bounced memory has gaps after its first segment and before its last.
    let bounced = Limits {
        bounces: true,
        ..rxe
    };
    assert_eq!(bounced.mrs_per_command(1024, 128), 3);
    let sectors = [0, 1, 2, 3, 4].map(|count| bounced.max_sectors(count));
    assert_eq!(sectors, [0, 4088, 4088, 4088, 8176]);
    // Too few regions for the gaps: each segment has its own region.
    let entries = [0, 1, 2, 3].map(|count| bounced.sg_tablesize(count));
    assert_eq!(entries, [0, 1, 2, 3 * 512]);
    assert_eq!(rxe.sg_tablesize(2), 1024);
    let with_gaps = Limits {
        bounces: true,
        ..gaps
    };
    assert_eq!(with_gaps.mrs_per_command(8, 0), 1);
}

#[test]
fn queue_sizes() {
    let device = Limits {
        max_qp_wr: 1 << 20,
        max_cqe: 1 << 20,
        ..Limits::default()
    };
    let slots = Slots {
        depth: 64,
        regions: 1,
    };
    assert_eq!(
        (slots.send_queue(), slots.receives(), slots.receive_queue()),
        (64 * 3 + 40, 76, 77)
    );
    assert_eq!(slots.completion_queue(), 232 + 77);
    assert_eq!(slots.fit(&device), Some(slots));
    // Exactly enough; then one less of each.
    assert_eq!(
        slots.fit(&Limits {
            max_qp_wr: 232,
            max_cqe: 309,
            ..device
        }),
        Some(slots)
    );
    assert_eq!(
        slots.fit(&Limits {
            max_qp_wr: 231,
            ..device
        }),
        Some(Slots {
            depth: 63,
            regions: 1
        })
    );
    assert_eq!(
        slots.fit(&Limits {
            max_cqe: 308,
            ..device
        }),
        Some(Slots {
            depth: 63,
            regions: 1
        })
    );
    // One command: 3 + 40 entries in the send queue.
    assert_eq!(
        slots.fit(&Limits {
            max_qp_wr: 43,
            ..device
        }),
        Some(Slots {
            depth: 1,
            regions: 1
        })
    );
    assert_eq!(
        slots.fit(&Limits {
            max_qp_wr: 42,
            ..device
        }),
        None
    );
    assert_eq!(
        Slots {
            depth: 0,
            regions: 1
        }
        .fit(&device),
        None
    );
    let huge = Slots {
        depth: u32::MAX,
        regions: u32::MAX,
    };
    assert_eq!(
        (huge.send_queue(), huge.completion_queue()),
        (u32::MAX, u32::MAX)
    );
    assert_eq!(huge.fit(&device), None);
}

#[test]
fn channel_counts() {
    let count = |wanted, nodes, cpus, vectors| {
        let environment = Environment {
            nodes,
            cpus,
            mrs_per_command: 16,
            immediate: 0,
            static_read: 0,
            poll_queues: 0,
        };
        geometry::channel_count(wanted, &environment, vectors)
    };
    let machine = |wanted| count(wanted, 2, 16, 4);
    assert_eq!(machine(None), 8);
    assert_eq!(count(None, 2, 16, 12), 12);
    assert_eq!(count(None, 2, 16, 64), 16);
    // 72 vectors and CPUs.
    let large = |wanted| count(wanted, 2, 72, 72);
    assert_eq!(large(None), 16);
    assert_eq!(count(None, 8, 72, 72), 16);
    assert_eq!(count(None, 2, 72, 9), 9);
    assert_eq!(large(Some(64)), 64);
    assert_eq!(large(Some(100)), 72);
    assert_eq!(machine(Some(3)), 3);
    assert_eq!(machine(Some(100)), 16);
    assert_eq!(machine(Some(0)), 1);
    assert_eq!(count(None, u32::MAX, 0, 0), 1);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|channel| geometry::vector(Some(3), channel, 5, 4)),
        [3, 0, 1, 2, 3]
    );
    // Without an explicit choice they are spread.
    let spread = |channels, vectors| {
        (0..channels)
            .map(|channel| geometry::vector(None, channel, channels, vectors))
            .collect::<Vec<_>>()
    };
    assert_eq!(spread(4, 72), [0, 18, 36, 54]);
    assert_eq!(spread(3, 8), [0, 2, 5]);
    assert_eq!(spread(4, 4), [0, 1, 2, 3]);
    assert_eq!(spread(4, 3), [0, 1, 2, 0]);
    assert_eq!(geometry::vector(None, u32::MAX, 2, u32::MAX), 0);
    assert_eq!(geometry::vector(Some(9), 9, 10, 0), 0);
    assert_eq!(geometry::vector(None, 9, 10, 0), 0);
}
