// SPDX-License-Identifier: GPL-2.0

//! The messages between client and nodes. docs/fabric.md shows which side sends which.
//!
//! A message is 64 bytes; some have a payload. Numbers are big-endian. Unused bytes are zero. A
//! message with other values there, or otherwise invalid, is rejected, so each message has one
//! encoding.

use crate::layout::{Cell, Mask, Span, NODES};

/// Length of a message, in bytes.
pub const LEN: usize = 64;
/// Maximum length of a payload, in bytes.
pub const PAYLOAD: usize = 128 * 512;

/// The role of a sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The client.
    Client,
    /// The node with this number.
    Node(u8),
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0,
    /// A request of another epoch. Nothing was done.
    Stale = 1,
    /// A required node does not answer. Nothing was done.
    Failed = 2,
    /// The request cannot be executed.
    Invalid = 3,
    /// A node has the blocks, and cannot read them. Nothing was done.
    Unreadable = 4,
}

/// A message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message {
    /// The first message of a connection, from the side that connected.
    Attach {
        /// Role of the sender.
        role: Role,
    },
    /// Answer of a node to [`Message::Attach`].
    Attached {
        /// Number of the node.
        number: u8,
        /// Epoch in which its file was admitted to the set; 0: never.
        since: u64,
        /// The last epoch that a client told the node.
        epoch: u64,
        /// Number of blocks per cell.
        cell: u16,
        /// Number of stripes.
        stripes: u64,
        /// The set that the node's file belongs to; 0 if it belongs to none.
        set: u64,
    },
    /// Client to node: use this map, which is the payload.
    Epoch {
        /// Epoch of the map.
        epoch: u64,
    },
    /// Answer to [`Message::Epoch`]: this node has no operation of an older epoch in flight, and no
    /// unacknowledged delta of one.
    Settled {
        /// The epoch.
        epoch: u64,
    },
    /// Client to node: all nodes have settled.
    Open {
        /// The epoch.
        epoch: u64,
    },
    /// Client to node, node to node: read blocks.
    Read {
        /// Epoch of the sender.
        epoch: u64,
        /// Identifier, unique for this connection.
        id: u64,
        /// The blocks.
        span: Span,
        /// Nodes without these blocks.
        lost: Mask,
    },
    /// Answer to [`Message::Read`]; the payload is the blocks if `Good`.
    Data {
        /// Result.
        status: Status,
        /// The request.
        id: u64,
        /// If `Unreadable`, the node with these blocks; else 0.
        node: u8,
    },
    /// Client to node: write the payload to these blocks of a data cell.
    Write {
        /// Epoch of the sender.
        epoch: u64,
        /// Identifier of the request.
        id: u64,
        /// The blocks.
        span: Span,
        /// Nodes without these blocks.
        lost: Mask,
    },
    /// Client to node: rebuild all cells of the receiver in a stripe from those of other nodes.
    Rebuild {
        /// Epoch of the sender.
        epoch: u64,
        /// Identifier of the request.
        id: u64,
        /// The stripe.
        stripe: u64,
        /// Nodes without the stripe.
        lost: Mask,
        /// Whether blocks that cannot be computed become bad. Otherwise the request fails.
        rest: bool,
    },
    /// WRITE or REBUILD has completed.
    Done {
        /// Result.
        status: Status,
        /// The request.
        id: u64,
        /// As in [`Message::Data`].
        node: u8,
    },
    /// Node to node: the payload is old XOR new of these blocks of a data cell, for a parity of the
    /// receiver.
    Delta {
        /// Epoch of the sender.
        epoch: u64,
        /// The node that received the write.
        owner: u8,
        /// Number of the write, unique for its owner.
        seq: u64,
        /// The blocks.
        span: Span,
        /// Nodes without these blocks at the time of the write.
        lost: Mask,
        /// The sender sends no further deltas of its own with a smaller `seq`.
        floor: u64,
    },
    /// Answer to [`Message::Delta`]; if `Good`, the delta is durable.
    Ack {
        /// `Good` or `Stale`.
        status: Status,
        /// As in [`Message::Delta`].
        owner: u8,
        /// As in [`Message::Delta`].
        seq: u64,
    },
    /// Node to client: a node does not answer the sender.
    Complain {
        /// Epoch of the sender.
        epoch: u64,
        /// The node.
        number: u8,
    },
    /// Node to client: the sender has found a stripe with blocks that it cannot read.
    Spoilt {
        /// Epoch of the sender.
        epoch: u64,
        /// The stripe.
        stripe: u64,
    },
    /// Keepalive.
    Alive {
        /// As in [`Message::Delta`]; 0 from a client.
        floor: u64,
    },
}

/// An invalid message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// Wrong length.
    Len(usize),
    /// Unknown operation code.
    Opcode(u8),
    /// A byte has an invalid value.
    Field,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Len(len) => write!(f, "a message of {len} bytes"),
            Self::Opcode(code) => write!(f, "operation code {code:#04x}"),
            Self::Field => write!(f, "a byte of a message is wrong"),
        }
    }
}

