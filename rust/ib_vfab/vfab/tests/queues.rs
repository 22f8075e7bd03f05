// SPDX-License-Identifier: GPL-2.0

//! Full queues, flushes, broken connections, states, faults, the subnet.

use super::*;
use crate::provider::Provider;

#[kunit_tests(vfab_queues)]
mod cases {
    use super::*;

    #[test]
    fn a_peer_is_not_there() -> Result {
        let mut testbed = Testbed::new()?;
        let a = testbed.a.lkey();
        testbed.net.fabric.plug(FIRST, false);
        let began = Instant::<Monotonic>::now();
        testbed.a.post(1, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::RETRY_EXC_ERR)?;
        // Two timeouts of 4.096 us * 2^12.
        check!(began.elapsed() >= Delta::from_millis(32));
        // The cable is back, and the port is active again.
        testbed.net.fabric.plug(FIRST, true);
        manager::activate(&testbed.net.fabric)?;
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 2, 64)?;
        // A connection with another initial PSN is another connection.
        testbed.again(&USUAL)?;
        testbed.b.reset()?;
        testbed.b.init(ALL)?;
        testbed.b.rtr(
            1,
            testbed.a.num(),
            PSN.0.wrapping_add(1) & 0xff_ffff,
            &USUAL,
        )?;
        testbed.a.reset()?;
        testbed.a.init(ALL)?;
        testbed.a.rtr(2, testbed.b.num(), 7, &USUAL)?;
        testbed.a.rts(5, &USUAL)?;
        let b = testbed.b.lkey();
        testbed.b.recv(1, &[(0, 64, b)])?;
        testbed.a.post(3, Request::Send, &[(0, 64, a)])?;
        check!(testbed.a.wait()?.status != Status::SUCCESS || testbed.b.poll().is_none());
        // A peer in the error state does not respond.
        testbed.again(&USUAL)?;
        testbed.b.fail()?;
        testbed.a.post(4, Request::Send, &[(0, 64, a)])?;
        refused(testbed.a.wait()?, Status::RETRY_EXC_ERR)
    }

    #[test]
    fn flushes() -> Result {
        let mut testbed = Testbed::new()?;
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        for n in 0..3 {
            testbed.a.recv(n, &[(0, 64, a)])?;
        }
        // The first send waits for a receive request.
        for n in 10..13 {
            testbed.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        testbed.a.fail()?;
        let mut seen = [false; 16];
        for _ in 0..6 {
            let wc = testbed.a.wait()?;
            check_eq!(wc.status, Status::WR_FLUSH_ERR);
            seen[wc.id as usize & 15] = true;
        }
        check_eq!(seen.iter().filter(|s| **s).count(), 6);
        // Later posts are flushed, too.
        testbed.a.post(14, Request::Write(0, 0), &[])?;
        testbed.a.recv(15, &[(0, 64, a)])?;
        check_eq!(testbed.a.wait()?.id, 14);
        check_eq!(testbed.a.wait()?.id, 15);
        check!(testbed.a.poll().is_none());
        // A reset leaves no completions.
        testbed.b.recv(1, &[(0, 64, b)])?;
        testbed.b.fail()?;
        testbed.b.reset()?;
        check!(testbed.b.poll().is_none());
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 2, 64)
    }

    #[test]
    fn states() -> Result {
        let testbed = Testbed::of(bindings::ib_qp_type_IB_QPT_RC, 64)?;
        let lkey = testbed.a.lkey();
        check_eq!(testbed.a.recv(1, &[(0, 8, lkey)]), Err(EINVAL));
        check_eq!(testbed.a.post(1, Request::Send, &[]), Err(EINVAL));
        check_eq!(
            testbed.a.state(bindings::ib_qp_state_IB_QPS_RTS),
            Err(EINVAL)
        );
        check_eq!(
            testbed.a.state(bindings::ib_qp_state_IB_QPS_INIT),
            Err(EINVAL)
        );
        testbed.a.init(ALL)?;
        check_eq!(testbed.a.post(1, Request::Send, &[]), Err(EINVAL));
        testbed.a.recv(1, &[(0, 8, lkey)])?;
        check_eq!(
            testbed.a.state(bindings::ib_qp_state_IB_QPS_RTR),
            Err(EINVAL)
        );
        testbed.a.rtr(2, testbed.b.num(), 0, &USUAL)?;
        check_eq!(testbed.a.post(1, Request::Send, &[]), Err(EINVAL));
        testbed.a.rts(0, &USUAL)?;
        check_eq!(testbed.a.queried()?, 3);
        check_eq!(testbed.a.init(ALL), Err(EINVAL));
        // There are too many SGEs.
        let pieces = [(0, 1, lkey); 4];
        check_eq!(testbed.a.post(1, Request::Send, &pieces), Err(EINVAL));
        check_eq!(testbed.a.recv(1, &pieces), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn queues_are_full() -> Result {
        let testbed = Testbed::new()?;
        let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
        for n in 0..u64::from(DEPTH) {
            testbed.b.recv(n, &[(0, 64, b)])?;
        }
        check_eq!(testbed.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        for n in 0..u64::from(DEPTH) {
            testbed.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        // All requests have completed, and no completion is polled.
        check_eq!(
            testbed.a.post(99, Request::Send, &[(0, 64, a)]),
            Err(ENOMEM)
        );
        check_eq!(testbed.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        check_eq!(testbed.a.wait()?.id, 0);
        check_eq!(testbed.b.wait()?.id, 0);
        testbed.b.recv(99, &[(0, 64, b)])?;
        testbed.a.post(99, Request::Send, &[(0, 64, a)])?;
        // A chain is accepted as far as it fits.
        while testbed.a.poll().is_some() {}
        check!(testbed
            .a
            .send(0, &[Request::Write(0, 0); 8], &[], 0)
            .1
            .is_ok());
        let (taken, result) = testbed.a.send(0, &[Request::Write(0, 0); 2], &[], 0);
        check_eq!((taken, result), (0, Err(ENOMEM)));
        Ok(())
    }

    #[test]
    fn too_many_completions() -> Result {
        let mut testbed = Testbed::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        testbed.connect(&USUAL)?;
        let requests = [Request::Write(0, 0); 6];
        let signaled = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        check_eq!(testbed.a.send(0, &requests, &[], signaled).0, 6);
        within(|| testbed.a.cq_event().then_some(()))?;
        check_eq!(testbed.a.queried()?, 6);
        testbed.a.drained()?;
        exchange_after(&mut testbed)
    }

    fn exchange_after(testbed: &mut Testbed) -> Result {
        testbed.again(&USUAL)?;
        exchange(testbed, 1, 64)
    }

    #[test]
    fn faults() -> Result {
        let mut testbed = Testbed::new()?;
        let a = testbed.a.lkey();
        let nop = Request::Write(0, 0);
        testbed.order("error 2 retries send")?;
        testbed.a.post(1, nop, &[])?;
        testbed.a.post(2, nop, &[])?;
        testbed.a.post(3, nop, &[])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        refused(testbed.a.wait()?, Status::RETRY_EXC_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        testbed.again(&USUAL)?;
        testbed.order("swallow 1")?;
        testbed.a.post(1, nop, &[])?;
        testbed.a.post(2, nop, &[])?;
        check_eq!(testbed.a.wait()?.id, 2);
        testbed.order("double 1")?;
        testbed.a.post(3, nop, &[])?;
        check_eq!(testbed.a.wait()?.id, 3);
        check_eq!(testbed.a.wait()?.id, 3);
        testbed.order("delay 1 30")?;
        let began = Instant::<Monotonic>::now();
        testbed.a.post(4, nop, &[])?;
        testbed.a.post(5, nop, &[])?;
        check!(testbed.a.poll().is_none());
        check_eq!(testbed.a.wait()?.id, 4);
        check!(began.elapsed() >= Delta::from_millis(30));
        check_eq!(testbed.a.wait()?.id, 5);
        testbed.order("post 3")?;
        check_eq!(testbed.a.send(6, &[nop; 4], &[], 0), (2, Err(ENOMEM)));
        // A lost request and a lost acknowledgement: both requests are retried, and arrive once.
        for text in ["loss 1", "ack 1"] {
            testbed.order(text)?;
            let began = Instant::<Monotonic>::now();
            exchange(&mut testbed, 7, 64)?;
            check!(began.elapsed() >= Delta::from_millis(16));
            check!(testbed.b.poll().is_none());
        }
        testbed.order("post-recv 1")?;
        check_eq!(testbed.a.recv(1, &[(0, 8, a)]), Err(ENOMEM));
        testbed.order("hang 1 20")?;
        let began = Instant::<Monotonic>::now();
        testbed.a.fail()?;
        check!(began.elapsed() >= Delta::from_millis(20));
        testbed.again(&USUAL)?;
        // A refused call has no effect.
        testbed.order("stop 1 110")?;
        check_eq!(testbed.a.fail(), Err(ETIMEDOUT));
        testbed.order("destroy 1 16")?;
        let hca = &testbed.hcas[0];
        let qp = hca.qps().get(testbed.a.num()).ok_or(ENOENT)?;
        check_eq!(hca.destroy_qp(&qp), Err(EBUSY));
        drop(qp);
        exchange(&mut testbed, 7, 64)?;
        check_eq!(testbed.a.describe(&[(0, 64)])?, 1);
        testbed.order("register 1")?;
        testbed.a.post(8, Request::Reg(testbed.a.key(), ALL), &[])?;
        refused(testbed.a.wait()?, Status::MW_BIND_ERR)?;
        testbed.again(&USUAL)?;
        testbed.order("death 1")?;
        testbed.a.post(9, nop, &[])?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
        within(|| (testbed.a.events() & told != 0).then_some(()))?;
        testbed.again(&USUAL)?;
        testbed.order("fail 1 response-timeout")?;
        testbed.a.post(10, nop, &[])?;
        refused(testbed.a.wait()?, Status::RESP_TIMEOUT_ERR)?;
        testbed.again(&USUAL)?;
        testbed.order("receive 1 local-length rdma")?;
        testbed.a.recv(11, &[(0, 8, a)])?;
        testbed.a.post(12, nop, &[])?;
        check_eq!(testbed.a.wait()?.id, 11);
        check_eq!(testbed.a.wait()?.id, 12);
        testbed.again(&USUAL)?;
        testbed.order("overrun 2 send")?;
        testbed.a.post(13, nop, &[])?;
        testbed.a.post(14, nop, &[])?;
        testbed.a.post(15, nop, &[])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        let wc = testbed.a.wait()?;
        check_eq!((wc.id, wc.status), (15, Status::WR_FLUSH_ERR));
        within(|| testbed.a.cq_event().then_some(()))?;
        // Each fault was counted once, and no other. The last five kinds do not concern
        // connections.
        check_eq!(testbed.hcas[0].faults().happened()[..16], [1; 16]);
        check_eq!(testbed.hcas[1].faults().happened(), [0; 21]);
        for bad in [
            "",
            "error",
            "error 1",
            "error 1 none",
            "error 1 success",
            "swallow 0",
            "lose 1",
            "swallow 1 x",
            "fail 1 map",
            "receive 1 now",
            "stop 1",
            "stop 1 0",
            "destroy 1 4096",
            "gmp-loss 1",
            "gmp-double 1 cm",
            "gmp-late 1 cm-rtu",
        ] {
            check_eq!(Order::parse(bad), Err(EINVAL));
        }
        for good in ["gmp-loss 1 cm-rtu", "gmp-late 2 cm-rep 3 4"] {
            check!(Order::parse(good).is_ok());
        }
        Ok(())
    }

    #[test]
    fn faults_of_some_requests() -> Result {
        let mut testbed = Testbed::new()?;
        let a = testbed.a.lkey();
        let key = testbed.a.key();
        let nop = Request::Write(0, 0);
        check_eq!(testbed.a.describe(&[(0, 64)])?, 1);
        // A request that fails is not executed, but earlier requests are: the key is not valid yet.
        testbed.order("fail 1 remote-operation reg-mr")?;
        testbed.a.post(1, nop, &[])?;
        check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
        testbed.a.post(2, Request::Reg(key, ALL), &[])?;
        refused(testbed.a.wait()?, Status::REM_OP_ERR)?;
        testbed.again(&USUAL)?;
        testbed.a.post(3, Request::Inv(key), &[])?;
        refused(testbed.a.wait()?, Status::MW_BIND_ERR)?;
        testbed.again(&USUAL)?;
        // A request with an error is executed, and has a completion although it is unsignaled.
        testbed.order("error 1 fatal reg-mr")?;
        check!(testbed
            .a
            .send(4, &[Request::Reg(key, ALL), nop], &[], 0)
            .1
            .is_ok());
        refused(testbed.a.wait()?, Status::FATAL_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        testbed.again(&USUAL)?;
        testbed.order("error 1 general local-inv")?;
        testbed.a.post(5, Request::Inv(key), &[])?;
        refused(testbed.a.wait()?, Status::GENERAL_ERR)?;
        testbed.again(&USUAL)?;
        testbed.a.post(6, Request::Inv(key), &[])?;
        refused(testbed.a.wait()?, Status::MW_BIND_ERR)?;
        testbed.again(&USUAL)?;
        // When memory is mapped, the next receive request completes, and all later ones are
        // flushed.
        testbed.order("receive 1 remote-abort map")?;
        for id in 7..10 {
            testbed.a.recv(id, &[(0, 8, a)])?;
        }
        testbed.a.post(10, nop, &[])?;
        check_eq!(testbed.a.wait()?.id, 10);
        check_eq!(testbed.a.describe(&[(0, 64)])?, 1);
        refused(testbed.a.wait()?, Status::REM_ABORT_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        testbed.a.post(11, nop, &[])?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        testbed.again(&USUAL)?;
        // Flushed requests may complete with another status. That has no other effect.
        for id in 12..15 {
            testbed.a.recv(id, &[(0, 8, a)])?;
        }
        testbed.order("error 2 bind flushed-recv")?;
        testbed.a.fail()?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        refused(testbed.a.wait()?, Status::MW_BIND_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        testbed.order("error 1 retries flushed-send")?;
        testbed.a.post(15, nop, &[])?;
        testbed.a.post(16, nop, &[])?;
        refused(testbed.a.wait()?, Status::RETRY_EXC_ERR)?;
        refused(testbed.a.wait()?, Status::WR_FLUSH_ERR)?;
        check!(testbed.a.poll().is_none());
        check_eq!(testbed.hcas[0].faults().happened()[..3], [4, 1, 1]);
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 17, 64)
    }

    #[test]
    fn a_subnet_is_managed() -> Result {
        let testbed = Testbed::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        check_eq!(testbed.registrations.len(), 2);
        let fabric = &testbed.net.fabric;
        let lids: [Option<u16>; 2] =
            [0, 1].map(|ca| fabric.look(PortId { ca, port: 1 }, |p| p.lid()));
        check_eq!(lids, [Some(1), Some(2)]);
        let other = PortId { ca: 1, port: 1 };
        check_eq!(fabric.route(FIRST, 2), Some(other));
        check_eq!(fabric.route(FIRST, 1), Some(FIRST));
        check_eq!(fabric.route(FIRST, 3), None);
        let before = fabric.generation();
        fabric.plug(other, false);
        check!(fabric.generation() != before);
        check_eq!(fabric.route(FIRST, 2), None);
        Ok(())
    }
}
