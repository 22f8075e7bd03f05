// SPDX-License-Identifier: GPL-2.0

//! A connection from a [`Qp`] to a [`Peer`]; the handler records its callbacks.

use super::{
    list::List,
    peer::{
        within,
        Peer, //
    },
    soft::Soft, //
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        DeviceBytes, //
    },
    net::Namespace,
    random::random_u64,
    rdma::{
        cm,
        dma::{
            Chunk,
            Pool,
            SharedChunk, //
        },
        mr::{
            FixedMr,
            FixedPart,
            Handle,
            Regions,
            Segment, //
        },
        pd::Pd,
        qp::{
            Failure,
            Handler,
            Memory,
            PollContext,
            Qp,
            Sizes, //
        },
        wc::Flags, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
};

/// Number of handles per connection.
pub(in crate::rdma) const HANDLES: usize = 4;
/// Number of regions per handle.
const PER_HANDLE: usize = 4;
/// Number of pages per region.
const PAGES: u32 = 4;
/// Number of posted receives.
const RECEIVES: u32 = 32;
/// Maximum number of messages that the peer may send ahead: receives are reposted in chains.
pub(in crate::rdma) const WINDOW: u32 = RECEIVES - 8;
/// The sizes of a connection, and the context of the peer's callbacks.
pub(in crate::rdma) struct Shape {
    pub(in crate::rdma) handles: usize,
    pub(in crate::rdma) per_handle: usize,
    pub(in crate::rdma) pages: u32,
    pub(in crate::rdma) pieces: usize,
    /// Size of a piece in bytes, rounded up to whole pages of a region.
    pub(in crate::rdma) piece_size: usize,
    /// Length of the part of each piece that the peer may write, in bytes, rounded up likewise.
    pub(in crate::rdma) reach: usize,
    pub(in crate::rdma) context: bindings::ib_poll_context,
    /// The context of our callbacks.
    pub(in crate::rdma) ours: PollContext,
}
pub(in crate::rdma) const SHAPE: Shape = Shape {
    handles: HANDLES,
    per_handle: PER_HANDLE,
    pages: PAGES,
    pieces: PIECES,
    piece_size: 8192,
    reach: 8192,
    context: bindings::ib_poll_context_IB_POLL_DIRECT,
    ours: PollContext::Interrupt,
};
/// Number of message buffers, each with an entry in the send queue.
pub(in crate::rdma) const SENDS: u32 = 32;
/// Number of pieces of memory that the peer may write.
pub(in crate::rdma) const PIECES: usize = 5;
/// Maximum number of callbacks in a record.
const RECORDS: usize = 64;

/// Byte `at` of message `number`: the number, followed by bytes that depend on it.
pub(in crate::rdma) fn pattern(number: u32, at: usize) -> u8 {
    match number.to_le_bytes().get(at) {
        Some(byte) => *byte,
        None => (number as u8).wrapping_mul(31).wrapping_add(at as u8),
    }
}

/// Returns whether these bytes are message `number`.
pub(in crate::rdma) fn is_pattern(number: u32, bytes: &[u8]) -> bool {
    let mut bytes = bytes.iter().enumerate();
    bytes.len() >= 4 && bytes.all(|(at, byte)| *byte == pattern(number, at))
}

/// The events of the connection manager.
pub(in crate::rdma) struct Events {
    addr: Atomic<bool>,
    route: Atomic<bool>,
    established: Atomic<bool>,
    ended: Atomic<bool>,
}

impl cm::EventHandler for Events {
    fn event(&self, event: cm::Event<'_>) {
        match event.kind() {
            cm::EventKind::AddrResolved => &self.addr,
            cm::EventKind::RouteResolved => &self.route,
            cm::EventKind::Established => &self.established,
            cm::EventKind::TimewaitExit => return,
            _ => &self.ended,
        }
        .store(true, Release);
    }
}

