// SPDX-License-Identifier: GPL-2.0

//! Regions of pieces that are not pages, and not adjacent.

use super::{
    regions::refusals,
    *, //
};
use crate::errno::EOPNOTSUPP;

const SG_GAPS: bindings::ib_mr_type = bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS;
/// Pieces within pages and across them, of one byte and of more than a page; the second begins
/// where the third ends.
const ODD: [(usize, usize); 6] = [
    (3 * PAGE_SIZE + 1001, 37),
    (9 * PAGE_SIZE + 4, 3),
    (9 * PAGE_SIZE - 10, 14),
    (PAGE_SIZE + 4095, 1),
    (11 * PAGE_SIZE - 5, 2 * PAGE_SIZE + 9),
    (5, 500),
];

#[kunit_tests(vfab_pieces)]
mod cases {
    use super::*;

    fn testbed() -> Result<Testbed> {
        let mut testbed = Testbed::new()?;
        testbed.b.change_region(SG_GAPS)?;
        Ok(testbed)
    }

    /// The offset in the memory of `b` of byte `at` of the pieces.
    fn place(mut at: usize) -> usize {
        for (from, len) in ODD {
            if at < len {
                return from + at;
            }
            at -= len;
        }
        usize::MAX
    }

    #[test]
    fn data_goes_to_its_piece() -> Result {
        let mut testbed = testbed()?;
        let lkey = testbed.a.lkey();
        let (addr, key, len) = testbed.lend_these(ALL, &ODD)?;
        check_eq!(addr, testbed.b.addr(ODD[0].0));
        // Memory that is mapped later has no effect until it is registered.
        check_eq!(testbed.b.describe(&[(0, 7), (MEMORY - 9, 9)])?, 2);
        // The whole region, single bytes at its ends, and parts that cross pieces.
        let parts = [(0, len), (0, 1), (36, 2), (len - 1, 1), (20, 36)];
        for (n, (from, len)) in parts.into_iter().enumerate() {
            testbed.b.bytes().fill(0xee);
            let source = &mut testbed.a.bytes()[..len];
            pattern(source, n);
            let to = addr + from as u64;
            testbed
                .a
                .post(1, Request::Write(to, key), &[(0, len, lkey)])?;
            check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
            for at in from..from + len {
                let (sent, there) = (testbed.a.bytes()[at - from], place(at));
                check_eq!((n, at, testbed.b.bytes()[there]), (n, at, sent));
                testbed.b.bytes()[there] = 0xee;
            }
            // No other byte has changed. Read the data back, to two pieces elsewhere.
            check!(testbed.b.bytes().iter().all(|byte| *byte == 0xee));
            for at in from..from + len {
                testbed.b.bytes()[place(at)] = (at * 5 + n) as u8;
            }
            let (half, back) = (len / 2, 8 * PAGE_SIZE + 3);
            let halves = [(back, half, lkey), (back + half, len - half, lkey)];
            testbed.a.post(2, Request::Read(to, key), &halves)?;
            check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
            for at in from..from + len {
                let read = testbed.a.bytes()[back + at - from];
                check_eq!((n, at, read), (n, at, (at * 5 + n) as u8));
            }
        }
        Ok(())
    }

    #[test]
    fn own_requests() -> Result {
        let mut testbed = testbed()?;
        let lkey = testbed.a.lkey();
        let (_, key, len) = testbed.lend_these(LOCAL, &ODD)?;
        pattern(&mut testbed.a.bytes()[..len], 4);
        // The region's addresses are contiguous from the address of its first byte.
        let first = ODD[0].0;
        testbed
            .b
            .recv(1, &[(first, 30, key), (first + 30, len - 30, key)])?;
        testbed.a.post(2, Request::Send, &[(0, len, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        check_eq!(testbed.b.wait()?.bytes, len as u32);
        for at in 0..len {
            let sent = testbed.a.bytes()[at];
            check_eq!((at, testbed.b.bytes()[place(at)]), (at, sent));
        }
        // A byte beyond the end.
        testbed.b.recv(3, &[(first + 1, len, key)])?;
        testbed.a.post(4, Request::Send, &[(0, len, lkey)])?;
        refused(testbed.a.wait()?, Status::REM_OP_ERR)?;
        refused(testbed.b.wait()?, Status::LOC_PROT_ERR)
    }

    #[test]
    fn access_is_refused() -> Result {
        refusals(&mut testbed()?, &ODD)
    }

    #[test]
    fn more_than_there_is_room_for() -> Result {
        let mut testbed = testbed()?;
        let lkey = testbed.a.lkey();
        let pieces: [(usize, usize); 12] = core::array::from_fn(|n| (n * PAGE_SIZE + n, 10));
        check_eq!(testbed.b.describe(&pieces)?, PAGES as i32);
        let key = testbed.b.key();
        testbed.b.post(1, Request::Reg(key, ALL), &[])?;
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
        check_eq!(testbed.hcas[1].registered(), (1, PAGES.into()));
        let (addr, len) = (testbed.b.iova(), 10 * PAGES as usize);
        testbed
            .a
            .post(2, Request::Write(addr, key), &[(0, len, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        testbed
            .a
            .post(3, Request::Write(addr, key), &[(0, len + 1, lkey)])?;
        refused(testbed.a.wait()?, Status::REM_ACCESS_ERR)
    }

    #[test]
    fn only_where_it_is_said() -> Result {
        let mut testbed = Testbed::new()?;
        check_eq!(testbed.a.change_region(SG_GAPS).err(), Some(EOPNOTSUPP));
        check!(testbed.a.describe(&ODD)? == 1);
        testbed.b.change_region(SG_GAPS)?;
        check_eq!(testbed.b.describe(&ODD)?, ODD.len() as i32);
        // The region is empty.
        check_eq!(testbed.b.describe(&[(0, 0)])?, 1);
        testbed.b.post(1, Request::Reg(testbed.b.key(), ALL), &[])?;
        refused(testbed.b.wait()?, Status::MW_BIND_ERR)
    }
}
