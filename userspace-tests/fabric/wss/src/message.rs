// SPDX-License-Identifier: GPL-2.0

//! The messages between the roles, byte by byte; docs/fabric.md has the same table.
//!
//! A message is 64 bytes; EXEC has its lists behind that, and zeros up to the next multiple of 64. Numbers are big-endian.
//! All begin alike: operation code (byte 0), a small number (1), the lengths of two lists (2, 3), a number (4 to 7), an
//! identifier (8 to 15), an epoch (16 to 23). Bytes without a meaning are zero, and a message in which one is not is
//! refused, as is everything else that nobody sends. So each message has one form.

mod wire;

use srp_target::proto::cmd::DirectBuf;

/// Bytes of a message without lists, and what the length of each is a multiple of.
pub const LEN: usize = 64;
/// Most extents of an EXEC.
pub const EXTENTS: usize = 4;
/// Most places of an EXEC.
pub const PLACES: usize = 16;
/// Bytes of an extent.
const EXTENT_LEN: usize = 32;
/// Bytes of the longest message.
pub const MAX_LEN: usize = LEN + EXTENTS * EXTENT_LEN + PLACES * DirectBuf::LEN;

/// Who somebody is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Role {
    /// Has the sessions.
    Se = 1,
    /// Has a cache.
    Ce = 2,
}

/// What came of something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Good = 0,
    /// It was done, and the initiator has the response.
    Answered = 1,
    /// The initiator's connection is no more.
    Lost = 2,
    /// Whoever asks, or whom it is about, is not known, or of an epoch that is over.
    Stale = 3,
    /// The request is not one that can be carried out.
    Invalid = 4,
    /// The file could not be read.
    ReadError = 5,
    /// The file could not be written.
    WriteError = 6,
    /// There is no place in the file system of the file.
    Full = 7,
}

/// What a fence is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Scope {
    /// SE to CE: the session with this epoch.
    Session = 1,
    /// SE to RS: a CE, of which only this epoch counts from now on.
    Member = 2,
    /// SE to RS: all CEs.
    All = 3,
}

/// Blocks of an object that a command is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// The RS.
    pub store: u32,
    /// Which of its objects.
    pub object: u32,
    /// The first block.
    pub at: u64,
    /// How many.
    pub blocks: u32,
    /// Since when the CE owns it: lines of another epoch are old. 0: it belongs to another CE, so nothing is kept.
    pub epoch: u64,
}

/// How blocks become zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Zero {
    /// They are written.
    Write,
    /// Their place is given back, where that can be done.
    Unmap,
}

/// A command for a CE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exec {
    /// Names it among all of this SE.
    pub id: u64,
    /// The session.
    pub session: u64,
    /// Data comes from the initiator.
    pub write: bool,
    /// The CE sends the response.
    pub answer: bool,
    /// Written blocks are made stable before the answer; blocks are read from the file.
    pub stable: bool,
    /// A write of zeros, without data: the SE answers.
    pub zero: Option<Zero>,
    /// Tag of the response.
    pub tag: u64,
    /// Bytes of the initiator's buffers, for the residual.
    pub room: u32,
    /// Credits that the response brings.
    pub credits: i32,
    /// 1 to [`EXTENTS`] of them, 4 GiB in all at most.
    pub extents: Vec<Extent>,
    /// At most [`PLACES`], in the initiator's memory.
    pub places: Vec<DirectBuf>,
}

impl Exec {
    /// Bytes of all its extents.
    pub fn len(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.blocks) * 512).sum()
    }

    /// It is about no block, which a command is never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all its places: what is moved.
    pub fn moved(&self) -> u64 {
        self.places.iter().map(|p| u64::from(p.len())).sum()
    }
}

/// Blocks that go between the arena of a CE and a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transfer {
    /// Names it among all of this connection.
    pub id: u64,
    /// Which object.
    pub object: u32,
    /// The first block.
    pub at: u64,
    /// How many.
    pub blocks: u32,
    /// What was written is made stable: before a GET reads, after a PUT has written.
    pub stable: bool,
    /// Address in the CE's arena.
    pub va: u64,
    /// Its rkey.
    pub key: u32,
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// The first message of a connection, by whoever has made it.
    Attach {
        /// Of the sender.
        role: Role,
        /// Number of a CE; 0 for the SE.
        member: u32,
        /// CE to RS: the one that the SE has given. SE to RS: its own. CE to SE: 0.
        epoch: u64,
    },
    /// The answer to it.
    Attached {
        /// `Good` or `Stale`.
        status: Status,
        /// Number of the RS; by the SE that of the CE.
        number: u32,
        /// The CE's epoch from now on; by an RS the one that counts there.
        epoch: u64,
    },
    /// CE to SE: an initiator wants an answer channel.
    Join {
        /// The CE's name for the login.
        id: u64,
        /// Its port identifier.
        initiator: [u8; 16],
    },
    /// The answer to it.
    Joined {
        /// `Good`, or `Stale` if the initiator has no session here.
        status: Status,
        /// As in [`Message::Join`].
        id: u64,
        /// The session.
        session: u64,
    },
    /// CE to SE: an answer channel is no more.
    Left {
        /// `Lost`, or `Stale` if there never was one, as the initiator has not waited for it.
        status: Status,
        /// As in [`Message::Join`]: another login of the session may have come after it.
        id: u64,
        /// The session.
        session: u64,
    },
    /// SE to CE: carry out a command.
    Exec(Exec),
    /// EXEC, GET, PUT, OPEN or FLUSH is over; nothing of it is under way.
    Done {
        /// How.
        status: Status,
        /// Which.
        id: u64,
        /// Blocks of the object, for OPEN.
        value: u64,
    },
    /// SE to CE: a command gets no response.
    Cancel {
        /// Which.
        id: u64,
    },
    /// Nothing of it is under way, and it was not answered.
    Cancelled {
        /// Which.
        id: u64,
    },
    /// Nothing of an older epoch may happen any more.
    Fence {
        /// What it is about.
        scope: Scope,
        /// The CE, for [`Scope::Member`].
        member: u32,
        /// The session, or the epoch that counts from now on.
        epoch: u64,
    },
    /// It is so. The same fields.
    Fenced {
        /// As it was.
        scope: Scope,
        /// As it was.
        member: u32,
        /// As it was.
        epoch: u64,
    },
    /// CE to RS: write blocks to my arena.
    Get(Transfer),
    /// CE to RS: read blocks from my arena.
    Put(Transfer),
    /// CE to RS: make zeros of blocks. Nothing is moved: `va` and `key` are zeros.
    Zero(Transfer, Zero),
    /// SE to RS: how large is an object?
    Open {
        /// Name of the request.
        id: u64,
        /// Which.
        object: u32,
    },
    /// SE to RS: what was written to an object is made stable.
    Flush {
        /// Name of the request.
        id: u64,
        /// Which.
        object: u32,
    },
    /// The sender lives.
    Alive,
    /// So many buffers for messages are free again ([`crate::flow`]).
    Grant {
        /// At least one.
        count: u32,
    },
}

/// What is no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// So many bytes are not as many as it must have.
    Len(usize),
    /// The operation code.
    Opcode(u8),
    /// A byte has a value that nobody sends: its place.
    Byte(usize),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Len(len) => write!(f, "a message of {len} bytes"),
            Self::Opcode(code) => write!(f, "operation code {code:#04x}"),
            Self::Byte(at) => write!(f, "byte {at} of a message is wrong"),
        }
    }
}
