// SPDX-License-Identifier: GPL-2.0

//! One test vector for each message that the driver sends, written by hand from the tables of SRP
//! r16a.

mod common;

use common::hex;
use srp_host::proto::{
    cmd::{Cmd, DirectBuf, Direction, IMM_DATA_OFFSET},
    guid::{Gid, Guid, IoClass},
    ids::{Lun, PortId},
    login_iu::{it_iu_len, LoginReq, LoginReqRdma, MultiChannel, Requested},
    message::build_short,
    message_error::BuildError,
    opcode,
    tmf::{Function, TskMgmt, NO_TASK},
};

const TAG: u64 = 0x1122_3344_5566_7788;
const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0x10, 0, 0, 0, 8, 0];

fn cmd(cdb: &[u8]) -> Cmd<'_> {
    Cmd {
        tag: TAG,
        lun: Lun::from_int(3),
        cdb,
    }
}

fn requested(immediate: u32, multichannel: MultiChannel) -> Requested {
    Requested {
        tag: TAG,
        max_it_iu_len: it_iu_len(12, immediate, 0),
        descriptors: 12,
        immediate,
        multichannel,
        initiator: PortId::new(IoClass::Rev16a, 0, 0x0002_c903_0001_0002),
        target: PortId::new(IoClass::Rev16a, 0xabcd, 0x0002_c903_0001_0003),
    }
}

