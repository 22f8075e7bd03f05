// SPDX-License-Identifier: GPL-2.0

//! One connection of a session: slots, credits, setup and teardown.
//!
//! A command costs at most two doorbells: one for a chain of its registrations and its message
//! ([`submit`]), one for the invalidation ([`complete`]). A command ends when the target has
//! responded *and* can no longer reach the data. The fast path takes no lock, allocates nothing and
//! does not sleep; the state of a slot hands the slot from the submitter to the completion
//! callback. Setup, teardown and aborts may sleep, as their functions state.

mod answer_channel;
mod complete;
mod control;
mod counts;
mod recall;
mod requests;
mod submit;
mod task;
mod trace;

use super::{
    bounce::Piece,
    error::Lost,
    logic::send_queue::{
        RECEIVE_BATCH,
        RECEIVE_SIZE,
        REPLIES, //
    },
    proto::login_iu::Granted,
    slot::{
        Cell,
        Held,
        Slot, //
    },
    status::{
        Owner,
        Status, //
    }, //
};
use crate::{
    dma::DataDirection,
    errno::ENOTCONN,
    rdma::{
        cm::EventKind,
        dma::Pool,
        mr::Regions,
        pd::Pd,
        qp::{
            self,
            PollContext,
            Qp, //
        }, //
    },
    sync::{
        Completion,
        WaitQueue, //
    },
    trace::trace, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        rcu,
        Arc, //
    },
    time::Msecs, //
};

pub use counts::Counts;

use answer_channel::AnswerChannel;
use control::Control;
use requests::Replies;

// `Slots::receives()` includes the receives that wait to be posted again in a batch.
const _: () = assert!(qp::RECEIVE_BATCH == RECEIVE_BATCH as usize);

/// A queue pair with its channel.
pub type Connection = Qp<Channel>;

/// One connection of a session.
pub struct Channel {
    index: u16,
    /// The status of the session.
    status: Arc<Status>,
    owner: Arc<dyn Owner>,
    slots: KVVec<Cell>,
    counts: Counts,
    /// Maximum length of immediate data that the target accepts, in bytes.
    immediate: Atomic<u32>,
    /// Task management.
    task: Control,
    /// Woken when the state of `task` has changed.
    task_changed: Pin<KBox<WaitQueue>>,
    /// The probe, which tests whether the target is alive.
    probe: Control,
    /// The request of `task` that stands for the probe, see `Exchange::unanswered()`.
    stand_in: Atomic<u64>,
    /// Replies to requests of the target.
    replies: Replies,
    /// The login is done: a failure now ends the session's connection.
    open: Atomic<bool>,
    /// The current connection has failed.
    failed: Atomic<bool>,
    /// Completed when the logout has been sent or cannot be sent.
    logged_out: Pin<KBox<Completion>>,
    /// Completed when a slot that the error handler waits for may have become free.
    freed: Pin<KBox<Completion>>,
    /// Number of waiters on `freed`.
    waiters: Atomic<i32>,
    /// Set for an answer channel, which sends nothing and has no slots.
    answer_channel: Option<Arc<AnswerChannel>>,
}