impl Events {
    fn wait(&self, event: &Atomic<bool>) -> Result {
        within(|| event.load(Acquire) || self.ended.load(Acquire))?;
        if event.load(Acquire) {
            Ok(())
        } else {
            Err(EIO)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::rdma) enum Call {
    /// A message has been received.
    Received = 0,
    /// A control message has been sent.
    Control = 1,
    /// The last message has been sent.
    Last = 2,
    /// Handle 0 has been invalidated; the numbers of the other handles follow.
    Invalidated = 16,
}

/// The record of a connection's callbacks.
pub(in crate::rdma) struct Record {
    regions: Arc<Regions>,
    calls: KVec<Atomic<u32>>,
    count: Atomic<u32>,
    received: Atomic<u32>,
    /// Number of errors: disorder, concurrent callbacks, callbacks for exposed handles, wrong
    /// flags.
    wrong: Atomic<u32>,
    failed: Atomic<u32>,
    running: Atomic<u32>,
}

impl Record {
    fn add(&self, call: u32) {
        let at = self.count.load(Relaxed);
        if let Some(place) = self.calls.get(at as usize) {
            place.store(call, Relaxed);
        }
        self.count.store(at + 1, Release);
    }

    /// Runs a callback, and checks that no other one runs.
    fn alone(&self, ok: impl FnOnce() -> bool) {
        let others = self.running.fetch_add(1, Acquire);
        if !ok() || others != 0 {
            self.wrong.fetch_add(1, Relaxed);
        }
        self.running.fetch_sub(1, Release);
    }

    /// Number of callbacks so far.
    pub(in crate::rdma) fn count(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// Whether callback `number` is `call` plus `more`.
    pub(in crate::rdma) fn is(&self, number: usize, call: Call, more: u32) -> bool {
        number < self.count() as usize
            && self
                .calls
                .get(number)
                .is_some_and(|c| c.load(Relaxed) == call as u32 + more)
    }

    /// Number of messages received.
    pub(in crate::rdma) fn received(&self) -> u32 {
        self.received.load(Acquire)
    }

    /// Number of errors so far.
    pub(in crate::rdma) fn wrong(&self) -> u32 {
        self.wrong.load(Relaxed)
    }

    /// Number of failures reported.
    pub(in crate::rdma) fn failed(&self) -> u32 {
        self.failed.load(Relaxed)
    }
}

impl Handler for Record {
    fn received(qp: &Qp<Self>, message: &[u8], flags: Flags) {
        qp.alone(|| {
            let number = qp.received.load(Relaxed);
            qp.add(Call::Received as u32);
            qp.received.store(number + 1, Release);
            is_pattern(number, message) && !flags.with_imm() && !flags.with_invalidate()
        });
    }

    fn invalidated(qp: &Qp<Self>, handle: usize) {
        qp.alone(|| {
            let open = qp.regions.is_exposed(handle);
            qp.add(Call::Invalidated as u32 + handle as u32);
            !open
        });
    }

    fn control_sent(qp: &Qp<Self>) {
        qp.alone(|| {
            qp.add(Call::Control as u32);
            true
        });
    }

    fn last_sent(qp: &Qp<Self>) {
        qp.alone(|| {
            qp.add(Call::Last as u32);
            true
        });
    }

    fn failed(qp: &Qp<Self>, _: Failure) {
        qp.failed.fetch_add(1, Relaxed);
    }
}

/// A piece of memory that the peer may write during the connection.
pub(in crate::rdma) struct Piece {
    chunk: SharedChunk,
    part: FixedPart,
    /// Length of the part, in bytes.
    pub(in crate::rdma) reach: usize,
}

impl Piece {
    /// Hands the first `len` bytes to the device; returns their segment for the peer.
    pub(in crate::rdma) fn expose(&self, len: usize) -> Result<Segment> {
        self.chunk.sync_for_device(len);
        // CAST: It is at most 64 KiB.
        self.part.segment(len as u32)
    }

    /// The first `len` bytes, which the peer may have written.
    pub(in crate::rdma) fn read(&self, len: usize) -> DeviceBytes<'_> {
        self.chunk.sync_for_cpu(len)
    }
}

/// A connection. Its fields may be dropped in any order.
pub(in crate::rdma) struct Link {
    // Dropped first, so that a failed test leaves no memory reachable.
    pub(in crate::rdma) qp: Arc<Qp<Record>>,
    pub(in crate::rdma) peer: Peer,
    pub(in crate::rdma) handles: KVVec<Handle<List>>,
    pieces: KVVec<Piece>,
    pub(in crate::rdma) chunks: KVVec<Chunk>,
    sent: u32,
    events: Arc<Events>,
    pub(in crate::rdma) regions: Arc<Regions>,
    pub(in crate::rdma) pd: Arc<Pd>,
}

impl Link {
    /// Connects, and waits until the first message, which allows an iWARP peer to send, has
    /// arrived.
    pub(in crate::rdma) fn new(soft: &Soft) -> Result<Self> {
        let shape = Shape {
            ours: soft.ours,
            ..SHAPE
        };
        Self::with(soft, &shape)
    }

    pub(in crate::rdma) fn with(soft: &Soft, shape: &Shape) -> Result<Self> {
        let (peer, events, id) = Self::route(soft, shape.context)?;
        let pd = Pd::new(soft.device.hold()?)?;
        let (regions, handles) =
            Regions::of_pages(&pd, shape.pages, shape.handles, shape.per_handle)?;
        let (messages, chunks) = Pool::new(&pd, SENDS as usize, 64, DataDirection::ToDevice)?;
        let (_, receives) = Pool::new(&pd, RECEIVES as usize, 64, DataDirection::FromDevice)?;
        let [piece_size, reach] =
            [shape.piece_size, shape.reach].map(|size| size.next_multiple_of(soft.page()));
        let (data, data_chunks) =
            Pool::shared(&pd, shape.pieces, piece_size, DataDirection::Bidirectional)?;
        let (fixed, parts) = FixedMr::new(&pd, &data, &data_chunks, reach)?;
        let mut pieces = KVVec::with_capacity(shape.pieces, GFP_KERNEL)?;
        for (chunk, part) in data_chunks.into_iter().zip(parts) {
            pieces.push(Piece { chunk, part, reach }, GFP_KERNEL)?;
        }
        let mut calls = KVec::with_capacity(RECORDS, GFP_KERNEL)?;
        for _ in 0..RECORDS {
            calls.push(Atomic::new(u32::MAX), GFP_KERNEL)?;
        }
        let record = Record {
            regions: regions.clone(),
            calls,
            count: Atomic::new(0),
            received: Atomic::new(0),
            wrong: Atomic::new(0),
            failed: Atomic::new(0),
            running: Atomic::new(0),
        };
        let sizes = Sizes {
            // Messages, registrations, invalidations, the fixed region, and one for the drain.
            send: SENDS + (shape.handles * shape.per_handle * 2) as u32 + 1 + 1,
            send_sge: 2,
            receive: RECEIVES,
            vector: 0,
            context: shape.ours,
            handles: shape.handles,
        };
        let memory = Memory {
            receives,
            messages,
            data: Some(data),
            regions: regions.clone(),
            fixed: Some(fixed),
        };
        let qp = Qp::new(&pd, sizes, memory, record)?;
        Self::connect(&qp, id, &events)?;
        let mut this = Self {
            qp,
            peer,
            handles,
            pieces,
            chunks,
            sent: 0,
            events,
            regions,
            pd,
        };
        this.greet()?;
        Ok(this)
    }

    /// Creates a listening peer, and an identifier with a resolved route to it.
    pub(in crate::rdma) fn route(
        soft: &Soft,
        context: bindings::ib_poll_context,
    ) -> Result<(Peer, Arc<Events>, Arc<cm::Id<Events>>)> {
        let peer = Peer::new(soft, context)?;
        let events = Arc::new(
            Events {
                addr: Atomic::new(false),
                route: Atomic::new(false),
                established: Atomic::new(false),
                ended: Atomic::new(false),
            },
            GFP_KERNEL,
        )?;
        let id = cm::Id::new(&*Namespace::current().ok_or(ESRCH)?, events.clone())?;
        id.resolve_addr(None, &peer.address, 5000)?;
        events.wait(&events.addr)?;
        if !id.is_on(&soft.device, 1) {
            return Err(ENODEV);
        }
        id.resolve_route(5000)?;
        events.wait(&events.route)?;
        Ok((peer, events, id))
    }

    fn connect(qp: &Qp<Record>, id: Arc<cm::Id<Events>>, events: &Events) -> Result {
        qp.create(id.clone())?;
        id.connect(&cm::ConnectParam {
            private_data: b"test",
            responder_resources: 4,
            retry_count: 7,
            rnr_retry_count: 7,
        })?;
        events.wait(&events.established)?;
        qp.live(&rcu::read_lock())?.register_fixed()
    }

    /// Sends the first message, which allows an iWARP peer to send.
    fn greet(&mut self) -> Result {
        self.send(None)?;
        self.arrived()?;
        self.peer.wait_established()
    }

    /// Connects again, after [`Qp::destroy`], to another peer.
    pub(in crate::rdma) fn again(&mut self, soft: &Soft) -> Result {
        let (peer, events, id) = Self::route(soft, SHAPE.context)?;
        Self::connect(&self.qp, id, &events)?;
        self.peer = peer;
        self.events = events;
        self.sent = 0;
        self.record().received.store(0, Relaxed);
        self.greet()
    }

    pub(in crate::rdma) fn piece(&mut self, number: usize) -> Result<&mut Piece> {
        self.pieces.get_mut(number).ok_or(EINVAL)
    }

    pub(in crate::rdma) fn record(&self) -> &Record {
        &self.qp
    }

    /// Fills the next message; returns its chunk and length.
    fn fill<'c>(chunks: &'c mut [Chunk], sent: &mut u32) -> Result<(&'c mut Chunk, usize)> {
        let (number, place) = (*sent, *sent as usize % SENDS as usize);
        let chunk = chunks.get_mut(place).ok_or(EINVAL)?;
        for (at, byte) in chunk.bytes_mut().iter_mut().enumerate() {
            *byte = pattern(number, at);
        }
        *sent += 1;
        Ok((chunk, 4 + number as usize % 61))
    }

    /// Sends the next message, after the registration of a handle.
    pub(in crate::rdma) fn send(&mut self, handle: Option<usize>) -> Result {
        let (chunk, len) = Self::fill(&mut self.chunks, &mut self.sent)?;
        let section = rcu::read_lock();
        let mut wr = self.qp.live(&section)?.send(chunk, len)?;
        if let Some(handle) = handle.and_then(|number| self.handles.get_mut(number)) {
            wr = wr.register(handle)?;
        }
        wr.post(true)
    }

    /// Sends the next message with its last `len` bytes in a piece.
    pub(in crate::rdma) fn send_parted(&mut self, piece: usize, len: usize) -> Result {
        let number = self.sent;
        let (chunk, whole) = Self::fill(&mut self.chunks, &mut self.sent)?;
        let head = whole.checked_sub(len).ok_or(EINVAL)?;
        let piece = self.pieces.get_mut(piece).ok_or(EINVAL)?;
        let mut place = piece.chunk.place(len);
        for at in 0..place.len() {
            // SAFETY: Byte `at` is inside `place`.
            let byte = unsafe { place.as_mut_ptr().add(at) };
            // SAFETY: `place` has exclusive access to the byte.
            unsafe { byte.write_volatile(pattern(number, head + at)) };
        }
        let rest = chunk.bytes_mut().get_mut(head..).unwrap_or_default();
        rest.fill(0);
        let section = rcu::read_lock();
        let wr = self.qp.live(&section)?.send(chunk, head)?;
        wr.with(&mut piece.chunk, len)?.post(true)
    }

    /// Tries to send a message with `data` as its second part.
    pub(in crate::rdma) fn send_with(&mut self, data: &mut SharedChunk) -> Result {
        let chunk = self.chunks.first_mut().ok_or(EINVAL)?;
        let section = rcu::read_lock();
        let wr = self.qp.live(&section)?.send(chunk, 4)?;
        wr.with(data, 4)?.post(true)
    }

    /// Sends the next message without asking for its completion.
    pub(in crate::rdma) fn send_unsignaled(&mut self) -> Result {
        let (chunk, len) = Self::fill(&mut self.chunks, &mut self.sent)?;
        let section = rcu::read_lock();
        self.qp.live(&section)?.send(chunk, len)?.post(false)
    }

    /// Sends the next message as a control message.
    pub(in crate::rdma) fn send_control(&mut self) -> Result {
        let (chunk, len) = Self::fill(&mut self.chunks, &mut self.sent)?;
        let section = rcu::read_lock();
        self.qp.live(&section)?.send(chunk, len)?.post_control()
    }

    /// Waits until the peer has received all messages, in order.
    pub(in crate::rdma) fn arrived(&self) -> Result {
        self.peer.poll_until(|peer| peer.received() >= self.sent)?;
        if self.peer.received() == self.sent && self.peer.disordered() == 0 {
            Ok(())
        } else {
            Err(EIO)
        }
    }

    /// Whether the peer, which runs callbacks, has received all messages.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn arrived_by_itself(&self) -> bool {
        self.peer.received() >= self.sent
    }

