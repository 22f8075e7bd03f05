// SPDX-License-Identifier: GPL-2.0

//! The subnet management agent of a channel adapter (IBTA 14.2.5).
//!
//! `ib_mad` handles the last hop of a directed-route SMP before `process_mad`, and the first hop of
//! the response, so this agent has no hops.

use super::{
    agent::Request,
    changes::Changes,
    link::Link,
    mad::{
        attribute,
        info::PortInfo,
        Data,
        Lrh,
        Mad,
        Refusal,
        Smp, //
    },
    node::Node,
    port::{
        capability,
        reregistering,
        Port,
        GUIDS, //
    },
};

/// Maximum number of ports of an adapter.
pub const MAX_PORTS: usize = 4;

/// NodeType of a channel adapter.
const NODE_TYPE: u8 = 1;

const CAPABILITY: u32 = capability::TRAP
    | capability::SL_MAP
    | capability::SYS_IMAGE_GUID
    | capability::CAP_MASK_NOTICE
    | capability::CLIENT_REREGISTER;

/// The result of `process_mad`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// There is a response, and `Changes` has the changes: `IB_MAD_RESULT_SUCCESS |
    /// IB_MAD_RESULT_REPLY`.
    Reply(Changes),
    /// The MAD was for the agent, and there is no response: `IB_MAD_RESULT_SUCCESS |
    /// IB_MAD_RESULT_CONSUMED`.
    Consumed,
    /// The MAD is not for the agent: `IB_MAD_RESULT_SUCCESS`.
    Ignored,
}

/// A channel adapter as the subnet manager sees it. Callers serialise access.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ca {
    node: Node<Port, MAX_PORTS>,
}

impl Ca {
    /// Creates an adapter with `ports` ports, at most [`MAX_PORTS`], without cables. `guid` is the
    /// GUID of the node and of its system; port n has the GUID `guid` + n.
    pub const fn new(guid: u64, ports: u8) -> Self {
        let all = [port(guid, 1), port(guid, 2), port(guid, 3), port(guid, 4)];
        Self {
            node: Node::new(guid, ports, all),
        }
    }

    /// The number of ports. They are numbered from 1.
    pub fn ports(&self) -> u8 {
        self.node.count()
    }

    /// GUID of the node.
    pub fn guid(&self) -> u64 {
        self.node.guid()
    }

    /// Returns port `number`.
    pub fn port(&self, number: u8) -> Option<&Port> {
        self.node.port(number)
    }

    /// Port `number`, mutable.
    pub fn port_mut(&mut self, number: u8) -> Option<&mut Port> {
        self.node.port_mut(number)
    }

    /// Sets the node description. A change queues a trap at each port.
    pub fn set_description(&mut self, description: &Data) {
        if self.node.set_description(description) {
            self.node.ports_mut().for_each(Port::described);
        }
    }

    /// The node's description.
    pub fn description(&self) -> &Data {
        self.node.description()
    }

    /// Sets and clears bits of the capability mask of port `number`. A change queues a trap.
    pub fn set_capability(&mut self, number: u8, set: u32, clear: u32) {
        if let Some(port) = self.port_mut(number) {
            port.set_capability(set, clear);
        }
    }

    /// Sets whether port `number` has a link.
    pub fn link(&mut self, number: u8, up: bool) -> Changes {
        let mut changes = Changes::none(number);
        if let Some(port) = self.port_mut(number) {
            let was = port.is_active();
            port.link.set_up(up);
            changes.add(Changes::ERROR, was && !port.is_active());
        }
        changes
    }

    /// Returns [`Link::trains`] of port `number`.
    pub fn trains(&self, number: u8) -> bool {
        self.port(number).is_some_and(|port| port.link.trains())
    }

    /// Called once per second. Traps that are not repressed become due again; leases count down.
    pub fn tick(&mut self) {
        self.node.ports_mut().for_each(Port::tick);
    }

    /// Takes the next due trap, with the port that sends it.
    pub fn trap(&mut self) -> Option<(u8, Lrh, Mad)> {
        let mut ports = (1_u8..).zip(self.node.ports_mut());
        ports.find_map(|(number, port)| {
            let (lrh, mad) = port.traps.take(port.issuer())?;
            Some((number, lrh, mad))
        })
    }

