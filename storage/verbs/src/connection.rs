// SPDX-License-Identifier: GPL-2.0

//! A connection: messages in both directions, RDMA READ and RDMA WRITE.

use std::{
    collections::VecDeque,
    ffi::{c_void, CStr},
    io,
    ptr::NonNull,
    sync::Arc,
};

use crate::{
    check,
    cm::{Id, Incoming, Outgoing},
    ffi,
    ib_cm::Request,
    made,
    memory::{Buffer, Device, Mapped},
    Slots,
};

/// Size of the send queue. Further work requests wait in the connection.
const SENDS: u32 = 256;
/// Maximum length of one work request in bytes, supported by all devices.
const MOST: u32 = 1 << 20;
/// Flag in the wr_id of receives.
const RECEIVE: u64 = 1 << 63;

/// An operation on the bytes of a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Op {
    /// SEND: a single piece. Its remote address is ignored.
    Send = 0,
    /// RDMA READ.
    Read = 1,
    /// RDMA WRITE.
    Write = 2,
}

/// When an operation is posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Post {
    /// At once.
    Now,
    /// With the next operation, by one doorbell.
    WithNext,
}

/// `len` consecutive bytes of the buffer and their remote address. The first piece starts at the
/// start of the buffer, each other one at the end of the piece before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// RDMA address.
    pub va: u64,
    /// rkey.
    pub key: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A completion.
pub enum Completion {
    /// A message has arrived.
    Received {
        /// The message.
        buffer: Buffer,
        /// Length of the message in bytes.
        len: usize,
    },
    /// An operation has completed as a whole.
    Done {
        /// The token of the operation.
        token: u64,
        /// The buffer of the operation; `None` for bytes of an arena.
        buffer: Option<Buffer>,
    },
    /// The connection is broken, with the reason. No completions follow.
    Failed(String),
}

/// Local memory of an operation.
enum Memory {
    Buffer(Buffer),
    Arena(Arc<Mapped>),
}

impl Memory {
    fn part(&mut self, at: usize, len: usize) -> io::Result<*mut c_void> {
        match self {
            Self::Buffer(buffer) => buffer.part(at, len),
            Self::Arena(arena) => arena.part(at, len),
        }
    }

    fn lkey(&self) -> u32 {
        match self {
            Self::Buffer(buffer) => buffer.lkey(),
            Self::Arena(arena) => arena.lkey(),
        }
    }
}

struct Work {
    token: u64,
    op: Op,
    memory: Memory,
    /// The pieces, each with its offset in the memory.
    pieces: VecDeque<(usize, Piece)>,
    posted: u32,
}

/// Splits pieces at the maximum length of a work request.
fn cut(pieces: impl IntoIterator<Item = (usize, Piece)>) -> io::Result<VecDeque<(usize, Piece)>> {
    let mut list = VecDeque::new();
    for (mut at, mut piece) in pieces {
        while piece.len > 0 {
            let len = piece.len.min(MOST);
            list.push_back((at, Piece { len, ..piece }));
            piece.len -= len;
            piece.va = piece.va.wrapping_add(len.into());
            at += len as usize;
        }
    }
    if list.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(list)
}

/// The owner of a queue pair.
enum End {
    /// An identifier of RDMA/CM.
    Rdma(Id),
    /// The connection itself. Its user runs the InfiniBand CM.
    Ib,
}

/// A connection. Operations are executed in the order queued.
pub struct Connection {
    // Fields are dropped after `drop` has destroyed the queue pair and the completion queue.
    end: End,
    qp: NonNull<ffi::Qp>,
    cq: NonNull<ffi::Cq>,
    /// Operations that have not completed. siw completes them in any order.
    works: Slots<Work>,
    /// Operations that are not completely posted.
    waiting: VecDeque<usize>,
    posted: u32,
    receives: Slots<Buffer>,
    /// Size of the receive queue.
    most: usize,
    device: Device,
}

