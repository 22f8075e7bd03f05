// SPDX-License-Identifier: GPL-2.0

//! A connection: what is received, sent, read from the other side's memory and written to it.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{c_void, CStr},
    io,
    ptr::NonNull,
    sync::Arc,
};

use crate::{
    check,
    cm::{Id, Incoming, Key, Outgoing},
    ffi, made,
    memory::{Buffer, Device, Mapped},
};

/// Work requests that may be in the send queue at once. What is more waits here.
const SENDS: u32 = 256;
/// Most bytes of one read or write: all devices can do as much.
const MOST: u32 = 1 << 20;
/// The bit of a work request that tells receives from the others.
const RECEIVE: u64 = 1 << 63;

/// What is done with the bytes of a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Op {
    /// They are a message; one piece, whose place is of no use.
    Send = 0,
    /// They come from the other side's memory.
    Read = 1,
    /// They go there.
    Write = 2,
}

/// So many bytes of the buffer, from its start or from the end of the piece before on, and their place on the other side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// RDMA address.
    pub va: u64,
    /// The rkey.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}

/// Something has ended.
pub enum Completion {
    /// A message has arrived.
    Received {
        /// Where.
        buffer: Buffer,
        /// Its length in bytes.
        len: usize,
    },
    /// All of what was queued with this token is done.
    Done {
        /// As it was queued with.
        token: u64,
        /// As it was queued with; `None` for bytes of an arena.
        buffer: Option<Buffer>,
    },
    /// The connection is broken, and why; nothing else will be done.
    Failed(String),
}

/// Where bytes are.
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
    /// With the place of each in the memory.
    pieces: VecDeque<(usize, Piece)>,
    posted: u32,
}

/// Cuts pieces to what all devices can do.
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

/// A connection. What is queued is done in its order.
pub struct Connection {
    // Its fields are dropped in this order, after its queue pair and its completion queue are gone.
    id: Id,
    cq: NonNull<ffi::Cq>,
    works: HashMap<u64, Work>,
    /// Those that are not posted as a whole.
    waiting: VecDeque<u64>,
    next: u64,
    posted: u32,
    receives: Vec<Option<Buffer>>,
    _device: Device,
}

// SAFETY: Verbs may be called from any thread; all calls need `&mut self`.
unsafe impl Send for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: `new` has made it. After this the device touches no buffer of the connection.
        unsafe { ffi::shim_qp_free(self.id.as_ptr()) };
        // SAFETY: `new` has made it, its queue pair is gone, and its events are acknowledged as they are read.
        unsafe { ffi::shim_cq_free(self.cq.as_ptr()) };
    }
}

impl Connection {
    /// Accepts what arrived, with this private data of at most 196 bytes. `token` is what [`Device::wakeup`] tells,
    /// `buffers` are for what is received; there will never be more of them.
    pub fn accept(
        incoming: Incoming,
        device: &Device,
        token: u64,
        buffers: Vec<Buffer>,
        data: &[u8],
    ) -> io::Result<Self> {
        // Who serves no reads gets one, and refuses it: a device may wait for ever with none.
        let depth = incoming.depth.clamp(1, 16);
        let this = Self::new(incoming.id, device, token, buffers)?;
        let len = u8::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: The identifier is ours, and the data has this length.
        check(unsafe { ffi::shim_accept(this.id.as_ptr(), data.as_ptr().cast(), len, depth) })?;
        Ok(this)
    }

    /// Makes a connection whose route is known, with this private data of at most 56 bytes.
    /// [`crate::CmEvent::Established`] or [`crate::CmEvent::Ended`] follows; before the first nothing may be queued.
    pub fn connect(
        outgoing: Outgoing,
        device: &Device,
        token: u64,
        buffers: Vec<Buffer>,
        data: &[u8],
    ) -> io::Result<Self> {
        let this = Self::new(outgoing.id, device, token, buffers)?;
        let len = u8::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: As for `accept`.
        check(unsafe { ffi::shim_connect(this.id.as_ptr(), data.as_ptr().cast(), len) })?;
        Ok(this)
    }

    /// A queue pair on an identifier, with its buffers posted.
    fn new(id: Id, device: &Device, token: u64, buffers: Vec<Buffer>) -> io::Result<Self> {
        let count = buffers.len() as u32;
        let (context, wakeups) = (device.0.context.as_ptr(), device.0.wakeups.as_ptr());
        let entries = (SENDS + count) as i32;
        // SAFETY: The device lives as long as the connection, which keeps it.
        let cq = made(unsafe { ffi::shim_cq(context, wakeups, entries, token) })?;
        let pd = device.0.pd.as_ptr();
        // SAFETY: All are alive.
        let result = check(unsafe { ffi::shim_qp(id.as_ptr(), pd, cq.as_ptr(), SENDS, count) });
        if let Err(e) = result {
            // SAFETY: It was made above, for nobody.
            unsafe { ffi::shim_cq_free(cq.as_ptr()) };
            return Err(e);
        }
        let mut this = Self {
            id,
            cq,
            works: HashMap::new(),
            waiting: VecDeque::new(),
            next: 0,
            posted: 0,
            receives: (0..count).map(|_| None).collect(),
            _device: device.clone(),
        };
        this.arm()?;
        for buffer in buffers {
            this.receive(buffer)?;
        }
        Ok(this)
    }

