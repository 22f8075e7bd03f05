// SPDX-License-Identifier: GPL-2.0

//! A switch: its subnet management agent behind port 0, and its forwarding (IBTA 14.2, 18.2).

use super::{
    agent::Request,
    changes::Changes,
    forwarding::{
        Forwarding,
        MULTICAST,
        UNICAST, //
    },
    link::{
        Link,
        Physical,
        State, //
    },
    mad::{
        attribute,
        info::{
            PortInfo,
            SwitchInfo,
            PORT_STATE_CHANGE, //
        },
        route::{
            hop,
            Hop, //
        },
        Data,
        Lrh,
        Mad,
        Refusal,
        Smp,
        PERMISSIVE, //
    },
    node::Node,
    port::{
        capability,
        get_lanes,
        reregistering,
        set_lanes,
        Port,
        LANES,
        LANES_LEN, //
    },
};

/// Maximum number of ports of a switch, without port 0.
pub const MAX_PORTS: usize = 16;

/// NodeType of a switch.
const NODE_TYPE: u8 = 2;

const CAPABILITY: u32 = capability::TRAP | capability::SL_MAP | capability::SYS_IMAGE_GUID;

/// The next step of an SMP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Out of this port. `Changes` has the port with changes, and the changes.
    Out(u8, Changes),
    /// Nowhere.
    Drop,
}

/// A switch. Callers serialise access.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Switch {
    /// The switch with its ports, except port 0.
    node: Node<Link, MAX_PORTS>,
    zero: Port,
    /// SLtoVLMappingTable, indexed by output port and input port.
    lanes: [[[u8; LANES_LEN]; MAX_PORTS + 1]; MAX_PORTS],
    forwarding: Forwarding,
    life_time: u8,
    state_change: bool,
}

impl Switch {
    /// Creates a switch with `ports` ports, at most [`MAX_PORTS`], without cables. `guid` is the
    /// GUID of the node, its system and its port 0.
    pub const fn new(guid: u64, ports: u8) -> Self {
        Self {
            node: Node::new(guid, ports, [const { Link::UNPLUGGED }; MAX_PORTS]),
            zero: Port::new(0, guid, NODE_TYPE, Link::INSIDE, CAPABILITY, 1),
            lanes: [[LANES; MAX_PORTS + 1]; MAX_PORTS],
            forwarding: Forwarding::EMPTY,
            life_time: 0,
            state_change: false,
        }
    }

    /// The number of ports without port 0. They are numbered from 1.
    pub fn ports(&self) -> u8 {
        self.node.count()
    }

    /// Port 0, with the switch's agent.
    pub fn zero(&self) -> &Port {
        &self.zero
    }

    /// Sets the node description.
    pub fn set_description(&mut self, description: &Data) {
        self.node.set_description(description);
    }

    /// Port `number`, except port 0.
    pub fn link_of(&self, number: u8) -> Option<&Link> {
        self.node.port(number)
    }

    /// Sets whether port `number` has a link. A change sets PortStateChange and queues a trap.
    pub fn link(&mut self, number: u8, up: bool) -> Changes {
        let mut changes = Changes::none(number);
        let Some(link) = self.node.port_mut(number) else {
            return changes;
        };
        let was = link.state();
        if link.set_up(up) {
            changes.add(Changes::ERROR, was == State::Active);
            self.state_change = true;
            self.zero.traps.link_state(self.zero.issuer());
        }
        changes
    }

    /// Returns [`Link::trains`] of port `number`.
    pub fn trains(&self, number: u8) -> bool {
        self.link_of(number).is_some_and(Link::trains)
    }

    /// Whether SMPs pass port `number`.
    pub fn is_up(&self, number: u8) -> bool {
        self.link_of(number)
            .is_some_and(|link| link.physical() == Physical::LinkUp)
    }

    /// Whether all packets pass port `number`, in and out.
    pub fn carries(&self, number: u8) -> bool {
        self.link_of(number)
            .is_some_and(|link| link.state() == State::Active)
    }

    /// The output port for `dlid`, 0 for the switch itself; `None` if there is none or `dlid` is a
    /// multicast LID.
    pub fn forward(&self, dlid: u16) -> Option<u8> {
        if dlid != 0 && dlid == self.zero.lid() {
            return Some(0);
        }
        self.forwarding.unicast(dlid, self.ports())
    }

    /// The output ports of a packet for group `mlid` that arrived at `inport`; bit n stands for
    /// port n.
    pub fn multicast(&self, mlid: u16, inport: u8) -> u32 {
        self.forwarding.multicast(mlid, inport)
    }

    /// Called once per second. Traps that are not repressed become due again; leases count down.
    pub fn tick(&mut self) {
        self.zero.tick();
    }

    /// Takes the next due trap, with its output port.
    pub fn trap(&mut self) -> Option<(u8, Lrh, Mad)> {
        let port = self.outward(self.zero.sm_lid())?;
        let (lrh, mad) = self.zero.traps.take(self.zero.issuer())?;
        Some((port, lrh, mad))
    }

