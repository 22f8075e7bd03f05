// SPDX-License-Identifier: GPL-2.0

//! The flush of an RC queue pair in error: as [`Flush::SIMPLE`], or as the adapter's [`Flush`]
//! specifies, by a work item and a timer.

use super::{
    super::personality::{
        answered,
        Flush,
        Flushed,
        Manner,
        Order, //
    },
    Kind,
    Qp,
    State,
    FLUSH, //
};
use crate::provider::event;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Whether the device has stopped and does not flush by itself.
pub(super) fn freezes(manner: &Manner) -> bool {
    manner.is_dead() && manner.flushed() != Flushed::AtOnce
}

impl Qp {
    /// Whether this queue pair flushes as [`Flush::SIMPLE`] specifies.
    pub(super) fn flushes_simply(&self) -> bool {
        self.kind != Kind::Rc
            || self.manner.personality.flush == Flush::SIMPLE && !self.frozen.load(Relaxed)
    }

    /// Checks whether a request may be posted in `state`, in which the queue does not execute it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `state` precedes `least`, otherwise the error of a device that is out of
    /// service.
    #[cold]
    pub(super) fn may_post(&self, state: State, least: State) -> Result {
        if state < least {
            return Err(EINVAL);
        }
        if state == State::Err && !self.draining.load(Relaxed) {
            answered(self.manner.verbs().post)?;
        }
        Ok(())
    }

    /// Begins or ends a drain by the device. Returns whether the device has stopped.
    pub fn set_draining(&self, on: bool) -> bool {
        self.draining.store(on, Relaxed);
        self.manner.is_dead()
    }

    /// Handles a user's attempt to move the queue pair to the error state. `success` is whether the
    /// device permits the move, `flushed` the time at which the device flushes.
    pub fn was_told_to_stop(self: &Arc<Self>, flushed: Flushed, success: bool) {
        let thaws = match flushed {
            Flushed::AtOnce | Flushed::WhenTried => true,
            Flushed::WhenStopped => success,
            Flushed::Never => false,
        };
        if thaws && self.frozen.xchg(false, Full) {
            self.later(FLUSH);
        }
    }

    /// Handles a stop of the device. Posted requests are flushed, or stay until the queue pair is
    /// moved to the error state. Any context without the queue pair's locks.
    pub fn stops(self: &Arc<Self>) {
        if self.kind != Kind::Rc {
            return;
        }
        self.frozen.store(freezes(&self.manner), Relaxed);
        if self.state() != State::Reset {
            self.break_send();
            self.later(FLUSH);
        }
    }

    /// Whether this is an RC queue pair of a device that has stopped. Such a queue pair neither
    /// sends nor receives.
    pub(super) fn is_silent(&self) -> bool {
        self.kind == Kind::Rc && self.manner.is_dead()
    }

    /// Reports a fatal error of an RC queue pair that is not in RESET. Any context.
    pub fn tells_fatal(self: &Arc<Self>) {
        if self.kind == Kind::Rc && self.state() != State::Reset {
            self.later(super::bit(event::Kind::QP_FATAL));
        }
    }

    /// Begins to flush the posted requests. Sleeps.
    pub(super) fn flush(self: &Arc<Self>) {
        if self.flushes_simply() {
            let mut sq = self.sq.lock();
            return self.progress(&mut sq);
        }
        // The lock prevents a new connection of the queue pair meanwhile.
        let _changing = self.changing.lock();
        if self.state() == State::Err {
            // Stop a pending retry.
            self.timer.cancel();
            match self.manner.personality.flush.pause {
                0 => self.flush_some(),
                ns => self.timer.start(self.clone(), ns),
            }
        }
    }

    /// Flushes a batch and schedules the next one. Any context without the queue pair's locks.
    pub(super) fn flush_some(self: &Arc<Self>) {
        let Flush {
            order,
            pause,
            at_once,
        } = self.manner.personality.flush;
        let mut sq = self.sq.lock();
        for _ in 0..at_once {
            if self.state() != State::Err || self.frozen.load(Relaxed) {
                return;
            }
            let send = sq.is_pending();
            let mut rq = self.rq.lock();
            let receive = rq.room().is_some();
            let receive_first = match order {
                Order::ReceivesFirst => true,
                Order::SendsFirst => false,
                Order::Interleaved => sq.sent_last,
            };
            if receive && (receive_first || !send) {
                sq.sent_last = false;
                self.flush_receive(&mut rq);
            } else if send {
                // If the completion queue is full, `flush_send` takes the receive queue's lock.
                drop(rq);
                sq.sent_last = true;
                self.flush_send(&mut sq);
            } else {
                return;
            }
        }
        match pause {
            0 => self.later(FLUSH),
            ns => self.timer.start(self.clone(), ns),
        }
    }
}
