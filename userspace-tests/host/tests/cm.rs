// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand connection manager: its messages in every order, redirections, timeouts.

mod common;

use common::hex;
use srp_host::{
    proto::{
        guid::Gid,
        ids::PortId,
        login_iu::{is_ip_cm, LoginReqIpCm, LoginReqRdma, MultiChannel, Requested},
        reject::{Redirect, RedirectError, MAX_REDIRECTS},
    },
    rdma::{
        ib_cm::state::{next, Input, Report, State},
        timeout::{
            ack_timeout, packet_life_time, request_timeout_ms, response_timeout, service_timeout_ms,
        },
    },
};

/// Checks the invariants of an attempt, input by input.
#[derive(Clone, Copy, Default)]
struct Told {
    answers: u32,
    ends: u32,
    hung_up: bool,
}

impl Told {
    fn input(&mut self, before: State, input: Input, after: State, report: Report) {
        self.hung_up |= input == Input::Hangup;
        match report {
            Report::Nothing => {}
            Report::Later => assert_eq!((before, input), (State::ReqSent, Input::Mra)),
            Report::Answer => {
                self.answers += 1;
                assert_eq!(
                    (before, input, after),
                    (State::ReqSent, Input::Rep, State::RepRcvd)
                );
            }
            Report::Refused | Report::Unreachable | Report::Disconnected => {
                self.ends += 1;
                assert_eq!(after, State::Over);
                assert!(!self.hung_up, "{input:?} in {before:?}");
                assert_eq!(
                    report == Report::Disconnected && self.answers == 0,
                    before == State::ReqSent
                        && matches!(input, Input::Dreq | Input::Drep | Input::TimewaitExit)
                );
            }
            Report::TimewaitExit => assert_eq!(before, State::Over),
        }
        assert!(self.answers <= 1 && self.ends <= 1);
        if self.ends == 1 {
            assert_eq!(after, State::Over);
        }
        if input == Input::Mra {
            assert_eq!(
                (after, report == Report::Later),
                (before, before == State::ReqSent)
            );
        }
    }
}

#[test]
fn inputs_in_every_order() {
    fn walk(state: State, told: Told, left: u32, seen: &mut u64) {
        *seen += 1;
        if left == 0 {
            return;
        }
        for input in Input::ALL {
            match next(state, input) {
                Some((after, report)) => {
                    let mut told = told;
                    told.input(state, input, after, report);
                    walk(after, told, left - 1, seen);
                }
                None => assert!(match input {
                    Input::SendReq => state != State::Idle,
                    Input::SendRtu => state != State::RepRcvd,
                    _ => false,
                }),
            }
        }
    }
    let mut seen = 0;
    walk(State::Idle, Told::default(), 6, &mut seen);
    assert!(seen > 100_000);
}

#[test]
fn an_attempt() {
    let run = |inputs: &[Input]| {
        inputs
            .iter()
            .fold((State::Idle, vec![]), |(state, mut reports), input| {
                let (state, report) = next(state, *input).unwrap();
                reports.push(report);
                (state, reports)
            })
    };
    use {Input::*, Report as R};
    assert_eq!(
        run(&[SendReq, Mra, Rep, SendRtu, Dreq, TimewaitExit]),
        (
            State::Over,
            vec![
                R::Nothing,
                R::Later,
                R::Answer,
                R::Nothing,
                R::Disconnected,
                R::TimewaitExit
            ]
        )
    );
    assert_eq!(
        run(&[SendReq, Rej, Rej, Rep, Dreq]).1[1..],
        [R::Refused, R::Nothing, R::Nothing, R::Nothing]
    );
    assert_eq!(
        run(&[SendReq, ReqError, Rep]).1[1..],
        [R::Unreachable, R::Nothing]
    );
    assert_eq!(
        run(&[SendReq, Rep, Rep, Rej]).1[1..],
        [R::Answer, R::Nothing, R::Disconnected]
    );
    assert_eq!(
        run(&[SendReq, Rep, SendRtu, Hangup, Drep, TimewaitExit]).1[3..],
        [R::Nothing, R::Nothing, R::TimewaitExit]
    );
    // The connection manager found the connection stale and has sent its own DREQ.
    assert_eq!(
        run(&[SendReq, Rep, SendRtu, Drep]).1[3..],
        [R::Disconnected]
    );
    assert_eq!(next(State::Over, SendRtu), None);
    assert_eq!(next(State::Established, SendReq), None);
    for state in State::ALL {
        assert_eq!(State::new(state as u32), Some(state));
    }
    assert_eq!(State::new(5), None);
}

