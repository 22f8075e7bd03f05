// SPDX-License-Identifier: GPL-2.0

//! One connection of a session: its slots, its credits, and what is done with each message.
//!
//! A command costs one doorbell to send, with the registration of its data before the message in the
//! same chain, and one to invalidate. It ends when the target has answered *and* cannot reach the
//! data any more. Nothing here takes a lock, allocates or sleeps; a slot passes from the submitter to
//! the completion callback by its state.

mod incoming;
mod recall;

use super::{
    error::{
        Lost,
        Violation, //
    },
    events::Events,
    geometry::{
        Geometry,
        RECEIVE_SIZE, //
    },
    logic::{
        credit,
        registration,
        send_queue::{
            ANSWERS,
            SIGNAL_EVERY, //
        },
        slot::{
            Event,
            State,
            Word, //
        },
        tag::Tag, //
    },
    mapping,
    proto::{
        ids::Lun,
        login::Granted, //
    },
    session::Session,
    slot::{
        Cell,
        Held,
        Slot, //
    },
    task::Task, //
};
use crate::{
    rdma::{
        cm,
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
        Busy,
        Command,
        Rejected,
        ScsiResult, //
    },
    sync::Completion,
    sys::{
        pr_warn_ratelimited,
        random_u64, //
    }, //
};
use incoming::Replies;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        barrier::smp_mb,
        Arc, //
    }, //
};

/// A queue pair with its channel.
pub type Connection = Qp<Channel>;

/// One connection of a session.
pub struct Channel {
    index: u16,
    session: Arc<Session>,
    slots: KVec<Cell>,
    /// What may be sent; see [`credit`].
    credits: Atomic<u32>,
    /// Bytes of immediate data that the target takes.
    immediate: Atomic<u32>,
    /// Sends that nothing else recycles, modulo 2^32.
    unsignaled: Atomic<i32>,
    /// Task management.
    pub task: Task,
    /// Answers to requests of the target.
    replies: Replies,
    /// The login is done; before that the end of the connection is not that of the session.
    open: Atomic<bool>,
    /// A slot that the error handler waits for may have become free.
    settled: Pin<KBox<Completion>>,
    /// How many wait for that.
    waiters: Atomic<i32>,
    /// Commands that have ended, modulo 2^32.
    ended: Atomic<i32>,
    /// How often a command had to wait for a credit.
    zero_req_lim: Atomic<i32>,
}

impl Channel {
    /// Creates the queue pair of `id`, whose route is resolved, and its channel. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of memory and of the device.
    pub fn connect(
        session: &Arc<Session>,
        geometry: &Geometry,
        index: u16,
        pd: &Arc<Pd>,
        id: &Arc<cm::Id<Events>>,
    ) -> Result<Arc<Connection>> {
        let depth = geometry.sizes.depth as usize;
        let per_slot = geometry.sizes.regions as usize;
        let (regions, handles) = Regions::new(pd, &geometry.device, depth, per_slot)?;
        let iu_len = geometry.it_iu_len as usize;
        // One message for each slot, one for task management, the others to answer the target.
        let count = depth + 1 + ANSWERS as usize;
        let (messages, mut chunks) = Pool::new(pd, count, iu_len, dma::Direction::ToDevice)?;
        let task = Task::new(chunks.pop().ok_or(ENOMEM)?)?;
        let replies = Replies::new(&mut chunks)?;
        let mut slots = KVec::with_capacity(depth, GFP_KERNEL)?;
        for (iu, handle) in chunks.into_iter().zip(handles) {
            slots.push(
                Cell::new(Slot {
                    iu,
                    handle,
                    result: ScsiResult::DID_ERROR,
                    registered: false,
                }),
                GFP_KERNEL,
            )?;
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
            credits: Atomic::new(0),
            immediate: Atomic::new(0),
            unsignaled: Atomic::new(0),
            task,
            replies,
            open: Atomic::new(false),
            settled: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
            waiters: Atomic::new(0),
            ended: Atomic::new(0),
            zero_req_lim: Atomic::new(0),
        };
        let sizes = qp::Sizes {
            send: geometry.sizes.send_queue(),
            receive: receives,
            vector: geometry.vector(u32::from(index)),
            handles: depth,
        };
        let memory = qp::Memory {
            receives: receive_chunks,
            messages,
            regions,
        };
        Qp::new(pd, id, sizes, memory, channel)
    }

