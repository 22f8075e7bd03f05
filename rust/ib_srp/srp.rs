// SPDX-License-Identifier: GPL-2.0

//! The SRP initiator.
//!
//! [`sessions`] is the state of an RDMA port, [`session`] a login to one target, [`channel`] one
//! connection of a session, [`slot`] holds one command of a channel. [`proto`] and [`logic`] use no
//! kernel types and are also tested in user space.

#![deny(unsafe_code)]

pub mod bounce;
pub mod channel;
pub mod channels;
pub mod connect;
pub mod error;
pub mod front;
pub mod initiator;
pub mod ktime;
pub mod log;
pub mod logic;
pub mod login;
pub mod mapping;
pub mod port;
pub mod proto;
pub mod session;
pub mod sessions;
pub mod sizes;
pub mod slot;
pub mod statistics;
pub mod status;
#[cfg(SRP_KUNIT)]
mod tests;
