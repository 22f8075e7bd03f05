// SPDX-License-Identifier: GPL-2.0

//! The receive queue, and the requests of a connection's peer.

use super::{
    super::{
        cq::{
            Cq,
            Pushed, //
        },
        fault::{
            Kind as Fault,
            RECV, //
        },
        memory::{
            Memory,
            Pieces,
            Side, //
        },
    },
    wqes::Wqes,
    New,
    Qp,
    OVERRUN,
    PSN, //
};
use crate::provider::{
    attr::{
        access,
        Kind,
        PdName,
        QpAttr,
        State, //
    },
    event,
    verbs::Refused,
    wc::{
        Opcode,
        Status,
        Wc, //
    },
    wr::{
        RecvWr,
        Sge, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// A receive request. Its SGEs are in a separate list.
#[derive(Clone, Copy)]
struct Wqe {
    id: u64,
    pieces: u32,
    /// Length of all SGEs, in bytes.
    len: u32,
}

/// The receive queue.
pub(super) struct Responder {
    pub(super) attr: QpAttr,
    pub(super) cq: Option<Arc<Cq>>,
    wqes: Wqes<Wqe>,
    /// The expected sequence number.
    pub(super) psn: u32,
    /// A packet has arrived.
    pub(super) established: bool,
}

/// The operation of a request from the peer.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Send {
        imm: Option<u32>,
        inv: Option<u32>,
    },
    Write {
        addr: u64,
        key: u32,
        imm: Option<u32>,
    },
    Read {
        addr: u64,
        key: u32,
    },
}

/// A request of the peer, with all of its packets.
pub(super) struct Packet<'a> {
    pub(super) from: &'a Qp,
    pub(super) psn: u32,
    pub(super) packets: u32,
    pub(super) task: &'a Task,
    pub(super) solicited: bool,
    pub(super) len: u32,
    /// SGEs in the peer's memory.
    pub(super) pieces: &'a [Sge],
    pub(super) memory: &'a Memory,
    pub(super) pd: PdName,
}

/// The reason for the refusal of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nak {
    /// The sender may not access its own memory.
    Local,
    InvalidRequest,
    Access,
    Operation,
}

/// The response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ack {
    Done,
    /// There is no receive request: the sender waits for the time of this RNR timer code.
    NotReady(u8),
    Nak(Nak),
    /// There is no response, for this reason.
    None(&'static str),
}

impl Responder {
    pub(super) fn new(new: &New<'_>) -> Result<Self> {
        let wqe = Wqe {
            id: 0,
            pieces: 0,
            len: 0,
        };
        Ok(Self {
            cq: Some(new.recv_cq.clone()),
            wqes: Wqes::new(new.sizes.recv, new.sizes.recv_sge, wqe)?,
            ..Self::none()
        })
    }

    /// The receive queue of a destroyed queue pair.
    pub(super) fn none() -> Self {
        Self {
            attr: QpAttr::default(),
            cq: None,
            wqes: Wqes::none(),
            psn: 0,
            established: false,
        }
    }

    /// Drops the posted requests.
    pub(super) fn reset(&mut self) {
        self.wqes.reset();
    }

    fn take(&mut self, wr: RecvWr<'_>) -> Result {
        let pieces = wr.sges()?;
        self.wqes.admit(pieces)?;
        let mut len = 0u32;
        for piece in pieces {
            len = len.saturating_add(piece.bytes());
        }
        let wqe = Wqe {
            id: wr.id(),
            // CAST: `admit` has limited it.
            pieces: pieces.len() as u32,
            len,
        };
        self.wqes.add(wqe, pieces);
        Ok(())
    }

    /// The length of the next receive request's memory in bytes, if there is a request.
    pub(super) fn room(&self) -> Option<u32> {
        (self.wqes.pending() != 0).then(|| self.wqes.next().len)
    }

    /// The SGEs of the next receive request.
    pub(super) fn pieces<'a>(&'a self, memory: &'a Memory, pd: PdName) -> Pieces<'a> {
        let list = self.wqes.sges(self.wqes.next().pieces);
        Pieces::local(memory, pd, access::LOCAL_WRITE, list)
    }
}

