// SPDX-License-Identifier: GPL-2.0

//! Personalities: an adapter reports, flushes and ends as its table says.

use super::*;
use crate::{
    provider::{
        tests::{
            refusals,
            Seen, //
        },
        Provider, //
    },
    vfab::personality::{
        Flush,
        Flushed,
        FreeKeys,
        Iova,
        Order as FlushOrder,
        Told,
        PERSONALITIES, //
    }, //
};
use kernel::time::delay::fsleep;

/// Retries every 0.3 s, so that a request to a peer that is gone stays pending.
const SLOW: How = How {
    timeout: 16,
    retries: 7,
    ..USUAL
};
const RC: bindings::ib_qp_type = bindings::ib_qp_type_IB_QPT_RC;
const UD: bindings::ib_qp_type = bindings::ib_qp_type_IB_QPT_UD;
/// Number of requests in each queue.
const N: u64 = 3;

/// Calls `with` for each personality that supports REG_MR, with its own adapters.
fn each(mut with: impl FnMut(&'static Personality, &mut Testbed) -> Result) -> Result {
    for personality in PERSONALITIES.iter().filter(|p| p.regions.pages > 0) {
        let mut testbed = Testbed::like(personality, 0, RC, 64, User::new)?;
        with(personality, &mut testbed).inspect_err(|_| pr_err!("{} fails\n", personality.name))?;
    }
    Ok(())
}

/// Posts requests that cannot complete to both queues of `a`: receives are 0 to 2, sends 10 to 12.
fn wait_for_nothing(testbed: &mut Testbed) -> Result {
    testbed.net.fabric.plug(FIRST, true);
    manager::activate(&testbed.net.fabric)?;
    testbed.again(&SLOW)?;
    testbed.net.fabric.plug(FIRST, false);
    let lkey = testbed.a.lkey();
    for n in 0..N {
        testbed.a.recv(n, &[(0, 64, lkey)])?;
        testbed.a.post(10 + n, Request::Send, &[(0, 64, lkey)])?;
    }
    Ok(())
}

fn ids(order: FlushOrder) -> [u64; 6] {
    match order {
        FlushOrder::ReceivesFirst => [0, 1, 2, 10, 11, 12],
        FlushOrder::SendsFirst => [10, 11, 12, 0, 1, 2],
        FlushOrder::Interleaved => [10, 0, 11, 1, 12, 2],
    }
}

/// Checks that the posted requests are flushed in this order.
fn flushed(testbed: &Testbed, order: FlushOrder) -> Result {
    for id in ids(order) {
        let wc = testbed.a.wait()?;
        check_eq!((wc.id, wc.status), (id, Status::WR_FLUSH_ERR));
    }
    check!(testbed.a.poll().is_none());
    Ok(())
}

/// Checks that the device reports the values of its table, and refuses more.
fn limits(personality: &Personality, testbed: &Testbed) -> Result {
    let seen = Seen::of(&testbed.registrations[0]);
    let (limits, regions) = (personality.limits, personality.regions);
    // There may be fewer CPUs.
    let vectors = seen.vectors;
    check!((1..=limits.vectors).contains(&vectors));
    let wanted = Seen {
        driver: personality.driver,
        qp_wr: limits.qp_wr,
        send_sge: limits.send_sge,
        recv_sge: limits.recv_sge,
        read_sge: limits.read_sge,
        cqe: limits.cqe,
        pages: regions.pages,
        page_sizes: regions.page_sizes,
        gaps: regions.gaps,
        local_dma_lkey: regions.local_dma_lkey,
        vectors,
        drains: personality.drains,
        moderates: personality.moderates,
        registers: true,
    };
    check_eq!(seen, wanted);
    let refused = refusals(&testbed.registrations[0], &testbed.a, &seen);
    check_eq!(refused, [Some(EINVAL); 5]);
    Ok(())
}

/// Checks that data arrives.
fn data(testbed: &mut Testbed) -> Result {
    testbed.again(&USUAL)?;
    exchange(testbed, 1, 64)?;
    let (addr, key, len) = testbed.lend(ALL)?;
    let lkey = testbed.a.lkey();
    pattern(&mut testbed.a.bytes()[..len], 5);
    testbed
        .a
        .post(2, Request::Write(addr, key), &[(0, len, lkey)])?;
    check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
    for n in 0..len {
        let (sent, there) = (testbed.a.bytes()[n], testbed.b.bytes()[PAGE_SIZE + 100 + n]);
        check_eq!((n, there), (n, sent));
    }
    Ok(())
}

/// Sends a message that finds no receive request.
fn without_a_receive_request(personality: &Personality, testbed: &mut Testbed) -> Result {
    testbed.again(&How {
        rnr_retries: 1,
        ..USUAL
    })?;
    let lkey = testbed.a.lkey();
    testbed.a.post(1, Request::Send, &[(0, 64, lkey)])?;
    let status = match personality.connections.rnr_retries {
        true => Status::RNR_RETRY_EXC_ERR,
        false => Status::REM_OP_ERR,
    };
    refused(testbed.a.wait()?, status)
}

/// Checks LOCAL_INV of a region that is not registered.
fn free_regions(personality: &Personality, testbed: &mut Testbed) -> Result {
    for (other, fits) in [(0, FreeKeys::Same), (1, FreeKeys::Any)] {
        testbed.again(&USUAL)?;
        testbed
            .a
            .post(1, Request::Inv(testbed.a.key() ^ other), &[])?;
        let free = personality.regions.free_keys;
        let fine = free == FreeKeys::Any || free == fits;
        let status = testbed.a.wait()?.status;
        check_eq!(status == Status::SUCCESS, fine);
    }
    Ok(())
}

/// Registers a region at an address with other upper bits than its memory.
fn addresses(personality: &Personality, testbed: &mut Testbed) -> Result {
    testbed.again(&USUAL)?;
    check_eq!(testbed.a.describe(&[(100, 500)])?, 1);
    let iova = testbed.a.iova() ^ 1 << 60;
    testbed.a.set_iova(iova);
    testbed.a.post(1, Request::Reg(testbed.a.key(), ALL), &[])?;
    let status = testbed.a.wait()?.status;
    let fine = personality.regions.iova == Iova::Any;
    check_eq!(status == Status::SUCCESS, fine);
    if fine {
        pattern(&mut testbed.b.bytes()[..500], 3);
        let (key, lkey) = (testbed.a.key(), testbed.b.lkey());
        testbed
            .b
            .post(2, Request::Write(iova, key), &[(0, 500, lkey)])?;
        check_eq!(testbed.b.wait()?.status, Status::SUCCESS);
        check!(same(
            &testbed.b.bytes()[..500],
            &testbed.a.bytes()[100..600]
        ));
    }
    Ok(())
}

/// Describes memory from offsets into a piece on. hns takes multiples of 128.
fn offsets(personality: &Personality, testbed: &mut Testbed) -> Result {
    for offset in [0, 4, 128, 200, 256] {
        let taken = testbed.a.describe_from(&[(100, 500)], offset)?;
        let fine = personality.name != "hns" || offset % 128 == 0;
        check_eq!((offset, taken), (offset, i32::from(fine)));
    }
    Ok(())
}

/// Checks the effect of a reset on requests, verbs and events.
fn reset(personality: &Personality, testbed: &mut Testbed) -> Result {
    wait_for_nothing(testbed)?;
    let hca = testbed.hcas[0].clone();
    let outage = hca.manner().begin_reset();
    hca.goes(outage);
    let verbs = &outage.verbs;
    if outage.stops {
        if outage.flushed == Flushed::AtOnce {
            flushed(testbed, personality.flush.order)?;
        }
        check_eq!(testbed.a.recv(30, &[]).err(), verbs.post);
        check_eq!(testbed.a.post(31, Request::Send, &[]).err(), verbs.post);
    }
    if outage.told.contains(&Told::QpFatal) {
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
        within(|| (testbed.a.events() & told != 0).then_some(()))?;
    }
    // The move to the error state is refused this often, then succeeds.
    let refusals = verbs.stop.map_or(0, |_| verbs.stops.min(3));
    for _ in 0..refusals {
        check_eq!(testbed.a.fail().err(), verbs.stop);
    }
    let stopped = testbed.a.fail().is_ok();
    check_eq!(stopped, verbs.stop.is_none() || verbs.stops < 3);
    let comes = match outage.flushed {
        // All requests have been flushed, unless the last two posts were accepted.
        Flushed::AtOnce => verbs.post.is_none(),
        Flushed::WhenTried => true,
        Flushed::WhenStopped => stopped,
        Flushed::Never => false,
    };
    if comes {
        within(|| testbed.a.poll())?;
    } else {
        fsleep(Delta::from_millis(30));
        check!(testbed.a.poll().is_none());
    }
    let other = testbed
        .a
        .change_region(bindings::ib_mr_type_IB_MR_TYPE_MEM_REG);
    check_eq!(other.err(), verbs.create);
    if verbs.dereg.is_some() {
        check_eq!(testbed.a.deregister().err(), verbs.dereg);
    }
    hca.is_back();
    Ok(())
}

/// Checks the effect of a removal before the device is unregistered.
fn removal(personality: &Personality, testbed: &mut Testbed) -> Result {
    wait_for_nothing(testbed)?;
    let hca = testbed.hcas[0].clone();
    let outage = hca.manner().begin_removal().ok_or(EINVAL)?;
    hca.goes(outage);
    check!(hca.manner().begin_removal().is_none());
    if outage.stops && outage.flushed == Flushed::AtOnce {
        flushed(testbed, personality.flush.order)?;
    }
    check_eq!(testbed.a.fail().err(), outage.verbs.stop);
    hca.is_back();
    Ok(())
}

/// Checks the completions that a destroyed queue pair leaves.
fn purge(personality: &Personality, testbed: &mut Testbed) -> Result {
    testbed.net.fabric.plug(FIRST, true);
    manager::activate(&testbed.net.fabric)?;
    testbed.again(&USUAL)?;
    testbed.a.post(1, Request::Write(0, 0), &[])?;
    let hca = &testbed.hcas[0];
    let qp = hca.qps().get(testbed.a.num()).ok_or(ENOENT)?;
    hca.destroy_qp(&qp)?;
    check_eq!(testbed.a.poll().is_none(), personality.purges);
    Ok(())
}

#[kunit_tests(vfab_personalities)]
mod cases {
    use super::*;

    #[test]
    fn names() -> Result {
        for personality in PERSONALITIES {
            let found = Personality::named(personality.name)?;
            check!(core::ptr::eq(found, *personality));
        }
        check_eq!(Personality::named("mlx").err(), Some(EINVAL));
        check_eq!(Personality::named("").err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn verbs() -> Result {
        each(|personality, testbed| {
            limits(personality, testbed)?;
            data(testbed)?;
            without_a_receive_request(personality, testbed)?;
            free_regions(personality, testbed)?;
            addresses(personality, testbed)?;
            offsets(personality, testbed)
        })
    }

    #[test]
    fn no_regions() -> Result {
        let net = Net::run(Fabric::new(1, 1)?)?;
        let mut found = 0;
        for personality in PERSONALITIES.iter().filter(|p| p.regions.pages == 0) {
            let dma = DmaDevice::new(c"ib_vfab_test", 0, 64)?;
            let hca = Hca::attached(0, 1, true, false, personality, dma, (*net).clone())?;
            let guid = Fabric::guid(0);
            let device = Registration::new((*hca).clone(), c"vfabtest0", guid, 1, hca.dma())?;
            let seen = Seen::of(&device);
            check_eq!((seen.registers, seen.pages), (false, 0));
            found += 1;
        }
        check_eq!(found, 1);
        Ok(())
    }

    #[test]
    fn flushes() -> Result {
        let mut alone = 0;
        each(|personality, testbed| {
            let Flush {
                order,
                pause,
                at_once,
            } = personality.flush;
            wait_for_nothing(testbed)?;
            let began = Instant::<Monotonic>::now();
            testbed.a.fail()?;
            flushed(testbed, order)?;
            let pauses = if at_once == 1 { 6 } else { 1 };
            check!(began.elapsed() >= Delta::from_nanos(pauses * pause as i64));
            // Later posts are flushed, too.
            testbed.a.post(20, Request::Write(0, 0), &[])?;
            check_eq!(testbed.a.wait()?.id, 20);
            testbed.a.recv(21, &[])?;
            check_eq!(testbed.a.wait()?.id, 21);
            // A queue pair that fails by itself flushes like one that is moved to the error state.
            wait_for_nothing(testbed)?;
            let qp = testbed.hcas[0].qps().get(testbed.a.num()).ok_or(ENOENT)?;
            qp.die();
            drop(qp);
            flushed(testbed, order)?;
            if at_once == 1 {
                // Each completion has an interrupt.
                wait_for_nothing(testbed)?;
                let before = testbed.a.interrupts();
                check!(!testbed.a.arm(false));
                testbed.a.fail()?;
                within(|| (testbed.a.interrupts() > before).then_some(()))?;
                check!(testbed.a.poll().is_some());
                alone += 1;
            }
            Ok(())
        })?;
        check!(alone > 0);
        Ok(())
    }

    /// A device that drains queue pairs itself waits for all completions of the queue, however late
    /// they are, also after it has stopped.
    #[test]
    fn drains() -> Result {
        let mut own = 0;
        each(|personality, testbed| {
            if !personality.drains {
                return Ok(());
            }
            for (receives, dead) in [(false, false), (true, false), (false, true), (true, true)] {
                testbed.again(&USUAL)?;
                let (id, before) = (testbed.a.counted_id(), testbed.a.processed());
                let began = Instant::<Monotonic>::now();
                // The completion of the first request holds back all others.
                testbed.order("delay 1 150")?;
                testbed.a.post(id, Request::Write(0, 0), &[])?;
                for _ in 0..N {
                    testbed.a.recv(id, &[])?;
                }
                let hca = testbed.hcas[0].clone();
                if dead {
                    hca.goes(hca.manner().begin_reset());
                }
                testbed.a.drain(receives)?;
                check!(began.elapsed() >= Delta::from_millis(150));
                let processed = testbed.a.processed() - before;
                check!(processed >= if receives { 1 + N as u32 } else { 1 });
                hca.is_back();
                own += 1;
            }
            Ok(())
        })?;
        check!(own >= 12);
        Ok(())
    }

    /// A moderated interrupt is late, unless more completions follow.
    #[test]
    fn moderation() -> Result {
        const PERIOD: Delta = Delta::from_micros(u16::MAX as i64);
        let mut own = 0;
        each(|personality, testbed| {
            if testbed.a.moderate(2, u16::MAX).is_err() {
                check!(!personality.moderates);
                return Ok(());
            }
            let mut took = |requests: u64| -> Result<Delta> {
                testbed.again(&USUAL)?;
                let before = testbed.a.interrupts();
                let began = Instant::<Monotonic>::now();
                check!(!testbed.a.arm(false));
                for n in 0..requests {
                    testbed.a.post(n, Request::Write(0, 0), &[])?;
                }
                within(|| (testbed.a.interrupts() > before).then_some(()))?;
                let elapsed = began.elapsed();
                for n in 0..requests {
                    check_eq!(testbed.a.wait()?.id, n);
                }
                fsleep(PERIOD);
                check_eq!(testbed.a.interrupts(), before + 1);
                Ok(elapsed)
            };
            check!(took(1)? >= PERIOD);
            // This takes long only if the machine is slow.
            let mut tries = 0;
            while took(2)? >= PERIOD {
                tries += 1;
                check!(tries < 20);
            }
            own += 1;
            Ok(())
        })?;
        check_eq!(own, 1);
        Ok(())
    }

    /// A dead adapter neither sends nor receives, through any queue pair.
    #[test]
    fn silence() -> Result {
        const QKEY: u32 = 0x11;
        let (mut datagrams, mut connections) = (0, 0);
        for personality in PERSONALITIES {
            if !personality.reset.outage.stops || personality.regions.pages == 0 {
                continue;
            }
            let testbed = Testbed::like(personality, 0, UD, 64, User::new)?;
            testbed.a.datagrams(QKEY)?;
            testbed.b.datagrams(QKEY)?;
            let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
            testbed.a.recv(1, &[(0, 104, a)])?;
            testbed.b.recv(1, &[(0, 104, b)])?;
            let hca = testbed.hcas[0].clone();
            hca.goes(hca.manner().begin_reset());
            testbed.a.datagram(2, testbed.b.num(), QKEY, 0, 64)?;
            testbed.b.datagram(1, testbed.a.num(), QKEY, 0, 64)?;
            for user in [&testbed.a, &testbed.b] {
                check_eq!(user.wait()?.opcode, bindings::ib_wc_opcode_IB_WC_SEND);
                check!(user.poll().is_none());
            }
            hca.is_back();
            testbed.a.datagram(2, testbed.b.num(), QKEY, 0, 64)?;
            check_eq!(testbed.b.wait()?.bytes, 104);
            datagrams += 1;
        }
        each(|personality, testbed| {
            let outage = &personality.reset.outage;
            if !outage.stops || outage.verbs.modify.is_some() {
                return Ok(());
            }
            // The queue pair is in RESET when the device stops.
            let hca = testbed.hcas[0].clone();
            hca.goes(hca.manner().begin_reset());
            testbed.connect(&SLOW)?;
            let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
            testbed.a.recv(1, &[(0, 64, a)])?;
            testbed.b.recv(1, &[(0, 64, b)])?;
            testbed.a.post(2, Request::Send, &[(0, 64, a)])?;
            testbed.b.post(2, Request::Send, &[(0, 64, b)])?;
            fsleep(Delta::from_millis(30));
            check!(testbed.a.poll().is_none() && testbed.b.poll().is_none());
            connections += 1;
            hca.is_back();
            Ok(())
        })?;
        check!(datagrams >= 10 && connections >= 3);
        Ok(())
    }

    #[test]
    fn ends() -> Result {
        each(|personality, testbed| {
            reset(personality, testbed)?;
            removal(personality, testbed)?;
            purge(personality, testbed)
        })
    }
}