    /// The segments of a handle, for the peer.
    pub(in crate::rdma) fn segments(&self, handle: usize) -> Result<KVec<Segment>> {
        let mut segments = KVec::new();
        for segment in self.handles.get(handle).ok_or(EINVAL)?.segments() {
            segments.push(segment, GFP_KERNEL)?;
        }
        Ok(segments)
    }

    /// As [`Self::arrived`], without sleeping.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn arrived_spinning(&self) -> Result {
        self.peer.spin_until(|peer| peer.received() >= self.sent)
    }

    /// Attaches a list to a handle, maps it, and sends the registration.
    pub(in crate::rdma) fn grant(
        &mut self,
        handle: usize,
        list: List,
        direction: DataDirection,
    ) -> Result {
        let place = self.handles.get_mut(handle).ok_or(EINVAL)?;
        place.attach(list).map_err(|_| EBUSY)?;
        place.map(direction, random_u64())?;
        self.send(Some(handle))?;
        self.arrived()
    }

    /// Takes the list back from a handle.
    pub(in crate::rdma) fn take(&mut self, handle: usize) -> Result<List> {
        let handle = self.handles.get_mut(handle).ok_or(EINVAL)?;
        handle.detach()?.ok_or(EINVAL)
    }

    /// Invalidates handles, and spins until the invalidations have completed.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn revoke_all(&mut self, handles: core::ops::Range<usize>) -> Result {
        for handle in handles.clone() {
            self.invalidate(handle)?;
        }
        let handles = self.handles.get(handles).ok_or(EINVAL)?;
        self.peer
            .spin_until(|_| handles.iter().all(|handle| handle.unreachable()))
    }

    /// Posts the invalidation of a handle; returns whether there was anything to invalidate.
    pub(in crate::rdma) fn invalidate(&mut self, handle: usize) -> Result<bool> {
        let handle = self.handles.get_mut(handle).ok_or(EINVAL)?;
        let section = rcu::read_lock();
        match self.qp.live(&section)?.invalidation(handle)? {
            Some(invalidation) => invalidation.post().map(|()| true),
            None => Ok(false),
        }
    }

    /// Invalidates a handle and waits for the callback.
    pub(in crate::rdma) fn revoke(&mut self, handle: usize) -> Result {
        let before = self.record().count();
        if !self.invalidate(handle)? {
            return Err(EINVAL);
        }
        within(|| self.record().count() > before)
    }

    /// Whether the connection has failed or ended.
    pub(in crate::rdma) fn is_over(&self) -> bool {
        self.record().failed() > 0 || self.peer.is_disconnected() || self.events.ended.load(Acquire)
    }
}
