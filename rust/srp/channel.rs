// SPDX-License-Identifier: GPL-2.0

//! One connection of a session: its slots, its credits, and what is done with each message.
//!
//! A command costs one doorbell to send, with the registration of its data before the message in the
//! same chain, and one to invalidate. It ends when the target has answered *and* cannot reach the
//! data any more. The way of a command takes no lock, allocates nothing and does not sleep; a slot passes
//! from the submitter to the completion callback by its state. What makes a channel, ends it or takes
//! commands back may sleep, and says so.

mod counts;
mod incoming;
mod recall;
mod rejected;
mod starving;

use super::{
    error::{
        Lost,
        Violation, //
    },
    geometry::RECEIVE_SIZE,
    logic::{
        credit,
        registration,
        send_queue::ANSWERS,
        slot::{
            Event,
            State, //
        },
        tag::Tag, //
    },
    mapping,
    probe::Probe,
    proto::{
        ids::Lun,
        login::Granted, //
    },
    session::Session,
    slot::{
        Cell,
        Held,
        Owner,
        Slot, //
    },
    task::Task,
    trace, //
};
use crate::{
    errno::ENOTCONN,
    rdma::{
        bounce::Bounce,
        cm::EventKind,
        dma::{
            self,
            Pool, //
        },
        mr::Regions,
        pd::Pd,
        qp::{
            self,
            Failure,
            Qp, //
        },
        wc::Flags, //
    },
    scsi::{
        self,
        Command,
        Rejected,
        ScsiResult, //
    },
    sync::Completion,
    sys::random_u16,
    trace::trace,
    workqueue::Crew, //
};
use incoming::Replies;
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

/// A queue pair with its channel.
pub type Connection = Qp<Channel>;

/// One connection of a session.
pub struct Channel {
    index: u16,
    session: Arc<Session>,
    slots: KVVec<Cell>,
    counts: Counts,
    starving: starving::Watch,
    /// Bytes of immediate data that the target takes.
    immediate: Atomic<u32>,
    /// Task management.
    pub task: Task,
    /// Signs of life.
    pub probe: Probe,
    /// Answers to requests of the target.
    replies: Replies,
    /// The login is done; before that the end of the connection is not that of the session.
    open: Atomic<bool>,
    /// The present connection is of no more use.
    failed: Atomic<bool>,
    /// The logout has been sent.
    logged_out: Pin<KBox<Completion>>,
    /// A slot that the error handler waits for may have become free.
    settled: Pin<KBox<Completion>>,
    /// How many wait for that.
    waiters: Atomic<i32>,
}

impl Channel {
    /// Makes a channel with all its memory, not connected yet. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of memory and of the device.
    pub fn new(session: &Arc<Session>, index: u16, pd: &Arc<Pd>) -> Result<Arc<Connection>> {
        let geometry = &session.geometry;
        let depth = geometry.sizes.depth as usize;
        let per_slot = geometry.sizes.regions as usize;
        let (regions, handles) = Regions::new(pd, &geometry.device, depth, per_slot)?;
        let iu_len = geometry.message_len as usize;
        // One message for each slot, one for task management, one for signs of life, the others to
        // answer the target.
        let count = depth + 2 + ANSWERS as usize;
        let (messages, mut chunks) = Pool::new(pd, count, iu_len, dma::Direction::ToDevice)?;
        let task = Task::new(chunks.pop().ok_or(ENOMEM)?)?;
        let probe = Probe::new(chunks.pop().ok_or(ENOMEM)?);
        let replies = Replies::new(&mut chunks)?;
        let (bounce, pieces) = match geometry.bounce() {
            (0, _) => (None, KVVec::new()),
            (size, reach) => {
                let (bounce, pieces) = Bounce::new(pd, &geometry.device, depth, size, reach)?;
                (Some(bounce), pieces)
            }
        };
        let mut pieces = pieces.into_iter();
        let mut slots = KVVec::with_capacity(depth, GFP_KERNEL)?;
        for ((iu, handle), index) in chunks.into_iter().zip(handles).zip(0u16..) {
            let slot = Slot::new(index, iu, handle, pieces.next());
            slots.push(Cell::new(slot), GFP_KERNEL)?;
        }
        let receives = geometry.sizes.receives();
        let (_, receive_chunks) = Pool::new(
            pd,
            receives as usize,
            RECEIVE_SIZE,
            dma::Direction::FromDevice,
        )?;
        let channel = Self {
            index,
            session: session.clone(),
            slots,
            counts: Counts::new(),
            starving: starving::Watch::new(),
            immediate: Atomic::new(0),
            task,
            probe,
            replies,
            open: Atomic::new(false),
            failed: Atomic::new(false),
            logged_out: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            settled: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            waiters: Atomic::new(0),
        };
        let sizes = qp::Sizes {
            send: geometry.sizes.send_queue(),
            send_sge: if geometry.immediate > 0 { 2 } else { 1 },
            receive: receives,
            vector: geometry.vector(u32::from(index)),
            polled: geometry.is_polled(u32::from(index)),
            handles: depth,
        };
        let memory = qp::Memory {
            receives: receive_chunks,
            messages,
            regions,
            bounce,
        };
        Qp::new(pd, sizes, memory, channel)
    }

