// SPDX-License-Identifier: GPL-2.0

//! Full queues, flushes, broken connections, states, faults, the subnet.

use super::*;
use crate::provider::Provider;

#[kunit_tests(vfab_queues)]
mod cases {
    use super::*;

    #[test]
    fn a_peer_is_not_there() -> Result {
        let mut rig = Rig::new()?;
        let a = rig.a.lkey();
        rig.net.fabric.plug(FIRST, false);
        let began = Instant::<Monotonic>::now();
        rig.a.post(1, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)?;
        // Two timeouts of 4.096 us * 2^12.
        check!(began.elapsed() >= Delta::from_millis(32));
        // The cable is back, and the port is active again.
        rig.net.fabric.plug(FIRST, true);
        manager::activate(&rig.net.fabric)?;
        rig.again(&USUAL)?;
        exchange(&mut rig, 2, 64)?;
        // A connection with another initial PSN is another connection.
        rig.again(&USUAL)?;
        rig.b.reset()?;
        rig.b.init(ALL)?;
        rig.b
            .rtr(1, rig.a.num(), PSN.0.wrapping_add(1) & 0xff_ffff, &USUAL)?;
        rig.a.reset()?;
        rig.a.init(ALL)?;
        rig.a.rtr(2, rig.b.num(), 7, &USUAL)?;
        rig.a.rts(5, &USUAL)?;
        let b = rig.b.lkey();
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.a.post(3, Request::Send, &[(0, 64, a)])?;
        check!(rig.a.wait()?.status != Status::SUCCESS || rig.b.poll().is_none());
        // A peer in the error state does not respond.
        rig.again(&USUAL)?;
        rig.b.fail()?;
        rig.a.post(4, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)
    }

