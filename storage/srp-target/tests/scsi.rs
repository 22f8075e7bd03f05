// SPDX-License-Identifier: GPL-2.0

//! Disk commands.

use crate::common::*;
use srp_target::{
    config::Given,
    options::{Options, HELP, SCHEMA},
    proto::{
        cmd::Direction,
        ids::Lun,
        tmf::Function, //
    },
    scsi::unit_of,
};

const FIELD: Option<(u8, u8, u8)> = Some((5, 0x24, 0));

/// A CDB of READ, WRITE or VERIFY, with the length that the operation code implies.
fn cdb(opcode: u8, lba: u32, count: u32) -> Vec<u8> {
    let (l, c) = (lba.to_be_bytes(), count.to_be_bytes());
    match opcode >> 5 {
        0 => vec![opcode, l[1], l[2], l[3], c[3], 0],
        1 | 2 => cdb10(opcode, lba, count as u16).to_vec(),
        4 => [&[opcode, 0, 0, 0, 0, 0][..], &l, &c, &[0, 0]].concat(),
        _ => [&[opcode, 0][..], &l, &c, &[0, 0]].concat(),
    }
}

#[test]
fn reads_and_writes_of_each_length() {
    let mut testbed = Testbed::logged_in();
    for (i, (write, read, verify)) in [
        (0x0a, 0x08, 0x2f),
        (0x2a, 0x28, 0x2f),
        (0xaa, 0xa8, 0xaf),
        (0x8a, 0x88, 0x8f),
    ]
    .into_iter()
    .enumerate()
    {
        let (lba, data) = (300 * i as u32 + 7, pattern(3 * 512, i as u8));
        assert_eq!(testbed.write(&cdb(write, lba, 3), &data).status, 0);
        assert_eq!(testbed.file(lba.into(), 3), data);
        assert_eq!(testbed.read(&cdb(read, lba, 3), 3 * 512).1, data);
        assert_eq!(testbed.none(1, &cdb(verify, lba, 3)).status, 0);
        let mut compare = cdb(verify, lba, 3);
        compare[1] = 2;
        assert_eq!(testbed.write(&compare, &data).status, 0);
        let mut other = data.clone();
        other[700] ^= 1;
        assert_eq!(testbed.write(&compare, &other).sense, Some((14, 0x1d, 0)));
        // The last block, and the one after.
        let end = BLOCKS as u32;
        assert_eq!(testbed.read(&cdb(read, end - 1, 1), 512).0.status, 0);
        assert_eq!(
            testbed.read(&cdb(read, end - 1, 2), 1024).0.sense,
            Some((5, 0x21, 0))
        );
        assert_eq!(
            testbed.write(&cdb(write, end, 1), &data[..512]).sense,
            Some((5, 0x21, 0))
        );
        assert_eq!(
            testbed.none(1, &cdb(verify, end, 1)).sense,
            Some((5, 0x21, 0))
        );
    }
    // A length of 0 in a 6-byte command means 256.
    assert_eq!(testbed.read(&cdb(0x08, 0, 0), 256 * 512).0.resid, 0);
    assert_eq!(testbed.none(1, &cdb(0x28, 0, 0)).status, 0);
    // LBA bits above 32 are not ignored.
    let mut far = cdb(0x88, 0, 1);
    far[5] = 1;
    assert_eq!(testbed.read(&far, 512).0.sense, Some((5, 0x21, 0)));
    far[2..10].fill(0xff);
    assert_eq!(testbed.read(&far, 512).0.sense, Some((5, 0x21, 0)));
    // BYTCHK 3: each block is compared with the same one; 2 is reserved.
    let block = pattern(512, 40);
    assert_eq!(testbed.write(&cdb(0x2a, 50, 2), &block.repeat(2)).status, 0);
    let mut same = cdb(0x2f, 50, 2);
    same[1] = 6;
    assert_eq!(testbed.write(&same, &block).status, 0);
    same[1] = 4;
    assert_eq!(testbed.write(&same, &block).sense, FIELD);
}