    /// The output port for `lid`, if that port has a link.
    fn outward(&self, lid: u16) -> Option<u8> {
        self.forward(lid).filter(|port| self.is_up(*port))
    }

    /// Handles an SMP that arrived at port `inport`: executes, answers or forwards it. Updates
    /// `lrh` and `mad` to the packet that leaves.
    pub fn smp(&mut self, inport: u8, lrh: &mut Lrh, mad: &mut Mad) -> Next {
        let smp = Smp::of_mut(mad);
        if !self.is_up(inport) || !smp.is_smp() {
            return Next::Drop;
        }
        let own = lrh.dlid == PERMISSIVE || self.forward(lrh.dlid) == Some(0);
        let mut changes = Changes::none(inport);
        let mut to = if !own {
            Hop::Lid(lrh.dlid)
        } else if smp.is_directed() {
            route(smp, inport, lrh, self.zero.lid())
        } else {
            Hop::Here
        };
        // The LID after the directed part may be this switch's own.
        let ends_here = matches!(to, Hop::Lid(lid) if self.forward(lid) == Some(0));
        if ends_here {
            to = Hop::Here;
        }
        if to == Hop::Here {
            match self.obey(inport, lrh.slid, smp) {
                Some(changed) => changes = changed,
                None => return Next::Drop,
            }
            to = if smp.is_directed() && (ends_here || smp.dr_dlid.get() == PERMISSIVE) {
                route(smp, inport, lrh, self.zero.lid())
            } else {
                if lrh.dlid != PERMISSIVE {
                    lrh.dlid = lrh.slid;
                    lrh.slid = self.zero.lid();
                }
                Hop::Out(inport)
            };
        }
        let port = match to {
            Hop::Out(port) => Some(port).filter(|port| self.is_up(*port)),
            Hop::Lid(lid) => self.outward(lid),
            Hop::Here | Hop::Nowhere => None,
        };
        port.map_or(Next::Drop, |port| Next::Out(port, changes))
    }

    /// Executes the request `smp` and turns it into the response; `None` if there is no response.
    fn obey(&mut self, inport: u8, slid: u16, smp: &mut Smp) -> Option<Changes> {
        let request = Request::of(smp);
        if request == Request::None {
            return None;
        }
        if !self.zero.mkey.admits(smp) {
            self.zero.traps.bad_mkey(smp, slid);
            return None;
        }
        let result = match request {
            Request::Repress => {
                self.zero.traps.repress(smp.tid.get());
                return None;
            }
            Request::Get => Ok(Changes::none(inport)),
            Request::Set => self.set(inport, smp),
            Request::Refused(refusal) => Err(refusal),
            Request::None => return None,
        };
        let mut data = smp.data;
        let shown = result.and_then(|changes| {
            self.get(inport, smp, &mut data)?;
            if changes.has(Changes::REREGISTER) {
                reregistering(&mut data);
            }
            Ok(changes)
        });
        smp.data = data;
        smp.respond(shown.err());
        Some(shown.unwrap_or(Changes::none(inport)))
    }

    /// Fills `data` with the attribute that `smp` requests.
    fn get(&self, inport: u8, smp: &Smp, data: &mut Data) -> Result<(), Refusal> {
        let attr_mod = smp.attr_mod.get();
        match smp.attr_id.get() {
            attribute::NODE_DESC => *data = *self.node.description(),
            attribute::NODE_INFO => {
                let info = self.node.info(NODE_TYPE, inport, self.node.guid());
                *data = zerocopy::transmute!(info);
            }
            attribute::SWITCH_INFO => {
                let change = if self.state_change {
                    PORT_STATE_CHANGE
                } else {
                    0
                };
                *data = zerocopy::transmute!(SwitchInfo {
                    linear_fdb_cap: (UNICAST as u16).into(),
                    random_fdb_cap: 0.into(),
                    multicast_fdb_cap: (MULTICAST as u16).into(),
                    linear_fdb_top: self.forwarding.top.into(),
                    default_port: 0,
                    default_mcast_primary_port: self.forwarding.primary,
                    default_mcast_not_primary_port: self.forwarding.not_primary,
                    life_state: self.life_time << 3 | change,
                    lids_per_port: 0.into(),
                    enforcement_cap: 0.into(),
                    flags: 0,
                    reserved1: 0,
                    multicast_fdb_top: 0.into(),
                    reserved2: [0; 44],
                });
            }
            attribute::PORT_INFO => {
                let mut info = PortInfo::ZERO;
                match self.node.named_port(attr_mod)? {
                    0 => info = self.zero.info(smp, inport),
                    port => self.link_of(port).ok_or(Refusal::Value)?.get(&mut info),
                }
                info.local_port_num = inport;
                *data = zerocopy::transmute!(info);
            }
            attribute::PKEY_TABLE => self.zero.pkey_table(attr_mod, data)?,
            attribute::GUID_INFO => self.zero.guid_info(attr_mod, data)?,
            attribute::SL_TO_VL_TABLE => {
                let (input, output) = self.lanes_of(attr_mod)?;
                let lanes = self.lanes.get(output).and_then(|lanes| lanes.get(input));
                get_lanes(lanes.ok_or(Refusal::Value)?, data);
            }
            attribute::VL_ARB_TABLE => {
                let (block, port) = arbitration_of(attr_mod)?;
                let link = self.link_of(port).ok_or(Refusal::Value)?;
                link.arbitration(block, data)?;
            }
            attribute::LINEAR_FORWARD_TABLE => self.forwarding.linear(attr_mod, data)?,
            attribute::MCAST_FORWARD_TABLE => self.forwarding.groups(attr_mod, data)?,
            _ => return Err(Refusal::Attribute),
        }
        Ok(())
    }

