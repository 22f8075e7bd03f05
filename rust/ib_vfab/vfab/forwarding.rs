// SPDX-License-Identifier: GPL-2.0

//! The forwarding tables of a switch (IBTA 14.2.5.10, 14.2.5.12).

use super::mad::{
    Data,
    Refusal,
    DATA_LEN,
    FIRST_MULTICAST,
    PERMISSIVE, //
};

/// Number of entries in the linear forwarding table.
pub const UNICAST: usize = 1024;
/// Number of entries in the multicast forwarding table.
pub const MULTICAST: usize = 64;

/// An entry without a port.
const NONE: u8 = 0xff;
/// Number of entries in a block of the multicast table.
const GROUPS: usize = 32;
/// Number of ports in each position of a block of the multicast table.
const POSITION: u32 = 16;

/// The unicast and the multicast table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Forwarding {
    unicast: [u8; UNICAST],
    multicast: [u32; MULTICAST],
    /// LinearFDBTop.
    pub top: u16,
    /// DefaultMulticastPrimaryPort.
    pub primary: u8,
    /// DefaultMulticastNotPrimaryPort.
    pub not_primary: u8,
}

impl Forwarding {
    /// Empty tables.
    pub const EMPTY: Self = Self {
        unicast: [NONE; UNICAST],
        multicast: [0; MULTICAST],
        top: 0,
        primary: NONE,
        not_primary: NONE,
    };

    /// The output port for `lid`, if that port is at most `last`.
    pub fn unicast(&self, lid: u16, last: u8) -> Option<u8> {
        if lid == 0 || lid > self.top {
            return None;
        }
        self.unicast
            .get(usize::from(lid))
            .copied()
            .filter(|port| *port <= last)
    }

    /// Bit mask of the output ports of a packet for group `lid` that arrived at `inport`.
    pub fn multicast(&self, lid: u16, inport: u8) -> u32 {
        if !(FIRST_MULTICAST..PERMISSIVE).contains(&lid) {
            return 0;
        }
        let ports = self
            .multicast
            .get(usize::from(lid.wrapping_sub(FIRST_MULTICAST)))
            .copied()
            .unwrap_or_else(|| {
                bit(if inport == self.primary {
                    self.not_primary
                } else {
                    self.primary
                })
            });
        ports & !bit(inport)
    }

    /// Block `block` of LinearForwardingTable.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn linear(&self, block: u32, data: &mut Data) -> Result<(), Refusal> {
        let at = usize::try_from(block).map_err(|_| Refusal::Value)?;
        let entries = self.unicast.chunks_exact(DATA_LEN).nth(at);
        data.copy_from_slice(entries.ok_or(Refusal::Value)?);
        Ok(())
    }

    /// Sets block `block` of LinearForwardingTable.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn set_linear(&mut self, block: u32, data: &Data) -> Result<(), Refusal> {
        let at = usize::try_from(block).map_err(|_| Refusal::Value)?;
        let entries = self.unicast.chunks_exact_mut(DATA_LEN).nth(at);
        entries.ok_or(Refusal::Value)?.copy_from_slice(data);
        Ok(())
    }

    /// Reads the block of MulticastForwardingTable that `attr_mod` names: 32 groups, 16 ports.
    /// There are no ports above 31.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn groups(&self, attr_mod: u32, data: &mut Data) -> Result<(), Refusal> {
        let (block, shift) = group_block(attr_mod)?;
        let entries = self.multicast.chunks_exact(GROUPS).nth(block);
        for (to, ports) in data.chunks_exact_mut(2).zip(entries.ok_or(Refusal::Value)?) {
            to.copy_from_slice(&(((ports >> shift) & 0xffff) as u16).to_be_bytes());
        }
        Ok(())
    }

    /// Sets the block of MulticastForwardingTable that `attr_mod` names.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn set_groups(&mut self, attr_mod: u32, data: &Data) -> Result<(), Refusal> {
        let (block, shift) = group_block(attr_mod)?;
        let entries = self.multicast.chunks_exact_mut(GROUPS).nth(block);
        for (ports, from) in entries
            .ok_or(Refusal::Value)?
            .iter_mut()
            .zip(data.chunks_exact(2))
        {
            let new = from.try_into().map_or(0, u16::from_be_bytes);
            *ports = *ports & !(0xffff << shift) | u32::from(new) << shift;
        }
        Ok(())
    }
}

/// The block and first port that a modifier of MulticastForwardingTable names.
fn group_block(attr_mod: u32) -> Result<(usize, u32), Refusal> {
    let (position, block) = (attr_mod >> 28, attr_mod & 0x0fff_ffff);
    match position {
        0 => Ok((block as usize, 0)),
        1 => Ok((block as usize, POSITION)),
        _ => Err(Refusal::Value),
    }
}

/// The bit of `port`, or 0 if `port` is above 31.
fn bit(port: u8) -> u32 {
    1_u32.checked_shl(port.into()).unwrap_or(0)
}
