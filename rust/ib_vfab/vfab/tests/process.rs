// SPDX-License-Identifier: GPL-2.0

//! The key of all memory is not valid in a protection domain of a process.

use super::*;

#[kunit_tests(vfab_process)]
mod cases {
    use super::*;

    /// Registers the first page of the memory of `a`.
    fn own_region(testbed: &mut Testbed) -> Result<u32> {
        check_eq!(testbed.a.describe(&[(0, PAGE_SIZE)])?, 1);
        testbed
            .a
            .post(80, Request::Reg(testbed.a.key(), ALL), &[])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        Ok(testbed.a.key())
    }

    #[test]
    fn no_key_of_all_memory() -> Result {
        let mut testbed = Testbed::made(bindings::ib_qp_type_IB_QPT_RC, 64, User::of_process)?;
        testbed.connect(&USUAL)?;
        let all_memory = testbed.a.lkey();
        // The key is valid in the domains of the kernel.
        check_eq!(all_memory, crate::vfab::memory::LOCAL_DMA_LKEY);
        let at = PAGE_SIZE + 100;
        let (addr, lent, _) = testbed.lend(ALL)?;
        let own = own_region(&mut testbed)?;
        pattern(&mut testbed.a.bytes()[..64], 1);
        // Regions are valid in a process's domain.
        testbed.b.recv(1, &[(at, 64, lent)])?;
        testbed.a.post(2, Request::Send, &[(0, 64, own)])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
        check!(same(
            &testbed.a.bytes()[..64],
            &testbed.b.bytes()[at..at + 64]
        ));
        // To send from, to write from, and to read to.
        for request in [
            Request::Send,
            Request::Write(addr, lent),
            Request::Read(addr, lent),
        ] {
            testbed.again(&USUAL)?;
            testbed.b.recv(3, &[(at, 64, lent)])?;
            pattern(&mut testbed.a.bytes()[..64], 2);
            let before = testbed.b.bytes()[at];
            testbed.a.post(4, request, &[(0, 64, all_memory)])?;
            refused(testbed.a.wait()?, Status::LOC_PROT_ERR)?;
            check!(testbed.b.poll().is_none());
            check_eq!(testbed.b.bytes()[at], before);
            check_eq!(testbed.a.bytes()[1], 9);
        }
        // Receive with the key.
        testbed.again(&USUAL)?;
        testbed.b.recv(5, &[(8 * PAGE_SIZE, 64, all_memory)])?;
        testbed.a.post(6, Request::Send, &[(0, 64, own)])?;
        refused(testbed.a.wait()?, Status::REM_OP_ERR)?;
        refused(testbed.b.wait()?, Status::LOC_PROT_ERR)?;
        check_eq!(testbed.b.bytes()[8 * PAGE_SIZE + 1], 0);
        Ok(())
    }
}
