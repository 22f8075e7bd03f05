// SPDX-License-Identifier: GPL-2.0

//! What the agents of all nodes have in common: which MADs they look at, which ports these name.

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

/// IEEE number of the vendor: OpenIB's, `IB_OPENIB_OUI`.
pub const VENDOR: [u8; 3] = [0x00, 0x14, 0x05];
/// Of a channel adapter and a switch.
pub const DEVICE: u16 = 0x7fab;

/// What an SMP asks of the agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// To show an attribute.
    Get,
    /// To change one, and show it then.
    Set,
    /// To be quiet about a trap.
    Repress,
    /// What it cannot do.
    Refused(Refusal),
    /// Nothing: it is for somebody else.
    None,
}

impl Request {
    /// The request in `smp`.
    pub fn of(smp: &Smp) -> Self {
        // What is on its way back is for a subnet manager.
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

/// SMSupportExtendedSpeeds, which does not matter without any.
const EXTENDED_SPEEDS: u32 = 1 << 31;

/// The port that the modifier of PortInfo names, of those up to `last`.
///
/// # Errors
///
/// If there is no such port.
pub fn named_port(attr_mod: u32, last: u8) -> Result<u8, Refusal> {
    u8::try_from(attr_mod & !EXTENDED_SPEEDS)
        .ok()
        .filter(|port| *port <= last)
        .ok_or(Refusal::Value)
}
