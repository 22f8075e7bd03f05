// SPDX-License-Identifier: GPL-2.0

//! Memory regions: each operation, each refused access.

use super::*;

/// Makes twelve remote accesses to memory of `b` that must be refused: wrong rights, key or address
/// range. Each must leave that memory unchanged.
pub(super) fn refusals(testbed: &mut Testbed, pieces: &[(usize, usize)]) -> Result {
    let lkey = testbed.a.lkey();
    let all_memory = testbed.b.lkey();
    let write = |addr, key| Request::Write(addr, key);
    let read = |addr, key| Request::Read(addr, key);
    for case in 0..12 {
        testbed.again(&if case == 9 {
            How {
                access: READ,
                ..USUAL
            }
        } else if case == 10 {
            How {
                access: WRITE,
                ..USUAL
            }
        } else {
            USUAL
        })?;
        let access = match case {
            0 => LOCAL | READ,
            1 => LOCAL | WRITE,
            _ => ALL,
        };
        let (addr, key, len) = testbed.lend_these(access, pieces)?;
        let end = addr + len as u64;
        let request = match case {
            0 => write(addr, key),
            1 => read(addr, key),
            2 => write(addr, key ^ 1),
            3 => write(addr, key ^ 0x100),
            4 => read(addr, key.wrapping_add(0x4000_0000)),
            5 => write(end - 31, key),
            6 => write(addr - 1, key),
            7 => read(end, key),
            8 => write(u64::MAX - 3, key),
            9 => write(addr, key),
            10 => read(addr, key),
            _ => write(testbed.b.addr(0), all_memory),
        };
        let before: usize = testbed.b.bytes().iter().map(|b| usize::from(*b)).sum();
        pattern(&mut testbed.a.bytes()[..32], case + 100);
        testbed.a.post(1, request, &[(0, 32, lkey)])?;
        refused(testbed.a.wait()?, Status::REM_ACCESS_ERR)?;
        let after: usize = testbed.b.bytes().iter().map(|b| usize::from(*b)).sum();
        check_eq!(before, after);
        // Both queue pairs are in error, and the responder gets an event.
        within(|| (testbed.b.queried() == Ok(6)).then_some(()))?;
        check_eq!(testbed.a.queried()?, 6);
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR;
        within(|| (testbed.b.events() & told != 0).then_some(()))?;
        testbed.b.reset()?;
        testbed.b.init(ALL)?;
        testbed.b.rtr(1, testbed.a.num(), 7, &USUAL)?;
        testbed.b.rts(7, &USUAL)?;
        testbed.b.post(91, Request::Inv(key), &[])?;
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
    }
    Ok(())
}

#[kunit_tests(vfab_regions)]
mod cases {
    use super::*;