    /// Those who end the channels of the session together.
    pub fn crew(&self) -> &Crew {
        &self.session.crew
    }

    /// The number of the SCSI host, for the trace events.
    pub fn host(&self) -> u32 {
        self.session.host_number()
    }

    /// The number of the channel, which is that of its hardware queue.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The target has granted this; commands may be sent.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection has failed already.
    pub fn open(&self, granted: &Granted) -> Result {
        // CAST: At most 65535. The target may have changed them already.
        if let Err(violation) = self.give_credits(granted.req_lim as i32) {
            self.fail(Lost::Violation(violation));
        }
        if self.failed.load(Acquire) {
            return Err(ENOTCONN);
        }
        self.immediate.store(granted.immediate, Relaxed);
        // Whoever fails the connection does it the other way round, so one of the two sees it. A command
        // may have been sent already, so that only the end of the session's connection ends it.
        self.open.xchg(true, Full);
        trace!(channel(self.host(), self.index, true, self.credits()));
        if self.failed.load(Acquire) {
            self.session.fail(Lost::Cm(EventKind::Disconnected));
            return Err(ENOTCONN);
        }
        Ok(())
    }

    /// Commands may be sent.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Acquire)
    }

    /// Ends all commands of a connection that is shut down, and forgets what belonged to it. Nobody
    /// must begin to post.
    pub fn close(&self) {
        if self.open.xchg(false, Full) {
            trace!(channel(self.host(), self.index, false, self.credits()));
        }
        self.sweep();
        self.counts.credits.store(0, Relaxed);
        self.starving.reset();
        self.task.reset();
        self.probe.reset();
        self.replies.reset();
    }

    /// Another connection begins; the queue pair of the last one, which may have failed until its end, is
    /// gone.
    pub fn renew(&self) {
        self.failed.store(false, Relaxed);
    }

    /// Tells the target that nothing will follow.
    pub fn begin_log_out(&self, connection: &Connection) {
        self.logged_out.reinit();
        if !self.is_open() || !self.task.log_out(connection) {
            self.logged_out.complete_all();
        }
    }

    /// Waits until that has been sent, or the connection is lost, at most `timeout` milliseconds.
    /// Sleeps.
    pub fn end_log_out(&self, timeout: Msecs) {
        let _ = self.logged_out.wait_timeout(timeout);
    }

    /// The connection is of no more use: that of the session isn't either, if the login is done.
    pub fn fail(&self, why: Lost) {
        let before = self.failed.xchg(true, Full);
        match why {
            _ if self.is_open() => self.session.fail(why),
            _ if why.is_strike() && !before => self.session.strike(&why),
            _ => {}
        }
    }

    /// Commands that the target has answered, or that have ended without, modulo 2^32. One is counted before
    /// its slot is free.
    pub fn ended(&self) -> i32 {
        // CAST: Modulo 2^32.
        self.counts
            .commands()
            .wrapping_add(self.counts.unanswered.get()) as i32
    }

    /// The session has lost its connection.
    pub fn is_lost(&self) -> bool {
        self.session.is_lost()
    }

    /// Unused credits.
    pub fn credits(&self) -> i32 {
        self.counts.credits.load(Relaxed)
    }

    /// What was counted since the login.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes a credit unless only `reserve` are left.
    #[inline]
    pub fn take_credit(&self, reserve: i32) -> bool {
        self.counts.take_credit(reserve)
    }

    /// Counts a credit change by the target.
    #[inline]
    fn give_credits(&self, delta: i32) -> Result<(), Violation> {
        self.counts.give_credits(delta)
    }

    /// Sends a command that has this tag.
    ///
    /// # Errors
    ///
    /// Gives the command back if its slot is still in use or no credit is left.
    ///
    /// Context: as [`Driver::queue_command`](crate::scsi::Driver::queue_command).
    #[inline(always)]
    pub fn queue(
        &self,
        connection: &Connection,
        cmd: Command,
        tag: scsi::Tag,
    ) -> Result<(), Rejected> {
        // The end of the connection waits for this section, and then ends what was posted in it.
        let posting = rcu::read_lock();
        if self.is_lost() {
            return self.refuse(cmd);
        }
        let scsi::Tag { hw_queue, index } = tag;
        let Some(cell) = self.slots.get(usize::from(index)) else {
            cmd.done(ScsiResult::DID_ERROR);
            return Ok(());
        };
        let random = random_u16();
        let owner = Owner { hw_queue, index };
        // The slot with the number of the tag is free, unless a command of a hardware queue has it
        // whose channel is missing.
        match cell.claim(random, Lun(cmd.lun()), owner) {
            Some(slot) => self.send(&posting, connection, cmd, slot, index),
            None => self.queue_anywhere(&posting, connection, cmd, random, owner),
        }
    }

    /// Sends a command from any free slot.
    #[cold]
    #[inline(never)]
    fn queue_anywhere(
        &self,
        posting: &rcu::Guard,
        connection: &Connection,
        cmd: Command,
        random: u16,
        owner: Owner,
    ) -> Result<(), Rejected> {
        let lun = Lun(cmd.lun());
        let mut slots = (0u16..).zip(&self.slots);
        match slots.find_map(|(index, cell)| Some((index, cell.claim(random, lun, owner)?))) {
            Some((index, slot)) => self.send(posting, connection, cmd, slot, index),
            None => self.busy(cmd),
        }
    }

    /// Sends a command from its slot, the one with this number.
    #[inline(always)]
    fn send(
        &self,
        posting: &rcu::Guard,
        connection: &Connection,
        cmd: Command,
        mut slot: Held<'_>,
        index: u16,
    ) -> Result<(), Rejected> {
        if !self.take_credit(credit::RESERVE_COMMAND) {
            slot.release_after(Event::Cancel);
            return self.without_credit(cmd);
        }
        if let Err(cmd) = slot.handle.attach(cmd) {
            let _ = self.give_credits(1);
            slot.release_after(Event::Cancel);
            return self.busy(cmd);
        }
        let limits = registration::Limits {
            immediate: self.immediate.load(Relaxed),
            static_read: self.session.geometry.static_read,
        };
        let prepared = match Tag::command(slot.word().generation(), self.index, index) {
            Some(tag) => mapping::prepare(&mut slot, tag.to_wire(), limits),
            None => Err(EINVAL),
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return self.unprepared(slot, e),
        };
        trace::send(self, &slot, slot.word());
        // The completion of an invalidation recycles the sends before it.
        let signaled = prepared.register.is_none() && self.counts.signal();
        // The answer may come before the doorbell returns, so the slot is handed over first.
        slot.release_after(Event::Post);
        let posted = connection.post_within(posting, prepared.register, prepared.message, signaled);
        if let Err(e) = posted {
            self.fail(Lost::Post(e));
        }
        Ok(())
    }

    /// Ends all commands. Nobody has a slot: nobody posts, and no callback runs any more.
    fn sweep(&self) {
        for cell in &self.slots {
            // The error handler may move a command from Posted to Aborting meanwhile, once.
            let mut word = cell.word();
            let mut taken = cell.take_from(word, Event::Fail);
            if taken.is_none() {
                word = cell.word();
                taken = cell.take_from(word, Event::Fail);
            }
            if let Some(slot) = taken {
                let result = match word.state() {
                    // The target has done it; only the invalidation was missing.
                    State::Responded | State::Invalidating => slot.result,
                    _ => {
                        self.counts.unanswered.increment();
                        lost_result(&slot)
                    }
                };
                self.end(slot, result);
            }
        }
        self.settled.complete_all();
    }

    /// Frees a slot and completes its command. If that has timed out, the error handler ends it,
    /// and completing it means giving it up.
    #[inline(always)]
    fn end(&self, mut slot: Held<'_>, result: ScsiResult) {
        let Ok(cmd) = slot.handle.detach() else {
            // The drained connection will free it.
            self.fail(Lost::Post(EBUSY));
            slot.result = result;
            slot.release();
            return;
        };
        trace::done(self, &slot, slot.word(), result);
        // Before the midlayer can use the tag again.
        match slot.word().state() {
            State::Failed => slot.release_after(Event::Drained),
            _ => slot.release_after(Event::Finish),
        }
        if let Some(cmd) = cmd {
            cmd.done(result);
        }
        if self.waiters.load(Relaxed) != 0 {
            self.settled.complete_all();
        }
    }

    /// The target is done with the command of a slot in state Responded, which ends like this: invalidates its
    /// registrations, or ends it at once if there are none.
    #[inline(always)]
    fn settle(&self, connection: &Connection, cell: &Cell, mut slot: Held<'_>, result: ScsiResult) {
        let index = slot.index;
        trace::response(self, &slot, slot.word(), result);
        if !slot.way.is_dynamic() {
            self.end(slot, result);
            return;
        }
        slot.result = result;
        let word = slot.word().with_state(State::Invalidating);
        trace::invalidate(self, &slot, slot.word());
        // Handed over first: the completion may come before the doorbell returns.
        slot.release_after(Event::Invalidate);
        match connection.post_invalidate(usize::from(index)) {
            Ok(true) => {}
            Ok(false) => {
                if let Some(slot) = cell.take_from(word, Event::Fail) {
                    let result = slot.result;
                    self.end(slot, result);
                }
            }
            Err(e) => self.fail(Lost::Post(e)),
        }
    }
}

