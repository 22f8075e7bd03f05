// SPDX-License-Identifier: GPL-2.0

//! Builds any command in a buffer of any size: exactly the bytes of the message are written,
//! whatever the buffer contains.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srp_host::proto::{
    cmd::{Cmd, DirectBuf, Direction},
    ids::Lun,
    message_error::BuildError,
};

fn build(cmd: &Cmd<'_>, kind: u8, count: usize, iu: &mut [u8]) -> Result<usize, BuildError> {
    let buf = DirectBuf::new(cmd.tag, 1, 2);
    let list = vec![buf; count];
    match kind % 4 {
        0 => cmd.build(iu),
        1 => cmd.build_direct(iu, Direction::FromDevice, &buf),
        2 => cmd.build_indirect(iu, Direction::ToDevice, &buf, 3, &list),
        _ => cmd.build_immediate(iu, count as u32),
    }
}

fuzz_target!(|input: (u64, [u8; 8], u8, u16, u16, &[u8])| {
    let (tag, lun, kind, count, space, cdb) = input;
    let (count, space) = (usize::from(count % 300), usize::from(space % 6000));
    let cmd = Cmd {
        tag,
        lun: Lun(lun),
        cdb,
    };
    let (mut zeros, mut ones) = (vec![0; space], vec![0xff; space]);
    let lengths = (
        build(&cmd, kind, count, &mut zeros),
        build(&cmd, kind, count, &mut ones),
    );
    assert_eq!(lengths.0, lengths.1);
    if let Ok(len) = lengths.0 {
        assert_eq!(zeros[..len], ones[..len]);
        assert!(
            zeros[len..].iter().all(|&byte| byte == 0)
                && ones[len..].iter().all(|&byte| byte == 0xff)
        );
        assert_eq!(zeros[0], 2);
        assert_eq!(zeros[8..16], tag.to_be_bytes());
        assert_eq!(zeros[20..28], lun);
        assert_eq!(
            usize::from(zeros[31]),
            cdb.len().saturating_sub(16).next_multiple_of(4)
        );
        assert_eq!(zeros[32..32 + cdb.len()], *cdb);
        let end = 32 + cdb.len().max(16).next_multiple_of(4);
        assert!(zeros[32 + cdb.len()..end].iter().all(|&byte| byte == 0));
    }
});