    /// Its name in events.
    pub fn key(&self) -> Key {
        self.id.key()
    }

    /// Begins to end it; [`crate::CmEvent::Ended`] follows.
    pub fn disconnect(&mut self) {
        // It may have ended by itself meanwhile, which is as good.
        // SAFETY: The identifier is ours.
        let _ = check(unsafe { ffi::shim_disconnect(self.id.as_ptr()) });
    }

    /// Gives a buffer for a message that arrives.
    pub fn receive(&mut self, mut buffer: Buffer) -> io::Result<()> {
        let free = self.receives.iter().position(Option::is_none);
        let index = free.ok_or(io::ErrorKind::InvalidInput)?;
        let len = buffer.len();
        let memory = buffer.part(0, len)?;
        let (id, lkey) = (self.id.as_ptr(), buffer.lkey());
        self.receives[index] = Some(buffer);
        // SAFETY: The queue pair is ours; the memory is that of a buffer that stays here until it is completed.
        check(unsafe { ffi::shim_receive(id, RECEIVE | index as u64, memory, len as u32, lkey) })?;
        Ok(())
    }

    /// Queues something that is to be done with a buffer, piece by piece from its start. Pieces without bytes are left
    /// out, and at least one must be left.
    pub fn queue(
        &mut self,
        token: u64,
        op: Op,
        buffer: Buffer,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> io::Result<()> {
        let mut at = 0;
        let placed = pieces.into_iter().map(|piece| {
            let start = at;
            at += piece.len as usize;
            (start, piece)
        });
        let pieces = cut(placed)?;
        self.add(token, op, Memory::Buffer(buffer), pieces)
    }

    /// Queues something that is to be done with bytes of an arena: pieces, with the place of each in it. They must stay as
    /// they are until it is done, or the connection is gone. Otherwise as [`Connection::queue`].
    pub fn queue_arena(
        &mut self,
        token: u64,
        op: Op,
        arena: Arc<Mapped>,
        pieces: impl IntoIterator<Item = (usize, Piece)>,
    ) -> io::Result<()> {
        self.add(token, op, Memory::Arena(arena), cut(pieces)?)
    }

    fn add(
        &mut self,
        token: u64,
        op: Op,
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
        self.works.insert(self.next, work);
        self.waiting.push_back(self.next);
        self.next += 1;
        self.post()
    }

    fn post(&mut self) -> io::Result<()> {
        while let Some(&number) = self.waiting.front() {
            let Some(work) = self.works.get_mut(&number) else {
                self.waiting.pop_front();
                continue;
            };
            while let Some((at, piece)) = work.pieces.front() {
                if self.posted == SENDS {
                    return Ok(());
                }
                let memory = work.memory.part(*at, piece.len as usize)?;
                let (id, op, lkey) = (self.id.as_ptr(), work.op as i32, work.memory.lkey());
                // SAFETY: The queue pair is ours; the memory is that of a buffer or an arena that stays here until all of
                // it is completed.
                check(unsafe {
                    ffi::shim_send(id, number, op, memory, piece.len, lkey, piece.va, piece.key)
                })?;
                work.posted += 1;
                self.posted += 1;
                work.pieces.pop_front();
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: The queue is ours.
        check(unsafe { ffi::shim_arm(self.cq.as_ptr()) })?;
        Ok(())
    }

    /// What has ended; to be called after a wakeup until it returns `None`.
    pub fn poll(&mut self) -> Option<Completion> {
        let mut armed = false;
        loop {
            let mut done = ffi::Completion::default();
            // SAFETY: The queue is ours, and so is `done`.
            match unsafe { ffi::shim_poll(self.cq.as_ptr(), &mut done) } {
                1.. => {
                    if let Some(completion) = self.completed(&done) {
                        return Some(completion);
                    }
                }
                // What came before it is armed wakes nobody.
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
            // SAFETY: Any number will do.
            let why = unsafe { ffi::shim_status(done.status) };
            // SAFETY: The library returns a string for every number, which is never freed.
            let why = unsafe { CStr::from_ptr(why) };
            return Some(Completion::Failed(why.to_string_lossy().into_owned()));
        }
        if done.id & RECEIVE != 0 {
            let slot = self.receives.get_mut((done.id & !RECEIVE) as usize)?;
            return Some(Completion::Received {
                buffer: slot.take()?,
                len: done.len as usize,
            });
        }
        self.posted -= 1;
        let work = self.works.get_mut(&done.id)?;
        work.posted -= 1;
        let finished = work.posted == 0 && work.pieces.is_empty();
        let work = finished.then(|| self.works.remove(&done.id)).flatten();
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