    #[test]
    fn flushes() -> Result {
        let mut rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        for n in 0..3 {
            rig.a.recv(n, &[(0, 64, a)])?;
        }
        // The first send waits for a receive request.
        for n in 10..13 {
            rig.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        rig.a.fail()?;
        let mut seen = [false; 16];
        for _ in 0..6 {
            let wc = rig.a.wait()?;
            check_eq!(wc.status, Status::WR_FLUSH_ERR);
            seen[wc.id as usize & 15] = true;
        }
        check_eq!(seen.iter().filter(|s| **s).count(), 6);
        // Later posts are flushed, too.
        rig.a.post(14, Request::Write(0, 0), &[])?;
        rig.a.recv(15, &[(0, 64, a)])?;
        check_eq!(rig.a.wait()?.id, 14);
        check_eq!(rig.a.wait()?.id, 15);
        check!(rig.a.poll().is_none());
        // A reset leaves no completions.
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.b.fail()?;
        rig.b.reset()?;
        check!(rig.b.poll().is_none());
        rig.again(&USUAL)?;
        exchange(&mut rig, 2, 64)
    }

    #[test]
    fn states() -> Result {
        let rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 64)?;
        let lkey = rig.a.lkey();
        check_eq!(rig.a.recv(1, &[(0, 8, lkey)]), Err(EINVAL));
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_RTS), Err(EINVAL));
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_INIT), Err(EINVAL));
        rig.a.init(ALL)?;
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        rig.a.recv(1, &[(0, 8, lkey)])?;
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_RTR), Err(EINVAL));
        rig.a.rtr(2, rig.b.num(), 0, &USUAL)?;
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        rig.a.rts(0, &USUAL)?;
        check_eq!(rig.a.queried()?, 3);
        check_eq!(rig.a.init(ALL), Err(EINVAL));
        // There are too many SGEs.
        let pieces = [(0, 1, lkey); 4];
        check_eq!(rig.a.post(1, Request::Send, &pieces), Err(EINVAL));
        check_eq!(rig.a.recv(1, &pieces), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn queues_are_full() -> Result {
        let rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        for n in 0..u64::from(DEPTH) {
            rig.b.recv(n, &[(0, 64, b)])?;
        }
        check_eq!(rig.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        for n in 0..u64::from(DEPTH) {
            rig.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        // All requests are done, but not polled.
        check_eq!(rig.a.post(99, Request::Send, &[(0, 64, a)]), Err(ENOMEM));
        check_eq!(rig.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        check_eq!(rig.a.wait()?.id, 0);
        check_eq!(rig.b.wait()?.id, 0);
        rig.b.recv(99, &[(0, 64, b)])?;
        rig.a.post(99, Request::Send, &[(0, 64, a)])?;
        // A chain is accepted as far as it fits.
        while rig.a.poll().is_some() {}
        check!(rig.a.send(0, &[Request::Write(0, 0); 8], &[], 0).1.is_ok());
        let (taken, result) = rig.a.send(0, &[Request::Write(0, 0); 2], &[], 0);
        check_eq!((taken, result), (0, Err(ENOMEM)));
        Ok(())
    }

    #[test]
    fn too_many_completions() -> Result {
        let mut rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        rig.connect(&USUAL)?;
        let requests = [Request::Write(0, 0); 6];
        let signaled = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        check_eq!(rig.a.send(0, &requests, &[], signaled).0, 6);
        within(|| rig.a.cq_event().then_some(()))?;
        check_eq!(rig.a.queried()?, 6);
        rig.a.drained()?;
        exchange_after(&mut rig)
    }

    fn exchange_after(rig: &mut Rig) -> Result {
        rig.again(&USUAL)?;
        exchange(rig, 1, 64)
    }

    #[test]
    fn faults() -> Result {
        let mut rig = Rig::new()?;
        let a = rig.a.lkey();
        let nop = Request::Write(0, 0);
        rig.order("error 2 retries send")?;
        rig.a.post(1, nop, &[])?;
        rig.a.post(2, nop, &[])?;
        rig.a.post(3, nop, &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.again(&USUAL)?;
        rig.order("swallow 1")?;
        rig.a.post(1, nop, &[])?;
        rig.a.post(2, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 2);
        rig.order("double 1")?;
        rig.a.post(3, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 3);
        check_eq!(rig.a.wait()?.id, 3);
        rig.order("delay 1 30")?;
        let began = Instant::<Monotonic>::now();
        rig.a.post(4, nop, &[])?;
        rig.a.post(5, nop, &[])?;
        check!(rig.a.poll().is_none());
        check_eq!(rig.a.wait()?.id, 4);
        check!(began.elapsed() >= Delta::from_millis(30));
        check_eq!(rig.a.wait()?.id, 5);
        rig.order("post 3")?;
        check_eq!(rig.a.send(6, &[nop; 4], &[], 0), (2, Err(ENOMEM)));
        // A lost request and a lost acknowledgement: both requests are retried, and arrive once.
        for text in ["loss 1", "ack 1"] {
            rig.order(text)?;
            let began = Instant::<Monotonic>::now();
            exchange(&mut rig, 7, 64)?;
            check!(began.elapsed() >= Delta::from_millis(16));
            check!(rig.b.poll().is_none());
        }
        rig.order("post-recv 1")?;
        check_eq!(rig.a.recv(1, &[(0, 8, a)]), Err(ENOMEM));
        rig.order("hang 1 20")?;
        let began = Instant::<Monotonic>::now();
        rig.a.fail()?;
        check!(began.elapsed() >= Delta::from_millis(20));
        rig.again(&USUAL)?;
        // A refused call has no effect.
        rig.order("stop 1 110")?;
        check_eq!(rig.a.fail(), Err(ETIMEDOUT));
        rig.order("destroy 1 16")?;
        let hca = &rig.hcas[0];
        let qp = hca.qps().get(rig.a.num()).ok_or(ENOENT)?;
        check_eq!(hca.destroy_qp(&qp), Err(EBUSY));
        drop(qp);
        exchange(&mut rig, 7, 64)?;
        check_eq!(rig.a.describe(&[(0, 64)])?, 1);
        rig.order("register 1")?;
        rig.a.post(8, Request::Reg(rig.a.key(), ALL), &[])?;
        refused(rig.a.wait()?, Status::MW_BIND_ERR)?;
        rig.again(&USUAL)?;
        rig.order("death 1")?;
        rig.a.post(9, nop, &[])?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
        within(|| (rig.a.events() & told != 0).then_some(()))?;
        rig.again(&USUAL)?;
        rig.order("fail 1 response-timeout")?;
        rig.a.post(10, nop, &[])?;
        refused(rig.a.wait()?, Status::RESP_TIMEOUT_ERR)?;
        rig.again(&USUAL)?;
        rig.order("receive 1 local-length rdma")?;
        rig.a.recv(11, &[(0, 8, a)])?;
        rig.a.post(12, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 11);
        check_eq!(rig.a.wait()?.id, 12);
        rig.again(&USUAL)?;
        rig.order("overrun 2 send")?;
        rig.a.post(13, nop, &[])?;
        rig.a.post(14, nop, &[])?;
        rig.a.post(15, nop, &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let wc = rig.a.wait()?;
        check_eq!((wc.id, wc.status), (15, Status::WR_FLUSH_ERR));
        within(|| rig.a.cq_event().then_some(()))?;
        // Each fault was counted once, and no other. The last five kinds do not concern
        // connections.
        check_eq!(rig.hcas[0].faults().happened()[..16], [1; 16]);
        check_eq!(rig.hcas[1].faults().happened(), [0; 21]);
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
        let mut rig = Rig::new()?;
        let a = rig.a.lkey();
        let key = rig.a.key();
        let nop = Request::Write(0, 0);
        check_eq!(rig.a.describe(&[(0, 64)])?, 1);
        // A request that fails is not executed, but earlier requests are: the key is not valid yet.
        rig.order("fail 1 remote-operation reg-mr")?;
        rig.a.post(1, nop, &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        rig.a.post(2, Request::Reg(key, ALL), &[])?;
        refused(rig.a.wait()?, Status::REM_OP_ERR)?;
        rig.again(&USUAL)?;
        rig.a.post(3, Request::Inv(key), &[])?;
        refused(rig.a.wait()?, Status::MW_BIND_ERR)?;
        rig.again(&USUAL)?;
        // A request with an error is executed, and has a completion although it is unsignaled.
        rig.order("error 1 fatal reg-mr")?;
        check!(rig
            .a
            .send(4, &[Request::Reg(key, ALL), nop], &[], 0)
            .1
            .is_ok());
        refused(rig.a.wait()?, Status::FATAL_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.again(&USUAL)?;
        rig.order("error 1 general local-inv")?;
        rig.a.post(5, Request::Inv(key), &[])?;
        refused(rig.a.wait()?, Status::GENERAL_ERR)?;
        rig.again(&USUAL)?;
        rig.a.post(6, Request::Inv(key), &[])?;
        refused(rig.a.wait()?, Status::MW_BIND_ERR)?;
        rig.again(&USUAL)?;
        // When memory is mapped, the next receive request completes, and all later ones are
        // flushed.
        rig.order("receive 1 remote-abort map")?;
        for id in 7..10 {
            rig.a.recv(id, &[(0, 8, a)])?;
        }
        rig.a.post(10, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 10);
        check_eq!(rig.a.describe(&[(0, 64)])?, 1);
        refused(rig.a.wait()?, Status::REM_ABORT_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.a.post(11, nop, &[])?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.again(&USUAL)?;
        // Flushed requests may complete with another status. That has no other effect.
        for id in 12..15 {
            rig.a.recv(id, &[(0, 8, a)])?;
        }
        rig.order("error 2 bind flushed-recv")?;
        rig.a.fail()?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        refused(rig.a.wait()?, Status::MW_BIND_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.order("error 1 retries flushed-send")?;
        rig.a.post(15, nop, &[])?;
        rig.a.post(16, nop, &[])?;
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        check!(rig.a.poll().is_none());
        check_eq!(rig.hcas[0].faults().happened()[..3], [4, 1, 1]);
        rig.again(&USUAL)?;
        exchange(&mut rig, 17, 64)
    }

    #[test]
    fn a_subnet_is_managed() -> Result {
        let rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        check_eq!(rig.registrations.len(), 2);
        let fabric = &rig.net.fabric;
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