#[test]
fn timeouts() {
    assert_eq!(
        [0, 14, 16, 18, 19, 20, 21, 31, 255].map(response_timeout),
        [18, 18, 18, 20, 21, 22, 22, 22, 22]
    );
    // Four times 7 retries of 4.096 us * 2^20, plus one second.
    assert_eq!(request_timeout_ms(20, 7), 121_259);
    assert_eq!(request_timeout_ms(14, 2), 1_536);
    assert_eq!(request_timeout_ms(20, 0), 1_000);
    assert_eq!(request_timeout_ms(31, 7), 246_291_604);
    assert_eq!(request_timeout_ms(255, 255), 246_291_604);
}

/// Whatever the peer sends, no command takes more than two minutes.
#[test]
fn bounds() {
    for timeout in 0..=u8::MAX {
        let life = packet_life_time(timeout);
        assert_eq!(life, timeout.min(20));
        for retry_count in 0..=u8::MAX {
            let bounded = ack_timeout(timeout, retry_count);
            // 0 would mean forever.
            assert!((1..=22).contains(&bounded));
            let takes = request_timeout_ms(bounded, retry_count);
            assert!(takes <= 120_000, "{timeout} {retry_count}: {takes}");
            // A requested timeout within the bound is granted.
            if (1..=31).contains(&timeout) && bounded != timeout {
                assert!(bounded < timeout);
                let retries = if retry_count & 7 == 0 { 1 } else { retry_count };
                assert!(request_timeout_ms(bounded + 1, retries) > 120_000);
            }
        }
    }
    // Linux requests 2^24.
    assert_eq!(
        [0, 8, 18, 23, 24, 25, 31, 32, 255].map(service_timeout_ms),
        [0, 1, 1_073, 34_359, 68_719, 70_000, 70_000, 0, 70_000]
    );
    // Values of large fabrics: 2.1 s, seven retries.
    assert_eq!(ack_timeout(19, 7), 19);
    assert_eq!([20, 31, 0].map(|timeout| ack_timeout(timeout, 7)), [19; 3]);
    assert_eq!(ack_timeout(31, 0), 22);
}

/// A `ClassPortInfo` with all fields set.
fn class_port_info() -> Vec<u8> {
    let mut info = hex(
        "01 02 0000 00000000 fe80000000000000 0002c90300010002 00000000 0017 ffff 00000055 80010000",
    );
    info.resize(72, 0);
    info
}

#[test]
fn redirects() {
    let gid = Gid(hex("fe80000000000000 0002c90300010002").try_into().unwrap());
    let full = Redirect {
        gid: Some(gid),
        lid: Some(0x17),
        pkey: Some(0xffff),
        qpn: Some(0x55),
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut info = class_port_info();
        info[at..at + bytes.len()].copy_from_slice(bytes);
        Redirect::parse(24, &info, false)
    };
    assert_eq!(with(0, &[]), Some(Ok(full)));
    assert_eq!(with(28, &[0, 0]), Some(Ok(Redirect { lid: None, ..full })));
    assert_eq!(with(8, &[0; 16]), Some(Ok(Redirect { gid: None, ..full })));
    assert_eq!(with(30, &[0, 0]), Some(Ok(Redirect { pkey: None, ..full })));
    assert_eq!(
        with(32, &[0xff, 0, 0, 0]),
        Some(Ok(Redirect { qpn: None, ..full }))
    );
    assert_eq!(
        with(30, &[0x80, 0]),
        Some(Err(RedirectError::Partition(0x8000)))
    );
    assert_eq!(with(8, &[0xff]), Some(Err(RedirectError::Multicast)));
    assert_eq!(with(8, &[0; 22]), Some(Err(RedirectError::Nowhere)));

    // A REJ as Topspin sends it. Other targets use its reason differently.
    let info = class_port_info();
    let short = Redirect {
        gid: Some(gid),
        lid: None,
        pkey: None,
        qpn: None,
    };
    assert_eq!(Redirect::parse(25, &info[8..], true), Some(Ok(short)));
    assert_eq!(Redirect::parse(25, &info[8..24], true), Some(Ok(short)));
    assert_eq!(Redirect::parse(25, &info[8..], false), None);
    assert_eq!(
        Redirect::parse(25, &[0; 16], true),
        Some(Err(RedirectError::Nowhere))
    );
    assert_eq!(Redirect::parse(24, &info, true), Some(Ok(full)));
    for reason in (0..=40).filter(|reason| ![24, 25].contains(reason)) {
        assert_eq!(Redirect::parse(reason, &info, true), None);
    }
    for len in 0..72 {
        let error = RedirectError::Short { need: 72, got: len };
        assert_eq!(Redirect::parse(24, &info[..len], false), Some(Err(error)));
    }
    for len in 0..16 {
        let error = RedirectError::Short { need: 16, got: len };
        assert_eq!(Redirect::parse(25, &info[..len], true), Some(Err(error)));
    }
    assert_eq!(
        RedirectError::Partition(0x8000).to_string(),
        "to invalid P_Key 0x8000"
    );
    assert_eq!(
        RedirectError::Short { need: 72, got: 3 }.to_string(),
        "3 bytes of redirect information, not 72"
    );
}

