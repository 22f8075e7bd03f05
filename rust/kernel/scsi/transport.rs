// SPDX-License-Identifier: GPL-2.0

//! The transport classes that hosts may belong to.

pub mod srp;

pub use super::host::transport::{
    NoTransport,
    TimedOut,
    Transport, //
};