/// The result of a command that was lost with its connection. `DID_RESET` has it tried again however
/// often that happens, within the time that the midlayer gives a command; the other one counts, and is
/// an error at once for those who want to know.
fn lost_result(slot: &Slot) -> ScsiResult {
    match slot.handle.get() {
        Some(cmd) if !cmd.is_failfast() => ScsiResult::DID_RESET,
        _ => ScsiResult::DID_TRANSPORT_DISRUPTED,
    }
}

impl qp::Handler for Channel {
    #[inline(always)]
    fn received(&self, connection: &Connection, message: &[u8], flags: Flags) {
        // After a violation nothing from this target counts any more.
        if self.failed.load(Relaxed) {
            return;
        }
        if !flags.is_unexpected() && self.good(connection, message) {
            return;
        }
        if let Err(violation) = self.message(connection, message, flags) {
            self.fail(Lost::Violation(violation));
        }
    }

    #[inline(always)]
    fn invalidated(&self, _: &Connection, handle: usize) {
        let Some(cell) = self.slots.get(handle) else {
            return;
        };
        let word = cell.word();
        if word.state() != State::Invalidating {
            return;
        }
        if let Some(slot) = cell.hold(word) {
            let result = slot.result;
            self.end(slot, result);
        }
    }

    fn control_sent(&self, _: &Connection) {
        self.replies.sent();
    }

    fn last_sent(&self, _: &Connection) {
        self.logged_out.complete_all();
    }

    fn failed(&self, failure: Failure) {
        self.fail(Lost::Qp(failure));
    }
}
