// SPDX-License-Identifier: GPL-2.0

//! The messages between the roles. docs/fabric.md shows which role sends which.
//!
//! A message is 64 bytes. EXEC is followed by its lists and zero padding to a multiple of 64.
//! Numbers are big-endian. Common fields: operation code (byte 0), a small number (1), the lengths
//! of two lists (2, 3), a number (4 to 7), an identifier (8 to 15), an epoch (16 to 23). Unused
//! bytes are zero. A message with other values there, or otherwise invalid, is rejected, so each
//! message has one encoding.

mod wire;

use srp_target::{
    proto::cmd::DirectBuf,
    scsi::status,
    wire::{cmd_rsp, Residual},
};

/// Length of a message without lists, in bytes. Every message length is a multiple of it.
pub const LEN: usize = 64;
/// Maximum number of extents of an EXEC.
pub const EXTENTS: usize = 4;
/// Maximum number of descriptors of an EXEC.
pub const DESCRIPTORS: usize = 16;
/// Length of an encoded extent, in bytes.
const EXTENT_LEN: usize = 32;
/// Length of the longest message, in bytes.
pub const MAX_LEN: usize = LEN + EXTENTS * EXTENT_LEN + DESCRIPTORS * DirectBuf::LEN;

/// The role of a sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Role {
    /// StorageEngine.
    Se = 1,
    /// CacheEngine.
    Ce = 2,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0,
    /// Done, and the response is sent to the initiator.
    Answered = 1,
    /// The initiator's connection is lost.
    Lost = 2,
    /// The sender or the subject is unknown, or its epoch is over.
    Stale = 3,
    /// The request cannot be executed.
    Invalid = 4,
    /// A read of the file failed.
    ReadError = 5,
    /// A write to the file failed.
    WriteError = 6,
    /// The file system of the file is full.
    Full = 7,
}

/// The subject of a fence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Scope {
    /// SE to CE and RS: the session with this epoch.
    Session = 1,
    /// SE to RS: a CE, of which only this epoch is valid.
    Member = 2,
    /// SE to RS: all CEs.
    All = 3,
}

/// A range of blocks of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// The RS.
    pub store: u32,
    /// The object.
    pub object: u32,
    /// First block.
    pub at: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Ownership epoch of the CE; cached lines of other epochs are stale. 0: owned by another CE,
    /// so do not cache.
    pub epoch: u64,
}

/// The method of zeroing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Zero {
    /// By writing zeros.
    Write,
    /// By freeing their space, where possible.
    Unmap,
}

/// A command for a CE, or for the RS that a CE passes it on to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exec {
    /// Identifier, unique for the sender.
    pub id: u64,
    /// The session.
    pub session: u64,
    /// Whether data comes from the initiator.
    pub write: bool,
    /// Whether the CE, or the RS, sends the response.
    pub answer: bool,
    /// Whether a write is flushed before the response, or a read bypasses the cache.
    pub stable: bool,
    /// Whether the RS of the extent has an answer channel of the session, so that the CE may pass
    /// the command on to it.
    pub direct: bool,
    /// If set, zero the blocks; there is no data, and the SE responds.
    pub zero: Option<Zero>,
    /// Tag of the response.
    pub tag: u64,
    /// Size of the initiator's buffer in bytes, for the residual.
    pub room: u32,
    /// Number of credits granted by the response.
    pub credits: i32,
    /// 1 to [`EXTENTS`] extents, in total at most 4 GiB.
    pub extents: Vec<Extent>,
    /// At most [`DESCRIPTORS`] buffers in the initiator's memory.
    pub descriptors: Vec<DirectBuf>,
}

impl Exec {
    /// Length of all extents, in bytes.
    pub fn len(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.blocks) * 512).sum()
    }

    /// Returns whether there are no blocks, which is never true for a command.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of all descriptors, in bytes: the bytes to transfer.
    pub fn moved(&self) -> u64 {
        self.descriptors.iter().map(|p| u64::from(p.len())).sum()
    }

    /// Returns whether the descriptors fit the blocks. The SE answers commands without a transfer,
    /// which only verify their blocks.
    pub fn sound(&self) -> bool {
        let (len, moved) = (self.len(), self.moved());
        match self.write {
            true => moved == len || self.zero.is_some(),
            false => moved <= len && (self.answer || moved == 0),
        }
    }

    /// The SRP_RSP of the command if it succeeds.
    pub fn response(&self) -> Vec<u8> {
        let residual = Residual::new(self.room, self.len() as u32);
        let (out, into) = match self.write {
            true => (residual, Residual::None),
            false => (Residual::None, residual),
        };
        cmd_rsp(self.credits, self.tag, status::GOOD, out, into, &[])
    }
}

