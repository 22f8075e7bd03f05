// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a message, or with a buffer for one.

use core::fmt;

use zerocopy::network_endian::U32;

/// Bytes from the target that are not a message.
///
/// The driver maps it to `EPROTO` during a login and to a protocol violation afterwards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProtocolError {
    /// The message is shorter than its fixed part.
    Short {
        /// Bytes that the fixed part of this opcode has (1 if there was not even an opcode).
        need: usize,
        /// Bytes that arrived.
        got: usize,
    },
    /// The opcode is unknown or does not belong here.
    Opcode(u8),
    /// A length field points behind the end of the message.
    Length {
        /// Bytes that the fields claim.
        claimed: u64,
        /// Bytes that arrived.
        got: usize,
    },
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { need, got } => {
                write!(f, "message of {got} bytes, at least {need} needed")
            }
            Self::Opcode(opcode) => write!(f, "unexpected opcode {opcode:#04x}"),
            Self::Length { claimed, got } => {
                write!(f, "length fields claim {claimed} bytes, {got} arrived")
            }
        }
    }
}

/// A message that cannot be built from its inputs. Always a bug or a refused command, never the
/// target's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BuildError {
    /// The buffer has fewer bytes than the message.
    NoSpace {
        /// Bytes that the message takes.
        need: usize,
        /// Bytes in the buffer.
        have: usize,
    },
    /// The CDB has no bytes, or more than [`MAX_CDB_LEN`](super::cmd::MAX_CDB_LEN).
    Cdb(usize),
    /// Zero descriptors, or more than 255 in one message.
    Descriptors(usize),
    /// The data does not fit into the 32-bit length field, or the direction has no data.
    Data,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace { need, have } => write!(f, "{need} bytes do not fit into {have}"),
            Self::Cdb(len) => write!(f, "CDB of {len} bytes"),
            Self::Descriptors(n) => write!(f, "{n} descriptors"),
            Self::Data => f.write_str("wrong data length or direction"),
        }
    }
}

/// Checks that `bytes` starts with `opcode` and has the fixed part of that message.
pub(super) fn expect(bytes: &[u8], opcode: u8, need: usize) -> Result<(), ProtocolError> {
    let got = bytes.len();
    match bytes.first() {
        None => Err(ProtocolError::Short { need: 1, got }),
        Some(&first) if first != opcode => Err(ProtocolError::Opcode(first)),
        Some(_) if got < need => Err(ProtocolError::Short { need, got }),
        Some(_) => Ok(()),
    }
}

/// Copies a finished message to the start of `buf` and returns its length in bytes.
pub(super) fn put(buf: &mut [u8], message: &[u8]) -> Result<usize, BuildError> {
    let (need, have) = (message.len(), buf.len());
    buf.get_mut(..need)
        .ok_or(BuildError::NoSpace { need, have })?
        .copy_from_slice(message);
    Ok(need)
}

/// A 32-bit field in two's complement.
pub(super) fn signed(field: U32) -> i32 {
    i32::from_be_bytes(field.to_bytes())
}