    /// Handles `mad`, which arrived at port `number` from LID `slid`, or from this node itself.
    /// Writes `reply` only if there is a response.
    pub fn process(&mut self, number: u8, slid: u16, mad: &Mad, reply: &mut Mad) -> Outcome {
        let smp = Smp::of(mad);
        let request = Request::of(smp);
        let attr_id = smp.attr_id.get();
        if request == Request::None || attr_id == attribute::SM_INFO {
            return Outcome::Ignored;
        }
        let Some(port) = self.port_mut(number) else {
            return Outcome::Ignored;
        };
        if !port.mkey.admits(smp) {
            port.traps.bad_mkey(smp, slid);
            return Outcome::Consumed;
        }
        let result = match request {
            Request::Repress => {
                port.traps.repress(smp.tid.get());
                return Outcome::Consumed;
            }
            Request::Get => Ok(Changes::none(number)),
            Request::Set => self.set(number, smp),
            Request::Refused(refusal) => Err(refusal),
            Request::None => return Outcome::Ignored,
        };
        *reply = *mad;
        let answer = Smp::of_mut(reply);
        let shown = result.and_then(|changes| {
            self.get(number, smp, &mut answer.data)?;
            if changes.has(Changes::REREGISTER) {
                reregistering(&mut answer.data);
            }
            Ok(changes)
        });
        answer.respond(shown.err());
        Outcome::Reply(shown.unwrap_or(Changes::none(number)))
    }

    /// Fills `data` with the attribute that `smp` requests.
    fn get(&self, number: u8, smp: &Smp, data: &mut Data) -> Result<(), Refusal> {
        let port = self.port(number).ok_or(Refusal::Value)?;
        let attr_mod = smp.attr_mod.get();
        match smp.attr_id.get() {
            attribute::NODE_DESC => *data = *self.description(),
            attribute::NODE_INFO => {
                let guid = port.guid(0).unwrap_or(self.guid());
                *data = zerocopy::transmute!(self.node.info(NODE_TYPE, number, guid));
            }
            attribute::PORT_INFO => {
                let named = self.named(attr_mod, number)?;
                let info = self.port(named).ok_or(Refusal::Value)?.info(smp, number);
                *data = zerocopy::transmute!(info);
            }
            attribute::PKEY_TABLE => port.pkey_table(attr_mod, data)?,
            attribute::GUID_INFO => port.guid_info(attr_mod, data)?,
            attribute::SL_TO_VL_TABLE => port.lanes(data),
            attribute::VL_ARB_TABLE => port.link.arbitration(block(attr_mod), data)?,
            _ => return Err(Refusal::Attribute),
        }
        Ok(())
    }

    /// Executes the Set request in `smp`. On error nothing changes.
    fn set(&mut self, number: u8, smp: &Smp) -> Result<Changes, Refusal> {
        let attr_mod = smp.attr_mod.get();
        let named = match smp.attr_id.get() {
            attribute::PORT_INFO => self.named(attr_mod, number)?,
            _ => number,
        };
        let port = self.port_mut(named).ok_or(Refusal::Value)?;
        match smp.attr_id.get() {
            attribute::PORT_INFO => {
                // Each port has its own M_Key.
                if named != number && !port.mkey.admits(smp) {
                    return Err(Refusal::Value);
                }
                port.set_info(PortInfo::of(&smp.data))
            }
            attribute::PKEY_TABLE => port.set_pkey_table(attr_mod, &smp.data),
            attribute::GUID_INFO => port.set_guid_info(attr_mod, &smp.data),
            attribute::SL_TO_VL_TABLE => {
                port.set_lanes(&smp.data);
                Ok(Changes::none(number))
            }
            attribute::VL_ARB_TABLE => port
                .link
                .set_arbitration(block(attr_mod), &smp.data)
                .map(|()| Changes::none(number)),
            _ => Err(Refusal::Attribute),
        }
    }

    /// The port that the modifier of PortInfo names; 0 means the port at which the SMP arrived.
    fn named(&self, attr_mod: u32, number: u8) -> Result<u8, Refusal> {
        Ok(match self.node.named_port(attr_mod)? {
            0 => number,
            named => named,
        })
    }
}

const fn port(guid: u64, number: u8) -> Port {
    Port::new(
        number,
        guid.wrapping_add(number as u64),
        NODE_TYPE,
        Link::UNPLUGGED,
        CAPABILITY,
        GUIDS as u8,
    )
}

/// The block in the modifier of VLArbitrationTable, whose port is ignored.
fn block(attr_mod: u32) -> u16 {
    (attr_mod >> 16) as u16
}