/// An encoded message. Byte 0: operation code; 1: status, role; 2: node; 3: lost nodes, a bit each;
/// 4: cell, row * 5 + column; 6, 7: first block; 8, 9: blocks; 16 to 23: epoch; 24 to 31:
/// identifier, number of a write; 32 to 39: stripe; 40 to 47: floor, set.
struct Form([u8; LEN]);

impl Form {
    fn new(opcode: u8) -> Self {
        let mut bytes = [0; LEN];
        bytes[0] = opcode;
        Self(bytes)
    }

    fn byte(mut self, at: usize, value: u8) -> Self {
        self.0[at] = value;
        self
    }

    fn half(mut self, at: usize, value: u16) -> Self {
        self.0[at..at + 2].copy_from_slice(&value.to_be_bytes());
        self
    }

    fn word(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_be_bytes());
        self
    }

    fn span(self, span: Span, lost: Mask) -> Self {
        self.byte(3, lost)
            .byte(4, span.cell.number())
            .half(6, span.block)
            .half(8, span.blocks)
            .word(32, span.stripe)
    }
}

fn half(bytes: &[u8; LEN], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8; LEN], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |n, b| n << 8 | u64::from(*b))
}

fn status(value: u8) -> Option<Status> {
    [
        Status::Good,
        Status::Stale,
        Status::Failed,
        Status::Invalid,
        Status::Unreadable,
    ]
    .get(usize::from(value))
    .copied()
}

impl Message {
    /// The answer to WRITE or REBUILD that blames no node.
    pub(crate) fn done(status: Status, id: u64) -> Self {
        Self::Done {
            status,
            id,
            node: 0,
        }
    }

    /// Encodes the message.
    pub fn build(&self) -> [u8; LEN] {
        let form = match *self {
            Self::Attach { role } => match role {
                Role::Client => Form::new(1).byte(1, 1),
                Role::Node(number) => Form::new(1).byte(1, 2).byte(2, number),
            },
            Self::Attached {
                number,
                since,
                epoch,
                cell,
                stripes,
                set,
            } => Form::new(2)
                .byte(2, number)
                .half(8, cell)
                .word(16, epoch)
                .word(24, since)
                .word(32, stripes)
                .word(40, set),
            Self::Epoch { epoch } => Form::new(3).word(16, epoch),
            Self::Settled { epoch } => Form::new(4).word(16, epoch),
            Self::Open { epoch } => Form::new(5).word(16, epoch),
            Self::Read {
                epoch,
                id,
                span,
                lost,
            } => Form::new(6).span(span, lost).word(16, epoch).word(24, id),
            Self::Data { status, id, node } => Form::new(7)
                .byte(1, status as u8)
                .byte(2, node)
                .word(24, id),
            Self::Write {
                epoch,
                id,
                span,
                lost,
            } => Form::new(8).span(span, lost).word(16, epoch).word(24, id),
            Self::Rebuild {
                epoch,
                id,
                stripe,
                lost,
                rest,
            } => Form::new(9)
                .byte(1, u8::from(rest))
                .byte(3, lost)
                .word(16, epoch)
                .word(24, id)
                .word(32, stripe),
            Self::Done { status, id, node } => Form::new(10)
                .byte(1, status as u8)
                .byte(2, node)
                .word(24, id),
            Self::Delta {
                epoch,
                owner,
                seq,
                span,
                lost,
                floor,
            } => Form::new(11)
                .byte(2, owner)
                .span(span, lost)
                .word(16, epoch)
                .word(24, seq)
                .word(40, floor),
            Self::Ack { status, owner, seq } => Form::new(12)
                .byte(1, status as u8)
                .byte(2, owner)
                .word(24, seq),
            Self::Complain { epoch, number } => Form::new(13).byte(2, number).word(16, epoch),
            Self::Alive { floor } => Form::new(14).word(40, floor),
            Self::Spoilt { epoch, stripe } => Form::new(15).word(16, epoch).word(32, stripe),
        };
        form.0
    }