#[test]
fn redirects_have_an_end() {
    let home = Gid((0xfe80u128 << 112).to_be_bytes());
    let other = Gid((0xfe81u128 << 112).to_be_bytes());
    let to = |gid| Redirect {
        gid,
        lid: Some(1),
        pkey: None,
        qpn: None,
    };
    let mut followed = 0;
    for number in 1..=MAX_REDIRECTS {
        followed = to(Some(home)).follow(&home, followed).unwrap();
        assert_eq!(followed, number);
    }
    for gid in [Some(home), None] {
        let result = to(gid).follow(&home, followed);
        assert_eq!(result, Err(RedirectError::TooMany));
    }
    assert_eq!(
        to(Some(other)).follow(&home, 0),
        Err(RedirectError::OtherSubnet(0xfe81 << 48))
    );
    assert_eq!(to(None).follow(&home, 0), Ok(1));
    assert_eq!(
        RedirectError::OtherSubnet(1).to_string(),
        "to subnet 0000000000000001, which is not that of dgid"
    );
}

#[test]
fn ip_cm_services() {
    assert!(is_ip_cm(0x0106_15b3) && is_ip_cm(0x0106_0000));
    for other in [
        0,
        0x0111_15b3,
        0x0001_0106_15b3,
        0x0106,
        0x28ba_d7ff_fe76_b73c,
    ] {
        assert!(!is_ip_cm(other));
    }
    let what = Requested {
        tag: 0x1122_3344_5566_7788,
        max_it_iu_len: 8260,
        descriptors: 12,
        immediate: 8192,
        multichannel: MultiChannel::Multi,
        initiator: PortId([1; 16]),
        target: PortId([2; 16]),
    };
    let login = LoginReqRdma::new(&what);
    let gid = |text| Gid(hex(text).try_into().unwrap());
    let v4 = [
        gid("00000000000000000000ffff0a000002"),
        gid("00000000000000000000ffff0a000001"),
    ];
    let v6 = [
        gid("fe80000000000000 0000000000000002"),
        gid("fe80000000000000 0000000000000001"),
    ];
    let request = LoginReqIpCm::new(&v4[0], &v4[1], &what);
    let (head, tail) = request.as_bytes().split_at(36);
    assert_eq!(
        head,
        hex("00 40 0000 0000000000000000000000000a000002 0000000000000000000000000a000001")
    );
    assert_eq!(tail, login.as_bytes());
    let request = LoginReqIpCm::new(&v6[0], &v6[1], &what);
    let (head, tail) = request.as_bytes().split_at(36);
    assert_eq!(
        head,
        hex("00 60 0000 fe800000000000000000000000000002 fe800000000000000000000000000001")
    );
    assert_eq!(tail, login.as_bytes());
    // A mixed pair of addresses has no path, but must not be mistaken for IPv4.
    assert_eq!(LoginReqIpCm::new(&v6[0], &v4[1], &what).as_bytes()[1], 0x60);
}