#[test]
fn flags_of_reads_and_writes() {
    let mut testbed = Testbed::logged_in();
    let data = pattern(512, 1);
    for (flags, sense) in [(0x08, None), (0x10, None), (0x20, FIELD), (0xe0, FIELD)] {
        let (mut write, mut read) = (cdb(0x2a, 1, 1), cdb(0x88, 1, 1));
        (write[1], read[1]) = (flags, flags);
        assert_eq!(testbed.write(&write, &data).sense, sense);
        assert_eq!(testbed.read(&read, 512).0.sense, sense);
    }
    // NACA.
    assert_eq!(testbed.none(1, &[0, 0, 0, 0, 0, 4]).sense, FIELD);
    for flush in [vec![0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], cdb(0x91, 0, 0)] {
        assert_eq!(testbed.none(1, &flush).status, 0);
    }
    assert_eq!(
        testbed.none(1, &cdb(0x91, BLOCKS as u32, 1)).sense,
        Some((5, 0x21, 0))
    );
}

#[test]
fn inquiry_and_its_pages() {
    let mut testbed = Testbed::logged_in();
    let inquiry = |evpd, page, len: u8| [0x12, evpd, page, 0, len, 0];
    let (answer, std) = testbed.read(&inquiry(0, 0, 255), 255);
    assert_eq!((answer.status, answer.resid), (0, 255 - 74));
    assert_eq!((std[0], std[2], std[3] & 15, std[4]), (0, 6, 2, 69));
    assert_eq!(&std[8..16], b"SRP-RS  ");
    // Truncated to the allocation length.
    let (answer, short) = testbed.read(&inquiry(0, 0, 5), 255);
    assert_eq!(
        (answer.resid, &short[..5], short[5]),
        (250, &std[..5], 0xee)
    );
    let pages = testbed.read(&inquiry(1, 0, 255), 255).1;
    assert_eq!(pages[..10], [0, 0, 0, 6, 0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
    for page in [0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        let (answer, bytes) = testbed.read(&inquiry(1, page, 255), 255);
        assert_eq!((answer.status, bytes[1]), (0, page));
        assert_eq!(answer.resid, 251 - u32::from(bytes[3]), "{page:x}");
    }
    let id = testbed.read(&inquiry(1, 0x83, 255), 255).1;
    assert_eq!((id[4], id[5], id[7], id[8] >> 4), (1, 3, 8, 3));
    let limits = testbed.read(&inquiry(1, 0xb0, 255), 255).1;
    assert_eq!(
        (limits[3], limits[4], &limits[8..12]),
        (60, 1, &32768u32.to_be_bytes()[..])
    );
    assert_eq!(testbed.read(&inquiry(1, 0x81, 255), 255).0.sense, FIELD);
    assert_eq!(testbed.read(&inquiry(0, 0x80, 255), 255).0.sense, FIELD);
}

#[test]
fn units_that_there_are_not() {
    let mut testbed = Testbed::logged_in();
    let (answer, bytes) = testbed.read_lun(3, &[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!((answer.status, bytes[0]), (0, 0x7f));
    let sense = testbed.read_lun(3, &[0x03, 0, 0, 0, 18, 0], 18).1;
    assert_eq!((sense[2], sense[12]), (5, 0x25));
    assert_eq!(
        testbed.read_lun(3, &[0, 0, 0, 0, 0, 0], 1).0.sense,
        Some((5, 0x25, 0))
    );
    assert_eq!(
        testbed.read_lun(3, &cdb10(0x28, 0, 1), 512).0.sense,
        Some((5, 0x25, 0))
    );

    let mut many = Testbed::new(settings(), 3, false);
    many.login(1, &requested());
    let (answer, luns) = many.read_lun(7, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    assert_eq!(
        (answer.status, luns[3], luns[9], luns[17], luns[25]),
        (0, 24, 0, 1, 2)
    );
    assert_eq!(
        many.read(&[0xa0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256).1[3],
        0
    );
    assert_eq!(
        many.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0], 256)
            .0
            .sense,
        FIELD
    );
    assert_eq!(
        many.read(&[0xa0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256)
            .0
            .sense,
        FIELD
    );

    let units: Vec<_> = {
        let file = &many.files[0].0;
        let disk = || srp_target::disk::Disk::open(file, srp_target::store::Use::Checking).unwrap();
        (0..300)
            .map(|_| srp_target::scsi::Unit::new(disk(), 1).into())
            .collect()
    };
    for n in [0, 255, 256, 299] {
        let flat = if n < 256 { n } else { n | 0x4000 };
        assert_eq!(unit_of(Lun::from_int(flat).0, &units), Some(n as usize));
    }
    for lun in [300 | 0x4000, 0x8001, 0xc101, 0x0100, 1 << 16] {
        assert_eq!(unit_of(Lun::from_int(lun).0, &units), None, "{lun:x}");
    }
}

#[test]
fn capacity() {
    let mut testbed = Testbed::logged_in();
    let ten = testbed.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).1;
    assert_eq!(
        ten,
        [
            &(BLOCKS as u32 - 1).to_be_bytes()[..],
            &512u32.to_be_bytes()
        ]
        .concat()
    );
    let mut sixteen = [0; 16];
    (sixteen[0], sixteen[1], sixteen[13]) = (0x9e, 0x10, 32);
    let bytes = testbed.read(&sixteen, 32).1;
    assert_eq!(bytes[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!((bytes[13], bytes[14]), (3, 0xc0));
    sixteen[1] = 0x12;
    assert_eq!(testbed.read(&sixteen, 32).0.sense, FIELD);
}

#[test]
fn unmapped_blocks_are_zeros() {
    let mut testbed = Testbed::logged_in();
    let data = pattern(64 * 512, 6);
    testbed.write(&cdb10(0x2a, 0, 64), &data);
    let unmap = |len: u16| {
        let l = len.to_be_bytes();
        [0x42, 0, 0, 0, 0, 0, 0, l[0], l[1], 0]
    };
    let range = |lba: u64, n: u32| [&lba.to_be_bytes()[..], &n.to_be_bytes(), &[0; 4]].concat();
    let list = |ranges: &[Vec<u8>]| {
        let n = 16 * ranges.len() as u16;
        [
            &(n + 6).to_be_bytes()[..],
            &n.to_be_bytes(),
            &[0; 4],
            &ranges.concat(),
        ]
        .concat()
    };
    let good = list(&[range(8, 8), range(32, 1), range(5, 0)]);
    assert_eq!(testbed.write(&unmap(good.len() as u16), &good).status, 0);
    assert_eq!(testbed.file(8, 8), [0; 8 * 512]);
    assert_eq!(testbed.file(32, 1), [0; 512]);
    assert_eq!(testbed.file(33, 31), data[33 * 512..]);
    assert_eq!(testbed.file(0, 8), data[..8 * 512]);
    // After one bad range no range is unmapped.
    let bad = list(&[range(0, 1), range(BLOCKS, 1)]);
    assert_eq!(
        testbed.write(&unmap(bad.len() as u16), &bad).sense,
        Some((5, 0x21, 0))
    );
    assert_eq!(testbed.file(0, 1), data[..512]);
    let mut cut = list(&[range(0, 1), range(1, 1)]);
    cut.truncate(30);
    assert_eq!(testbed.write(&unmap(30), &cut).sense, Some((5, 0x1a, 0)));
    assert_eq!(testbed.write(&unmap(7), &good).sense, Some((5, 0x1a, 0)));
    assert_eq!(testbed.none(1, &unmap(0)).status, 0);
    let many = list(&vec![range(0, 1); 257]);
    assert_eq!(
        testbed.write(&unmap(many.len() as u16), &many).sense,
        Some((5, 0x26, 0))
    );
    let mut anchor = unmap(good.len() as u16);
    anchor[1] = 1;
    assert_eq!(testbed.write(&anchor, &good).sense, FIELD);
    assert_eq!(testbed.file(0, 8), data[..8 * 512]);
}

#[test]
fn write_same() {
    let mut testbed = Testbed::logged_in();
    let block = pattern(512, 8);
    assert_eq!(testbed.write(&cdb(0x41, 10, 5), &block).status, 0);
    assert_eq!(testbed.file(10, 5), block.repeat(5));
    assert_eq!(testbed.write(&cdb(0x93, 100, 3000), &block).status, 0);
    assert_eq!(testbed.file(100, 3000), block.repeat(3000));
    // UNMAP with zeros, with other data, and without data.
    let with = |flags: u8, lba, n| {
        let mut cdb = cdb(0x93, lba, n);
        cdb[1] = flags;
        cdb
    };
    assert_eq!(testbed.write(&with(8, 10, 2), &[0; 512]).status, 0);
    assert_eq!(testbed.file(10, 3), [&[0; 1024][..], &block].concat());
    assert_eq!(testbed.write(&with(8, 10, 1), &block).status, 0);
    assert_eq!(testbed.file(10, 1), block);
    assert_eq!(testbed.none(1, &with(1, 12, 1)).status, 0);
    assert_eq!(testbed.file(12, 2), [&[0; 512][..], &block].concat());
    for (cdb, sense) in [
        (with(0x10, 0, 1), FIELD),
        (with(0x20, 0, 1), FIELD),
        (with(0, 0, 0), FIELD),
        (with(0, BLOCKS as u32, 1), Some((5, 0x21, 0))),
    ] {
        assert_eq!(testbed.write(&cdb, &block).sense, sense);
    }
    // Less than a block of data.
    assert_eq!(testbed.write(&with(0, 0, 1), &block[..511]).sense, FIELD);
    assert_eq!(testbed.file(0, 1), [0; 512]);
}

#[test]
fn mode_pages() {
    let mut testbed = Testbed::logged_in();
    let six = testbed.read(&[0x1a, 0, 0x3f, 0, 255, 0], 255).1;
    assert_eq!((six[0], six[2], six[3]), (43, 0x10, 8));
    assert_eq!((six[12], six[14] & 4, six[32]), (0x08, 4, 0x0a));
    let ten = testbed
        .read(&[0x5a, 0x08, 0x08, 0, 0, 0, 0, 0, 255, 0], 255)
        .1;
    assert_eq!(
        (ten[1], ten[3], ten[7], ten[8], ten[10]),
        (26, 0x10, 0, 0x08, 4)
    );
    let long = testbed
        .read(&[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 0, 255, 0], 255)
        .1;
    assert_eq!((long[4], long[7], long[24]), (1, 16, 0x0a));
    assert_eq!(long[8..16], BLOCKS.to_be_bytes());
    // No parameter is changeable or saved.
    let change = testbed.read(&[0x1a, 8, 0x48, 0, 255, 0], 255).1;
    assert_eq!((change[4], change[5], change[6]), (8, 18, 0));
    assert_eq!(
        testbed.read(&[0x1a, 8, 0xc8, 0, 255, 0], 255).0.sense,
        Some((5, 0x39, 0))
    );
    assert_eq!(
        testbed.read(&[0x1a, 8, 0x1c, 0, 255, 0], 255).0.sense,
        FIELD
    );
    assert_eq!(
        testbed.read(&[0x1a, 8, 0x08, 1, 255, 0], 255).0.sense,
        FIELD
    );
}

#[test]
fn supported_operation_codes_are_those() {
    let mut testbed = Testbed::logged_in();
    let ask = |how: u8, opcode, action: u8| [0xa3, 0x0c, how, opcode, 0, action, 0, 0, 4, 0, 0, 0];
    let all = testbed.read(&ask(0, 0, 0), 1024).1;
    let len = u32::from_be_bytes(all[..4].try_into().unwrap()) as usize;
    let listed: Vec<_> = all[4..4 + len]
        .chunks(8)
        .map(|d| (d[0], d[3], d[5] & 1, d[7]))
        .collect();
    for opcode in 0..=255u8 {
        let mine: Vec<_> = listed.iter().filter(|d| d.0 == opcode).collect();
        // A command that is not in the list has an invalid operation code.
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        let answer = testbed.none(1, &cdb);
        assert_eq!(
            answer.sense == Some((5, 0x20, 0)),
            mine.is_empty(),
            "{opcode:x}: {answer:?}"
        );
        // The CDB may have stopped the unit, so start it.
        testbed.none(1, &[0x1b, 0, 0, 0, 1, 0]);
        if mine.is_empty() {
            let one = testbed.read(&ask(1, opcode, 0), 1024).1;
            assert_eq!(one[1] & 7, 1);
        }
        for (_, action, has, len) in mine {
            let one = testbed.read(&ask(if *has == 1 { 2 } else { 1 }, opcode, *action), 1024);
            assert_eq!((one.1[1] & 7, one.1[3], one.1[4]), (3, *len, opcode));
            assert_eq!(one.0.resid, 1020 - u32::from(*len));
            assert_eq!(
                testbed
                    .read(&ask(if *has == 1 { 1 } else { 2 }, opcode, *action), 1024)
                    .0
                    .sense,
                FIELD
            );
            assert_eq!(testbed.read(&ask(3, opcode, *action), 1024).1[1] & 7, 3);
        }
    }
    assert_eq!(testbed.read(&ask(2, 0x9e, 0x12), 1024).1[1] & 7, 1);
    assert_eq!(testbed.read(&ask(7, 0, 0), 1024).0.sense, FIELD);
    let timed = testbed.read(&ask(0x80, 0, 0), 1024).1;
    assert_eq!(
        usize::from(timed[2]) << 8 | usize::from(timed[3]),
        listed.len() * 20
    );
    let tmf = testbed.read(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0], 16);
    assert_eq!((tmf.0.resid, &tmf.1[..4]), (12, &[0xd8, 0, 0, 0][..]));
}

#[test]
fn sense_on_request() {
    let mut testbed = Testbed::logged_in();
    let fixed = testbed.read(&[3, 0, 0, 0, 255, 0], 255);
    assert_eq!((fixed.0.resid, fixed.1[0], fixed.1[2]), (237, 0x70, 0));
    testbed.none(1, &[0x1b, 0, 0, 0, 0, 0]);
    assert_eq!(testbed.none(1, &[0; 6]).sense, Some((2, 4, 2)));
    assert_eq!(
        testbed.read(&cdb10(0x28, 0, 1), 512).0.sense,
        Some((2, 4, 2))
    );
    let descriptor = testbed.read(&[3, 1, 0, 0, 255, 0], 255).1;
    assert_eq!(descriptor[..4], [0x72, 2, 4, 2]);
    testbed.none(1, &[0x1b, 0, 0, 0, 1, 0]);
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
    for wrong in [
        [0x1b, 0, 0, 0, 0x10, 0],
        [0x1b, 0, 0, 0, 2, 0],
        [0x1b, 0, 0, 1, 1, 0],
    ] {
        assert_eq!(testbed.none(1, &wrong).sense, FIELD);
    }
    // A reset also starts the unit.
    testbed.none(1, &[0x1b, 0, 0, 0, 0, 0]);
    testbed.manage(1, Function::LunReset, 0);
    assert_eq!(testbed.none(1, &[0; 6]).sense, Some((6, 0x29, 3)));
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
}

#[test]
fn task_attributes() {
    let mut testbed = Testbed::logged_in();
    for (attribute, sense) in [
        (0, None),
        (1, None),
        (2, Some((5, 0x49, 0))),
        (4, Some((5, 0x49, 0))),
    ] {
        let mut iu = [0; 48];
        (iu[0], iu[15], iu[29]) = (2, 50 + attribute, attribute);
        testbed.message(1, &iu);
        assert_eq!(
            testbed
                .answer(50 + u64::from(attribute), 0, Direction::None)
                .sense,
            sense
        );
    }
}

#[test]
fn a_disk_that_is_read_only() {
    let mut testbed = Testbed::new(settings(), 1, true);
    testbed.login(1, &requested());
    testbed.none(1, &[0; 6]);
    let data = pattern(512, 1);
    for cdb in [
        cdb(0x0a, 0, 1),
        cdb(0x2a, 0, 1),
        cdb(0x8a, 0, 1),
        cdb(0xaa, 0, 1),
        cdb(0x41, 0, 1),
        cdb(0x93, 0, 1),
    ] {
        assert_eq!(testbed.write(&cdb, &data).sense, Some((7, 0x27, 0)));
    }
    assert_eq!(
        testbed
            .write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &data[..24])
            .sense,
        Some((7, 0x27, 0))
    );
    assert_eq!(testbed.none(1, &cdb(0x91, 0, 0)).status, 0);
    assert_eq!(testbed.read(&[0x1a, 0, 0x3f, 0, 4, 0], 4).1[2], 0x90);
    let mut read = cdb(0x28, 0, 1);
    read[1] = 8;
    assert_eq!(testbed.read(&read, 512).0.status, 0);
    assert_eq!(testbed.file(0, 1), [0; 512]);
}

#[test]
fn a_file_that_shrinks_is_a_medium_error() {
    let mut testbed = Testbed::logged_in();
    let file = std::fs::File::options()
        .write(true)
        .open(&testbed.files[0].0)
        .unwrap();
    file.set_len(512).unwrap();
    assert_eq!(testbed.read(&cdb10(0x28, 0, 1), 512).0.status, 0);
    let (answer, _) = testbed.read(&cdb10(0x28, 0, 2), 1024);
    assert_eq!((answer.sense, answer.resid), (Some((3, 0x11, 0)), 1024));
}

#[test]
fn a_transfer_beyond_the_limit() {
    let mut testbed = Testbed::logged_in();
    let file = std::fs::File::options()
        .write(true)
        .open(&testbed.files[0].0)
        .unwrap();
    file.set_len(32 << 20).unwrap();
    let units = vec![srp_target::scsi::Unit::new(
        srp_target::disk::Disk::open(&testbed.files[0].0, srp_target::store::Use::Shared).unwrap(),
        1,
    )
    .into()];
    testbed.target = srp_target::target::Target::new(settings(), units);
    testbed.login(1, &requested());
    testbed.none(1, &[0; 6]);
    for opcode in [0x88, 0x8a, 0x8f] {
        assert_eq!(testbed.none(1, &cdb(opcode, 0, 32769)).sense, FIELD);
    }
    assert_eq!(testbed.read(&cdb(0x88, 0, 32768), 16 << 20).0.status, 0);
}

#[test]
fn the_command_line() {
    let parse = |line: &str| Options::parse(line.split_whitespace().map(Into::into));
    let good = parse(
        "--lun a --lun b --listen [::1]:77 --id-ext 0xab --ioc-guid cd --read-only --queue-depth 9",
    )
    .unwrap();
    assert_eq!(
        (good.luns.len(), good.listen.port(), good.queue_depth),
        (2, 77, 9)
    );
    assert!(good.read_only && good.listen.is_ipv6());
    assert_eq!(good.port_id()[7..], [0xab, 0, 0, 0, 0, 0, 0, 0, 0xcd]);
    for (line, named) in [
        ("", "--lun"),
        ("--lun", "--lun has no value"),
        ("--lun a --speed 9", "--speed"),
        ("--lun a --listen here", "'here'"),
        ("--lun a --queue-depth 1", "--queue-depth: '1'"),
        ("--lun a --queue-depth 1025", "'1025'"),
        ("--lun a --channels 0", "--channels"),
        ("--lun a --threads x", "--threads"),
        ("--lun a --id-ext g", "--id-ext"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(named), "{line}: {error}");
    }
}

/// Each option of HELP is a key, and the example can be parsed.
#[test]
fn keys_are_options() {
    let options = HELP.lines().filter_map(|l| l.strip_prefix("  --"));
    let mut options: Vec<_> = options.filter_map(|l| l.split(' ').next()).collect();
    options.retain(|o| !["config", "check", "status"].contains(o));
    let keys: Vec<_> = SCHEMA[0].1.iter().map(|(name, _)| *name).collect();
    assert_eq!(keys[1..], options);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/srp-target.toml");
    let given = Given::take(vec!["--config".into(), file.into()], SCHEMA).unwrap();
    assert_eq!(Options::parse(given.args).unwrap().luns.len(), 2);
}