    /// Parses a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| Broken::Len(bytes.len()))?;
        let number = bytes[2];
        let (epoch, id, stripe, floor) = (
            word(bytes, 16),
            word(bytes, 24),
            word(bytes, 32),
            word(bytes, 40),
        );
        let lost = bytes[3];
        let status = status(bytes[1]).ok_or(Broken::Field)?;
        let cell = Cell::from_number(bytes[4]).ok_or(Broken::Field)?;
        let span = Span {
            stripe,
            cell,
            block: half(bytes, 6),
            blocks: half(bytes, 8),
        };
        let message = match bytes[0] {
            1 => Self::Attach {
                role: match bytes[1] {
                    1 => Role::Client,
                    2 => Role::Node(number),
                    _ => return Err(Broken::Field),
                },
            },
            2 => Self::Attached {
                number,
                since: id,
                epoch,
                cell: half(bytes, 8),
                stripes: stripe,
                set: floor,
            },
            3 => Self::Epoch { epoch },
            4 => Self::Settled { epoch },
            5 => Self::Open { epoch },
            6 => Self::Read {
                epoch,
                id,
                span,
                lost,
            },
            7 if number == 0 || status == Status::Unreadable => Self::Data {
                status,
                id,
                node: number,
            },
            8 if cell.is_data() => Self::Write {
                epoch,
                id,
                span,
                lost,
            },
            9 => Self::Rebuild {
                epoch,
                id,
                stripe,
                lost,
                rest: bytes[1] != 0,
            },
            10 if number == 0 || status == Status::Unreadable => Self::Done {
                status,
                id,
                node: number,
            },
            11 if cell.is_data() => Self::Delta {
                epoch,
                owner: number,
                seq: id,
                span,
                lost,
                floor,
            },
            12 => Self::Ack {
                status,
                owner: number,
                seq: id,
            },
            13 => Self::Complain { epoch, number },
            14 => Self::Alive { floor },
            15 => Self::Spoilt { epoch, stripe },
            7 | 8 | 10 | 11 => return Err(Broken::Field),
            code => return Err(Broken::Opcode(code)),
        };
        // Unused bytes must be zero, and node and mask must be within the set.
        let form = message.build() == *bytes;
        let within = usize::from(number) < NODES && usize::from(lost) < 1 << NODES;
        if !form || !within {
            return Err(Broken::Field);
        }
        Ok(message)
    }

    /// Length of the payload in bytes, `None` if there is none. For EPOCH and DATA the result does
    /// not apply: any length is valid.
    pub fn payload(&self) -> Option<usize> {
        match self {
            Self::Epoch { .. } => Some(0),
            Self::Write { span, .. } | Self::Delta { span, .. } => Some(span.len()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let span = Span {
            stripe: 0x0102_0304_0506_0708,
            cell: Cell::data(7),
            block: 0x61,
            blocks: 0x1f,
        };
        let (epoch, id, lost) = (0xa1a2_a3a4_a5a6_a7a8, 0xb1b2_b3b4_b5b6_b7b8, 0x11);
        let (number, owner, seq, floor, stripe) = (3, 4, id, 0xc1c2_c3c4_c5c6_c7c8, span.stripe);
        vec![
            Message::Attach { role: Role::Client },
            Message::Attach {
                role: Role::Node(4),
            },
            Message::Attached {
                number,
                since: id,
                epoch,
                cell: 128,
                stripes: stripe,
                set: floor,
            },
            Message::Epoch { epoch },
            Message::Settled { epoch },
            Message::Open { epoch },
            Message::Read {
                epoch,
                id,
                span,
                lost,
            },
            Message::Data {
                status: Status::Failed,
                id,
                node: 0,
            },
            Message::Write {
                epoch,
                id,
                span,
                lost,
            },
            Message::Rebuild {
                epoch,
                id,
                stripe,
                lost,
                rest: false,
            },
            Message::Done {
                status: Status::Unreadable,
                id,
                node: 3,
            },
            Message::Delta {
                epoch,
                owner,
                seq,
                span,
                lost,
                floor,
            },
            Message::Ack {
                status: Status::Stale,
                owner,
                seq,
            },
            Message::Complain { epoch, number },
            Message::Alive { floor },
            Message::Spoilt { epoch, stripe },
            Message::Rebuild {
                epoch,
                id,
                stripe,
                lost,
                rest: true,
            },
        ]
    }

    #[test]
    fn each_has_one_form() {
        for message in all() {
            let bytes = message.build();
            assert_eq!(Message::parse(&bytes), Ok(message));
            // Changing a byte gives another message or an invalid one.
            for at in 0..LEN {
                for value in 0..=255 {
                    let mut other = bytes;
                    other[at] = value;
                    if let Ok(m) = Message::parse(&other) {
                        assert_eq!(m.build(), other);
                    }
                }
            }
            assert_eq!(Message::parse(&bytes[1..]), Err(Broken::Len(63)));
        }
        assert_eq!(Message::parse(&[0; 64]), Err(Broken::Opcode(0)));
    }

    #[test]
    fn fields_are_at_their_offsets() {
        let bytes = all()[11].build();
        assert_eq!(bytes[..10], [11, 0, 4, 0x11, 12, 0, 0, 0x61, 0, 0x1f]);
        assert_eq!(bytes[16..18], [0xa1, 0xa2]);
        assert_eq!(bytes[24..26], [0xb1, 0xb2]);
        assert_eq!(bytes[32..40], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[40..42], [0xc1, 0xc2]);
    }

    #[test]
    fn invalid_bytes_are_refused() {
        let parity = Cell { row: 0, column: 3 };
        for (n, at, value) in [
            (8, 4, parity.number()),
            (11, 4, 4),
            (11, 2, 5),
            (8, 3, 0x20),
            (7, 2, 1),
            (10, 1, 2),
            (10, 2, 5),
            (6, 4, 20),
            (0, 1, 3),
        ] {
            let mut bytes = all()[n].build();
            bytes[at] = value;
            assert_eq!(Message::parse(&bytes), Err(Broken::Field), "{n} {at}");
        }
    }
}