impl Channel {
    /// Creates an unconnected channel, with all its memory. `status` is that of the session, and
    /// `owner` receives the events of the channel. Sleeps.
    ///
    /// With `answered` channels, this is an answer channel, which receives responses to their
    /// commands. `answered` lists all channels of the session by index, in the same protection
    /// domain; the index of the answer channel is higher.
    ///
    /// # Errors
    ///
    /// Those of memory allocation and of the device.
    pub fn new(
        status: &Arc<Status>,
        owner: &Arc<dyn Owner>,
        index: u16,
        pd: &Arc<Pd>,
        answered: &[Arc<Connection>],
    ) -> Result<Arc<Connection>> {
        let geometry = &status.geometry;
        let (mut slots, mut owner, mut answer_channel) = (geometry.slots, owner.clone(), None);
        let (receives, context) = match answered.len() {
            0 if geometry.is_polled(index.into()) => (slots.receives(), PollContext::Direct),
            0 => (slots.receives(), PollContext::Interrupt),
            first => {
                let number = usize::from(index).checked_sub(first).ok_or(EINVAL)?;
                let channel = AnswerChannel::new(number, owner, answered)?;
                owner = channel.clone();
                answer_channel = Some(channel);
                slots.depth = 0;
                (geometry.answer_receives(), PollContext::Interrupt)
            }
        };
        let depth = slots.depth as usize;
        let (regions, handles) = Regions::new(pd, depth, slots.regions as usize)?;
        let iu_len = geometry.message_len as usize;
        // One message for each slot, one for task management, one for the probe, and the rest for
        // replies to the target.
        let count = depth + 2 + REPLIES as usize;
        let (messages, mut chunks) = Pool::new(pd, count, iu_len, DataDirection::ToDevice)?;
        let task = Control::new(chunks.pop().ok_or(ENOMEM)?);
        let probe = Control::new(chunks.pop().ok_or(ENOMEM)?);
        let replies = Replies::new(&mut chunks)?;
        let (data, fixed, pieces) = match geometry.bounce() {
            (size, reach) if size > 0 && depth > 0 => {
                let (pool, fixed, pieces) = Piece::pool(pd, depth, size, reach)?;
                (Some(pool), fixed, pieces)
            }
            _ => (None, None, KVVec::new()),
        };
        let mut pieces = pieces.into_iter();
        let mut cells = KVVec::with_capacity(depth, GFP_KERNEL)?;
        for ((iu, handle), index) in chunks.into_iter().zip(handles).zip(0u16..) {
            let slot = Slot::new(index, iu, handle, pieces.next());
            cells.push(Cell::new(slot), GFP_KERNEL)?;
        }
        let (_, receive_chunks) = Pool::new(
            pd,
            receives as usize,
            RECEIVE_SIZE,
            DataDirection::FromDevice,
        )?;
        let channel = Self {
            index,
            status: status.clone(),
            owner,
            slots: cells,
            counts: Counts::new(),
            immediate: Atomic::new(0),
            task,
            task_changed: KBox::pin_init(WaitQueue::new(), GFP_KERNEL)?,
            probe,
            stand_in: Atomic::new(0),
            replies,
            open: Atomic::new(false),
            failed: Atomic::new(false),
            logged_out: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            freed: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            waiters: Atomic::new(0),
            answer_channel,
        };
        let sizes = qp::Sizes {
            send: slots.send_queue(),
            send_sge: if geometry.immediate > 0 { 2 } else { 1 },
            receive: receives,
            vector: geometry.vector(u32::from(index)),
            context,
            handles: depth,
        };
        let memory = qp::Memory {
            receives: receive_chunks,
            messages,
            data,
            regions,
            fixed,
        };
        Qp::new(pd, sizes, memory, channel)
    }

    /// The number of the SCSI host, for the trace events.
    pub fn host(&self) -> u32 {
        self.status.host()
    }

    /// Index of the channel: that of its hardware queue, or a higher one for an answer channel.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether commands may be sent.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Acquire)
    }

    /// Ends all commands of a connection that is shut down, and resets the channel. No thread may
    /// start to post.
    pub fn close(&self) {
        if self.open.xchg(false, Full) {
            trace!(channel(self.host(), self.index, false, self.credits()));
        }
        self.sweep();
        self.counts.credits.store(0, Relaxed);
        self.task.reset();
        self.task_changed.wake_all();
        self.probe.reset();
        self.replies.reset();
    }

    /// Prepares for a new connection. The caller has destroyed the last queue pair, which could
    /// report a failure until then.
    pub fn renew(&self) {
        self.failed.store(false, Relaxed);
    }

    /// Waits until the logout has been sent or the connection is lost, at most `timeout`
    /// milliseconds. Sleeps.
    pub fn end_log_out(&self, timeout: Msecs) {
        let _ = self.logged_out.wait_timeout(timeout);
    }

    /// Marks the connection as failed. If the login is done, the session loses its connection.
    #[cold]
    pub fn fail(&self, why: Lost) {
        let before = self.failed.xchg(true, Full);
        match why {
            _ if self.is_open() => self.owner.as_arc_borrow().fail(why),
            _ if why.is_strike() && !before => self.owner.strike(&why),
            _ => {}
        }
    }

    /// Number of commands of the channel that have ended, with or without a response, modulo 2^32.
    /// A command is counted before its slot becomes free.
    pub fn ended(&self) -> i32 {
        // CAST: Modulo 2^32.
        self.counts.ended() as i32
    }

    /// Number of unused credits; may be negative.
    pub fn credits(&self) -> i32 {
        self.counts.credits.load(Relaxed)
    }

    /// The counters since the login.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Connection {
    /// Opens the channel for commands, with the credits and limits that the target granted.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection has failed already, otherwise those of the device driver.
    pub fn open(&self, granted: &Granted) -> Result {
        // Register the fixed region before any message names it.
        self.live(&rcu::read_lock())?.register_fixed()?;
        // CAST: At most 65535. The target may have changed the credits already.
        if let Err(violation) = self.counts.give_credits(granted.req_lim as i32) {
            self.fail(Lost::Violation(violation));
        }
        if self.failed.load(Acquire) {
            return Err(ENOTCONN);
        }
        self.immediate.store(granted.immediate, Relaxed);
        // `fail()` sets `failed` and then tests `open`, so at least one function sees the other's
        // store. A command may have been sent by now, so end the session's connection.
        self.open.xchg(true, Full);
        trace!(channel(self.host(), self.index, true, self.credits()));
        if self.failed.load(Acquire) {
            self.owner
                .as_arc_borrow()
                .fail(Lost::Cm(EventKind::Disconnected));
            return Err(ENOTCONN);
        }
        Ok(())
    }
}
