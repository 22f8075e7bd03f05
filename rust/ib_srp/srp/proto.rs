// SPDX-License-Identifier: GPL-2.0

//! The SCSI RDMA Protocol on the wire.
//!
//! Structures, builders and parsers over byte slices for all messages to and from a target, and for
//! the login string. Nothing here touches kernel types, allocates or can panic; the same files are
//! built, tested and fuzzed in user space.
//!
//! All multi-byte fields are big-endian. Tags are opaque to the target; this driver sends them
//! big-endian too. Names are those of T10 SRP r16a and of `include/scsi/srp.h`.
//!
//! The types implement `core::fmt::Display`; pass them to the kernel's print macros through
//! `format_args!`.

pub mod address;
pub mod cmd;
pub mod guid;
pub mod ids;
pub mod login_iu;
pub mod message;
pub mod message_error;
pub mod number;
pub mod opcode;
pub mod option_error;
pub mod options;
pub mod reject;
pub mod rsp;
pub mod sense;
pub mod texts;
pub mod tmf;
