// SPDX-License-Identifier: GPL-2.0

//! Messages on an established channel.

mod common;

use common::hex;
use srp_host::proto::{
    cmd::Direction::{self, FromDevice, ToDevice},
    ids::Lun,
    message::{logout_reason, Message},
    message_error::ProtocolError,
    rsp::{flag::*, Good, Outcome, Rsp, RspFault, Transferred},
    tmf::TmfStatus,
};

#[derive(Clone, Copy, Default)]
struct Fields<'a> {
    flags: u8,
    status: u8,
    out_res: u32,
    in_res: u32,
    sense_len: u32,
    resp_len: u32,
    data: &'a [u8],
}

fn message(fields: Fields<'_>) -> Vec<u8> {
    let mut bytes = hex("c1 00 0000 fffffffe 1122334455667788 0000");
    bytes.extend([fields.flags, fields.status]);
    for field in [
        fields.out_res,
        fields.in_res,
        fields.sense_len,
        fields.resp_len,
    ] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(fields.data);
    bytes
}

fn outcome(
    fields: Fields<'_>,
    len: u32,
    direction: Direction,
) -> Result<(u8, u32, bool, Vec<u8>), RspFault> {
    Rsp::parse(&message(fields))
        .expect("long enough")
        .outcome(len, direction)
        .map(
            |Outcome {
                 status,
                 resid,
                 overrun,
                 sense,
             }| (status, resid, overrun, sense.to_vec()),
        )
}

