// SPDX-License-Identifier: GPL-2.0

//! Responses to a login: grants, and refusals with their reasons.

mod common;

use common::hex;
use srp_host::proto::{
    ids::PortId,
    login_iu::{Granted, LoginError, LoginRej, LoginRsp, MultiChannel, Requested},
    message_error::ProtocolError,
    reject::{Reject, CONSUMER_DEFINED},
};

/// LIO's response to a login with the defaults.
fn response() -> Vec<u8> {
    hex(
        "c0 000000 00000080 1122334455667788 00002054 00002044 0006 80
         00000000000000000000000000000000000000000000000000",
    )
}

fn with(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut response = response();
    response[offset..offset + bytes.len()].copy_from_slice(bytes);
    response
}

fn requested() -> Requested {
    Requested {
        tag: 0x1122_3344_5566_7788,
        max_it_iu_len: 8260,
        descriptors: 12,
        immediate: 8192,
        multichannel: MultiChannel::Single,
        initiator: PortId::default(),
        target: PortId::default(),
    }
}

fn check(bytes: &[u8], requested: &Requested) -> Result<Granted, LoginError> {
    LoginRsp::parse(bytes)
        .expect("long enough")
        .check(requested)
}

#[test]
fn granted() {
    let granted = Granted {
        req_lim: 128,
        max_it_iu_len: 8260,
        descriptors: 12,
        immediate: 8192,
    };
    assert_eq!(check(&response(), &requested()), Ok(granted));
    // IB/CM always delivers 196 bytes.
    let mut long = response();
    long.resize(196, 0xff);
    assert_eq!(check(&long, &requested()), Ok(granted));
    // Immediate data is requested, but not granted.
    assert_eq!(
        check(&with(26, &[0]), &requested()),
        Ok(Granted {
            immediate: 0,
            ..granted
        })
    );
}

#[test]
fn lengths() {
    for len in 0..52 {
        let error = LoginRsp::parse(&response()[..len]).err();
        let need = if len == 0 { 1 } else { 52 };
        assert_eq!(error, Some(ProtocolError::Short { need, got: len }));
    }
    assert_eq!(
        LoginRsp::parse(&with(0, &[0xc1])).err(),
        Some(ProtocolError::Opcode(0xc1))
    );
    assert_eq!(
        LoginRsp::parse(&with(0, &[0xc2])).err(),
        Some(ProtocolError::Opcode(0xc2))
    );
}

#[test]
fn fields() {
    use LoginError::*;
    let table: [(usize, &[u8], Option<LoginError>); 19] = [
        (8, &[0; 8], Some(Tag(0))),
        (15, &[0x89], Some(Tag(0x1122_3344_5566_7789))),
        (24, &[0, 0], Some(BufferFormats(0))),
        (24, &[0, 2], Some(BufferFormats(2))),
        (24, &[0, 4], Some(BufferFormats(4))),
        (24, &[0xff, 0xff], None),
        (4, &[0, 0, 0, 0], Some(RequestLimit(0))),
        (4, &[0, 0, 0, 1], Some(RequestLimit(1))),
        (4, &[0, 0, 0, 2], None),
        (4, &[0, 0, 0xff, 0xff], None),
        (4, &[0, 1, 0, 0], Some(RequestLimit(65536))),
        (4, &[0x7f, 0xff, 0xff, 0xff], Some(RequestLimit(i32::MAX))),
        (4, &[0x80, 0, 0, 0], Some(RequestLimit(i32::MIN))),
        (4, &[0xff, 0xff, 0xff, 0xff], Some(RequestLimit(-1))),
        (16, &[0, 0, 0, 63], Some(MaxItIuLen(63))),
        (16, &[0, 0, 0, 64], None),
        (20, &[0, 0, 0, 55], Some(MaxTiIuLen(55))),
        (20, &[0, 0, 0, 56], None),
        (20, &[0xff, 0xff, 0xff, 0xff], None),
    ];
    for (offset, bytes, error) in table {
        assert_eq!(
            check(&with(offset, bytes), &requested()).err(),
            error,
            "{offset}: {bytes:02x?}"
        );
    }
}

#[test]
fn shorter_messages() {
    let granted = |len: u32| check(&with(16, &len.to_be_bytes()), &requested()).unwrap();
    let table = [
        (u32::MAX, 8260, 12, 8192),
        (8260, 8260, 12, 8192),
        (8259, 8259, 12, 8191),
        (580, 580, 12, 512),
        // Less than one block: no immediate data.
        (579, 579, 12, 0),
        (260, 260, 12, 0),
        (259, 259, 11, 0),
        (84, 84, 1, 0),
        (83, 83, 0, 0),
        (64, 64, 0, 0),
    ];
    for (offered, len, descriptors, immediate) in table {
        let granted = granted(offered);
        assert_eq!(
            (
                granted.max_it_iu_len,
                granted.descriptors,
                granted.immediate
            ),
            (len, descriptors, immediate),
            "{offered}"
        );
    }
}

