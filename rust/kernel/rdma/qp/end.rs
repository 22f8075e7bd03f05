// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair, after which nothing reaches its memory.
//!
//! The queue pair goes to its error state and is drained: the drain posts a request in each queue,
//! which completes last. A step that the device refuses or delays is retried. Drivers that reset a
//! device by removing it refuse every request from some point on. So after three refusals, or at
//! once if the device has [failed](crate::rdma::device::Health), the next guarantee of this list is
//! enough:
//!
//! 1. The queue pair is in its error state, and both queues are drained.
//! 2. The queue pair is destroyed, and each region that the peer may have a key of is deregistered.
//!    This is a guarantee only if the driver [reports](super::super::reports) the device's result
//!    for one of the two. Without the result for queue pairs, the memory of
//!    [`PostedMemory`](super::PostedMemory) stays until the device is removed, and no other
//!    connection uses it.
//! 3. The queue pair is destroyed, and the device is being removed: its driver has stopped it or is
//!    stopping it.
//!
//! Memory is kept until one of the guarantees holds, without a deadline. With some drivers,
//! completions of a queue pair that is destroyed with requests outstanding may name freed memory,
//! so its completion queue is stopped first.

use super::{
    cqe::{
        Completion,
        Cqe, //
    },
    Connected,
    Handler,
    Qp, //
};
use crate::{
    bindings,
    rdma::{
        cm_id::try_destroy,
        kept::{
            insist,
            say,
            AGAIN,
            QUEUE_PAIR, //
        },
        wr::{
            posted,
            request,
            set_receive_cookie, //
        }, //
    },
    sync::GracePeriod, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic,
        Msecs, //
    }, //
};

/// The time limit of a drain request, in milliseconds. After that, another one is posted: some
/// drivers look for requests to flush only at a post.
const FLUSH_MS: Msecs = 1_000;
/// Maximum number of refusals by a device without known failure: 1 s with the pauses.
const REFUSALS: u32 = 3;
/// Maximum number of late drains in the error state, which serves no peer: 30 s with the pauses.
/// For a device that has failed, `REFUSALS` applies.
const LATE: u32 = 20;
/// After this time the log reports the delay.
const SAY: Delta = Delta::from_secs(5);
/// Number of drain rounds. A callback may post behind the drain requests of the first round, but
/// not behind those of the second.
pub(super) const ROUNDS: usize = 2;

/// Whether a drain request has completed, with any status.
pub(super) struct Flush(Atomic<bool>);

impl<H: Handler> Completion<H> for Flush {
    const KIND: &'static str = "drain";

    fn done(cqe: &Cqe<Self>, qp: &Qp<H>, _: &bindings::ib_wc) {
        cqe.owner.0.store(true, Release);
        qp.flushed.wake_all();
    }

    fn failed(cqe: &Cqe<Self>, qp: &Qp<H>, wc: &bindings::ib_wc) {
        Self::done(cqe, qp, wc);
    }
}

/// The drain requests of one round: one or more per queue, of which the first to complete counts.
pub(super) struct Flushes {
    send: Cqe<Flush>,
    receive: Cqe<Flush>,
}

impl Flushes {
    pub(super) fn new<H: Handler>() -> Self {
        let cqe = || Cqe::new::<H>(Flush(Atomic::new(false)));
        Self {
            send: cqe(),
            receive: cqe(),
        }
    }

    fn each(&self) -> [&Atomic<bool>; 2] {
        [&self.send, &self.receive].map(|cqe| &cqe.owner.0)
    }

    fn is_done(&self) -> bool {
        self.each().iter().all(|done| done.load(Acquire))
    }
}

/// The progress of a drain.
#[derive(Default)]
struct Progress {
    stopped: bool,
    late: u32,
    rounds: usize,
    /// More than one drain request per queue and round may be outstanding.
    repeated: bool,
}

impl<H: Handler> Qp<H> {
    /// Drains the queue pair: nothing reaches its memory afterwards. Called with `Qp::connected`
    /// locked; `connected` is its value. Sleeps.
    pub(super) fn drain(&self, connected: &mut Connected) {
        if self.drained.load(Acquire) {
            return;
        }
        self.ending.store(true, Release);
        let health = self.pd.health();
        let (began, mut said) = (Instant::<Monotonic>::now(), false);
        let (mut progress, mut refusals) = (Progress::default(), 0);
        for flushes in &self.memory.flushes {
            for done in flushes.each() {
                done.store(false, Release);
            }
        }
        let reports = self.pd.device().reports();
        // Whether destroying the queue pair guarantees anything.
        let ends = || reports.queue_pairs || reports.regions || health.is_going();
        loop {
            let given = match connected.qp {
                Some(qp) if refusals < REFUSALS || !ends() => self.flush(qp, &mut progress),
                _ => self.give_up(connected),
            };
            let Err(why) = given else { break };
            if connected.qp.is_none() && health.is_going() {
                if health.is_news() {
                    self.say_going(why);
                }
                break;
            }
            if !said && began.elapsed() >= SAY {
                say(self.pd.device(), QUEUE_PAIR, why);
                said = true;
            }
            let patience = match health.is_failed() {
                true => REFUSALS,
                false => LATE,
            };
            let late = progress.stopped && matches!(why, ETIMEDOUT | ENOMEM);
            if late && progress.late < patience {
                progress.late += 1;
            } else if health.is_failed() {
                refusals = REFUSALS;
            } else {
                refusals = refusals.saturating_add(1);
            }
            // A device that has failed is asked for the next guarantee at once.
            if refusals < REFUSALS || !ends() || connected.retired.is_some() {
                fsleep(AGAIN);
            }
        }
        if progress.repeated {
            // A completion of an outstanding request must not reach the next connection.
            let _ = self.stop_cq();
        }
        // The order matters: `stale` of the `Pd` is raised before `active` is lowered.
        self.memory.regions.set_dead();
        self.drained.store(true, Release);
        self.pd.drained();
    }