    /// The number of the channel, which is that of its hardware queue.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The target has granted this; commands may be sent.
    pub fn open(&self, granted: &Granted) {
        self.immediate.store(granted.immediate, Relaxed);
        // At most 65535, to which the target may have added already.
        let _ = self.give_credits(granted.req_lim as i32);
        self.open.store(true, Release);
    }

    /// The connection is of no more use: ends the session, if the login is done.
    pub fn fail(&self, why: Lost) {
        if self.open.load(Acquire) {
            self.session.fail(why);
        }
    }

    /// Commands that have ended, modulo 2^32.
    pub fn ended(&self) -> i32 {
        self.ended.load(Relaxed)
    }

    /// The session has lost its connection.
    pub fn is_lost(&self) -> bool {
        self.session.is_lost()
    }

    /// Unused credits.
    pub fn credits(&self) -> u32 {
        self.credits.load(Relaxed)
    }

    /// How often a command had to wait for a credit.
    pub fn zero_req_lim(&self) -> i32 {
        self.zero_req_lim.load(Relaxed)
    }

    /// Takes a credit unless only `reserve` are left.
    #[inline]
    pub fn take_credit(&self, reserve: u32) -> bool {
        let mut unused = self.credits.load(Relaxed);
        while let Some(left) = credit::take(unused, reserve) {
            match self.credits.cmpxchg(unused, left, Relaxed) {
                Ok(_) => return true,
                Err(now) => unused = now,
            }
        }
        false
    }

    /// Counts a credit change by the target.
    fn give_credits(&self, delta: i32) -> Result<(), Violation> {
        let mut unused = self.credits.load(Relaxed);
        loop {
            let sum =
                credit::give(unused, delta, credit::MAX).map_err(|_| Violation::Credits(delta))?;
            match self.credits.cmpxchg(unused, sum, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => unused = now,
            }
        }
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// Gives the command back if its slot is still in use or no credit is left.
    ///
    /// Context: as [`Driver::queue_command`](crate::scsi::Driver::queue_command).
    pub fn queue(&self, connection: &Connection, cmd: Command) -> Result<(), Rejected> {
        if self.is_lost() {
            cmd.done(ScsiResult::DID_NO_CONNECT);
            return Ok(());
        }
        let busy = |cmd| {
            Err(Rejected {
                cmd,
                why: Busy::Host,
            })
        };
        let index = cmd.tag().index;
        let Some(cell) = self.slots.get(usize::from(index)) else {
            cmd.done(ScsiResult::DID_ERROR);
            return Ok(());
        };
        // CAST: Any 32 bits will do.
        let Some(mut slot) = cell.claim(random_u64() as u32, Lun(cmd.lun())) else {
            return busy(cmd);
        };
        if !self.take_credit(credit::RESERVE_COMMAND) {
            slot.release_after(Event::Cancel);
            self.zero_req_lim.add(1, Relaxed);
            return busy(cmd);
        }
        if let Err(cmd) = slot.handle.attach(cmd) {
            let _ = self.give_credits(1);
            slot.release_after(Event::Cancel);
            return busy(cmd);
        }
        let limits = registration::Limits {
            immediate: self.immediate.load(Relaxed),
            static_read: 0,
        };
        let posted = slot.word().with_state(State::Posted);
        let prepared = match Tag::command(posted.generation(), self.index, index) {
            Some(tag) => mapping::prepare(&mut slot, tag.to_wire(), limits),
            None => Err(EINVAL),
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                // Taking back what was ours: it cannot exceed the maximum.
                let _ = self.give_credits(1);
                let cmd = slot.handle.detach().ok().flatten();
                slot.release_after(Event::Cancel);
                return match cmd {
                    Some(cmd) if e == ENOMEM => busy(cmd),
                    Some(cmd) => {
                        pr_warn_ratelimited!(
                            "{}: command of {} bytes in {} segments cannot be mapped: error {}\n",
                            format_args!("{}", self.session.name()),
                            cmd.data_len(),
                            cmd.segments(),
                            e.to_errno()
                        );
                        cmd.done(ScsiResult::DID_ERROR);
                        Ok(())
                    }
                    None => Ok(()),
                };
            }
        };
        slot.registered = prepared.register.is_some();
        // The completion of an invalidation recycles the sends before it.
        let signaled = !slot.registered && self.signal();
        // The answer may come before the doorbell returns, so the slot is handed over first.
        slot.release_after(Event::Post);
        if let Err(e) = connection.post_send(prepared.register, prepared.message, signaled) {
            self.fail(Lost::Post(e));
        }
        self.check_drained(connection, cell, posted);
        Ok(())
    }