    /// Executes the Set request in `smp`. On error nothing changes.
    fn set(&mut self, inport: u8, smp: &Smp) -> Result<Changes, Refusal> {
        let attr_mod = smp.attr_mod.get();
        let mut changes = Changes::none(inport);
        match smp.attr_id.get() {
            attribute::SWITCH_INFO => self.set_switch_info(SwitchInfo::of(&smp.data))?,
            attribute::PORT_INFO => {
                let info = PortInfo::of(&smp.data);
                let port = self.node.named_port(attr_mod)?;
                if port == 0 {
                    return self.zero.set_info(info);
                }
                changes = Changes::none(port);
                let link = self.node.port_mut(port).ok_or(Refusal::Value)?;
                let mut new = link.clone();
                new.set(info, &mut changes)?;
                *link = new;
            }
            attribute::PKEY_TABLE => return self.zero.set_pkey_table(attr_mod, &smp.data),
            attribute::GUID_INFO => return self.zero.set_guid_info(attr_mod, &smp.data),
            attribute::SL_TO_VL_TABLE => {
                let (input, output) = self.lanes_of(attr_mod)?;
                let lanes = self.lanes.get_mut(output);
                let lanes = lanes.and_then(|lanes| lanes.get_mut(input));
                set_lanes(lanes.ok_or(Refusal::Value)?, &smp.data);
            }
            attribute::VL_ARB_TABLE => {
                let (block, port) = arbitration_of(attr_mod)?;
                let link = self.node.port_mut(port).ok_or(Refusal::Value)?;
                link.set_arbitration(block, &smp.data)?;
            }
            attribute::LINEAR_FORWARD_TABLE => self.forwarding.set_linear(attr_mod, &smp.data)?,
            attribute::MCAST_FORWARD_TABLE => self.forwarding.set_groups(attr_mod, &smp.data)?,
            _ => return Err(Refusal::Attribute),
        }
        Ok(changes)
    }

    fn set_switch_info(&mut self, info: &SwitchInfo) -> Result<(), Refusal> {
        let top = info.linear_fdb_top.get();
        if usize::from(top) >= UNICAST {
            return Err(Refusal::Value);
        }
        self.forwarding.top = top;
        self.forwarding.primary = info.default_mcast_primary_port;
        self.forwarding.not_primary = info.default_mcast_not_primary_port;
        self.life_time = info.life_state >> 3;
        // Writing a 1 clears PortStateChange.
        if info.life_state & PORT_STATE_CHANGE != 0 {
            self.state_change = false;
        }
        Ok(())
    }

    /// The input and output port in the modifier of SLtoVLMappingTable; the output port counts from
    /// 0.
    fn lanes_of(&self, attr_mod: u32) -> Result<(usize, usize), Refusal> {
        let [high, low, input, output] = attr_mod.to_be_bytes();
        let output = self.node.index(output).ok_or(Refusal::Value)?;
        if high != 0 || low != 0 || input > self.ports() {
            return Err(Refusal::Value);
        }
        Ok((usize::from(input), output))
    }
}

/// Moves an SMP one hop further and updates its header. `lid` is the LID of the switch.
fn route(smp: &mut Smp, inport: u8, lrh: &mut Lrh, lid: u16) -> Hop {
    let to = hop(smp, inport);
    match to {
        Hop::Out(_) => *lrh = Lrh::PERMISSIVE,
        Hop::Lid(dlid) => {
            lrh.slid = lid;
            lrh.dlid = dlid;
        }
        Hop::Here | Hop::Nowhere => {}
    }
    to
}

/// The block and port in the modifier of VLArbitrationTable.
fn arbitration_of(attr_mod: u32) -> Result<(u16, u8), Refusal> {
    let port = u8::try_from(attr_mod & 0xffff).map_err(|_| Refusal::Value)?;
    Ok(((attr_mod >> 16) as u16, port))
}