    #[test]
    fn remote_memory() -> Result {
        let mut testbed = Testbed::new()?;
        let lkey = testbed.a.lkey();
        let (addr, key, len) = testbed.lend(ALL)?;
        pattern(&mut testbed.a.bytes()[..len], 1);
        testbed
            .a
            .post(1, Request::Write(addr, key), &[(0, len, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let at = PAGE_SIZE + 100;
        let end = at + len;
        let whole: usize = testbed.b.bytes()[at..end]
            .iter()
            .map(|b| usize::from(*b))
            .sum();
        let sent: usize = testbed.a.bytes()[..len]
            .iter()
            .map(|b| usize::from(*b))
            .sum();
        check_eq!(whole, sent);
        check_eq!(testbed.b.bytes()[at - 1], 0);
        check_eq!(testbed.b.bytes()[end], 0);
        // Read the data back, to three pieces elsewhere.
        let to = 8 * PAGE_SIZE;
        let pieces = [
            (to, 10, lkey),
            (to + 10, len - 20, lkey),
            (to + len - 10, 10, lkey),
        ];
        testbed.a.post(2, Request::Read(addr, key), &pieces)?;
        let wc = testbed.a.wait()?;
        check_eq!(wc.status, Status::SUCCESS);
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_RDMA_READ);
        for n in 0..len {
            if testbed.a.bytes()[n] != testbed.a.bytes()[to + n] {
                check_eq!(n, usize::MAX);
            }
        }
        // A write with immediate data, and a write of no bytes without a valid key.
        let b = testbed.b.lkey();
        testbed.b.recv(3, &[(0, 8, b)])?;
        testbed
            .a
            .post(4, Request::WriteImm(addr + 5, key, 77), &[(0, 5, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let wc = testbed.b.wait()?;
        check_eq!((wc.id, wc.ex, wc.bytes), (3, 77, 5));
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM);
        testbed.a.post(5, Request::Write(0, 0), &[])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        Ok(())
    }

    #[test]
    fn pages_in_any_order() -> Result {
        let mut testbed = Testbed::new()?;
        let lkey = testbed.a.lkey();
        // The first piece ends and the last begins at a page boundary, and the pieces are not
        // adjacent.
        let pieces = [
            (3 * PAGE_SIZE + 1000, PAGE_SIZE - 1000),
            (9 * PAGE_SIZE, PAGE_SIZE),
            (PAGE_SIZE, 500),
        ];
        check_eq!(testbed.b.describe(&pieces)?, 3);
        let key = testbed.b.key();
        testbed.b.post(1, Request::Reg(key, LOCAL | WRITE), &[])?;
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
        let len = 2 * PAGE_SIZE - 500;
        pattern(&mut testbed.a.bytes()[..len], 9);
        testbed
            .a
            .post(2, Request::Write(testbed.b.iova(), key), &[(0, len, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let mut n = 0;
        for (at, len) in pieces {
            for m in 0..len {
                if testbed.b.bytes()[at + m] != testbed.a.bytes()[n + m] {
                    check_eq!((at, m), (0, usize::MAX));
                }
            }
            n += len;
        }
        // A region of pages ends at a gap within a page.
        check_eq!(testbed.b.describe(&[(0, 100), (PAGE_SIZE, 100)])?, 1);
        let too_many: [(usize, usize); 1] = [(0, (PAGES as usize + 1) * PAGE_SIZE)];
        check!(testbed.b.describe(&too_many)? < 1);
        Ok(())
    }

    #[test]
    fn access_is_refused() -> Result {
        refusals(
            &mut Testbed::new()?,
            &[(PAGE_SIZE + 100, 3 * PAGE_SIZE - 100)],
        )
    }

    #[test]
    fn regions() -> Result {
        let mut testbed = Testbed::new()?;
        let lkey = testbed.a.lkey();
        let (addr, key, _) = testbed.lend(ALL)?;
        // A key is valid until it is invalidated.
        testbed.b.post(1, Request::Inv(key), &[])?;
        let wc = testbed.b.wait()?;
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_LOCAL_INV);
        check_eq!(wc.status, Status::SUCCESS);
        testbed
            .a
            .post(2, Request::Write(addr, key), &[(0, 8, lkey)])?;
        refused(testbed.a.wait()?, Status::REM_ACCESS_ERR)?;
        // Memory that is mapped later has no effect until it is registered.
        testbed.again(&USUAL)?;
        let (addr, key, len) = testbed.lend(ALL)?;
        check_eq!(testbed.b.describe(&[(8 * PAGE_SIZE, 10)])?, 1);
        testbed
            .a
            .post(3, Request::Write(addr, key), &[(0, len, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        // The peer's message invalidates the key.
        let b = testbed.b.lkey();
        testbed.b.recv(4, &[(0, 8, b)])?;
        testbed.a.post(5, Request::SendInv(key), &[(0, 8, lkey)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let wc = testbed.b.wait()?;
        check!(wc.flags & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as u32 != 0);
        check_eq!(wc.ex, key);
        for (n, request) in [
            // An invalidated key.
            Request::Inv(key),
            // The key of another region.
            Request::Reg(key ^ 0x100, ALL),
            // The key of no region.
            Request::Inv(0x7fff_ff00),
        ]
        .into_iter()
        .enumerate()
        {
            testbed.b.post(n as u64, request, &[])?;
            refused(testbed.b.wait()?, Status::MW_BIND_ERR)?;
            testbed.again(&USUAL)?;
        }
        // The region is valid already.
        testbed.b.post(6, Request::Reg(key, ALL), &[])?;
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
        testbed.b.post(7, Request::Reg(key, ALL), &[])?;
        refused(testbed.b.wait()?, Status::MW_BIND_ERR)?;
        // A message cannot invalidate a key that the receiver does not have.
        testbed.again(&USUAL)?;
        testbed.b.recv(8, &[(0, 8, b)])?;
        testbed
            .a
            .post(9, Request::SendInv(key ^ 3), &[(0, 8, lkey)])?;
        refused(testbed.a.wait()?, Status::REM_ACCESS_ERR)
    }

    #[test]
    fn own_memory_is_checked() -> Result {
        let mut testbed = Testbed::new()?;
        let b = testbed.b.lkey();
        // Send from memory with an invalid key.
        testbed.b.recv(1, &[(0, 64, b)])?;
        testbed.a.post(2, Request::Send, &[(0, 64, 0)])?;
        refused(testbed.a.wait()?, Status::LOC_PROT_ERR)?;
        check!(testbed.b.poll().is_none());
        // Receive with an invalid key.
        testbed.again(&USUAL)?;
        let a = testbed.a.lkey();
        testbed.b.recv(1, &[(0, 64, 0x100)])?;
        testbed.a.post(2, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::REM_OP_ERR)?;
        refused(testbed.b.wait()?, Status::LOC_PROT_ERR)?;
        // A receive into a read-only region is refused.
        testbed.again(&USUAL)?;
        let (_, key, _) = testbed.lend(READ)?;
        testbed.b.recv(1, &[(PAGE_SIZE + 100, 64, key)])?;
        testbed.a.post(2, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::REM_OP_ERR)?;
        refused(testbed.b.wait()?, Status::LOC_PROT_ERR)?;
        // An address without memory.
        testbed.again(&USUAL)?;
        testbed.b.recv(1, &[(0, 64, b)])?;
        testbed
            .a
            .post(2, Request::Send, &[(usize::MAX / 4, 64, a)])?;
        refused(testbed.a.wait()?, Status::LOC_PROT_ERR)
    }
}
