// SPDX-License-Identifier: GPL-2.0

//! One connection of a session: its slots, its credits, and what is done with each message.
//!
//! A command costs one doorbell to send, with the registration of its data before the message in the
//! same chain, and one to invalidate. It ends when the target has answered *and* cannot reach the
//! data any more. Nothing here takes a lock, allocates or sleeps; a slot passes from the submitter to
//! the completion callback by its state.

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
        send_queue::SIGNAL_EVERY,
        slot::{
            Event,
            State,
            Word, //
        },
        tag::{
            Kind,
            Tag, //
        }, //
    },
    mapping,
    proto::{
        error::BuildError,
        ids::Lun,
        login::Granted,
        message::Message,
        misc,
        rsp::Rsp, //
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
            Chunk,
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
    sync::{
        state_cell::StateCell,
        Completion, //
    },
    sys::pr_warn_ratelimited, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        barrier::smp_mb,
        Arc, //
    },
    time::Msecs, //
};

/// A queue pair with its channel.
pub type Connection = Qp<Channel>;

/// An answer to a request of the target: bit 0 says that its send is under way.
const ANSWERING: u64 = 1;

/// One connection of a session.
pub struct Channel {
    index: u16,
    session: Arc<Session>,
    slots: KVec<Cell>,
    /// What may be sent; see [`credit`].
    credits: Atomic<u32>,
    /// Bytes of immediate data that the target takes.
    immediate: Atomic<u32>,
    /// Sends since the last one that was signaled.
    unsignaled: Atomic<i32>,
    /// Task management.
    pub task: Task,
    /// Memory for answers to the target.
    answer: StateCell<Chunk>,
    /// A slot that the error handler waits for has become free.
    settled: Pin<KBox<Completion>>,
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
        // One message for each slot, one for task management, one to answer the target.
        let (messages, mut chunks) = Pool::new(pd, depth + 2, iu_len, dma::Direction::ToDevice)?;
        let (task, answer) = (chunks.pop().ok_or(ENOMEM)?, chunks.pop().ok_or(ENOMEM)?);
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
            task: Task::new(task)?,
            answer: StateCell::new(0, answer),
            settled: KBox::pin_init(Completion::new(), GFP_KERNEL)?,
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
        self.credits
            .store(granted.req_lim.min(credit::MAX), Release);
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
        let Some(mut slot) = cell.take(Event::Claim) else {
            return busy(cmd);
        };
        if !self.take_credit(credit::RESERVE_COMMAND) {
            slot.release_after(Event::Cancel);
            self.zero_req_lim.add(1, Relaxed);
            return busy(cmd);
        }
        slot.begin(Lun(cmd.lun()));
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
                            "command of {} bytes in {} segments cannot be mapped: {}\n",
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
        if let Err(e) = connection.post_send(prepared.register.as_ref(), prepared.message, signaled)
        {
            self.session.fail(Lost::Post(e));
        }
        self.check_drained(connection, cell, posted);
        Ok(())
    }

    fn signal(&self) -> bool {
        if self.unsignaled.fetch_add(1, Relaxed) + 1 < SIGNAL_EVERY as i32 {
            return false;
        }
        self.unsignaled.store(0, Relaxed);
        true
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

    /// Frees a slot and completes its command.
    fn end(&self, mut slot: Held<'_>, result: ScsiResult) {
        let cmd = match slot.handle.detach() {
            Ok(cmd) => cmd,
            Err(_) => {
                // Still registered: the drained connection will free it.
                self.session.fail(Lost::Post(EBUSY));
                slot.release();
                return;
            }
        };
        let aborted = slot.is_aborted();
        // Before the midlayer can use the tag again.
        match slot.word().state() {
            State::Failed => slot.release_after(Event::Drained),
            _ => slot.release_after(Event::Finish),
        }
        match cmd {
            Some(cmd) if aborted => {
                cmd.release();
                self.settled.complete_all();
            }
            Some(cmd) => cmd.done(result),
            None => {}
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
            Err(e) => self.session.fail(Lost::Post(e)),
        }
        self.check_drained(connection, cell, word);
    }

    fn violation(&self, violation: Violation) {
        self.session.fail(Lost::Violation(violation));
    }

    fn response(&self, connection: &Connection, rsp: &Rsp<'_>) -> Result<(), Violation> {
        self.give_credits(rsp.req_lim_delta)?;
        let tag = Tag::from_wire(rsp.tag);
        let unknown = Violation::Tag(rsp.tag);
        if tag.channel() != self.index {
            return Err(unknown);
        }
        let index = match tag.kind() {
            Kind::TskMgmt(0) => {
                return if self.task.answer(tag, rsp.tmf_status()) {
                    Ok(())
                } else {
                    Err(unknown)
                };
            }
            Kind::TskMgmt(_) => return Err(unknown),
            Kind::Command(index) => usize::from(index),
        };
        let cell = self.slots.get(index).ok_or(unknown)?;
        let posted = Word::new(State::Posted, tag.generation());
        let Some(mut slot) = cell
            .take_from(posted, Event::Answer)
            .or_else(|| cell.take_from(posted.with_state(State::Aborting), Event::Answer))
        else {
            // Crossed a reset of the unit, or the end of the connection.
            return if cell.is_aborted(tag.generation()) || self.is_lost() {
                Ok(())
            } else {
                Err(unknown)
            };
        };
        slot.result = match slot.handle.get_mut() {
            Some(cmd) => match rsp.outcome(cmd.data_len(), mapping::direction(cmd)) {
                Ok(outcome) => {
                    cmd.set_resid(outcome.resid);
                    if !outcome.sense.is_empty() {
                        cmd.set_sense(outcome.sense);
                    }
                    ScsiResult::status(outcome.status)
                }
                Err(fault) => {
                    pr_warn_ratelimited!(
                        "{}: response to a command: {}\n",
                        format_args!("{}", self.session.name()),
                        format_args!("{fault}")
                    );
                    ScsiResult::DID_ERROR
                }
            },
            None => ScsiResult::DID_ERROR,
        };
        self.settle(connection, cell, index, slot);
        Ok(())
    }

    /// Answers a request of the target, which may have one outstanding.
    fn reply(
        &self,
        connection: &Connection,
        build: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
    ) -> Result<(), Violation> {
        let mut iu = self
            .answer
            .acquire(0, ANSWERING)
            .ok_or(Violation::Request)?;
        let message = match build(iu.bytes_mut()) {
            Ok(len) => iu.message(len),
            Err(_) => Err(EMSGSIZE),
        };
        iu.release(ANSWERING);
        if let Err(e) = message.and_then(|message| connection.post_control(message)) {
            self.session.fail(Lost::Post(e));
        }
        Ok(())
    }

    fn message(
        &self,
        connection: &Connection,
        bytes: &[u8],
        flags: Flags,
    ) -> Result<(), Violation> {
        if flags.is_unexpected() {
            return Err(Violation::Flags);
        }
        match Message::parse(bytes).map_err(Violation::Message)? {
            Message::Rsp(rsp) => self.response(connection, &rsp),
            Message::CredReq(request) => {
                self.give_credits(request.req_lim_delta)?;
                self.reply(connection, |iu| misc::cred_rsp(iu, request.tag))
            }
            Message::AerReq(request) => {
                self.give_credits(request.req_lim_delta)?;
                pr_warn_ratelimited!(
                    "{}: event report of the target for LUN {} ignored\n",
                    format_args!("{}", self.session.name()),
                    format_args!("{:?}", request.lun)
                );
                self.reply(connection, |iu| misc::aer_rsp(iu, request.tag))
            }
            Message::TLogout(logout) => {
                self.session
                    .fail(Lost::TLogout(logout.reason, logout.reason_name()));
                Ok(())
            }
        }
    }

    /// The slot and the state of the command with this tag.
    pub fn find(&self, index: u16) -> Option<(&Cell, Word)> {
        let cell = self.slots.get(usize::from(index))?;
        Some((cell, cell.word()))
    }

    /// Gives a command that the target may have to the error handler; see [`Cell::abort`].
    pub fn begin_abort(&self, connection: &Connection, cell: &Cell, word: Word) -> bool {
        let aborting = word.with_state(State::Aborting);
        if word.state() != State::Aborting && !cell.abort(word) {
            return false;
        }
        self.check_drained(connection, cell, aborting);
        true
    }

    /// The target says that it will not touch the command in this slot any more: ends it.
    pub fn finish_abort(&self, connection: &Connection, index: u16, result: ScsiResult) {
        let Some((cell, word)) = self.find(index) else {
            return;
        };
        if let Some(mut slot) = cell.take_from(word, Event::Answer) {
            slot.result = result;
            self.settle(connection, cell, usize::from(index), slot);
        }
    }

    /// The target says that it will not touch any command for the unit any more: ends them. Those
    /// that had not timed out get `result`.
    pub fn finish_unit(&self, connection: &Connection, lun: Lun, result: ScsiResult) {
        for (index, cell) in (0u16..).zip(&self.slots) {
            if cell.is_out_for(lun) {
                self.finish_abort(connection, index, result);
            }
        }
    }

    /// Waits until the slot has given up the command of this generation, at most `timeout`
    /// milliseconds. Sleeps. Returns whether it has.
    pub fn wait_settled(&self, cell: &Cell, generation: u32, timeout: Msecs) -> bool {
        self.wait_until(timeout, || !cell.holds(generation))
    }

    /// Waits until no command for the unit is in a slot, at most `timeout` milliseconds. Sleeps.
    pub fn wait_unit(&self, lun: Lun, timeout: Msecs) -> bool {
        self.wait_until(timeout, || {
            !self.slots.iter().any(|cell| cell.is_out_for(lun))
        })
    }

    fn wait_until(&self, timeout: Msecs, done: impl Fn() -> bool) -> bool {
        const SLICE: Msecs = 50;
        for _ in 0..timeout.div_ceil(SLICE) {
            if done() {
                return true;
            }
            self.settled.reinit();
            // It may have happened before `reinit`; another waiter may take our wake-up with its
            // own, hence the slices.
            if done() {
                return true;
            }
            let _ = self.settled.wait_timeout(SLICE);
        }
        done()
    }
}

impl qp::Handler for Channel {
    type Events = Events;

    fn received(&self, connection: &Connection, message: &[u8], flags: Flags) {
        if let Err(violation) = self.message(connection, message, flags) {
            self.violation(violation);
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
        if let Some(iu) = self.answer.acquire(ANSWERING, 0) {
            iu.release(0);
        }
    }

    fn failed(&self, failure: Failure) {
        self.session.fail(Lost::Qp(failure));
    }
}
