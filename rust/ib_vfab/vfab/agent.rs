// SPDX-License-Identifier: GPL-2.0

//! Code common to all agents: which MADs are for them, and which port a MAD names.

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

/// OUI of the vendor: OpenIB's, `IB_OPENIB_OUI`.
pub const VENDOR: [u8; 3] = [0x00, 0x14, 0x05];
/// DeviceID of channel adapters and switches.
pub const DEVICE: u16 = 0x7fab;

/// What an SMP requests from the agent.
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
        // An SMP on its way back is for a subnet manager.
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

/// SMSupportExtendedSpeeds. Ignored, as no port supports extended speeds.
const EXTENDED_SPEEDS: u32 = 1 << 31;

/// The port that the modifier of PortInfo names, at most `last`.
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
