// SPDX-License-Identifier: GPL-2.0

//! The MADs for an agent, and their requests.

use super::mad::{
    Refusal,
    Smp,
    CLASS_VERSION,
    GET,
    REPORT,
    RESPONSE,
    SEND,
    SET,
    TRAP,
    TRAP_REPRESS, //
};

/// The request of an SMP to the agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// Return an attribute.
    Get,
    /// Change an attribute and return it.
    Set,
    /// Stop repeating a trap.
    Repress,
    /// An invalid request.
    Refused(Refusal),
    /// Nothing: the SMP is not for the agent.
    None,
}

impl Request {
    /// The request in `smp`.
    pub fn of(smp: &Smp) -> Self {
        // A returning SMP is for a subnet manager.
        if !smp.is_smp() || smp.is_directed() && smp.is_returning() {
            return Self::None;
        }
        match smp.method {
            method if method & RESPONSE != 0 => Self::None,
            SEND | TRAP | REPORT => Self::None,
            _ if smp.class_version != CLASS_VERSION => Self::Refused(Refusal::Version),
            GET => Self::Get,
            SET => Self::Set,
            TRAP_REPRESS => Self::Repress,
            _ => Self::Refused(Refusal::Method),
        }
    }
}
