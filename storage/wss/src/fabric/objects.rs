// SPDX-License-Identifier: GPL-2.0

//! What an RS needs of the objects that it serves.

use std::os::fd::RawFd;

use serde_json::Value;
use verbs::Buffer;

use crate::{
    message::Status,
    rs::{OpId, Work},
};

/// An operation, with its buffer if it moves data.
pub struct Job {
    /// The operation.
    pub op: OpId,
    /// The I/O.
    pub work: Work,
    /// The data of a write, or memory for that of a read, from its start.
    pub memory: Option<Buffer>,
}

/// The result of an operation, and the buffer of its job. A buffer that is not returned is
/// deregistered later.
pub type Done = (OpId, Status, Option<Buffer>);

/// The objects of an RS.
pub trait Objects {
    /// Number of blocks of each object.
    fn blocks(&self) -> Vec<u64>;
    /// Starts an operation, whose blocks exist. Never waits.
    fn give(&mut self, job: Job);
    /// Takes the results of operations.
    fn done(&mut self) -> Vec<Done>;
    /// Descriptor that is readable when there are results.
    fn fd(&self) -> RawFd;
    /// Adds the objects to the status of the RS.
    fn status(&self, all: &mut Value);
    /// The reason if another RS may have the objects. Called before each event and message.
    fn lost(&self) -> Option<String> {
        None
    }
}
