// SPDX-License-Identifier: GPL-2.0

//! `SRP_TSK_MGMT`: task management.

use core::fmt;

use zerocopy::{
    network_endian::U64,
    FromZeros,
    IntoBytes, //
};

use super::{
    ids::Lun,
    message_error::{
        put,
        wire,
        BuildError, //
    },
    opcode, //
};

/// Task tag for a function that does not address a single task.
pub const NO_TASK: u64 = 0xffff_ffff;

/// The function that the target must carry out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Function {
    /// Abort one command.
    AbortTask = 0x01,
    /// Abort all commands of this initiator on the logical unit.
    AbortTaskSet = 0x02,
    /// Abort all commands on the logical unit.
    ClearTaskSet = 0x04,
    /// Reset the logical unit.
    LunReset = 0x08,
    /// End an auto contingent allegiance.
    ClearAca = 0x40,
}

wire! {
    /// `struct srp_tsk_mgmt`.
    struct Wire[TskMgmt::LEN] {
        opcode: u8,
        sol_not: u8,
        reserved1: [u8; 6],
        tag: U64,
        reserved2: [u8; 4],
        lun: Lun,
        reserved3: [u8; 2],
        function: u8,
        reserved4: u8,
        task_tag: U64,
        reserved5: [u8; 8],
    }
}

/// A task management request.
#[derive(Clone, Copy, Debug)]
pub struct TskMgmt {
    /// Tag of the request, different from the tags of all commands.
    pub tag: u64,
    /// Logical unit.
    pub lun: Lun,
    /// Function to carry out.
    pub function: Function,
    /// Tag of the command to abort, [`NO_TASK`] for the other functions.
    pub task_tag: u64,
}

impl TskMgmt {
    /// Length of the message in bytes.
    pub const LEN: usize = 48;

    /// Writes the request; returns its length, 48 bytes.
    pub fn build(&self, iu: &mut [u8]) -> Result<usize, BuildError> {
        let wire = Wire {
            opcode: opcode::TSK_MGMT,
            tag: U64::new(self.tag),
            lun: self.lun,
            function: self.function as u8,
            task_tag: U64::new(self.task_tag),
            ..Wire::new_zeroed()
        };
        put(iu, 0, wire.as_bytes())
    }
}

/// The result that the target reports: a response code, [`None`] if the response had none. Only
/// [`TmfStatus::COMPLETE`] is a success.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TmfStatus(pub Option<u8>);

impl TmfStatus {
    /// Done: the target no longer accesses the data of the command.
    pub const COMPLETE: Self = Self(Some(0));
}

impl fmt::Display for TmfStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(0) => "complete",
            Some(2) => "invalid fields (2)",
            Some(4) => "not supported (4)",
            Some(5) => "failed or no such task (5)",
            Some(code) => return write!(f, "unknown code {code}"),
            None => "no response code",
        })
    }
}
