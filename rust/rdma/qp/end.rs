// SPDX-License-Identifier: GPL-2.0

//! How a queue pair ends, so that nothing reaches its memory any more.
//!
//! It goes to its error state and is drained: a request is posted in each queue, and comes out
//! last. A device that does not do its part is asked again. Drivers that reset a device by removing
//! it refuse this from some moment on, for good. So after a second, or at once if the device has
//! [failed](crate::rdma::device::Health), the next promise is taken:
//!
//! 1. The error state, and both queues are drained.
//! 2. The queue pair is destroyed, and each region that the peer may have a key of is given back.
//!    Not all drivers say when the device has not destroyed a queue pair; for regions they do. All
//!    other memory is that of [`Reach`](super::Reach).
//! 3. The queue pair is destroyed, and the device is being removed: its driver has stopped it, or
//!    does so.
//!
//! Memory is kept until one of them is given, without a deadline. Completions of a queue pair that
//! was destroyed with requests out may name what is gone in some drivers, so its completion queue
//! is stopped before.

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
        link::{
            say_kept,
            try_destroy,
            AGAIN, //
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

/// How long a request to drain with may take, in milliseconds. Then there is another one: some
/// drivers look for what is to be flushed only when something is posted.
const FLUSH_MS: Msecs = 1_000;
/// A device that is in order, as far as is known, may refuse so often. With the pauses that is a
/// second.
const REFUSALS: u32 = 3;
/// After so long the log has it.
const SAY: Delta = Delta::from_secs(5);
/// What completes may post something behind the requests of the first round. Nothing does after
/// those of the second.
pub(super) const ROUNDS: usize = 2;

/// A request to drain with has come out, however it ended.
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

/// One round: a request in each queue, or more of which the first counts.
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

/// How far a queue pair has come on its way to be drained.
#[derive(Default)]
struct Progress {
    stopped: bool,
    rounds: usize,
    /// More requests to drain with than one for each queue and round may be out.
    repeated: bool,
}

impl<H: Handler> Qp<H> {
    /// Has nothing reach its memory any more. Called with `connected` locked, which this is.
    /// Sleeps.
    pub(super) fn drain(&self, connected: &mut Connected) {
        if self.drained.load(Acquire) {
            return;
        }
        self.ending.store(true, Release);
        let health = self.pd.health();
        let (began, mut said) = (Instant::<Monotonic>::now(), false);
        let (mut progress, mut refusals) = (Progress::default(), 0);
        for flushes in &self.reach.flushes {
            for done in flushes.each() {
                done.store(false, Release);
            }
        }
        loop {
            let given = match connected.qp {
                Some(qp) if refusals < REFUSALS => self.flush(qp, &mut progress),
                _ => self.give_up(connected),
            };
            let Err(why) = given else { break };
            if connected.qp.is_none() && health.is_going() {
                if health.is_news() {
                    pr_err!(
                        "{}: memory regions are not given back (error {}); the device is being removed\n",
                        format_args!("{}", self.pd.device().name()),
                        why.to_errno()
                    );
                }
                break;
            }
            if !said && began.elapsed() >= SAY {
                say_kept(self.pd.device(), why);
                said = true;
            }
            refusals = match health.is_failed() {
                true => REFUSALS,
                false => refusals.saturating_add(1),
            };
            // A device that has failed is asked for the next promise at once.
            if refusals < REFUSALS || connected.retired.is_some() {
                fsleep(AGAIN);
            }
        }
        if progress.repeated {
            // What is still out must not be taken for a request of the next connection.
            let _ = self.stop_cq();
        }
        // In this order, see `Pd`.
        self.reach.regions.set_dead();
        self.drained.store(true, Release);
        self.pd.drained();
    }

    /// Destroys the queue pair, if that was not done, and gives back what the peer may have a key
    /// of. There are no callbacks any more. Called with `connected` locked, which this is. Sleeps.
    ///
    /// # Errors
    ///
    /// What the device driver says. The next call goes on from there.
    fn give_up(&self, connected: &mut Connected) -> Result {
        let hidden = self.hide(connected);
        self.stop_cq().wait();
        hidden.wait();
        if let Some(qp) = connected.qp {
            connected.link.release_qp();
            // SAFETY: By the type invariant of `Qp` nobody uses it a grace period after `qp` was
            // cleared; its identifier has let it go.
            unsafe { try_destroy(qp) }?;
            connected.qp = None;
        }
        // SAFETY: By the type invariant of `Qp` nobody has something bound a grace period after
        // `qp` was cleared, and nobody connects it while the caller has the lock.
        unsafe { self.reach.regions.revoke() }
    }

    /// Has nobody find the queue pair, after the grace period that this has begun once. Called with
    /// `connected` locked, which this is.
    pub(super) fn hide(&self, connected: &mut Connected) -> GracePeriod {
        self.qp.store(null_mut(), Release);
        *connected.retired.get_or_insert_with(GracePeriod::begin)
    }

    /// Moves the queue pair to its error state and drains both queues.
    ///
    /// # Errors
    ///
    /// What the device driver says, `ETIMEDOUT` if nothing comes out. It goes on from there the
    /// next time.
    fn flush(&self, qp: NonNull<bindings::ib_qp>, progress: &mut Progress) -> Result {
        if !progress.stopped {
            self.stop(qp)?;
            progress.stopped = true;
        }
        let mut repeated = progress.repeated;
        while let Some(flushes) = self.reach.flushes.get(progress.rounds) {
            // A place that is missing is free when others have been flushed. A driver that says no
            // may do it nevertheless.
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
        // SAFETY: The caller has it from `connected`, so it is valid.
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
        // SAFETY: The caller has it from `connected`, so it is valid; the completion is of `reach`.
        posted(unsafe { bindings::srp_helper_ib_post_send(qp.as_ptr(), &wr.wr, &mut bad) })
    }

    /// Posts a request without memory in the receive queue.
    fn post_receive(&self, qp: NonNull<bindings::ib_qp>, cqe: &Cqe<Flush>) -> Result {
        let mut wr = bindings::ib_recv_wr::default();
        set_receive_cookie(&mut wr, cqe.as_raw());
        let mut bad = core::ptr::null();
        // SAFETY: As for the send queue.
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

    /// It is not connected, or [`Self::shutdown`] has done its work.
    #[cfg(SRP_KUNIT)]
    pub fn is_shut_down(&self) -> bool {
        self.drained.load(Acquire)
    }
}
