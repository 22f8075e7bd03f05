// SPDX-License-Identifier: GPL-2.0

//! The key of all memory is not valid in a protection domain of a process.

use super::*;

#[kunit_tests(vfab_process)]
mod cases {
    use super::*;

    /// Registers the first page of the memory of `a`.
    fn own_region(rig: &mut Rig) -> Result<u32> {
        check_eq!(rig.a.describe(&[(0, PAGE_SIZE)])?, 1);
        rig.a.post(80, Request::Reg(rig.a.key(), ALL), &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        Ok(rig.a.key())
    }

    #[test]
    fn no_key_of_all_memory() -> Result {
        let mut rig = Rig::made(bindings::ib_qp_type_IB_QPT_RC, 64, User::of_process)?;
        rig.connect(&USUAL)?;
        let all_memory = rig.a.lkey();
        // The key is valid in the domains of the kernel.
        check_eq!(all_memory, crate::vfab::memory::LOCAL_DMA_LKEY);
        let at = PAGE_SIZE + 100;
        let (addr, lent, _) = rig.lend(ALL)?;
        let own = own_region(&mut rig)?;
        pattern(&mut rig.a.bytes()[..64], 1);
        // Regions are valid in a process's domain.
        rig.b.recv(1, &[(at, 64, lent)])?;
        rig.a.post(2, Request::Send, &[(0, 64, own)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        check_eq!(rig.b.wait()?.status, Status::SUCCESS);
        check!(same(&rig.a.bytes()[..64], &rig.b.bytes()[at..at + 64]));
        // To send from, to write from, and to read to.
        for request in [
            Request::Send,
            Request::Write(addr, lent),
            Request::Read(addr, lent),
        ] {
            rig.again(&USUAL)?;
            rig.b.recv(3, &[(at, 64, lent)])?;
            pattern(&mut rig.a.bytes()[..64], 2);
            let before = rig.b.bytes()[at];
            rig.a.post(4, request, &[(0, 64, all_memory)])?;
            refused(rig.a.wait()?, Status::LOC_PROT_ERR)?;
            check!(rig.b.poll().is_none());
            check_eq!(rig.b.bytes()[at], before);
            check_eq!(rig.a.bytes()[1], 9);
        }
        // Receive with the key.
        rig.again(&USUAL)?;
        rig.b.recv(5, &[(8 * PAGE_SIZE, 64, all_memory)])?;
        rig.a.post(6, Request::Send, &[(0, 64, own)])?;
        refused(rig.a.wait()?, Status::REM_OP_ERR)?;
        refused(rig.b.wait()?, Status::LOC_PROT_ERR)?;
        check_eq!(rig.b.bytes()[8 * PAGE_SIZE + 1], 0);
        Ok(())
    }
}