impl Qp {
    /// Posts receive requests.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid request or a queue pair in state RESET, `ENOMEM` if the queue is
    /// full, otherwise the device's error.
    #[inline]
    pub fn post_recv<'a>(self: &Arc<Self>, first: RecvWr<'a>) -> Result<(), Refused<RecvWr<'a>>> {
        let mut rq = self.rq.lock();
        let state = self.state();
        if !(State::Init..=State::Sqe).contains(&state) {
            if let Err(e) = self.may_post(state, State::Init) {
                return Err((first, e));
            }
        }
        let mut result = Ok(());
        let mut next = Some(first);
        while let Some(wr) = next {
            if self
                .faults()
                .is_some_and(|f| f.hit(Fault::PostRecv, RECV).is_some())
            {
                result = Err((wr, ENOMEM));
                break;
            }
            if let Err(e) = rq.take(wr) {
                result = Err((wr, e));
                break;
            }
            next = wr.next();
        }
        if self.state() == State::Err {
            self.flush_receives(&mut rq);
        }
        result
    }

    /// Completes all receive requests as flushed, or schedules the work item to do that.
    pub(super) fn flush_receives(self: &Arc<Self>, rq: &mut Responder) {
        if !self.flushes_simply() {
            return self.later(super::FLUSH);
        }
        while rq.room().is_some() {
            self.flush_receive(rq);
        }
    }

    /// Completes the next receive request as flushed.
    pub(super) fn flush_receive(self: &Arc<Self>, rq: &mut Responder) {
        let wc = self.received(rq, Opcode::RECV, Status::WR_FLUSH_ERR);
        self.complete_receive(rq, &wc, false);
    }

    /// The response to a message that finds no receive request.
    #[cold]
    fn not_ready(&self, rq: &Responder) -> Ack {
        if self.manner.personality.connections.rnr_retries {
            Ack::NotReady(rq.attr.min_rnr_timer)
        } else {
            Ack::Nak(Nak::Operation)
        }
    }

    /// Completes the next receive request with `status` and breaks the connection. Returns whether
    /// there was one. Any context without the queue pair's locks, except the send queue's.
    pub(in super::super) fn end_receive(self: &Arc<Self>, status: Status) -> bool {
        let mut rq = self.rq.lock();
        if self.kind != Kind::Rc || self.state() != State::Rts || rq.room().is_none() {
            return false;
        }
        let wc = self.received(&rq, Opcode::RECV, status);
        self.complete_receive(&mut rq, &wc, false);
        self.break_receive(&mut rq, None);
        true
    }

    /// The completion of the next receive request.
    pub(super) fn received(&self, rq: &Responder, opcode: Opcode, status: Status) -> Wc {
        Wc::new(rq.wqes.next().id, self.name, opcode, status)
    }

    /// Completes the next receive request.
    pub(super) fn complete_receive(self: &Arc<Self>, rq: &mut Responder, wc: &Wc, solicited: bool) {
        rq.wqes.advance();
        let (Some(cq), Some((freed, count))) = (&rq.cq, rq.wqes.frees()) else {
            return;
        };
        let faults = self.faults().map(|f| (f, RECV));
        match cq.push(wc, freed, count, solicited, faults) {
            Pushed::Fine => {}
            Pushed::Overrun => {
                self.set_state(State::Err);
                self.later(OVERRUN | super::FLUSH);
            }
            Pushed::Broken => self.break_receive(rq, None),
        }
    }

    /// Executes a request of the peer, unless `epoch` has changed.
    pub(super) fn receive(self: &Arc<Self>, packet: &Packet<'_>, epoch: u32) -> Ack {
        let mut rq = self.rq.lock();
        let state = self.state();
        if !(State::Rtr..=State::Sqe).contains(&state) || self.is_silent() {
            return Ack::None("the peer does not receive");
        }
        if self.epoch.load(Relaxed) != epoch {
            return Ack::None("the peer was connected again");
        }
        let rq = &mut *rq;
        let ahead = packet.psn.wrapping_sub(rq.psn) & PSN;
        let again = ahead > PSN / 2;
        if ahead != 0 && !again {
            // An earlier packet was lost. The peer will retry it.
            return Ack::None("an earlier packet is missing");
        }
        if !rq.established {
            rq.established = true;
            if state == State::Rtr {
                self.later(super::bit(event::Kind::COMM_EST));
            }
        }
        let ack = match *packet.task {
            Task::Send { .. } | Task::Write { .. } if again => return Ack::Done,
            Task::Send { imm, inv } => self.receive_send(rq, packet, imm, inv),
            Task::Write { addr, key, imm } => self.receive_write(rq, packet, addr, key, imm),
            Task::Read { addr, key } => self.receive_read(rq, packet, addr, key),
        };
        match ack {
            Ack::Done if !again => rq.psn = rq.psn.wrapping_add(packet.packets) & PSN,
            Ack::Nak(Nak::Access) => {
                self.break_receive(rq, Some(event::Kind::QP_ACCESS_ERR));
            }
            Ack::Nak(Nak::InvalidRequest | Nak::Operation) => {
                self.break_receive(rq, Some(event::Kind::QP_REQ_ERR));
            }
            _ => {}
        }
        ack
    }

    fn receive_send(
        self: &Arc<Self>,
        rq: &mut Responder,
        packet: &Packet<'_>,
        imm: Option<u32>,
        inv: Option<u32>,
    ) -> Ack {
        let Some(room) = rq.room() else {
            return self.not_ready(rq);
        };
        if packet.len > room {
            let wc = self.received(rq, Opcode::RECV, Status::LOC_LEN_ERR);
            self.complete_receive(rq, &wc, false);
            return Ack::Nak(Nak::InvalidRequest);
        }
        let mut from = packet.local();
        let mut to = rq.pieces(&self.memory, self.pd);
        let copied = to.fill(&mut from, packet.len as usize);
        drop((to, from));
        match copied {
            Err(Side::From) => return Ack::Nak(Nak::Local),
            Err(Side::To) => {
                let wc = self.received(rq, Opcode::RECV, Status::LOC_PROT_ERR);
                self.complete_receive(rq, &wc, false);
                return Ack::Nak(Nak::Operation);
            }
            Ok(()) => {}
        }
        if inv.is_some_and(|key| self.memory.invalidate(self.pd, key).is_err()) {
            return Ack::Nak(Nak::Access);
        }
        let mut wc = self
            .received(rq, Opcode::RECV, Status::SUCCESS)
            .bytes(packet.len)
            .from(self.source(packet));
        if let Some(imm) = imm {
            wc = wc.imm(imm);
        }
        if let Some(key) = inv {
            wc = wc.invalidated(key);
        }
        self.complete_receive(rq, &wc, packet.solicited);
        Ack::Done
    }

    fn receive_write(
        self: &Arc<Self>,
        rq: &mut Responder,
        packet: &Packet<'_>,
        addr: u64,
        key: u32,
        imm: Option<u32>,
    ) -> Ack {
        if rq.attr.qp_access_flags & access::REMOTE_WRITE == 0 {
            return Ack::Nak(Nak::Access);
        }
        if imm.is_some() && rq.room().is_none() {
            return self.not_ready(rq);
        }
        if packet.len > 0 {
            let piece = [Sge::new(addr, key, packet.len)];
            let mut to = Pieces::remote(&self.memory, self.pd, access::REMOTE_WRITE, &piece);
            match to.fill(&mut packet.local(), packet.len as usize) {
                Err(Side::From) => return Ack::Nak(Nak::Local),
                Err(Side::To) => return Ack::Nak(Nak::Access),
                Ok(()) => {}
            }
        }
        if let Some(imm) = imm {
            let wc = self
                .received(rq, Opcode::RECV_RDMA_WITH_IMM, Status::SUCCESS)
                .bytes(packet.len)
                .from(self.source(packet))
                .imm(imm);
            self.complete_receive(rq, &wc, packet.solicited);
        }
        Ack::Done
    }

    fn receive_read(&self, rq: &Responder, packet: &Packet<'_>, addr: u64, key: u32) -> Ack {
        if rq.attr.qp_access_flags & access::REMOTE_READ == 0 {
            return Ack::Nak(Nak::Access);
        }
        if rq.attr.max_dest_rd_atomic == 0 {
            return Ack::Nak(Nak::InvalidRequest);
        }
        if packet.len > 0 {
            let piece = [Sge::new(addr, key, packet.len)];
            let mut from = Pieces::remote(&self.memory, self.pd, access::REMOTE_READ, &piece);
            match packet.local().fill(&mut from, packet.len as usize) {
                Err(Side::From) => return Ack::Nak(Nak::Access),
                Err(Side::To) => return Ack::Nak(Nak::Local),
                Ok(()) => {}
            }
        }
        Ack::Done
    }

    fn source(&self, packet: &Packet<'_>) -> crate::provider::wc::Source {
        crate::provider::wc::Source {
            qp: packet.from.num,
            ..Default::default()
        }
    }

    /// Whether the queue pair receives datagrams.
    pub(super) fn takes_datagrams(&self) -> bool {
        self.kind != Kind::Rc
            && (State::Rtr..=State::Sqe).contains(&self.state())
            && !self.manner.is_dead()
    }
}

impl<'a> Packet<'a> {
    /// The SGEs in the peer's memory.
    fn local(&self) -> Pieces<'a> {
        Pieces::local(self.memory, self.pd, self.task.local_access(), self.pieces)
    }
}
