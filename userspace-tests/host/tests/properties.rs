// SPDX-License-Identifier: GPL-2.0

//! Properties: messages parse to what was built, no input panics, counters add up.

#[path = "../../../rust/ib_srp/srp/slot/tests/events.rs"]
mod events;

use proptest::{collection::vec, prelude::*, sample::Index};
use srp_host::{
    logic::{
        credit,
        send_queue::Slots,
        slot_state::{self, Event, Word},
        tag::{Kind, Tag},
    },
    proto::{
        address::Address,
        cmd::{Cmd, DirectBuf, Direction},
        guid::IoClass,
        ids::{Lun, PortId},
        login_iu::{
            it_iu_len, LoginRej, LoginReq, LoginReqRdma, LoginRsp, MultiChannel, Requested,
        },
        message::{AerReq, Message},
        number,
        options::{Defaults, Options, Target},
        reject::Reject,
        rsp::Rsp,
    },
    rdma::limits::Limits,
};

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![
        Just(Direction::None),
        Just(Direction::ToDevice),
        Just(Direction::FromDevice)
    ]
}

/// A valid login string and its values.
fn login() -> impl Strategy<Value = (String, u64, u64, u32, u16)> {
    (any::<u64>(), any::<u64>(), 1..=4096u32, 1..=u16::MAX, any::<[u8; 4]>()).prop_map(
        |(id_ext, ioc_guid, queue_size, port, ip)| {
            // The address is within 10.0.0.0/8, so it is unicast.
            let text = format!(
                "id_ext={id_ext:016x},ioc_guid={ioc_guid:016x},dest=10.{}.{}.{}:{port},queue_size={queue_size}",
                ip[1], ip[2], ip[3]
            );
            (text, id_ext, ioc_guid, queue_size, port)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..600), len: u32, direction in direction()) {
        let _ = LoginRsp::parse(&bytes);
        let _ = LoginRej::parse(&bytes);
        let _ = Message::parse(&bytes);
        let _ = AerReq::parse(&bytes);
        if let Ok(rsp) = Rsp::parse(&bytes) {
            let _ = (rsp.outcome(len, direction), rsp.tmf_status());
        }
        let _ = Options::parse(&bytes, &Defaults::default()).map_err(|error| error.to_string());
    }

    #[test]
    fn no_message_panics(opcode in prop_oneof![Just(0x80u8), Just(0x81), Just(0x82), Just(0xc1), any::<u8>()],
                         bytes in vec(any::<u8>(), 0..300), len: u32, direction in direction()) {
        let mut message = vec![opcode];
        message.extend(bytes);
        if let Ok(Message::Rsp(rsp)) = Message::parse(&message) {
            if let Ok(outcome) = rsp.outcome(len, direction) {
                prop_assert!(outcome.resid <= len);
                prop_assert!(outcome.sense.len() <= 96);
            }
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = Address::parse(&text);
        let _ = (number::int(&text), number::hex(&text), number::hex128(&text), number::base0(&text));
        let _ = Options::parse(text.as_bytes(), &Defaults::default()).map_err(|error| error.to_string());
    }

    #[test]
    fn no_status_panics(status: i32) {
        let rej = Reject::from_status(status);
        prop_assert!(!rej.to_string().is_empty());
    }

    #[test]
    fn near_misses_of_logins_do_not_panic((text, ..) in login(), at: Index, byte: u8) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Options::parse(&bytes, &Defaults::default()).map_err(|error| error.to_string());
    }

    #[test]
    fn logins_say_what_was_written((text, id_ext, ioc_guid, queue_size, port) in login()) {
        let options = Options::parse(text.as_bytes(), &Defaults::default()).unwrap();
        prop_assert_eq!((options.id_ext.0, options.ioc_guid.0), (id_ext, ioc_guid));
        prop_assert_eq!((options.queue_size, options.cmd_per_lun), (queue_size, None));
        let Target::Rdma { dest, .. } = options.target else { panic!() };
        prop_assert_eq!(dest.port, Some(port));
    }

    #[test]
    fn numbers_round_trip(value: i32, wide: u64, gid: u128) {
        prop_assert_eq!(number::int(&value.to_string()), Ok(value));
        if value >= 0 {
            prop_assert_eq!(number::int(&format!("{value:#x}")), Ok(value));
            prop_assert_eq!(number::int(&format!("0{value:o}")), Ok(value));
        }
        prop_assert_eq!(number::hex(&format!("{wide:x}")), Ok(wide));
        prop_assert_eq!(number::hex(&format!("0x{wide:016X}")), Ok(wide));
        prop_assert_eq!(number::hex128(&format!("{gid:032x}")), Ok(gid.to_be_bytes()));
    }

    #[test]
    fn addresses_round_trip(v4: [u8; 4], v6: [u16; 8], port in proptest::option::of(1..=u16::MAX), scoped: bool) {
        let v4 = Address { ip: std::net::Ipv4Addr::from(v4).into(), port, scope: None };
        let text = v4.to_string();
        prop_assert_eq!(Address::parse(&text), Ok(v4));
        let scope = scoped.then_some("eth0");
        let v6 = Address { ip: std::net::Ipv6Addr::from(v6).into(), port, scope };
        let text = v6.to_string();
        prop_assert_eq!(Address::parse(&text), Ok(v6));
    }

    #[test]
    fn commands_hold_what_they_were_given(tag: u64, lun: u64, cdb in vec(any::<u8>(), 1..=32),
                                          bufs in vec(any::<(u64, u32, u32)>(), 1..=255), total: u32) {
        let cmd = Cmd { tag, lun: Lun::from_int(lun), cdb: &cdb };
        let list: Vec<_> = bufs.iter().map(|&(va, key, len)| DirectBuf::new(va, key, len)).collect();
        let table = DirectBuf::new(1, 2, 16 * list.len() as u32);
        let mut iu = vec![0xaa; 8260];
        let len = cmd.build_indirect(&mut iu, Direction::FromDevice, &table, total, &list).unwrap();
        let more = cdb.len().saturating_sub(16).next_multiple_of(4);
        prop_assert_eq!(len, 68 + more + 16 * list.len());
        prop_assert_eq!(&iu[8..16], &tag.to_be_bytes()[..]);
        prop_assert_eq!(Lun(iu[20..28].try_into().unwrap()).to_int(), lun);
        prop_assert_eq!(usize::from(iu[7]), list.len());
        prop_assert_eq!(&iu[32..32 + cdb.len()], &cdb[..]);
        prop_assert_eq!(&iu[64 + more..68 + more], &total.to_be_bytes()[..]);
        for (wire, (va, key, length)) in iu[68 + more..len].chunks(16).zip(bufs) {
            prop_assert_eq!(&wire[..8], &va.to_be_bytes()[..]);
            prop_assert_eq!(&wire[8..12], &key.to_be_bytes()[..]);
            prop_assert_eq!(&wire[12..], &length.to_be_bytes()[..]);
        }
        prop_assert!(iu[len..].iter().all(|&byte| byte == 0xaa));
        // A buffer one byte too short is refused.
        prop_assert!(cmd.build_indirect(&mut iu[..len - 1], Direction::FromDevice, &table, total, &list).is_err());
    }

    #[test]
    fn short_commands_have_these_bytes(tag: u64, lun: u64, cdb in vec(any::<u8>(), 1..=32),
                                       va: u64, key: u32, len: u32, data in vec(any::<u8>(), 0..=600)) {
        let cmd = Cmd { tag, lun: Lun::from_int(lun), cdb: &cdb };
        let more = cdb.len().saturating_sub(16).next_multiple_of(4);
        let head = |format: u8| {
            let mut bytes = vec![2, 0, 0, 0, 0, format, 0, 0];
            bytes.extend(tag.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(Lun::from_int(lun).0);
            bytes.extend([0, 0, 0, more as u8]);
            bytes.extend(&cdb);
            bytes.resize(48 + more, 0);
            bytes
        };
        for (direction, format) in [(Direction::FromDevice, 1), (Direction::ToDevice, 0x10)] {
            let mut wanted = head(format);
            wanted.extend(va.to_be_bytes());
            wanted.extend(key.to_be_bytes());
            wanted.extend(len.to_be_bytes());
            let mut iu = vec![0xaa; 100];
            let buf = DirectBuf::new(va, key, len);
            prop_assert_eq!(cmd.build_direct(&mut iu, direction, &buf), Ok(wanted.len()));
            prop_assert_eq!(&iu[..wanted.len()], &wanted[..]);
            prop_assert!(iu[wanted.len()..].iter().all(|&byte| byte == 0xaa));
            prop_assert!(cmd.build_direct(&mut iu[..wanted.len() - 1], direction, &buf).is_err());
            prop_assert!(cmd.build_direct(&mut iu, Direction::None, &buf).is_err());
        }
        let mut wanted = head(0x30);
        wanted.extend((data.len() as u32).to_be_bytes());
        wanted.resize(68, 0);
        let mut iu = vec![0xaa; 100];
        prop_assert_eq!(cmd.build_immediate(&mut iu, data.len() as u32), Ok(wanted.len()));
        prop_assert_eq!(&iu[..wanted.len()], &wanted[..]);
        prop_assert!(iu[wanted.len()..].iter().all(|&byte| byte == 0xaa));
        prop_assert!(cmd.build_immediate(&mut iu[..wanted.len() - 1], 1).is_err());
    }

    #[test]
    fn login_requests_agree(tag: u64, len: u32, immediate: u32, multi: bool, ids: [u64; 4]) {
        let requested = Requested {
            tag,
            max_it_iu_len: len,
            descriptors: 1,
            immediate,
            multichannel: if multi { MultiChannel::Multi } else { MultiChannel::Single },
            initiator: PortId::new(IoClass::Rev16a, ids[0], ids[1]),
            target: PortId::new(IoClass::Rev16a, ids[2], ids[3]),
        };
        let (ib, rdma) = (LoginReq::new(&requested), LoginReqRdma::new(&requested));
        let (ib, rdma) = (ib.as_bytes(), rdma.as_bytes());
        for (ib_range, rdma_range) in [(8..16, 0..8), (24..26, 8..10), (26..27, 10..11), (0..1, 11..12),
                                       (16..20, 12..16), (32..48, 16..32), (48..64, 32..48), (28..30, 48..50)] {
            prop_assert_eq!(&ib[ib_range], &rdma[rdma_range]);
        }
    }

    #[test]
    fn grants_never_exceed_requests(descriptors: u8, immediate in 0..100_000u32, offered: u32, limit: i32) {
        let requested = Requested {
            tag: 5,
            max_it_iu_len: it_iu_len(descriptors, immediate, 0),
            descriptors,
            immediate,
            multichannel: MultiChannel::Single,
            initiator: PortId::default(),
            target: PortId::default(),
        };
        let mut bytes = [0; 52];
        bytes[0] = 0xc0;
        bytes[4..8].copy_from_slice(&limit.to_be_bytes());
        bytes[15] = 5;
        bytes[16..20].copy_from_slice(&offered.to_be_bytes());
        bytes[23] = 200;
        bytes[25] = 6;
        bytes[26] = if immediate == 0 { 0 } else { 0x80 };
        if let Ok(granted) = LoginRsp::parse(&bytes).unwrap().check(&requested) {
            prop_assert!(granted.max_it_iu_len <= requested.max_it_iu_len.min(offered));
            prop_assert!(granted.descriptors <= descriptors && granted.immediate <= immediate);
            prop_assert!(granted.descriptors == 0
                || it_iu_len(granted.descriptors, granted.immediate, 0) <= granted.max_it_iu_len);
            prop_assert!(i64::from(granted.req_lim) == i64::from(limit));
        }
    }

    #[test]
    fn credits_add_up(start in -200..200i32, deltas in vec(-40..40i32, 0..100)) {
        let (mut unused, mut sum) = (start, i64::from(start));
        for delta in deltas {
            match credit::give(unused, delta, 300) {
                Some(now) => {
                    sum += i64::from(delta);
                    prop_assert_eq!(i64::from(now), sum);
                    unused = now;
                }
                None => prop_assert!(!(-300..=300).contains(&(sum + i64::from(delta)))),
            }
            if let Some(now) = credit::take(unused, credit::RESERVE_COMMAND) {
                sum -= 1;
                prop_assert!(now >= credit::RESERVE_COMMAND);
                unused = now;
            }
        }
    }

    #[test]
    fn tags_round_trip(wire: u64) {
        let tag = Tag::from_wire(wire);
        let again = match tag.kind() {
            Kind::Command(slot) => Tag::command(tag.generation(), tag.channel(), slot),
            Kind::TskMgmt(number) => Tag::tsk_mgmt(tag.generation(), tag.channel(), number),
        };
        prop_assert_eq!(again, Some(tag));
    }

    #[test]
    fn slots_keep_their_rules(path in vec(0..events::ALL.len(), 0..200)) {
        let (mut word, mut claims, mut known) = (Word::default(), 0, false);
        for event in path.into_iter().map(|i| events::ALL[i]) {
            let next = if event == Event::Claim { word.claim(0) } else { word.next(event) };
            let Some(next) = next else { continue };
            claims += u32::from(event == Event::Claim);
            known |= event == Event::Post;
            if next.state() == slot_state::State::Free {
                // A command that the target knew was answered and finished, or drained.
                prop_assert!(!known || matches!(event, Event::Finish | Event::Drained));
                known = false;
            }
            prop_assert_eq!(next.generation(), claims);
            prop_assert_eq!(Word::from_raw(next.raw()), next);
            word = next;
        }
    }

    #[test]
    fn sizes_fit_and_are_the_largest(depth in 1..5000u32, regions in 1..70u32, wr in 0..40_000u32, cqe in 0..80_000u32) {
        let limits = Limits { max_qp_wr: wr, max_cqe: cqe, ..Limits::default() };
        let fits = |depth| {
            let slots = Slots { depth, regions };
            slots.send_queue() <= wr
                && slots.receive_queue() <= wr
                && slots.completion_queue() <= cqe
        };
        match (Slots { depth, regions }).fit(&limits) {
            Some(slots) => {
                prop_assert!(slots.depth <= depth && fits(slots.depth));
                prop_assert!(slots.depth == depth || !fits(slots.depth + 1));
            }
            None => prop_assert!(!fits(1)),
        }
    }

    #[test]
    fn regions_hold_the_longest_command(shift in 12u32..=16, pages in 2u32..=512, sectors in 1..=1u32 << 17, offset: u16) {
        let limits = Limits {
            mr_page_size: 1 << shift,
            max_pages_per_mr: pages,
            memory_page: 4096,
            ..Limits::default()
        };
        let count = u64::from(limits.mrs_per_command(sectors, 1));
        let page_size = u64::from(limits.mr_page_size);
        let offset = u64::from(offset) % page_size;
        let touched = (offset + u64::from(sectors) * 512).div_ceil(page_size);
        prop_assert!(count * u64::from(pages) >= touched);
        prop_assert!(limits.max_sectors(count as u32) >= sectors);
        prop_assert!(count == 1 || limits.max_sectors(count as u32 - 1) < sectors);
    }
}
