// SPDX-License-Identifier: GPL-2.0

//! The tests of the crate, in one program: what they share is compiled once.

mod acl;
mod common;
mod elsewhere;
mod hostile;
mod protocol;
mod scsi;
mod store;
mod threads;