#[test]
fn login_req_ib() {
    let req = LoginReq::new(&requested(8192, MultiChannel::Single));
    assert_eq!(
        req.as_bytes(),
        hex("00 00000000000000 1122334455667788
             00002044 00000000 0006 80 00 0044 0000
             0000000000000000 0002c90300010002
             000000000000abcd 0002c90300010003")
    );
    let req = LoginReq::new(&requested(0, MultiChannel::Multi));
    assert_eq!(
        req.as_bytes(),
        hex("00 00000000000000 1122334455667788
             00000104 00000000 0006 01 00 0000 0000
             0000000000000000 0002c90300010002
             000000000000abcd 0002c90300010003")
    );
}

#[test]
fn login_req_rdma() {
    let req = LoginReqRdma::new(&requested(8192, MultiChannel::Multi));
    assert_eq!(
        req.as_bytes(),
        hex("1122334455667788 0006 81 00 00002044
             0000000000000000 0002c90300010002
             000000000000abcd 0002c90300010003
             0044 000000000000")
    );
}

#[test]
fn it_iu_lengths() {
    assert_eq!(it_iu_len(12, 8192, 0), 8260);
    assert_eq!(it_iu_len(12, 0, 0), 260);
    assert_eq!(it_iu_len(255, 512, 0), 68 + 16 * 255);
    assert_eq!(it_iu_len(12, 8192, 2116), 2116);
    assert_eq!(it_iu_len(12, u32::MAX, 0), u32::MAX);
    assert_eq!(it_iu_len(1, 0, 64), 64);
}

#[test]
fn cmd_without_data() {
    let mut iu = [0xee; 49];
    assert_eq!(cmd(&[0; 6]).build(&mut iu), Ok(48));
    assert_eq!(
        iu[..48],
        hex(
            "02 00 000000 00 00 00 1122334455667788 00000000 0003000000000000 00 00 00 00
             00000000000000000000000000000000"
        )
    );
    assert_eq!(iu[48], 0xee);
}

#[test]
fn cmd_direct() {
    let mut iu = [0xee; 65];
    let buf = DirectBuf::new(0xffff_8880_0102_0304, 0x0a0b_0c0d, 4096);
    assert_eq!(
        cmd(&READ_10).build_direct(&mut iu, Direction::FromDevice, &buf),
        Ok(64)
    );
    assert_eq!(
        iu[..64],
        hex(
            "02 00 000000 01 00 00 1122334455667788 00000000 0003000000000000 00 00 00 00
             28000000100000000800000000000000
             ffff888001020304 0a0b0c0d 00001000"
        )
    );
    assert_eq!(iu[64], 0xee);
    assert_eq!(
        cmd(&READ_10).build_direct(&mut iu, Direction::ToDevice, &buf),
        Ok(64)
    );
    assert_eq!(iu[5], 0x10);
    assert_eq!(
        (buf.va(), buf.key(), buf.len()),
        (0xffff_8880_0102_0304, 0x0a0b_0c0d, 4096)
    );
}

#[test]
fn cmd_indirect() {
    let mut iu = [0xee; 101];
    let list = [
        DirectBuf::new(0x1000, 7, 512),
        DirectBuf::new(0x3000, 8, 1024),
    ];
    let table = DirectBuf::new(0x9000, 9, 32);
    let len = cmd(&READ_10).build_indirect(&mut iu, Direction::ToDevice, &table, 1536, &list);
    assert_eq!(len, Ok(100));
    assert_eq!(
        iu[..100],
        hex(
            "02 00 000000 20 02 00 1122334455667788 00000000 0003000000000000 00 00 00 00
             28000000100000000800000000000000
             0000000000009000 00000009 00000020 00000600
             0000000000001000 00000007 00000200
             0000000000003000 00000008 00000400"
        )
    );
    assert_eq!(iu[100], 0xee);
    let len = cmd(&READ_10).build_indirect(&mut iu, Direction::FromDevice, &table, 1536, &list);
    assert_eq!((len, &iu[5..8]), (Ok(100), &[0x02, 0, 2][..]));
}

#[test]
fn cmd_immediate() {
    let mut iu = [0xee; 69];
    assert_eq!(
        cmd(&READ_10).build_immediate(&mut iu, 3),
        Ok(IMM_DATA_OFFSET)
    );
    assert_eq!(
        iu[..68],
        hex(
            "02 00 000000 30 00 00 1122334455667788 00000000 0003000000000000 00 00 00 00
             28000000100000000800000000000000
             00000003 00000000000000000000000000000000"
        )
    );
    assert_eq!(iu[68], 0xee);
}

#[test]
fn long_cdb() {
    let cdb: Vec<u8> = (1..=32).collect();
    let mut iu = [0xee; 128];
    assert_eq!(cmd(&cdb).build(&mut iu), Ok(64));
    assert_eq!((iu[31], &iu[32..64]), (16, &cdb[..]));
    // A CDB of 18 bytes is padded to 20.
    assert_eq!(cmd(&cdb[..18]).build(&mut iu), Ok(52));
    assert_eq!((iu[31], &iu[48..52]), (4, &[17, 18, 0, 0][..]));
    // The length of immediate data follows the CDB; the data stays at its offset.
    assert_eq!(cmd(&cdb).build_immediate(&mut iu, 4), Ok(IMM_DATA_OFFSET));
    assert_eq!(iu[64..68], [0, 0, 0, 4]);
}

#[test]
fn cmd_errors() {
    let mut iu = [0; 64];
    let buf = DirectBuf::default();
    let none: [DirectBuf; 0] = [];
    assert_eq!(cmd(&[]).build(&mut iu), Err(BuildError::Cdb(0)));
    assert_eq!(cmd(&[0; 33]).build(&mut iu), Err(BuildError::Cdb(33)));
    assert_eq!(
        cmd(&READ_10).build_direct(&mut iu, Direction::None, &buf),
        Err(BuildError::Data)
    );
    assert_eq!(
        cmd(&READ_10).build_indirect(&mut iu, Direction::ToDevice, &buf, 0, &none),
        Err(BuildError::Descriptors(0))
    );
    assert_eq!(
        cmd(&READ_10).build_indirect(&mut iu, Direction::ToDevice, &buf, 0, &vec![buf; 256]),
        Err(BuildError::Descriptors(256))
    );
    assert_eq!(
        cmd(&READ_10).build(&mut iu[..47]),
        Err(BuildError::NoSpace { need: 48, have: 47 })
    );
    assert_eq!(
        cmd(&READ_10).build_direct(&mut iu[..63], Direction::ToDevice, &buf),
        Err(BuildError::NoSpace { need: 64, have: 63 })
    );
    assert_eq!(
        cmd(&READ_10).build_immediate(&mut iu, 1),
        Err(BuildError::NoSpace {
            need: IMM_DATA_OFFSET,
            have: 64
        })
    );
}

#[test]
fn task_management() {
    let mut iu = [0xee; 49];
    let abort = TskMgmt {
        tag: 0x8001,
        lun: Lun::from_int(3),
        function: Function::AbortTask,
        task_tag: TAG,
    };
    assert_eq!(abort.build(&mut iu), Ok(48));
    assert_eq!(
        iu[..48],
        hex(
            "01 00 000000000000 0000000000008001 00000000 0003000000000000 0000 01 00
             1122334455667788 0000000000000000"
        )
    );
    assert_eq!(iu[48], 0xee);
    let reset = TskMgmt {
        function: Function::LunReset,
        task_tag: NO_TASK,
        ..abort
    };
    assert_eq!(reset.build(&mut iu), Ok(48));
    assert_eq!(
        (iu[30], &iu[32..40]),
        (8, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..])
    );
    assert_eq!(
        reset.build(&mut iu[..47]),
        Err(BuildError::NoSpace { need: 48, have: 47 })
    );
}

#[test]
fn short_messages() {
    let mut iu = [0xee; 17];
    for (opcode, byte) in [
        (opcode::CRED_RSP, 0x41),
        (opcode::AER_RSP, 0x42),
        (opcode::I_LOGOUT, 0x03),
    ] {
        assert_eq!(build_short(&mut iu, opcode, TAG), Ok(16));
        assert_eq!(iu[0], byte);
        assert_eq!(iu[1..16], hex("00000000000000 1122334455667788"));
        assert_eq!(iu[16], 0xee);
        assert_eq!(
            build_short(&mut iu[..15], opcode, TAG),
            Err(BuildError::NoSpace { need: 16, have: 15 })
        );
    }
}

#[test]
fn port_ids() {
    let (ext, guid) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
    assert_eq!(
        PortId::new(IoClass::Rev16a, ext, guid).to_string(),
        "01:02:03:04:05:06:07:08:11:12:13:14:15:16:17:18"
    );
    assert_eq!(
        PortId::new(IoClass::Rev10, ext, guid).0.to_vec(),
        hex("1112131415161718 0102030405060708")
    );
    assert_eq!(
        PortId::topspin(guid).0.to_vec(),
        hex("0000000000000000 1112131415161718")
    );
    assert!(Guid(0x0005_ad00_0000_0001).wants_topspin_workarounds());
    assert!(Guid(0x001b_0d00_0000_0001).wants_topspin_workarounds());
    assert!(!Guid(0x0002_c900_0000_0001).wants_topspin_workarounds());
    assert_eq!(Guid(0x2a).to_string(), "0x000000000000002a");
    assert_eq!(IoClass::new(0xff00), Some(IoClass::Rev10));
    assert_eq!(IoClass::new(0x0100), Some(IoClass::Rev16a));
    assert_eq!(IoClass::new(0x0101), None);
}

#[test]
fn gids_and_luns() {
    let gid = Gid(hex("fe80000000000000 0002c90300010002").try_into().unwrap());
    assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0002:c903:0001:0002");
    assert_eq!(gid.subnet_prefix(), 0xfe80 << 48);
    assert_eq!(gid.interface_id(), 0x0002_c903_0001_0002);
    // The example in the comment of int_to_scsilun().
    assert_eq!(
        Lun::from_int(0x0b03_d204).0.to_vec(),
        hex("d2040b0300000000")
    );
    assert_eq!(
        Lun::from_int(0x1234_5678_9abc_def0).0.to_vec(),
        hex("def09abc56781234")
    );
    // Both bytes of each level: the lowest level first, each with its upper byte first.
    for level in 0..4 {
        for (byte, at) in [(0, 1), (1, 0)] {
            for value in 0..=0xffu8 {
                let mut wire = [0; 8];
                wire[2 * level + at] = value;
                let lun = u64::from(value) << (16 * level + 8 * byte);
                assert_eq!(Lun::from_int(lun).0, wire);
                assert_eq!(Lun(wire).to_int(), lun);
            }
        }
    }
    for lun in [0, 1, 255, 0x4001, 0x1234_5678_9abc_def0, u64::MAX] {
        assert_eq!(Lun::from_int(lun).to_int(), lun);
    }
}