/// A transfer of blocks between the arena of a CE and a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transfer {
    /// Identifier, unique for this connection.
    pub id: u64,
    /// The object.
    pub object: u32,
    /// First block.
    pub at: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Whether to flush before a GET reads, and after a PUT or ZERO has written.
    pub stable: bool,
    /// Address in the arena of the CE.
    pub va: u64,
    /// rkey of the arena.
    pub key: u32,
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// The first message of a connection, from the side that connected.
    Attach {
        /// Role of the sender.
        role: Role,
        /// Number of the CE; 0 for the SE.
        member: u32,
        /// CE to RS: the epoch assigned by the SE. SE to RS: the epoch of the SE. CE to SE: 0.
        epoch: u64,
    },
    /// Answer to [`Message::Attach`].
    Attached {
        /// `Good` or `Stale`.
        status: Status,
        /// From an RS: the number of the RS. From the SE: the number of the CE.
        number: u32,
        /// From the SE: the epoch assigned to the CE. From an RS: the epoch that the RS accepts.
        epoch: u64,
        /// From an RS: the boot of its host. Another number means that the RS has lost all
        /// unflushed writes. From the SE: 0.
        boot: u64,
    },
    /// CE or RS to SE: an initiator requests an answer channel.
    Join {
        /// Identifier of the login, from the sender.
        id: u64,
        /// Initiator port identifier.
        initiator: [u8; 16],
    },
    /// Answer to [`Message::Join`].
    Joined {
        /// `Good`, or `Stale` if the initiator has no session.
        status: Status,
        /// Identifier of [`Message::Join`].
        id: u64,
        /// The session.
        session: u64,
    },
    /// CE or RS to SE: an answer channel has ended.
    Left {
        /// `Lost`, or `Stale` if the initiator left before the channel was established.
        status: Status,
        /// Identifier of the login, because the session may have a later one.
        id: u64,
        /// The session.
        session: u64,
    },
    /// SE to CE, CE to RS: execute a command.
    Exec(Exec),
    /// EXEC, GET, PUT, ZERO, OPEN or FLUSH has completed; no part of it is in flight.
    Done {
        /// Result.
        status: Status,
        /// The request.
        id: u64,
        /// For OPEN, the number of blocks of the object.
        value: u64,
    },
    /// SE to CE: abort a command, which gets no response.
    Cancel {
        /// The command.
        id: u64,
    },
    /// Answer to [`Message::Cancel`]: no part of the command is in flight, and it got no response.
    Cancelled {
        /// The command.
        id: u64,
    },
    /// Fence: operations of older epochs must not take effect.
    Fence {
        /// The subject.
        scope: Scope,
        /// The CE, for [`Scope::Member`].
        member: u32,
        /// The session, or the oldest valid epoch.
        epoch: u64,
    },
    /// Answer to [`Message::Fence`], with its fields: the fence is in effect.
    Fenced {
        /// As in [`Message::Fence`].
        scope: Scope,
        /// As in [`Message::Fence`].
        member: u32,
        /// As in [`Message::Fence`].
        epoch: u64,
    },
    /// CE to RS: write blocks to the sender's arena.
    Get(Transfer),
    /// CE to RS: read blocks from the sender's arena.
    Put(Transfer),
    /// CE to RS: zero blocks. There is no data: `va` and `key` are zero.
    Zero(Transfer, Zero),
    /// SE to RS: query the size of an object.
    Open {
        /// Identifier of the request.
        id: u64,
        /// The object.
        object: u32,
    },
    /// SE to RS: flush an object.
    Flush {
        /// Identifier of the request.
        id: u64,
        /// The object.
        object: u32,
    },
    /// Keepalive.
    Alive,
    /// Grants the peer free receive buffers ([`crate::flow`]).
    Grant {
        /// Number of buffers, at least one.
        count: u32,
    },
}

/// An invalid message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// Wrong length.
    Len(usize),
    /// Unknown operation code.
    Opcode(u8),
    /// The byte at this offset has an invalid value.
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
