// SPDX-License-Identifier: GPL-2.0

//! The send queue: requests in order, each executed at once unless it must wait.

use super::{
    super::{
        cq::{
            Cq,
            Pushed, //
        },
        fault::{
            Faults,
            Kind as Fault,
            FLUSHED,
            LOCAL_INV,
            MESSAGE,
            RDMA,
            REG_MR, //
        },
        mr::Mr,
        personality::FreeKeys,
    },
    peer::Peer,
    responder::Task,
    wqes::Wqes,
    New,
    Qp,
    FLUSH,
    OVERRUN, //
};
use crate::provider::{
    attr::{
        Kind,
        QpAttr,
        State, //
    },
    verbs::Refused,
    wc::{
        Opcode,
        Status,
        Wc, //
    },
    wr::{
        self,
        Datagram,
        Datagrams,
        SendWr,
        Work, //
    },
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// The operation of a request.
#[derive(Clone, Copy)]
pub(super) enum Op {
    /// A request to the peer.
    Request(Task),
    Register {
        mr: u32,
        key: u32,
        access: u32,
        iova: u64,
    },
    Invalidate {
        key: u32,
    },
    Datagram {
        imm: Option<u32>,
    },
}

impl Op {
    /// The operation's bit for faults.
    pub(super) fn which(&self) -> u32 {
        match self {
            Self::Request(Task::Send { .. }) | Self::Datagram { .. } => MESSAGE,
            Self::Request(_) => RDMA,
            Self::Register { .. } => REG_MR,
            Self::Invalidate { .. } => LOCAL_INV,
        }
    }
}

/// A send request. Its SGEs, and the destination of a datagram, are in separate lists.
#[derive(Clone, Copy)]
pub(super) struct Wqe {
    id: u64,
    pub(super) op: Op,
    signaled: bool,
    pub(super) solicited: bool,
    pub(super) pieces: u32,
    /// Length of all SGEs, in bytes.
    pub(super) len: u32,
}

/// The send queue.
pub(super) struct Requester {
    pub(super) attr: QpAttr,
    pub(super) cq: Option<Arc<Cq>>,
    pub(super) wqes: Wqes<Wqe>,
    /// Destinations of datagrams, one per slot; empty in an RC queue pair.
    to: KVVec<Datagram>,
    all_signaled: bool,
    /// Sequence number of the next packet.
    pub(super) psn: u32,
    /// A retry timer runs.
    pub(super) waiting: bool,
    pub(super) retries: u32,
    pub(super) rnr_retries: u32,
    pub(super) peer: Option<Peer>,
    /// Whether the last flushed request was a send request.
    pub(super) sent_last: bool,
}

/// The outcome of a request.
pub(super) enum Done {
    /// The request is done, with this status.
    Over(Status),
    /// The request is retried in this many nanoseconds.
    Again(u64),
    /// The request stays in the queue.
    Stay,
}

impl Requester {
    pub(super) fn new(new: &New<'_>) -> Result<Self> {
        let wqe = Wqe {
            id: 0,
            op: Op::Invalidate { key: 0 },
            signaled: false,
            solicited: false,
            pieces: 0,
            len: 0,
        };
        let mut this = Self {
            cq: Some(new.send_cq.clone()),
            wqes: Wqes::new(new.sizes.send, new.sizes.send_sge, wqe)?,
            all_signaled: new.all_signaled,
            ..Self::none()
        };
        if new.kind != Kind::Rc {
            let slots = this.wqes.slots();
            this.to.resize(slots, Datagram::default(), GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// The send queue of a destroyed queue pair.
    pub(super) fn none() -> Self {
        Self {
            attr: QpAttr::default(),
            cq: None,
            wqes: Wqes::none(),
            to: KVVec::new(),
            all_signaled: false,
            psn: 0,
            waiting: false,
            retries: 0,
            rnr_retries: 0,
            peer: None,
            sent_last: false,
        }
    }

    /// Whether a request is pending.
    pub(super) fn is_pending(&self) -> bool {
        self.wqes.pending() != 0
    }

    /// Drops all posted requests.
    pub(super) fn reset(&mut self) {
        self.wqes.reset();
        self.waiting = false;
        self.sent_last = false;
    }

    /// Starts sending, with packet sequence number `psn`.
    pub(super) fn begin(&mut self, psn: u32) {
        self.psn = psn;
        self.refill();
    }

    /// Resets the retry counts, at the start and after each acknowledgement.
    pub(super) fn refill(&mut self) {
        self.retries = self.attr.retry_cnt.into();
        self.rnr_retries = self.attr.rnr_retry.into();
    }

    /// Removes the peer if `so`. The caller drops it without holding a lock.
    pub(super) fn forget_peer_if(&mut self, so: bool) -> Option<impl Sized> {
        if so {
            self.peer.take()
        } else {
            None
        }
    }

    /// Adds a request to the queue.
    #[inline]
    fn take(&mut self, wr: &SendWr<'_, Mr>, datagrams: Option<&Datagrams>) -> Result {
        let pieces = wr.sges()?;
        self.wqes.admit(pieces)?;
        let flags = wr.flags();
        if flags & wr::INLINE != 0 {
            return Err(EINVAL);
        }
        let work = wr.work()?;
        let op = match datagrams {
            Some(datagrams) => {
                let to = wr.datagram(datagrams)?;
                let at = self.wqes.free();
                *self.to.get_mut(at).ok_or(EINVAL)? = to;
                match work {
                    Work::Send => Op::Datagram { imm: None },
                    Work::SendWithImm(imm) => Op::Datagram { imm: Some(imm) },
                    _ => return Err(EINVAL),
                }
            }
            None => match work {
                Work::Send => Op::Request(Task::Send {
                    imm: None,
                    inv: None,
                }),
                Work::SendWithImm(imm) => Op::Request(Task::Send {
                    imm: Some(imm),
                    inv: None,
                }),
                Work::SendWithInv(key) => Op::Request(Task::Send {
                    imm: None,
                    inv: Some(key),
                }),
                Work::Write(addr, key) => Op::Request(Task::Write {
                    addr,
                    key,
                    imm: None,
                }),
                Work::WriteWithImm(addr, key, imm) => Op::Request(Task::Write {
                    addr,
                    key,
                    imm: Some(imm),
                }),
                Work::Read(addr, key) => Op::Request(Task::Read { addr, key }),
                Work::RegMr(mr, key, access, iova) => Op::Register {
                    mr: mr.index(),
                    key,
                    access,
                    iova,
                },
                Work::LocalInv(key) => Op::Invalidate { key },
            },
        };
        let mut len = 0u32;
        for piece in pieces {
            len = len.checked_add(piece.bytes()).ok_or(EINVAL)?;
        }
        let wqe = Wqe {
            id: wr.id(),
            op,
            signaled: self.all_signaled || flags & wr::SIGNALED != 0,
            solicited: flags & wr::SOLICITED != 0,
            // CAST: `admit` has limited it.
            pieces: pieces.len() as u32,
            len,
        };
        self.wqes.add(wqe, pieces);
        Ok(())
    }
}

impl Qp {
    /// Posts requests and executes them.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid request or a queue pair that cannot send yet, `ENOMEM` if the queue
    /// is full, otherwise the device's error.
    #[inline]
    pub fn post_send<'a>(
        self: &Arc<Self>,
        first: SendWr<'a, Mr>,
        datagrams: Option<&Datagrams>,
    ) -> Result<(), Refused<SendWr<'a, Mr>>> {
        let mut sq = self.sq.lock();
        let state = self.state();
        if state != State::Rts {
            if let Err(e) = self.may_post(state, State::Rts) {
                return Err((first, e));
            }
        }
        let mut result = Ok(());
        let mut next = Some(first);
        let faults = self.faults();
        while let Some(wr) = next {
            if faults.is_some_and(|faults| self.refuses(faults, &wr)) {
                result = Err((wr, ENOMEM));
                break;
            }
            if let Err(e) = sq.take(&wr, datagrams) {
                result = Err((wr, e));
                break;
            }
            next = wr.next();
        }
        self.progress(&mut sq);
        result
    }

    /// Applies the faults of posting. Returns whether the request is refused.
    #[cold]
    fn refuses(self: &Arc<Self>, faults: &Faults, wr: &SendWr<'_, Mr>) -> bool {
        let which = match wr.work() {
            Ok(Work::Send | Work::SendWithImm(_) | Work::SendWithInv(_)) => MESSAGE,
            Ok(Work::Write(..) | Work::WriteWithImm(..) | Work::Read(..)) => RDMA,
            Ok(Work::RegMr(..)) => REG_MR,
            Ok(Work::LocalInv(_)) => LOCAL_INV,
            Err(_) => return false,
        };
        if let Some(status) = faults.status(Fault::Receive, which) {
            self.end_receive(status);
        }
        faults.hit(Fault::Post, which).is_some()
    }

    /// Executes requests until one must wait.
    pub(super) fn progress(self: &Arc<Self>, sq: &mut Requester) {
        while sq.is_pending() {
            let wqe = *sq.wqes.next();
            let state = self.state();
            let faults = self.faults();
            let done = match state {
                State::Err if !self.flushes_simply() => return self.later(FLUSH),
                State::Err | State::Sqe => Done::Over(Status::WR_FLUSH_ERR),
                State::Rts if !sq.waiting && !self.is_silent() => self.execute(sq, &wqe, faults),
                _ => Done::Stay,
            };
            match done {
                Done::Stay => return,
                Done::Again(ns) => {
                    sq.waiting = true;
                    self.timer.start(self.clone(), ns);
                    return;
                }
                Done::Over(status) => {
                    let status = self.over(sq, &wqe, status, faults);
                    if status != Status::SUCCESS && state == State::Rts {
                        pr_info!(
                            "{}: a request of {} bytes failed: {status:?}\n",
                            self,
                            wqe.len
                        );
                        self.fail_send();
                    }
                }
            }
        }
    }

    /// Ends the next request. Returns the status of its completion.
    #[inline]
    fn over(
        self: &Arc<Self>,
        sq: &mut Requester,
        wqe: &Wqe,
        mut status: Status,
        faults: Option<&Faults>,
    ) -> Status {
        sq.wqes.advance();
        if let Some(other) = faults.and_then(|f| other_status(f, &wqe.op, status)) {
            status = other;
        }
        if status != Status::SUCCESS || wqe.signaled {
            self.complete(sq, wqe, status, faults);
        }
        status
    }

    /// Completes the next send request as flushed.
    pub(super) fn flush_send(self: &Arc<Self>, sq: &mut Requester) {
        let wqe = *sq.wqes.next();
        self.over(sq, &wqe, Status::WR_FLUSH_ERR, self.faults());
    }

    /// Handles a failed request: the queue pair fails, or, if it is not RC, only its send queue.
    fn fail_send(self: &Arc<Self>) {
        if self.kind == Kind::Rc {
            self.break_send();
        } else {
            self.set_state(State::Sqe);
        }
    }

    fn complete(
        self: &Arc<Self>,
        sq: &mut Requester,
        wqe: &Wqe,
        status: Status,
        faults: Option<&Faults>,
    ) {
        let opcode = match wqe.op {
            Op::Request(Task::Send { .. }) | Op::Datagram { .. } => Opcode::SEND,
            Op::Request(Task::Write { .. }) => Opcode::RDMA_WRITE,
            Op::Request(Task::Read { .. }) => Opcode::RDMA_READ,
            Op::Register { .. } => Opcode::REG_MR,
            Op::Invalidate { .. } => Opcode::LOCAL_INV,
        };
        let wc = Wc::new(wqe.id, self.name, opcode, status).bytes(wqe.len);
        let (Some(cq), Some((freed, count))) = (&sq.cq, sq.wqes.frees()) else {
            return;
        };
        let faults = faults.map(|f| (f, wqe.op.which()));
        match cq.push(&wc, freed, count, false, faults) {
            Pushed::Fine => {}
            Pushed::Overrun => {
                self.break_send();
                self.later(OVERRUN);
            }
            Pushed::Broken => self.break_send(),
        }
    }

    fn execute(self: &Arc<Self>, sq: &mut Requester, wqe: &Wqe, faults: Option<&Faults>) -> Done {
        if let Some(faults) = faults {
            let which = wqe.op.which();
            if faults.hit(Fault::Death, which).is_some() {
                self.die();
                return Done::Stay;
            }
            if let Some(status) = faults.status(Fault::Fail, which) {
                return Done::Over(status);
            }
        }
        match wqe.op {
            Op::Register {
                mr,
                key,
                access,
                iova,
            } => {
                let fault = faults.is_some_and(|f| f.hit(Fault::Register, REG_MR).is_some());
                let done = self.memory.register(self.pd, mr, key, access, iova);
                Done::Over(if done.is_err() || fault {
                    Status::MW_BIND_ERR
                } else {
                    Status::SUCCESS
                })
            }
            Op::Invalidate { key } => Done::Over(match self.memory.invalidate(self.pd, key) {
                Ok(()) => Status::SUCCESS,
                Err(_) if self.may_be_free(key) => Status::SUCCESS,
                Err(_) => Status::MW_BIND_ERR,
            }),
            Op::Datagram { imm } => {
                let pieces = sq.wqes.sges(wqe.pieces);
                let to = &sq.to[sq.wqes.at_next()];
                Done::Over(self.send_datagram(&sq.attr, wqe, pieces, to, imm))
            }
            Op::Request(Task::Read { .. }) if sq.attr.max_rd_atomic == 0 => {
                Done::Over(Status::LOC_QP_OP_ERR)
            }
            Op::Request(ref task) => self.request(sq, wqe, task, faults),
        }
    }

    /// Whether `key` names a region that is not registered and that LOCAL_INV accepts.
    #[cold]
    fn may_be_free(&self, key: u32) -> bool {
        match self.manner.personality.regions.free_keys {
            FreeKeys::None => false,
            FreeKeys::Same => self.memory.is_free(self.pd, key) == Some(true),
            FreeKeys::Any => self.memory.is_free(self.pd, key).is_some(),
        }
    }

    /// The number of pending send requests.
    pub fn pending(&self) -> u32 {
        self.sq.lock().wqes.pending()
    }
}

/// The status that a fault gives to the completion of a request with `status`.
#[cold]
fn other_status(faults: &Faults, op: &Op, status: Status) -> Option<Status> {
    let which = match status {
        Status::SUCCESS => op.which(),
        Status::WR_FLUSH_ERR => op.which() << FLUSHED,
        _ => return None,
    };
    faults.status(Fault::Error, which)
}