// SAFETY: Verbs may be called from any thread; all calls take `&mut self`.
unsafe impl Send for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        match &self.end {
            // SAFETY: `on` created the queue pair. Afterwards the device accesses no buffer of the
            // connection.
            End::Rdma(id) => unsafe { ffi::shim_qp_free(id.as_ptr()) },
            // SAFETY: `respond` created the queue pair. Afterwards the device accesses no buffer of
            // the connection.
            End::Ib => unsafe { ffi::shim_rc_free(self.qp.as_ptr()) },
        }
        // SAFETY: `queue_of` created the completion queue, its queue pair is destroyed, and its
        // events are acknowledged when read.
        unsafe { ffi::shim_cq_free(self.cq.as_ptr()) };
    }
}

impl Connection {
    /// Accepts a connection request with at most 196 bytes of private data. [`Device::wakeup`]
    /// returns `token`. `buffers` are posted as receives; their number is the size of the receive
    /// queue.
    pub fn accept(
        incoming: Incoming,
        device: &Device,
        token: u64,
        buffers: Vec<Buffer>,
        data: &[u8],
    ) -> io::Result<Self> {
        // If the peer serves no RDMA READs, still ask for one, which it refuses: with a depth of 0
        // a device may wait forever.
        let depth = incoming.depth.clamp(1, device.0.depth.min(16));
        let id = incoming.id.as_ptr();
        let this = Self::on(incoming.id, device, token, buffers)?;
        let len = u8::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: The connection owns the identifier, and `data` has `len` bytes.
        check(unsafe { ffi::shim_accept(id, data.as_ptr().cast(), len, depth) })?;
        Ok(this)
    }

    /// Makes our end of a connection after its route is resolved. [`Connection::connect`] follows.
    pub fn call(
        outgoing: Outgoing,
        device: &Device,
        token: u64,
        buffers: Vec<Buffer>,
    ) -> io::Result<Self> {
        Self::on(outgoing.id, device, token, buffers)
    }

    /// Connects with at most 56 bytes of private data. [`crate::CmEvent::Established`] or
    /// [`crate::CmEvent::Ended`] follows; nothing may be queued until it is established. With iWARP
    /// the call may block for minutes.
    pub fn connect(&mut self, data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let End::Rdma(id) = &self.end else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: The connection owns the identifier, and `data` has `len` bytes.
        check(unsafe { ffi::shim_connect(id.as_ptr(), data.as_ptr().cast(), len) })?;
        Ok(())
    }

    /// Makes the target's end of a connection that a [`Request`] of the InfiniBand CM asks for, at
    /// port 1 of the device. The caller sends the REP. `token` and `buffers` are as for
    /// [`Connection::accept`]. Fails with ENOENT if the port is not in the partition.
    pub fn respond(
        request: &Request,
        device: &Device,
        token: u64,
        buffers: Vec<Buffer>,
    ) -> io::Result<Self> {
        let count = buffers.len() as u32;
        let partition = device.partition(request.pkey)?;
        let cq = Self::queue_of(device, token, count)?;
        let pd = device.0.pd.as_ptr();
        // SAFETY: The domain and the queue are alive.
        let qp = made(unsafe { ffi::shim_rc(pd, cq.as_ptr(), SENDS, count, partition) });
        let qp = qp.inspect_err(|_| {
            // SAFETY: The completion queue was created above and is unused.
            unsafe { ffi::shim_cq_free(cq.as_ptr()) }
        })?;
        let this = Self::new(End::Ib, qp, cq, device, buffers)?;
        let peer = ffi::RcPeer {
            qpn: request.qpn,
            psn: request.psn,
            lid: request.slid,
            sl: request.sl,
            mtu: request.mtu,
            timeout: request.ack_timeout,
            retries: request.retries,
            reads: request.depth(),
        };
        // SAFETY: The connection owns the queue pair, and `peer` is a local.
        check(unsafe { ffi::shim_rc_connect(this.qp.as_ptr(), &peer) })?;
        Ok(this)
    }

    /// Creates a completion queue for a queue pair with `count` receives.
    fn queue_of(device: &Device, token: u64, count: u32) -> io::Result<NonNull<ffi::Cq>> {
        let (context, wakeups) = (device.0.context.as_ptr(), device.0.wakeups.as_ptr());
        // SAFETY: The device lives as long as the connection, which keeps a clone.
        made(unsafe { ffi::shim_cq(context, wakeups, (SENDS + count) as i32, token) })
    }

