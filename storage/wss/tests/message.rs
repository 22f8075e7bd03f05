// SPDX-License-Identifier: GPL-2.0

//! Every message survives encoding and parsing, and other bytes are rejected.

use crate::strategies::message;
use proptest::{collection::vec, prelude::*};
use srp_target::auth::Identity;
use srp_target::proto::cmd::DirectBuf;
use wss::{message::*, peer::fits};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_built_is_read(message in message()) {
        let bytes = message.build();
        prop_assert!(bytes.len() % LEN == 0 && bytes.len() <= MAX_LEN);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
    }

    #[test]
    fn what_is_read_has_one_form(mut bytes in vec(any::<u8>(), 0..=MAX_LEN + 1), code in 0u8..20) {
        if let Some(first) = bytes.first_mut() {
            *first = code;
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(message.build(), bytes);
        }
    }

    #[test]
    fn a_byte_that_differs_is_another_message(
        message in message(), at in any::<prop::sample::Index>(), bit in 0..8
    ) {
        let mut bytes = message.build();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        if let Ok(other) = Message::parse(&bytes) {
            prop_assert_ne!(&other, &message);
            prop_assert_eq!(other.build(), bytes);
        }
    }

    #[test]
    fn a_message_of_another_length_is_none(message in message(), len in 0..=MAX_LEN + LEN) {
        let mut bytes = message.build();
        if bytes.len() != len {
            bytes.resize(len, 0);
            prop_assert!(Message::parse(&bytes).is_err());
        }
    }

    #[test]
    fn what_depends_on_the_sender_is_of_the_link(
        message in message(), role in 0u8..5, number in any::<u32>()
    ) {
        let of_link = Message::is_of_link(&message.build());
        let any_may = fits(Identity { role, number }, &message);
        let grant = matches!(message, Message::Grant { .. });
        prop_assert!(of_link || (any_may && !grant));
    }
}

/// Writes `len` bytes of ascending values.
fn run(bytes: &mut [u8], at: usize, first: u8, len: u8) {
    for (byte, value) in bytes[at..][..usize::from(len)]
        .iter_mut()
        .zip(first..first + len)
    {
        *byte = value;
    }
}

/// Checks the offsets of the fields; the other tests would pass with any offsets.
#[test]
fn descriptors_of_bytes() {
    let exec = Message::Exec(Exec {
        id: 0x0102_0304_0506_0708,
        session: 0x1112_1314_1516_1718,
        write: true,
        answer: true,
        stable: false,
        direct: true,
        zero: None,
        tag: 0x2122_2324_2526_2728,
        room: 0x3132_3334,
        credits: -2,
        extents: vec![Extent {
            store: 0x4142_4344,
            object: 0x5152_5354,
            at: 0x6162_6364_6566_6768,
            blocks: 0x7172_7374,
            epoch: 0x8182_8384_8586_8788,
        }],
        descriptors: vec![DirectBuf::new(
            0x9192_9394_9596_9798,
            0xa1a2_a3a4,
            0xb1b2_b3b4,
        )],
    });
    let mut wanted = vec![0; 128];
    wanted[..4].copy_from_slice(&[6, 1 | 2 | 32, 1, 1]);
    run(&mut wanted, 8, 0x01, 8);
    run(&mut wanted, 16, 0x11, 8);
    run(&mut wanted, 24, 0x21, 8);
    run(&mut wanted, 32, 0x31, 4);
    run(&mut wanted, 64, 0x41, 4);
    run(&mut wanted, 68, 0x51, 4);
    run(&mut wanted, 72, 0x61, 8);
    run(&mut wanted, 80, 0x81, 8);
    run(&mut wanted, 88, 0x71, 4);
    run(&mut wanted, 96, 0x91, 8);
    run(&mut wanted, 104, 0xa1, 4);
    run(&mut wanted, 108, 0xb1, 4);
    wanted[36..40].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(exec.build(), wanted);
    // Only what is answered may be passed on.
    wanted[1] = 1 | 32;
    assert_eq!(Message::parse(&wanted), Err(Broken::Byte(1)));

    let transfer = Transfer {
        id: 0x0102_0304_0506_0708,
        object: 0x1112_1314,
        at: 0x2122_2324_2526_2728,
        blocks: 0x3132_3334,
        stable: true,
        va: 0x4142_4344_4546_4748,
        key: 0x5152_5354,
    };
    let mut wanted = vec![0; 64];
    wanted[..2].copy_from_slice(&[13, 4]);
    run(&mut wanted, 4, 0x11, 4);
    run(&mut wanted, 8, 0x01, 8);
    run(&mut wanted, 24, 0x21, 8);
    run(&mut wanted, 32, 0x31, 4);
    run(&mut wanted, 36, 0x51, 4);
    run(&mut wanted, 40, 0x41, 8);
    assert_eq!(Message::Put(transfer).build(), wanted);
    // Without a transfer the address and the rkey are zero.
    let (va, key) = (0, 0);
    let zero = Message::Zero(
        Transfer {
            va,
            key,
            ..transfer
        },
        Zero::Unmap,
    );
    wanted[..2].copy_from_slice(&[18, 4 | 8 | 16]);
    wanted[36..48].fill(0);
    assert_eq!(zero.build(), wanted);
    wanted[40] = 1;
    assert_eq!(Message::parse(&wanted), Err(Broken::Byte(40)));

    let fence = Message::Fence {
        scope: Scope::Member,
        member: 0x0102_0304,
        epoch: 0x1112_1314_1516_1718,
    };
    let bytes = fence.build();
    assert_eq!(bytes[..8], [10, 2, 0, 0, 1, 2, 3, 4]);
    assert_eq!(
        bytes[16..24],
        [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]
    );
    assert!(bytes[24..].iter().all(|b| *b == 0));
    let left = Message::Left {
        status: Status::Stale,
        id: 0x0102_0304_0506_0708,
        session: 0x1112_1314_1516_1718,
    };
    let mut wanted = vec![0; 64];
    wanted[..2].copy_from_slice(&[5, 3]);
    run(&mut wanted, 8, 0x01, 8);
    run(&mut wanted, 16, 0x11, 8);
    assert_eq!(left.build(), wanted);
    let join = Message::Join {
        id: 7,
        initiator: *b"0123456789abcdef",
    };
    assert_eq!(join.build()[24..40], *b"0123456789abcdef");
}