#[test]
fn golden() {
    let bytes = hex("c1 01 0000 00000003 1122334455667788 0000 22 02
                     00000000 00000010 00000004 00000000 70000500");
    let rsp = Rsp::parse(&bytes).unwrap();
    assert_eq!((rsp.req_lim_delta, rsp.tag), (3, 0x1122_3344_5566_7788));
    assert_eq!(
        rsp.outcome(512, FromDevice),
        Ok(Outcome {
            status: 2,
            resid: 16,
            overrun: false,
            sense: &[0x70, 0, 5, 0]
        })
    );
    assert_eq!(rsp.sense(), [0x70, 0, 5, 0]);
    assert_eq!(
        Rsp::parse(&message(Fields::default()))
            .unwrap()
            .req_lim_delta,
        -2
    );
}

#[test]
fn what_has_been_transferred() {
    use Transferred::{AllButResid, NoSense, Unknown, UpTo};

    let transferred = |flags, status, in_res, data: &[u8]| {
        let fields = Fields {
            flags,
            status,
            in_res,
            sense_len: data.len() as u32,
            data,
            ..Default::default()
        };
        let bytes = message(fields);
        let rsp = Rsp::parse(&bytes).unwrap();
        rsp.outcome(4096, FromDevice).unwrap().transferred()
    };
    let sense = |code, key, asc| [code, 0, key, 0, 0, 0, 9, 10, 0, 0, 0, 0, asc, 1];
    let check = |sense: &[u8]| transferred(SNSVALID, 2, 0, sense);
    assert_eq!(transferred(0, 0, 0, &[]), AllButResid);
    assert_eq!(transferred(DIUNDER, 2, 512, &[]), AllButResid);
    assert_eq!(transferred(DIOVER, 2, 512, &[]), AllButResid);
    // RECOVERED ERROR in each format that the midlayer knows. An odd response code concerns an
    // earlier command.
    assert_eq!(check(&sense(0x70, 1, 0x17)), AllButResid);
    assert_eq!(check(&sense(0x71, 1, 0x17)), Unknown);
    for code in 0x72..=0x7f {
        let expected = if code & 1 == 0 { AllButResid } else { Unknown };
        assert_eq!(
            check(&[code, 1, 0x17, 1, 0, 0, 0, 0]),
            expected,
            "{code:#x}"
        );
    }
    // NO SENSE, MEDIUM ERROR and ILLEGAL REQUEST without a block address.
    for key in [0, 3, 5] {
        let sense = sense(0x70, key, 0x17);
        assert_eq!(check(&sense), Unknown);
        assert_eq!(
            transferred(SNSVALID | DIUNDER, 2, 4096, &sense),
            AllButResid
        );
    }
    // The same with a block address; and protection mismatches.
    for (key, asc, expected) in [
        (3, 0x11, UpTo(9)),
        (4, 0x44, UpTo(9)),
        (5, 0x10, UpTo(9)),
        (11, 0x10, UpTo(9)),
        (5, 0x21, Unknown),
        (11, 0x47, Unknown),
        (2, 4, Unknown),
        (6, 0x29, Unknown),
    ] {
        assert_eq!(check(&sense(0xf0, key, asc)), expected, "{key} {asc:#x}");
        assert_eq!(check(&sense(0xf1, key, asc)), Unknown, "{key} {asc:#x}");
    }
    // Without sense data, and with invalid sense data.
    assert_eq!(transferred(0, 2, 0, &[]), NoSense);
    for code in [0, 0x0f, 0x60, 0x6f, 0x80, 0xef] {
        assert_eq!(check(&sense(code, 1, 0x17)), NoSense, "{code:#x}");
    }
    // BUSY, TASK SET FULL, TASK ABORTED
    for status in [0x08, 0x28, 0x40] {
        assert_eq!(transferred(0, status, 0, &[]), Unknown);
    }
}

#[test]
fn too_short() {
    let bytes = message(Fields::default());
    for len in 0..36 {
        let need = if len == 0 { 1 } else { 36 };
        assert_eq!(
            Message::parse(&bytes[..len]).err(),
            Some(ProtocolError::Short { need, got: len })
        );
    }
    assert!(matches!(Message::parse(&bytes), Ok(Message::Rsp(_))));
}

#[test]
fn residuals() {
    let under_in = Fields {
        flags: DIUNDER,
        in_res: 100,
        out_res: 7,
        ..Fields::default()
    };
    assert_eq!(
        outcome(under_in, 512, FromDevice),
        Ok((0, 100, false, vec![]))
    );
    assert_eq!(
        outcome(under_in, 100, FromDevice),
        Ok((0, 100, false, vec![]))
    );
    assert_eq!(
        outcome(under_in, 99, FromDevice),
        Err(RspFault::Residual(100))
    );
    assert_eq!(
        outcome(under_in, 512, ToDevice),
        Err(RspFault::WrongDirection)
    );
    assert_eq!(
        outcome(under_in, 0, Direction::None),
        Err(RspFault::WrongDirection)
    );
    let under_out = Fields {
        flags: DOUNDER,
        out_res: 7,
        ..Fields::default()
    };
    assert_eq!(outcome(under_out, 512, ToDevice), Ok((0, 7, false, vec![])));
    assert_eq!(
        outcome(under_out, 512, FromDevice),
        Err(RspFault::WrongDirection)
    );
    let huge = Fields {
        flags: DOUNDER,
        out_res: u32::MAX,
        ..Fields::default()
    };
    assert_eq!(
        outcome(huge, u32::MAX - 1, ToDevice),
        Err(RspFault::Residual(u32::MAX))
    );
    // An overrun may have any size; no data is missing then.
    let over = Fields {
        flags: DIOVER,
        in_res: u32::MAX,
        ..Fields::default()
    };
    assert_eq!(outcome(over, 512, FromDevice), Ok((0, 0, true, vec![])));
    assert_eq!(outcome(over, 512, ToDevice), Err(RspFault::WrongDirection));
    for (flags, direction) in [(DOOVER | DOUNDER, ToDevice), (DIOVER | DIUNDER, FromDevice)] {
        assert_eq!(
            outcome(
                Fields {
                    flags,
                    ..Fields::default()
                },
                512,
                direction
            ),
            Err(RspFault::OverAndUnder)
        );
    }
    // Residual counts without their flag are ignored.
    let no_flag = Fields {
        in_res: 9,
        out_res: 9,
        ..Fields::default()
    };
    assert_eq!(
        outcome(no_flag, 0, Direction::None),
        Ok((0, 0, false, vec![]))
    );
}

#[test]
fn statuses() {
    let defined = [
        0x00, 0x02, 0x04, 0x08, 0x10, 0x14, 0x18, 0x22, 0x28, 0x30, 0x40,
    ];
    for status in 0..=255 {
        let result = outcome(
            Fields {
                status,
                ..Fields::default()
            },
            512,
            ToDevice,
        );
        if defined.contains(&status) {
            assert_eq!(result, Ok((status, 0, false, vec![])));
        } else {
            assert_eq!(result, Err(RspFault::Status(status)));
        }
    }
}

#[test]
fn list_lengths() {
    let sense: Vec<u8> = (0..200).collect();
    let base = Fields {
        flags: SNSVALID,
        status: 2,
        data: &sense,
        ..Fields::default()
    };
    for (sense_len, resp_len, good) in [
        (200, 0, true),
        (201, 0, false),
        (18, 182, true),
        (18, 183, false),
        (0, 200, true),
        (0, 201, false),
        (u32::MAX, 0, false),
        (0, u32::MAX, false),
        (u32::MAX, u32::MAX, false),
        (1, u32::MAX, false),
    ] {
        let fields = Fields {
            sense_len,
            resp_len,
            ..base
        };
        let result = outcome(fields, 512, FromDevice);
        if good {
            let from = resp_len as usize;
            let shown = (sense_len as usize).min(96);
            assert_eq!(
                result,
                Ok((2, 0, false, sense[from..from + shown].to_vec()))
            );
        } else {
            assert_eq!(result, Err(RspFault::Lengths));
            // The credits of a faulty response count.
            assert_eq!(Rsp::parse(&message(fields)).unwrap().req_lim_delta, -2);
            assert!(Rsp::parse(&message(fields)).unwrap().sense().is_empty());
        }
    }
    // Lengths without their flag are ignored.
    let no_flag = Fields {
        sense_len: u32::MAX,
        resp_len: u32::MAX,
        ..Fields::default()
    };
    assert_eq!(outcome(no_flag, 512, FromDevice), Ok((0, 0, false, vec![])));
}

#[test]
fn response_code_for_a_command() {
    let mut fields = Fields {
        flags: RSPVALID,
        resp_len: 4,
        data: &[0, 0, 0, 2],
        ..Fields::default()
    };
    assert_eq!(
        outcome(fields, 512, ToDevice),
        Err(RspFault::ResponseCode(2))
    );
    fields.data = &[0, 0, 0, 0];
    assert_eq!(
        outcome(fields, 512, ToDevice),
        Err(RspFault::ResponseCode(0))
    );
    fields.resp_len = 0;
    assert_eq!(
        outcome(fields, 512, ToDevice),
        Err(RspFault::NoResponseCode)
    );
}

#[test]
fn task_management() {
    let status = |flags, resp_len, data| {
        Rsp::parse(&message(Fields {
            flags,
            resp_len,
            data,
            ..Fields::default()
        }))
        .unwrap()
        .tmf_status()
    };
    assert_eq!(status(RSPVALID, 4, &[0, 0, 0, 0]), TmfStatus::COMPLETE);
    assert_eq!(status(RSPVALID, 4, &[0, 0, 0, 2]), TmfStatus(Some(2)));
    assert_eq!(status(RSPVALID, 4, &[0, 0, 0, 4]), TmfStatus(Some(4)));
    assert_eq!(status(RSPVALID, 4, &[0, 0, 0, 5]), TmfStatus(Some(5)));
    assert_eq!(status(RSPVALID, 4, &[0, 0, 0, 9]), TmfStatus(Some(9)));
    assert_eq!(status(RSPVALID, 5, &[0, 0, 0, 0, 0]), TmfStatus::COMPLETE);
    for (flags, resp_len, data) in [
        (0, 4, &[0u8, 0, 0, 0][..]),
        (SNSVALID, 4, &[0, 0, 0, 0]),
        (RSPVALID, 3, &[0, 0, 0, 0]),
        (RSPVALID, 4, &[0, 0, 0]),
        (RSPVALID, 0, &[]),
        (RSPVALID, u32::MAX, &[0, 0, 0, 0]),
    ] {
        assert_eq!(status(flags, resp_len, data), TmfStatus(None));
    }
    for other in [None, Some(5), Some(4), Some(1)] {
        assert_ne!(TmfStatus(other), TmfStatus::COMPLETE);
    }
}

#[test]
fn requests_of_the_target() {
    let bytes = hex("81 00 0000 fffffff1 1122334455667788");
    let Ok(Message::CredReq { req_lim_delta, tag }) = Message::parse(&bytes) else {
        panic!()
    };
    assert_eq!((req_lim_delta, tag), (-15, 0x1122_3344_5566_7788));

    let bytes = hex("80 00 0000 00000001 1122334455667788");
    let Ok(Message::TLogout(reason)) = Message::parse(&bytes) else {
        panic!()
    };
    assert_eq!((reason, logout_reason(reason)), (1, "inactive channel"));

    let mut bytes = hex(
        "82 00 0000 00000001 1122334455667788 00000000 0003000000000000 00000002 00000000 6b3f",
    );
    let Ok(Message::AerReq(event)) = Message::parse(&bytes) else {
        panic!()
    };
    assert_eq!((event.req_lim_delta, event.tag), (1, 0x1122_3344_5566_7788));
    assert_eq!(
        (event.lun, event.sense),
        (Lun::from_int(3), &[0x6b, 0x3f][..])
    );
    bytes[31] = 3;
    assert_eq!(
        Message::parse(&bytes).err(),
        Some(ProtocolError::Length {
            claimed: 39,
            got: 38
        })
    );
    bytes[28..32].fill(0xff);
    assert_eq!(
        Message::parse(&bytes).err(),
        Some(ProtocolError::Length {
            claimed: u64::from(u32::MAX) + 36,
            got: 38
        })
    );
}

#[test]
fn minimum_lengths_and_opcodes() {
    for opcode in 0..=255 {
        let need = match opcode {
            0x80 | 0x81 => 16,
            0x82 | 0xc1 => 36,
            _ => {
                assert_eq!(
                    Message::parse(&[opcode; 64]).err(),
                    Some(ProtocolError::Opcode(opcode))
                );
                continue;
            }
        };
        let mut bytes = vec![0; 64];
        bytes[0] = opcode;
        for len in 1..64 {
            let result = Message::parse(&bytes[..len]);
            assert_eq!(result.is_ok(), len >= need, "{opcode:#x} {len}");
        }
    }
}

#[test]
fn only_plain_success_is_good() {
    let bytes = message(Fields::default());
    let good = Good {
        req_lim_delta: -2,
        tag: 0x1122_3344_5566_7788,
    };
    assert_eq!(Good::parse(&bytes), Some(good));
    // Lengths and residuals without their flags are ignored.
    let noise = message(Fields {
        out_res: 1,
        in_res: 2,
        sense_len: 3,
        resp_len: 4,
        data: &[5; 6],
        ..Fields::default()
    });
    assert_eq!(Good::parse(&noise), Some(good));
    for len in 0..bytes.len() {
        assert_eq!(Good::parse(&bytes[..len]), None);
    }
    for bit in 0..8 {
        let flagged = message(Fields {
            flags: 1 << bit,
            ..Fields::default()
        });
        assert_eq!(Good::parse(&flagged), None);
        let failed = message(Fields {
            status: 1 << bit,
            ..Fields::default()
        });
        assert_eq!(Good::parse(&failed), None);
        let mut other = bytes.clone();
        other[0] ^= 1 << bit;
        assert_eq!(Good::parse(&other), None);
    }
}