    fn say_going(&self, why: Error) {
        pr_err!(
            "{}: memory regions not released by the device (error {}); it is being removed\n",
            format_args!("{}", self.pd.device().name()),
            why.to_errno()
        );
    }

    /// Destroys the queue pair, if not yet done, and deregisters each region that the peer may have
    /// a key of. No callback runs afterwards. Called with `Qp::connected` locked; `connected` is
    /// its value. Sleeps.
    ///
    /// # Errors
    ///
    /// The error of the device driver. The next call continues from there.
    fn give_up(&self, connected: &mut Connected) -> Result {
        let hidden = self.hide(connected);
        self.stop_cq().wait();
        hidden.wait();
        if let Some(qp) = connected.qp {
            connected.cm_id.release_qp();
            // SAFETY: By the invariant of `Qp` the queue pair is unused a grace period after
            // `Qp::qp` was cleared; its identifier has released it.
            unsafe { try_destroy(qp) }?;
            connected.qp = None;
            if !self.pd.device().reports().queue_pairs {
                self.forsaken.store(true, Release);
            }
        }
        // SAFETY: By the type invariant of `Qp` no `Bound` exists a grace period after `qp` was
        // cleared, and the caller's lock prevents a concurrent `connect`.
        unsafe { self.memory.regions.revoke() }
    }

    /// If the queue pair is forsaken, waits until the device is removed: until then, the memory
    /// that the queue pair may access is kept. Sleeps.
    pub(in crate::rdma) fn wait_going(&self) {
        insist(self.pd.device(), QUEUE_PAIR, || {
            match self.forsaken.load(Acquire) && !self.pd.health().is_going() {
                true => Err(EIO),
                false => Ok(()),
            }
        });
    }

    /// Hides the queue pair, which is unused after the returned grace period. The first call begins
    /// the grace period. Called with `Qp::connected` locked; `connected` is its value.
    pub(super) fn hide(&self, connected: &mut Connected) -> GracePeriod {
        self.qp.store(null_mut(), Release);
        *connected.retired.get_or_insert_with(GracePeriod::begin)
    }

    /// Moves the queue pair to its error state and drains both queues.
    ///
    /// # Errors
    ///
    /// The error of the device driver, `ETIMEDOUT` if a drain request does not complete. The next
    /// call continues from there.
    fn flush(&self, qp: NonNull<bindings::ib_qp>, progress: &mut Progress) -> Result {
        if !progress.stopped {
            self.stop(qp)?;
            progress.stopped = true;
        }
        let mut repeated = progress.repeated;
        while let Some(flushes) = self.memory.flushes.get(progress.rounds) {
            // A full queue has room once other requests have been flushed. A driver that returns an
            // error may have posted the request nevertheless.
            let sent = self.post_send(qp, &flushes.send);
            let received = self.post_receive(qp, &flushes.receive);
            repeated |= progress.repeated || sent.is_err() || received.is_err();
            progress.repeated = true;
            if let Err(e) = self.wait_flushed(flushes) {
                return sent.and(received).and(Err(e));
            }
            progress.rounds += 1;
            progress.repeated = repeated;
        }
        Ok(())
    }

    fn stop(&self, qp: NonNull<bindings::ib_qp>) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: `qp` is from `connected`, so it is valid.
        to_result(unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut attr, mask) })
    }

    /// Posts a request without memory in the send queue.
    fn post_send(&self, qp: NonNull<bindings::ib_qp>, cqe: &Cqe<Flush>) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        let flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let wr = bindings::ib_rdma_wr {
            wr: request(opcode, flags, cqe.as_raw()),
            ..Default::default()
        };
        let mut bad = core::ptr::null();
        // SAFETY: `qp` is from `connected`, so it is valid; `cqe` is in `memory`.
        posted(unsafe { bindings::srp_helper_ib_post_send(qp.as_ptr(), &wr.wr, &mut bad) })
    }

    /// Posts a request without memory in the receive queue.
    fn post_receive(&self, qp: NonNull<bindings::ib_qp>, cqe: &Cqe<Flush>) -> Result {
        let mut wr = bindings::ib_recv_wr::default();
        set_receive_cookie(&mut wr, cqe.as_raw());
        let mut bad = core::ptr::null();
        // SAFETY: `qp` is from `connected`, so it is valid; `cqe` is in `memory`.
        posted(unsafe { bindings::srp_helper_ib_post_recv(qp.as_ptr(), &wr, &mut bad) })
    }

    fn wait_flushed(&self, flushes: &Flushes) -> Result {
        if !self.is_polled() {
            return self.flushed.wait_timeout(FLUSH_MS, || flushes.is_done());
        }
        for _ in 0..FLUSH_MS {
            self.poll();
            if flushes.is_done() {
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        Err(ETIMEDOUT)
    }

    #[cfg(all(SRP_KUNIT, CONFIG_KUNIT))]
    pub(in crate::rdma) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.qp.load(Acquire)
    }

    /// Returns whether the queue pair is not connected, or is drained.
    #[cfg(SRP_KUNIT)]
    pub fn is_shut_down(&self) -> bool {
        self.drained.load(Acquire)
    }
}
