// SPDX-License-Identifier: GPL-2.0

//! Messages and datagrams, their completions and interrupts.

use super::*;

#[kunit_tests(vfab_messages)]
mod cases {
    use super::*;

    #[test]
    fn sends() -> Result {
        let mut testbed = Testbed::new()?;
        for (n, len) in [0, 1, 64, 4096, 12345, MEMORY].into_iter().enumerate() {
            exchange(&mut testbed, n as u64, len)?;
        }
        // Send three pieces to two.
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        pattern(&mut testbed.a.bytes()[..9000], 3);
        testbed.b.recv(1, &[(6000, 4001, b), (100, 4999, b)])?;
        let pieces = [(0, 1, a), (1, 5998, a), (5999, 3001, a)];
        testbed.a.post(2, Request::SendImm(0x1234_5678), &pieces)?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let wc = testbed.b.wait()?;
        check_eq!((wc.bytes, wc.ex), (9000, 0x1234_5678));
        check!(wc.flags & bindings::ib_wc_flags_IB_WC_WITH_IMM as u32 != 0);
        check_eq!(wc.src_qp, testbed.a.num());
        let (head, tail) = (6000, 100);
        for n in 0..9000 {
            let to = if n < 4001 { head + n } else { tail + n - 4001 };
            if testbed.a.bytes()[n] != testbed.b.bytes()[to] {
                check_eq!(n, usize::MAX);
            }
        }
        Ok(())
    }

    #[test]
    fn interrupts() -> Result {
        let mut testbed = Testbed::new()?;
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        let solicited = bindings::ib_send_flags_IB_SEND_SOLICITED as i32;
        check!(!testbed.b.arm(false));
        for n in 0..4 {
            testbed.b.recv(n, &[(0, 64, b)])?;
        }
        check_eq!(
            testbed.a.send(0, &[Request::Send; 2], &[(0, 64, a)], 0).0,
            2
        );
        within(|| (testbed.b.interrupts() > 0).then_some(()))?;
        // There is one interrupt until the queue is armed again; an unsignaled request has no
        // completion.
        check_eq!(testbed.b.interrupts(), 1);
        check!(testbed.a.poll().is_none());
        check!(testbed.b.arm(true));
        check_eq!(testbed.a.send(0, &[Request::Send], &[(0, 64, a)], 0).0, 1);
        kernel::time::delay::fsleep(Delta::from_millis(20));
        check_eq!(testbed.b.interrupts(), 1);
        check_eq!(
            testbed
                .a
                .send(0, &[Request::Send], &[(0, 64, a)], solicited)
                .0,
            1
        );
        within(|| (testbed.b.interrupts() == 2).then_some(()))?;
        for n in 0..4 {
            check_eq!(testbed.b.wait()?.id, n);
        }
        exchange(&mut testbed, 9, 100)
    }

    #[test]
    fn a_message_is_too_long() -> Result {
        let testbed = Testbed::new()?;
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        testbed.b.recv(1, &[(0, 63, b)])?;
        testbed.b.recv(2, &[(0, 63, b)])?;
        testbed.a.post(3, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::REM_INV_REQ_ERR)?;
        refused(testbed.b.wait()?, Status::LOC_LEN_ERR)?;
        refused(testbed.b.wait()?, Status::WR_FLUSH_ERR)
    }

    #[test]
    fn waits_for_a_receive() -> Result {
        let mut testbed = Testbed::new()?;
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        testbed.a.post(1, Request::Send, &[(0, 64, a)])?;
        testbed.a.post(2, Request::Send, &[(0, 64, a)])?;
        kernel::time::delay::fsleep(Delta::from_millis(5));
        check!(testbed.a.poll().is_none());
        testbed.b.recv(1, &[(0, 64, b)])?;
        testbed.b.recv(2, &[(0, 64, b)])?;
        check_eq!(testbed.a.wait()?.id, 1);
        check_eq!(testbed.a.wait()?.id, 2);
        check_eq!(testbed.b.wait()?.id, 1);
        check_eq!(testbed.b.wait()?.id, 2);
        // The number of retries is limited.
        let how = How {
            rnr_retries: 2,
            rnr_timer: 12,
            ..USUAL
        };
        testbed.again(&how)?;
        let began = Instant::<Monotonic>::now();
        testbed.a.post(3, Request::Send, &[(0, 64, a)])?;
        testbed.a.post(4, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::RNR_RETRY_EXC_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        // Two delays of 0.64 ms.
        check!(began.elapsed() >= Delta::from_micros(1280));
        Ok(())
    }

    #[test]
    fn connection_managers() -> Result {
        const CM: u8 = 7;
        const QKEY: u32 = 0x8001_0000;
        let mut testbed = Testbed::of(bindings::ib_qp_type_IB_QPT_UD, 64)?;
        testbed.a.datagrams(QKEY)?;
        testbed.b.datagrams(QKEY)?;
        let (b, num) = (testbed.b.lkey(), testbed.b.num());
        testbed.b.recv(1, &[(0, 296, b)])?;
        let end = testbed.hcas[1].end(1)?.clone();
        // A datagram to queue pair 1 reaches the manager if one is set and the class is CM.
        for (manager, class, comes) in [(0, CM, false), (num, CM + 1, false), (num, CM, true)] {
            end.set_manager(manager);
            testbed.a.bytes()[1] = class;
            testbed.a.datagram(2, 1, QKEY, 0, 256)?;
            check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
            let got = testbed.b.poll();
            check_eq!(got.is_some(), comes);
            check!(
                got.is_none_or(|wc| wc.id == 1 && wc.bytes == 296 && wc.src_qp == testbed.a.num())
            );
        }
        Ok(())
    }

    #[test]
    fn datagrams() -> Result {
        let mut testbed = Testbed::of(bindings::ib_qp_type_IB_QPT_UD, 64)?;
        testbed.a.datagrams(0x11)?;
        testbed.b.datagrams(0x22)?;
        let b = testbed.b.lkey();
        testbed.b.recv(1, &[(0, 4096 + 40, b)])?;
        pattern(&mut testbed.a.bytes()[..4096], 5);
        let to = testbed.b.num();
        // A wrong Q_Key, a wrong LID: the datagram is sent, but lost.
        testbed.a.datagram(2, to, 0x23, 0, 64)?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        testbed.a.datagram(7, to, 0x22, 0, 64)?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        check!(testbed.b.poll().is_none());
        testbed.a.datagram(2, to, 0x22, 0, 4096)?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let wc = testbed.b.wait()?;
        check_eq!((wc.id, wc.bytes, wc.src_qp), (1, 4136, testbed.a.num()));
        for n in 0..4096 {
            if testbed.a.bytes()[n] != testbed.b.bytes()[40 + n] {
                check_eq!(n, usize::MAX);
            }
        }
        // Without a receive request the datagram is lost.
        testbed.a.datagram(2, to, 0x22, 0, 64)?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        check!(testbed.b.poll().is_none());
        // A datagram is too long; the next one is flushed.
        testbed.a.datagram(2, to, 0x22, 0, 4097)?;
        refused(testbed.a.wait()?, Status::LOC_LEN_ERR)?;
        testbed.a.datagram(2, to, 0x22, 0, 64)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)
    }
}
