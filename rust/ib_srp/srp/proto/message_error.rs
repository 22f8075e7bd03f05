// SPDX-License-Identifier: GPL-2.0

//! Errors of parsing and building messages.

use super::texts::texts;

use zerocopy::FromBytes;

texts! {
    /// Bytes from the target that are not a valid message.
    ///
    /// The driver maps it to `EPROTO` during a login and to a protocol violation afterwards.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum ProtocolError {
        /// The message is shorter than its fixed part.
        Short {
            /// Length of the fixed part, in bytes; 1 if there was no opcode.
            need: usize,
            /// Number of bytes received.
            got: usize,
        } => "message of {got} bytes, at least {need} needed";

        /// The opcode is unknown or unexpected here.
        Opcode(opcode: u8) => "unexpected opcode {opcode:#04x}";

        /// A length field points past the end of the message.
        Length {
            /// Length that the fields claim, in bytes.
            claimed: u64,
            /// Number of bytes received.
            got: usize,
        } => "length fields claim {claimed} bytes, {got} arrived";
    }

    /// A message that cannot be built: a driver bug, or a command that the driver must refuse.
    /// Never the target's fault.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum BuildError {
        /// The buffer is smaller than the message.
        NoSpace {
            /// Length of the message, in bytes.
            need: usize,
            /// Size of the buffer, in bytes.
            have: usize,
        } => "{need} bytes do not fit into {have}";

        /// The CDB is empty or longer than [`MAX_CDB_LEN`](super::cmd::MAX_CDB_LEN); its length.
        Cdb(len: usize) => "CDB of {len} bytes";

        /// The number of descriptors in one message, if 0 or more than 255.
        Descriptors(n: usize) => "{n} descriptors";

        /// The data does not fit into the 32-bit length field, or the direction has no data.
        Data => "wrong data length or direction";
    }
}

/// Defines structures as they are on the wire, each with its length in bytes:
/// `struct Name[length] { fields }`. The compiler checks the length, and that there is no padding.
macro_rules! wire {
    ($(
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident[$len:expr] $fields:tt
    )*) => {
        $(
            $(#[$attribute])*
            #[derive(
                zerocopy_derive::FromBytes,
                zerocopy_derive::Immutable,
                zerocopy_derive::IntoBytes,
                zerocopy_derive::KnownLayout,
                zerocopy_derive::Unaligned,
            )]
            #[repr(C)]
            $vis struct $name $fields

            const _: () = assert!(core::mem::size_of::<$name>() == $len);
        )*
    };
}
pub(super) use wire;

/// Splits a message with this opcode into its fixed part `T` and the bytes after it.
pub(super) fn split<T: FromBytes>(bytes: &[u8], opcode: u8) -> Result<(T, &[u8]), ProtocolError> {
    let short = |need| ProtocolError::Short {
        need,
        got: bytes.len(),
    };
    match bytes.first() {
        None => Err(short(1)),
        Some(&first) if first != opcode => Err(ProtocolError::Opcode(first)),
        Some(_) => T::read_from_prefix(bytes).map_err(|_| short(core::mem::size_of::<T>())),
    }
}

/// Writes a part of a message at this offset of `buf`; returns the offset of its end.
pub(super) fn put(buf: &mut [u8], at: usize, part: &[u8]) -> Result<usize, BuildError> {
    let (need, have) = (at.saturating_add(part.len()), buf.len());
    buf.get_mut(at..)
        .and_then(|rest| rest.get_mut(..part.len()))
        .ok_or(BuildError::NoSpace { need, have })?
        .copy_from_slice(part);
    Ok(need)
}