    /// Whether to ask for the completion of a send that nothing else recycles.
    ///
    /// The memory of such a send is used again when the target has answered, which may be before it
    /// has acknowledged the send. A target that never does fills the send queue, and the session
    /// ends.
    fn signal(&self) -> bool {
        self.unsignaled.fetch_add(1, Relaxed) as u32 % SIGNAL_EVERY == SIGNAL_EVERY - 1
    }

    /// Ends the command in a slot that was handed over when the connection was drained already, and
    /// that [`Self::sweep`] may have passed by.
    ///
    /// Whoever hands a slot over calls this after it. Either it sees that the connection is shut
    /// down, or the sweep, which comes after the shutdown, sees the slot.
    fn check_drained(&self, connection: &Connection, cell: &Cell, word: Word) {
        smp_mb();
        if connection.is_shut_down() {
            if let Some(slot) = cell.take_from(word, Event::Fail) {
                self.end(slot, ScsiResult::DID_TRANSPORT_DISRUPTED);
            }
        }
    }

    /// Ends all commands of a connection that is shut down.
    pub fn sweep(&self) {
        smp_mb();
        for cell in &self.slots {
            let state = cell.word().state();
            if let Some(slot) = cell.take(Event::Fail) {
                let result = match state {
                    // The target has done it; only the invalidation was missing.
                    State::Responded | State::Invalidating => slot.result,
                    _ => ScsiResult::DID_TRANSPORT_DISRUPTED,
                };
                self.end(slot, result);
            }
        }
        self.settled.complete_all();
    }

    /// Frees a slot and completes its command. If that has timed out, the error handler ends it,
    /// and completing it means giving it up.
    fn end(&self, mut slot: Held<'_>, result: ScsiResult) {
        let Ok(cmd) = slot.handle.detach() else {
            // The drained connection will free it.
            self.fail(Lost::Post(EBUSY));
            slot.release();
            return;
        };
        // Before the midlayer can use the tag again.
        match slot.word().state() {
            State::Failed => slot.release_after(Event::Drained),
            _ => slot.release_after(Event::Finish),
        }
        if let Some(cmd) = cmd {
            cmd.done(result);
        }
        self.ended.add(1, Relaxed);
        if self.waiters.load(Relaxed) != 0 {
            self.settled.complete_all();
        }
    }

    /// The target is done with the command of a slot in state Responded: invalidates its
    /// registrations, or ends it at once if there are none.
    fn settle(&self, connection: &Connection, cell: &Cell, index: usize, slot: Held<'_>) {
        if !slot.registered {
            let result = slot.result;
            self.end(slot, result);
            return;
        }
        let word = slot.word().with_state(State::Invalidating);
        // Handed over first: the completion may come before the doorbell returns.
        slot.release_after(Event::Invalidate);
        match connection.post_invalidate(index) {
            Ok(true) => {}
            Ok(false) => {
                if let Some(slot) = cell.take_from(word, Event::Fail) {
                    let result = slot.result;
                    self.end(slot, result);
                }
            }
            Err(e) => self.fail(Lost::Post(e)),
        }
        self.check_drained(connection, cell, word);
    }
}

impl qp::Handler for Channel {
    type Events = Events;

    fn received(&self, connection: &Connection, message: &[u8], flags: Flags) {
        // After a violation nothing from this target counts any more.
        if self.is_lost() {
            return;
        }
        if let Err(violation) = self.message(connection, message, flags) {
            self.fail(Lost::Violation(violation));
        }
    }

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

    fn failed(&self, failure: Failure) {
        self.fail(Lost::Qp(failure));
    }
}
