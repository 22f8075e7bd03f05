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
fn each(mut with: impl FnMut(&'static Personality, &mut Rig) -> Result) -> Result {
    for personality in PERSONALITIES.iter().filter(|p| p.regions.pages > 0) {
        let mut rig = Rig::like(personality, 0, RC, 64, User::new)?;
        with(personality, &mut rig).inspect_err(|_| pr_err!("{} fails\n", personality.name))?;
    }
    Ok(())
}

/// Posts requests that cannot complete to both queues of `a`: receives are 0 to 2, sends 10 to 12.
fn wait_for_nothing(rig: &mut Rig) -> Result {
    rig.net.fabric.plug(FIRST, true);
    manager::activate(&rig.net.fabric)?;
    rig.again(&SLOW)?;
    rig.net.fabric.plug(FIRST, false);
    let lkey = rig.a.lkey();
    for n in 0..N {
        rig.a.recv(n, &[(0, 64, lkey)])?;
        rig.a.post(10 + n, Request::Send, &[(0, 64, lkey)])?;
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
fn flushed(rig: &Rig, order: FlushOrder) -> Result {
    for id in ids(order) {
        let wc = rig.a.wait()?;
        check_eq!((wc.id, wc.status), (id, Status::WR_FLUSH_ERR));
    }
    check!(rig.a.poll().is_none());
    Ok(())
}

/// Checks that the device reports the values of its table, and refuses more.
fn limits(personality: &Personality, rig: &Rig) -> Result {
    let seen = Seen::of(&rig.registrations[0]);
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
        registers: true,
    };
    check_eq!(seen, wanted);
    let refused = refusals(&rig.registrations[0], &rig.a, &seen);
    check_eq!(refused, [Some(EINVAL); 5]);
    Ok(())
}

/// Checks that data arrives.
fn data(rig: &mut Rig) -> Result {
    rig.again(&USUAL)?;
    exchange(rig, 1, 64)?;
    let (addr, key, len) = rig.lend(ALL)?;
    let lkey = rig.a.lkey();
    pattern(&mut rig.a.bytes()[..len], 5);
    rig.a
        .post(2, Request::Write(addr, key), &[(0, len, lkey)])?;
    check_eq!(rig.a.wait()?.status, Status::SUCCESS);
    for n in 0..len {
        let (sent, there) = (rig.a.bytes()[n], rig.b.bytes()[PAGE_SIZE + 100 + n]);
        check_eq!((n, there), (n, sent));
    }
    Ok(())
}

/// Sends a message that finds no receive request.
fn without_a_receive_request(personality: &Personality, rig: &mut Rig) -> Result {
    rig.again(&How {
        rnr_retries: 1,
        ..USUAL
    })?;
    let lkey = rig.a.lkey();
    rig.a.post(1, Request::Send, &[(0, 64, lkey)])?;
    let status = match personality.connections.rnr_retries {
        true => Status::RNR_RETRY_EXC_ERR,
        false => Status::REM_OP_ERR,
    };
    refused(rig.a.wait()?, status)
}

/// Checks LOCAL_INV of a region that is not registered.
fn free_regions(personality: &Personality, rig: &mut Rig) -> Result {
    for (other, fits) in [(0, FreeKeys::Same), (1, FreeKeys::Any)] {
        rig.again(&USUAL)?;
        rig.a.post(1, Request::Inv(rig.a.key() ^ other), &[])?;
        let free = personality.regions.free_keys;
        let fine = free == FreeKeys::Any || free == fits;
        let status = rig.a.wait()?.status;
        check_eq!(status == Status::SUCCESS, fine);
    }
    Ok(())
}

/// Registers a region at an address with other upper bits than its memory.
fn addresses(personality: &Personality, rig: &mut Rig) -> Result {
    rig.again(&USUAL)?;
    check_eq!(rig.a.describe(&[(100, 500)])?, 1);
    let iova = rig.a.iova() ^ 1 << 60;
    rig.a.set_iova(iova);
    rig.a.post(1, Request::Reg(rig.a.key(), ALL), &[])?;
    let status = rig.a.wait()?.status;
    let fine = personality.regions.iova == Iova::Any;
    check_eq!(status == Status::SUCCESS, fine);
    if fine {
        pattern(&mut rig.b.bytes()[..500], 3);
        let (key, lkey) = (rig.a.key(), rig.b.lkey());
        rig.b
            .post(2, Request::Write(iova, key), &[(0, 500, lkey)])?;
        check_eq!(rig.b.wait()?.status, Status::SUCCESS);
        check!(same(&rig.b.bytes()[..500], &rig.a.bytes()[100..600]));
    }
    Ok(())
}

/// Checks the effect of a reset on requests, verbs and events.
fn reset(personality: &Personality, rig: &mut Rig) -> Result {
    wait_for_nothing(rig)?;
    let hca = rig.hcas[0].clone();
    let outage = hca.manner().begin_reset();
    hca.goes(outage);
    let verbs = &outage.verbs;
    if outage.stops {
        if outage.flushed == Flushed::AtOnce {
            flushed(rig, personality.flush.order)?;
        }
        check_eq!(rig.a.recv(30, &[]).err(), verbs.post);
        check_eq!(rig.a.post(31, Request::Send, &[]).err(), verbs.post);
    }
    if outage.told.contains(&Told::QpFatal) {
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
        within(|| (rig.a.events() & told != 0).then_some(()))?;
    }
    // The move to the error state is refused this often, then succeeds.
    let refusals = verbs.stop.map_or(0, |_| verbs.stops.min(3));
    for _ in 0..refusals {
        check_eq!(rig.a.fail().err(), verbs.stop);
    }
    let stopped = rig.a.fail().is_ok();
    check_eq!(stopped, verbs.stop.is_none() || verbs.stops < 3);
    let comes = match outage.flushed {
        // All requests have been flushed, unless the last two posts were accepted.
        Flushed::AtOnce => verbs.post.is_none(),
        Flushed::WhenTried => true,
        Flushed::WhenStopped => stopped,
        Flushed::Never => false,
    };
    if comes {
        within(|| rig.a.poll())?;
    } else {
        fsleep(Delta::from_millis(30));
        check!(rig.a.poll().is_none());
    }
    let other = rig.a.change_region(bindings::ib_mr_type_IB_MR_TYPE_MEM_REG);
    check_eq!(other.err(), verbs.create);
    if verbs.dereg.is_some() {
        check_eq!(rig.a.deregister().err(), verbs.dereg);
    }
    hca.is_back();
    Ok(())
}

/// Checks the effect of a removal before the device is unregistered.
fn removal(personality: &Personality, rig: &mut Rig) -> Result {
    wait_for_nothing(rig)?;
    let hca = rig.hcas[0].clone();
    let outage = hca.manner().begin_removal().ok_or(EINVAL)?;
    hca.goes(outage);
    check!(hca.manner().begin_removal().is_none());
    if outage.stops && outage.flushed == Flushed::AtOnce {
        flushed(rig, personality.flush.order)?;
    }
    check_eq!(rig.a.fail().err(), outage.verbs.stop);
    hca.is_back();
    Ok(())
}

/// Checks the completions that a destroyed queue pair leaves.
fn purge(personality: &Personality, rig: &mut Rig) -> Result {
    rig.net.fabric.plug(FIRST, true);
    manager::activate(&rig.net.fabric)?;
    rig.again(&USUAL)?;
    rig.a.post(1, Request::Write(0, 0), &[])?;
    let hca = &rig.hcas[0];
    let qp = hca.qps().get(rig.a.num()).ok_or(ENOENT)?;
    hca.destroy_qp(&qp)?;
    check_eq!(rig.a.poll().is_none(), personality.purges);
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
        each(|personality, rig| {
            limits(personality, rig)?;
            data(rig)?;
            without_a_receive_request(personality, rig)?;
            free_regions(personality, rig)?;
            addresses(personality, rig)
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
        each(|personality, rig| {
            let Flush {
                order,
                pause,
                at_once,
            } = personality.flush;
            wait_for_nothing(rig)?;
            let began = Instant::<Monotonic>::now();
            rig.a.fail()?;
            flushed(rig, order)?;
            let pauses = if at_once == 1 { 6 } else { 1 };
            check!(began.elapsed() >= Delta::from_nanos(pauses * pause as i64));
            // Later posts are flushed, too.
            rig.a.post(20, Request::Write(0, 0), &[])?;
            check_eq!(rig.a.wait()?.id, 20);
            rig.a.recv(21, &[])?;
            check_eq!(rig.a.wait()?.id, 21);
            // A queue pair that fails by itself flushes like one that is moved to the error state.
            wait_for_nothing(rig)?;
            let qp = rig.hcas[0].qps().get(rig.a.num()).ok_or(ENOENT)?;
            qp.die();
            drop(qp);
            flushed(rig, order)?;
            if at_once == 1 {
                // Each completion has an interrupt.
                wait_for_nothing(rig)?;
                let before = rig.a.interrupts();
                check!(!rig.a.arm(false));
                rig.a.fail()?;
                within(|| (rig.a.interrupts() > before).then_some(()))?;
                check!(rig.a.poll().is_some());
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
        each(|personality, rig| {
            if !personality.drains {
                return Ok(());
            }
            for (receives, dead) in [(false, false), (true, false), (false, true), (true, true)] {
                rig.again(&USUAL)?;
                let (id, before) = (rig.a.counted_id(), rig.a.processed());
                let began = Instant::<Monotonic>::now();
                // The completion of the first request holds back all others.
                rig.order("delay 1 150")?;
                rig.a.post(id, Request::Write(0, 0), &[])?;
                for _ in 0..N {
                    rig.a.recv(id, &[])?;
                }
                let hca = rig.hcas[0].clone();
                if dead {
                    hca.goes(hca.manner().begin_reset());
                }
                rig.a.drain(receives)?;
                check!(began.elapsed() >= Delta::from_millis(150));
                let processed = rig.a.processed() - before;
                check!(processed >= if receives { 1 + N as u32 } else { 1 });
                hca.is_back();
                own += 1;
            }
            Ok(())
        })?;
        check!(own >= 12);
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
            let rig = Rig::like(personality, 0, UD, 64, User::new)?;
            rig.a.datagrams(QKEY)?;
            rig.b.datagrams(QKEY)?;
            let (a, b) = (rig.a.lkey(), rig.b.lkey());
            rig.a.recv(1, &[(0, 104, a)])?;
            rig.b.recv(1, &[(0, 104, b)])?;
            let hca = rig.hcas[0].clone();
            hca.goes(hca.manner().begin_reset());
            rig.a.datagram(2, rig.b.num(), QKEY, 0, 64)?;
            rig.b.datagram(1, rig.a.num(), QKEY, 0, 64)?;
            for user in [&rig.a, &rig.b] {
                check_eq!(user.wait()?.opcode, bindings::ib_wc_opcode_IB_WC_SEND);
                check!(user.poll().is_none());
            }
            hca.is_back();
            rig.a.datagram(2, rig.b.num(), QKEY, 0, 64)?;
            check_eq!(rig.b.wait()?.bytes, 104);
            datagrams += 1;
        }
        each(|personality, rig| {
            let outage = &personality.reset.outage;
            if !outage.stops || outage.verbs.modify.is_some() {
                return Ok(());
            }
            // The queue pair is in RESET when the device stops.
            let hca = rig.hcas[0].clone();
            hca.goes(hca.manner().begin_reset());
            rig.connect(&SLOW)?;
            let (a, b) = (rig.a.lkey(), rig.b.lkey());
            rig.a.recv(1, &[(0, 64, a)])?;
            rig.b.recv(1, &[(0, 64, b)])?;
            rig.a.post(2, Request::Send, &[(0, 64, a)])?;
            rig.b.post(2, Request::Send, &[(0, 64, b)])?;
            fsleep(Delta::from_millis(30));
            check!(rig.a.poll().is_none() && rig.b.poll().is_none());
            connections += 1;
            hca.is_back();
            Ok(())
        })?;
        check!(datagrams >= 10 && connections >= 3);
        Ok(())
    }

    #[test]
    fn ends() -> Result {
        each(|personality, rig| {
            reset(personality, rig)?;
            removal(personality, rig)?;
            purge(personality, rig)
        })
    }
}