    /// Creates a queue pair on an identifier and posts its receive buffers.
    fn on(id: Id, device: &Device, token: u64, buffers: Vec<Buffer>) -> io::Result<Self> {
        let count = buffers.len() as u32;
        let cq = Self::queue_of(device, token, count)?;
        let pd = device.0.pd.as_ptr();
        // SAFETY: The identifier, the domain and the queue are alive.
        let result = check(unsafe { ffi::shim_qp(id.as_ptr(), pd, cq.as_ptr(), SENDS, count) });
        // SAFETY: The identifier is alive.
        let qp = NonNull::new(unsafe { ffi::shim_qp_of(id.as_ptr()) });
        let (Ok(_), Some(qp)) = (&result, qp) else {
            // SAFETY: The completion queue was created above and is unused.
            unsafe { ffi::shim_cq_free(cq.as_ptr()) };
            return Err(result.err().unwrap_or(io::ErrorKind::NotFound.into()));
        };
        Self::new(End::Rdma(id), qp, cq, device, buffers)
    }

    /// Posts the receive buffers of a new queue pair.
    fn new(
        end: End,
        qp: NonNull<ffi::Qp>,
        cq: NonNull<ffi::Cq>,
        device: &Device,
        buffers: Vec<Buffer>,
    ) -> io::Result<Self> {
        let mut this = Self {
            end,
            qp,
            cq,
            works: Slots::default(),
            waiting: VecDeque::new(),
            posted: 0,
            receives: Slots::default(),
            most: buffers.len(),
            device: device.clone(),
        };
        this.arm()?;
        for buffer in buffers {
            this.receive(buffer)?;
        }
        Ok(this)
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        // SAFETY: The connection owns the queue pair.
        unsafe { ffi::shim_qpn(self.qp.as_ptr()) }
    }

    /// Starts to disconnect; [`crate::CmEvent::Ended`] follows. With the InfiniBand CM, the caller
    /// sends the DREQ.
    pub fn disconnect(&mut self) {
        // An error is ignored: the connection may already have ended.
        let _ = check(match &self.end {
            // SAFETY: The connection owns the identifier.
            End::Rdma(id) => unsafe { ffi::shim_disconnect(id.as_ptr()) },
            // SAFETY: The connection owns the queue pair.
            End::Ib => unsafe { ffi::shim_rc_end(self.qp.as_ptr()) },
        });
    }

