// SPDX-License-Identifier: GPL-2.0

//! A queue pair without interrupts.

use super::{
    check,
    check_eq,
    link::{
        Link,
        Record,
        Shape,
        SHAPE,
        WINDOW, //
    },
    peer::within,
    soft::Soft,
    suite, //
};
use crate::{
    dma::DataDirection,
    rdma::{
        qp::{
            PollContext,
            Qp, //
        }, //
    },
    sync::race::race, //
};
use core::net::Ipv4Addr;
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

const POLLED: Shape = Shape {
    ours: PollContext::Direct,
    ..SHAPE
};

fn link(soft: &Soft) -> Result<Link> {
    check!(soft.address != Ipv4Addr::UNSPECIFIED);
    Link::with(soft, &POLLED)
}

/// No callback runs until the queue is polled; then all of them run.
fn nothing_comes_by_itself(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    let qp = link.qp.clone();
    for round in 1..=3 {
        let before = link.record().received();
        link.peer.send_all(5, WINDOW, || before)?;
        link.peer.poll_until(|peer| peer.sent() >= 5 * round)?;
        fsleep(Delta::from_millis(30));
        check_eq!(link.record().received(), before);
        within(|| {
            qp.poll();
            qp.received() >= 5 * round
        })?;
        check_eq!(link.record().received(), 5 * round);
    }
    check_eq!(link.record().wrong(), 0);
    check_eq!(link.record().failed(), 0);
    Ok(())
}

fn invalidation_is_found(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    link.grant(0, soft.scattered(5)?, DataDirection::FromDevice)?;
    check!(link.invalidate(0)?);
    fsleep(Delta::from_millis(30));
    check!(link.take(0).is_err());
    let qp = link.qp.clone();
    within(|| {
        qp.poll();
        qp.count() >= 1
    })?;
    check!(link.take(0).is_ok());
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

/// The state shared by concurrent pollers.
struct Contest {
    qp: Arc<Qp<Record>>,
    wanted: Atomic<u32>,
    /// Number of completions found by all pollers together.
    found: Atomic<u32>,
}

impl Contest {
    fn new(link: &Link) -> Result<Arc<Self>> {
        let contest = Self {
            qp: link.qp.clone(),
            wanted: Atomic::new(0),
            found: Atomic::new(0),
        };
        Ok(Arc::new(contest, GFP_KERNEL)?)
    }
}

fn look(contest: &Contest) {
    let begin = Instant::<Monotonic>::now();
    while contest.qp.received() < contest.wanted.load(Relaxed)
        && begin.elapsed().as_millis() < 20_000
    {
        for _ in 0..100 {
            contest.found.fetch_add(contest.qp.poll(), Relaxed);
            cpu_relax();
        }
        // Lets messages arrive on a kernel without preemption.
        fsleep(Delta::from_micros(20));
    }
}

/// With several pollers, callbacks run one at a time and in order.
fn turns_are_taken(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    let contest = Contest::new(&link)?;
    for round in 1..=20 {
        let before = link.record().received();
        link.peer.send_all(WINDOW, WINDOW + 1, || before)?;
        contest.wanted.store(round * WINDOW, Relaxed);
        race(&contest, &[look, look, look])?;
        check_eq!(link.record().received(), round * WINDOW);
        // Polls the peer's completions, to free queue entries for the next round.
        link.peer.poll_until(|peer| peer.sent() >= round * WINDOW)?;
    }
    // `found` may include completions of our sends.
    check!(contest.found.load(Relaxed) >= 20 * WINDOW);
    check_eq!(link.record().wrong(), 0);
    check_eq!(link.record().failed(), 0);
    Ok(())
}

fn look_until_shut(contest: &Contest) {
    let begin = Instant::<Monotonic>::now();
    while !contest.qp.is_shut_down() && begin.elapsed().as_millis() < 20_000 {
        contest.qp.poll();
        fsleep(Delta::from_micros(20));
    }
}

fn shut(contest: &Contest) {
    contest.qp.shutdown();
}

/// A drain waits for its turn to poll.
fn shutdown_takes_its_turn(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    let contest = Contest::new(&link)?;
    for _ in 0..5 {
        let before = link.record().received();
        link.peer.send_all(WINDOW, WINDOW + 1, || before)?;
        link.grant(2, soft.scattered(3)?, DataDirection::FromDevice)?;
        check!(link.invalidate(2)?);
        race(&contest, &[look_until_shut, shut, look_until_shut])?;
        check!(link.qp.is_shut_down());
        check!(link.take(2).is_ok());
        link.qp.destroy();
        link.again(soft)?;
    }
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

/// A drain processes completions that were not polled, and the queue pair can be connected again.
fn shutdown_finds_the_rest(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for _ in 0..3 {
        link.grant(1, soft.scattered(3)?, DataDirection::FromDevice)?;
        check!(link.invalidate(1)?);
        link.send_control()?;
        link.qp.shutdown();
        check!(link.qp.is_shut_down());
        check!(link.take(1).is_ok());
        link.qp.destroy();
        check_eq!(link.qp.poll(), 0);
        link.again(soft)?;
    }
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr;)*) => {
        $(
            suite!($suite, $module, $kind, [
                nothing_comes_by_itself,
                invalidation_is_found,
                turns_are_taken,
                shutdown_takes_its_turn,
                shutdown_finds_the_rest,
            ]);
        )*
    };
}

suites!(
    srp_polled_rxe rxe crate::rdma::tests::soft::Kind::Rxe;
    srp_polled_siw siw crate::rdma::tests::soft::Kind::Siw;
);