#[test]
fn flags() {
    let without = Requested {
        immediate: 0,
        ..requested()
    };
    assert_eq!(
        check(&response(), &without),
        Err(LoginError::UnwantedImmediate)
    );
    assert_eq!(
        check(&with(26, &[0]), &without).map(|granted| granted.immediate),
        Ok(0)
    );
    let multi = Requested {
        multichannel: MultiChannel::Multi,
        ..requested()
    };
    for (flags, result) in [
        (0x80, Some(0)),
        (0x81, Some(1)),
        (0x82, None),
        (0x83, Some(3)),
    ] {
        assert_eq!(
            check(&with(26, &[flags]), &multi).err(),
            result.map(LoginError::NotMaintained)
        );
        // The first channel ignores what the flags say about older channels.
        assert!(check(&with(26, &[flags]), &requested()).is_ok());
    }
}

/// An answer channel grants no credits. Its limits for messages to the target are ignored.
#[test]
fn answer_channels() {
    use LoginError::*;
    let multi = Requested {
        immediate: 0,
        multichannel: MultiChannel::Multi,
        ..requested()
    };
    let check = |offset: usize, bytes: &[u8]| {
        let mut response = with(4, &[0; 4]);
        response[26] = 2;
        response[offset..offset + bytes.len()].copy_from_slice(bytes);
        LoginRsp::parse(&response)
            .unwrap()
            .check_answer_channel(&multi)
    };
    let granted = Granted {
        req_lim: 0,
        max_it_iu_len: 0,
        descriptors: 0,
        immediate: 0,
    };
    let table: [(usize, &[u8], Option<LoginError>); 12] = [
        (4, &[0; 4], None),
        (4, &[0, 0, 0, 1], Some(Grants(1))),
        (4, &[0, 0, 0, 128], Some(Grants(128))),
        (4, &[0xff; 4], Some(Grants(-1))),
        (15, &[0x89], Some(Tag(0x1122_3344_5566_7789))),
        (16, &[0; 4], None),
        (20, &[0, 0, 0, 55], Some(MaxTiIuLen(55))),
        (24, &[0, 0], None),
        (26, &[0x82], Some(UnwantedImmediate)),
        (26, &[0], Some(NotMaintained(0))),
        (26, &[1], Some(NotMaintained(1))),
        (26, &[3], Some(NotMaintained(3))),
    ];
    for (offset, bytes, error) in table {
        let result = check(offset, bytes);
        assert_eq!(
            result,
            error.map_or(Ok(granted), Err),
            "{offset}: {bytes:02x?}"
        );
    }
    // For any other channel, 0 credits are too few.
    let mut response = with(4, &[0; 4]);
    response[26] = 2;
    assert_eq!(
        LoginRsp::parse(&response).unwrap().check(&multi),
        Err(RequestLimit(0))
    );
}

#[test]
fn rejects() {
    let bytes = hex("c2 000000 00010006 1122334455667788 0000000000000000 0006 000000000000");
    let rej = LoginRej::parse(&bytes).unwrap();
    assert_eq!(rej.reason(), Reject::CHANNEL_LIMIT_REACHED);
    assert_eq!(
        (rej.tag.get(), rej.buf_fmt.get()),
        (0x1122_3344_5566_7788, 6)
    );
    let line = rej.reason().to_string();
    assert!(
        line.contains("channel limit reached")
            && line.contains("0x00010006")
            && line.contains("ACL")
    );
    for len in 0..32 {
        assert!(LoginRej::parse(&bytes[..len]).is_err());
    }
    assert_eq!(
        LoginRej::parse(&response()).err(),
        Some(ProtocolError::Opcode(0xc0))
    );
    for number in (0x0001_0000..=0x0001_0007).chain([0, 1, u32::MAX]) {
        let reason = Reject::Srp(number);
        assert!(reason.to_string().contains(&format!("({number:#010x})")));
        assert!(!reason.text().0.is_empty() && !reason.text().1.is_empty());
        assert_eq!(
            reason.text().0 == "unknown reason",
            !(0x0001_0000..=0x0001_0006).contains(&number)
        );
    }
}

#[test]
fn cm_rejects() {
    for reason in 1..=35 {
        let rej = Reject::from_status(reason);
        assert_eq!(rej, Reject::Ib(reason as u16));
        let (what, advice) = rej.text();
        assert_eq!(what == "unknown reason", reason == 34, "{reason}");
        assert!(!advice.is_empty());
        assert!(rej.to_string().contains(&format!("(reason {reason})")));
    }
    assert!(Reject::from_status(i32::from(CONSUMER_DEFINED)).is_consumer_defined());
    let refused = Reject::from_status(-111);
    assert_eq!(refused, Reject::Errno(111));
    assert_eq!(refused.text().0, "connection refused");
    assert!(refused.is_consumer_defined() && refused.to_string().contains("(errno 111)"));
    for status in [i32::MIN, -1, 0, 36, 65535, 65536, i32::MAX] {
        assert!(!Reject::from_status(status).to_string().is_empty());
    }
    assert_eq!(Reject::from_status(8).text().1, refused.text().1);
}