    /// Fails with `InvalidInput` for a buffer of another protection domain: the device would end
    /// the connection when it uses the buffer.
    fn own(&self, buffer: &Buffer) -> io::Result<()> {
        let own = buffer.is_in(&self.device).then_some(());
        own.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Posts a receive buffer. Fails with `InvalidInput` if it is of another protection domain.
    pub fn receive(&mut self, mut buffer: Buffer) -> io::Result<()> {
        self.own(&buffer)?;
        if self.receives.len() == self.most {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = buffer.len();
        let memory = buffer.part(0, len)?;
        let (qp, lkey) = (self.qp.as_ptr(), buffer.lkey());
        let index = self.receives.insert(buffer);
        // SAFETY: The queue pair is alive; the memory is that of a buffer that stays in `receives`
        // until it completes.
        check(unsafe { ffi::shim_receive(qp, RECEIVE | index as u64, memory, len as u32, lkey) })?;
        Ok(())
    }

    /// Queues an operation on a buffer, piece by piece from its start, and posts it when `post`
    /// says. Empty pieces are skipped; at least one must not be empty. Fails with `InvalidInput` if
    /// the buffer is of another protection domain.
    pub fn queue(
        &mut self,
        token: u64,
        op: Op,
        post: Post,
        buffer: Buffer,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> io::Result<()> {
        self.own(&buffer)?;
        let mut at = 0;
        let placed = pieces.into_iter().map(|piece| {
            let start = at;
            at += piece.len as usize;
            (start, piece)
        });
        let pieces = cut(placed)?;
        self.add(token, op, post, Memory::Buffer(buffer), pieces)
    }

    /// Like [`Connection::queue`], on bytes of an arena. Each piece is preceded by its offset in
    /// the arena. The bytes must not change until the operation completes or the connection is
    /// dropped.
    pub fn queue_arena(
        &mut self,
        token: u64,
        op: Op,
        post: Post,
        arena: Arc<Mapped>,
        pieces: impl IntoIterator<Item = (usize, Piece)>,
    ) -> io::Result<()> {
        self.add(token, op, post, Memory::Arena(arena), cut(pieces)?)
    }

    fn add(
        &mut self,
        token: u64,
        op: Op,
        post: Post,
        memory: Memory,
        pieces: VecDeque<(usize, Piece)>,
    ) -> io::Result<()> {
        let work = Work {
            token,
            op,
            memory,
            pieces,
            posted: 0,
        };
        self.waiting.push_back(self.works.insert(work));
        match post {
            Post::Now => self.post(),
            Post::WithNext => Ok(()),
        }
    }

    /// Posts what waits, as far as the send queue has room.
    fn post(&mut self) -> io::Result<()> {
        loop {
            let list = self.next_sends()?;
            if list.is_empty() {
                return Ok(());
            }
            let (qp, count) = (self.qp.as_ptr(), list.len() as u32);
            // SAFETY: The queue pair is alive; the memory is that of buffers and arenas that stay
            // in `works` until their whole operations complete.
            check(unsafe { ffi::shim_send(qp, list.as_ptr(), count) })?;
        }
    }

    /// Takes work requests for one doorbell.
    fn next_sends(&mut self) -> io::Result<Vec<ffi::Send>> {
        let mut list = Vec::new();
        while let Some(&number) = self.waiting.front() {
            let Some(work) = self.works.get_mut(number) else {
                self.waiting.pop_front();
                continue;
            };
            while let Some((at, piece)) = work.pieces.front() {
                if self.posted == SENDS || list.len() == ffi::SENDS_AT_ONCE {
                    return Ok(list);
                }
                list.push(ffi::Send {
                    memory: work.memory.part(*at, piece.len as usize)?,
                    id: number as u64,
                    va: piece.va,
                    len: piece.len,
                    lkey: work.memory.lkey(),
                    rkey: piece.key,
                    op: work.op as u32,
                });
                work.posted += 1;
                self.posted += 1;
                work.pieces.pop_front();
            }
            self.waiting.pop_front();
        }
        Ok(list)
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: The connection owns the completion queue.
        check(unsafe { ffi::shim_arm(self.cq.as_ptr()) })?;
        Ok(())
    }

    /// The next completion. Call it after a wakeup until it returns `None`.
    pub fn poll(&mut self) -> Option<Completion> {
        let mut armed = false;
        loop {
            let mut done = ffi::Completion::default();
            // SAFETY: The connection owns the completion queue, and `done` is a local.
            match unsafe { ffi::shim_poll(self.cq.as_ptr(), &mut done) } {
                1.. => {
                    if let Some(completion) = self.completed(&done) {
                        return Some(completion);
                    }
                }
                // Poll again after arming: a completion that precedes the arming causes no wakeup.
                0 if !armed => {
                    armed = true;
                    if let Err(e) = self.arm() {
                        return Some(Completion::Failed(e.to_string()));
                    }
                }
                0 => return None,
                _ => return Some(Completion::Failed("cannot poll".into())),
            }
        }
    }

    fn completed(&mut self, done: &ffi::Completion) -> Option<Completion> {
        if done.status != 0 {
            // SAFETY: `shim_status` accepts every number.
            let why = unsafe { ffi::shim_status(done.status) };
            // SAFETY: The library returns a static string for every number.
            let why = unsafe { CStr::from_ptr(why) };
            return Some(Completion::Failed(why.to_string_lossy().into_owned()));
        }
        if done.id & RECEIVE != 0 {
            let index = (done.id & !RECEIVE) as usize;
            let buffer = self.receives.remove(index)?;
            let len = done.len as usize;
            return Some(Completion::Received { buffer, len });
        }
        self.posted -= 1;
        let number = done.id as usize;
        let work = self.works.get_mut(number)?;
        work.posted -= 1;
        let finished = work.posted == 0 && work.pieces.is_empty();
        let work = finished.then(|| self.works.remove(number)).flatten();
        if let Err(e) = self.post() {
            return Some(Completion::Failed(e.to_string()));
        }
        work.map(|work| Completion::Done {
            token: work.token,
            buffer: match work.memory {
                Memory::Buffer(buffer) => Some(buffer),
                Memory::Arena(_) => None,
            },
        })
    }
}
