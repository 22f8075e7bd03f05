// SPDX-License-Identifier: GPL-2.0

//! A node of the subnet: the common part of the agents of adapters and switches.

use super::{
    mad::{
        info::NodeInfo,
        Data,
        Refusal,
        BASE_VERSION,
        CLASS_VERSION,
        DATA_LEN, //
    },
    port::PKEYS,
};

/// OUI of the vendor: OpenIB's, `IB_OPENIB_OUI`.
const VENDOR: [u8; 3] = [0x00, 0x14, 0x05];
/// DeviceID of channel adapters and switches.
const DEVICE: u16 = 0x7fab;

/// SMSupportExtendedSpeeds. Ignored, as no port supports extended speeds.
const EXTENDED_SPEEDS: u32 = 1 << 31;

/// A node with GUID, description, and up to `N` ports, numbered from 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node<P, const N: usize> {
    guid: u64,
    description: Data,
    count: u8,
    ports: [P; N],
}

impl<P, const N: usize> Node<P, N> {
    /// Creates a node with the first `count` of these ports, or all if there are fewer.
    pub const fn new(guid: u64, count: u8, ports: [P; N]) -> Self {
        Self {
            guid,
            description: [0; DATA_LEN],
            // CAST: `N` is less than `count`.
            count: if count as usize > N { N as u8 } else { count },
            ports,
        }
    }

    /// GUID of the node.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// The number of ports.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// The node description.
    pub fn description(&self) -> &Data {
        &self.description
    }

    /// Sets the node description. Returns whether it has changed.
    pub fn set_description(&mut self, description: &Data) -> bool {
        let changed = self.description != *description;
        self.description = *description;
        changed
    }

    /// Port `number`.
    pub fn port(&self, number: u8) -> Option<&P> {
        self.index(number).and_then(|at| self.ports.get(at))
    }

    /// Port `number`, mutable.
    pub fn port_mut(&mut self, number: u8) -> Option<&mut P> {
        self.index(number).and_then(|at| self.ports.get_mut(at))
    }

    /// All ports, mutable.
    pub fn ports_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.ports.iter_mut().take(self.count.into())
    }

    /// Number of ports before port `number`, if that port exists.
    pub fn index(&self, number: u8) -> Option<usize> {
        (1..=self.count)
            .contains(&number)
            .then(|| usize::from(number).saturating_sub(1))
    }

    /// The port that the modifier of PortInfo names, or 0.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such port.
    pub fn named_port(&self, attr_mod: u32) -> Result<u8, Refusal> {
        u8::try_from(attr_mod & !EXTENDED_SPEEDS)
            .ok()
            .filter(|port| *port <= self.count)
            .ok_or(Refusal::Value)
    }

    /// NodeInfo of a node of this type, for an SMP that arrived at port `number`. `port_guid` is
    /// the GUID of the port with the agent.
    pub fn info(&self, node_type: u8, number: u8, port_guid: u64) -> NodeInfo {
        NodeInfo {
            base_version: BASE_VERSION,
            class_version: CLASS_VERSION,
            node_type,
            num_ports: self.count,
            sys_guid: self.guid.into(),
            node_guid: self.guid.into(),
            port_guid: port_guid.into(),
            partition_cap: (PKEYS as u16).into(),
            device_id: DEVICE.into(),
            revision: 0.into(),
            local_port_num: number,
            vendor_id: VENDOR,
            reserved: [0; 24],
        }
    }
}
