// SPDX-License-Identifier: GPL-2.0

//! A fabric of adapters, switches and cables, and a subnet manager for it.

#![allow(dead_code)] // Each test uses a part of it.

pub mod agent;

use srp_host::vfab::{
    ca::{Ca, Outcome},
    changes::Changes,
    mad::{
        attribute,
        info::{NodeInfo, PortInfo, SwitchInfo},
        Data, Lrh, Mad, Smp, BASE_VERSION, CLASS_DIRECTED, CLASS_LID_ROUTED, CLASS_VERSION, GET,
        LEN, PERMISSIVE, SET,
    },
    switch::{Next, Switch},
};
use std::collections::{HashMap, VecDeque};

pub enum Node {
    Ca(Box<Ca>),
    Switch(Box<Switch>),
}

/// A port of a node.
pub type End = (usize, u8);

#[derive(Default)]
pub struct Fabric {
    pub nodes: Vec<Node>,
    cables: HashMap<End, End>,
    /// The changes that Set requests made, in order, each with its node.
    pub changes: Vec<(usize, Changes)>,
}

impl Fabric {
    pub fn ca(&mut self, guid: u64, ports: u8) -> usize {
        self.nodes.push(Node::Ca(Box::new(Ca::new(guid, ports))));
        self.nodes.len() - 1
    }

    pub fn switch(&mut self, guid: u64, ports: u8) -> usize {
        let switch = Box::new(Switch::new(guid, ports));
        self.nodes.push(Node::Switch(switch));
        self.nodes.len() - 1
    }

    pub fn get_ca(&mut self, at: usize) -> &mut Ca {
        match &mut self.nodes[at] {
            Node::Ca(ca) => ca,
            Node::Switch(_) => panic!("node {at} is a switch"),
        }
    }

    pub fn get_switch(&mut self, at: usize) -> &mut Switch {
        match &mut self.nodes[at] {
            Node::Switch(switch) => switch,
            Node::Ca(_) => panic!("node {at} is an adapter"),
        }
    }

    fn set_link(&mut self, (node, port): End, up: bool) -> Changes {
        match &mut self.nodes[node] {
            Node::Ca(ca) => ca.link(port, up),
            Node::Switch(switch) => switch.link(port, up),
        }
    }

    fn trains(&self, (node, port): End) -> bool {
        match &self.nodes[node] {
            Node::Ca(ca) => ca.trains(port),
            Node::Switch(switch) => switch.trains(port),
        }
    }

    pub fn plug(&mut self, a: End, b: End) {
        self.cables.insert(a, b);
        self.cables.insert(b, a);
        self.retrain(a);
    }

    pub fn pull(&mut self, a: End) {
        let b = self.cables.remove(&a).expect("a cable");
        self.cables.remove(&b);
        self.set_link(a, false);
        self.set_link(b, false);
    }

    /// Takes the link at `a` down, and up again if both ends train.
    fn retrain(&mut self, a: End) {
        let Some(&b) = self.cables.get(&a) else {
            return;
        };
        let up = self.trains(a) && self.trains(b);
        for end in [a, b] {
            self.set_link(end, false);
        }
        if up {
            self.set_link(a, true);
            self.set_link(b, true);
        }
    }

    fn changed(&mut self, node: usize, changes: Changes) {
        if !changes.is_empty() {
            self.changes.push((node, changes));
        }
    }

    /// Sends a request from an adapter port. Returns the response that arrives there.
    pub fn request(&mut self, from: End, mut lrh: Lrh, mut mad: Mad) -> Option<(Lrh, Mad)> {
        if Smp::of(&mad).is_directed() {
            let smp = Smp::of_mut(&mut mad);
            // IBTA 14.2.2.2: the requester itself is the first hop.
            if smp.dr_slid.get() == PERMISSIVE {
                if smp.hop_cnt == 0 {
                    smp.hop_ptr = 1;
                    let reply = self.answer(from, &mut lrh, &mad)?;
                    return Some((lrh, reply));
                }
                assert_eq!(smp.initial_path[1], from.1, "out of another port");
                smp.hop_ptr = 1;
            }
        }
        let mut relink = Vec::new();
        let mut at = from;
        let mut out = true;
        for _ in 0..200 {
            if out {
                at = *self.cables.get(&at)?;
            }
            out = true;
            let (node, port) = at;
            match &mut self.nodes[node] {
                Node::Switch(switch) => match switch.smp(port, &mut lrh, &mut mad) {
                    Next::Out(to, changes) => {
                        self.changed(node, changes);
                        if changes.has(Changes::LINK) {
                            relink.push((node, changes.port));
                        }
                        at = (node, to);
                    }
                    Next::Drop => return None,
                },
                Node::Ca(_) => {
                    let smp = Smp::of_mut(&mut mad);
                    if smp.is_directed() && smp.is_returning() {
                        if smp.hop_ptr == 1 {
                            smp.hop_ptr = 0;
                        }
                    }
                    if at == from && smp.method & 0x80 != 0 {
                        for end in relink {
                            self.retrain(end);
                        }
                        return Some((lrh, mad));
                    }
                    if smp.is_directed() && smp.hop_ptr == smp.hop_cnt {
                        smp.return_path[usize::from(smp.hop_ptr)] = port;
                        smp.hop_ptr += 1;
                    }
                    mad = self.answer(at, &mut lrh, &mad)?;
                    let smp = Smp::of_mut(&mut mad);
                    if smp.is_directed() && smp.dr_dlid.get() == PERMISSIVE {
                        smp.hop_ptr -= 1;
                        assert_eq!(smp.return_path[usize::from(smp.hop_ptr)], port);
                    }
                }
            }
        }
        panic!("an SMP that circulates forever");
    }

    fn answer(&mut self, (node, port): End, lrh: &mut Lrh, mad: &Mad) -> Option<Mad> {
        let mut reply = [0; LEN];
        let ca = self.get_ca(node);
        let slid = lrh.slid;
        let outcome = ca.process(port, slid, mad, &mut reply);
        if lrh.dlid != PERMISSIVE {
            *lrh = Lrh {
                slid: lrh.dlid,
                dlid: slid,
                sl: lrh.sl,
            };
        }
        match outcome {
            Outcome::Reply(changes) => {
                self.changed(node, changes);
                Some(reply)
            }
            Outcome::Consumed | Outcome::Ignored => None,
        }
    }

    fn is_active(&self, (node, port): End) -> bool {
        match &self.nodes[node] {
            Node::Ca(ca) => ca.port(port).is_some_and(|port| port.is_active()),
            Node::Switch(switch) => switch.carries(port),
        }
    }

    /// The port at which a data packet from `from` to `dlid` arrives.
    pub fn deliver(&self, from: End, dlid: u16) -> Option<End> {
        let mut at = from;
        for _ in 0..20 {
            if !self.is_active(at) {
                return None;
            }
            at = *self.cables.get(&at)?;
            if !self.is_active(at) {
                return None;
            }
            match &self.nodes[at.0] {
                Node::Ca(ca) => {
                    let mine = ca.port(at.1).is_some_and(|port| port.lid() == dlid);
                    return Some(at).filter(|_| mine);
                }
                Node::Switch(switch) => at = (at.0, switch.forward(dlid)?),
            }
            if at.1 == 0 {
                return Some(at);
            }
        }
        None
    }

    /// The adapter ports at which copies of a packet from `from` to group `mlid` arrive, sorted.
    /// Panics if copies loop.
    pub fn spread(&self, from: End, mlid: u16) -> Vec<End> {
        let mut arrived = Vec::new();
        let mut out = VecDeque::from([from]);
        for hops in 0.. {
            assert!(hops < 200, "copies that circulate forever");
            let Some(end) = out.pop_front() else { break };
            if !self.is_active(end) {
                continue;
            }
            let Some(&(node, inport)) = self.cables.get(&end) else {
                continue;
            };
            if !self.is_active((node, inport)) {
                continue;
            }
            match &self.nodes[node] {
                Node::Ca(_) => arrived.push((node, inport)),
                Node::Switch(switch) => {
                    let ports = switch.multicast(mlid, inport);
                    let named = (1..=switch.ports()).filter(|port| ports & 1 << port != 0);
                    out.extend(named.map(|port| (node, port)));
                }
            }
        }
        arrived.sort();
        arrived
    }

    /// Takes the next trap of any node. Returns the node, the port and the packet.
    pub fn trap(&mut self) -> Option<(usize, u8, Lrh, Mad)> {
        self.nodes.iter_mut().enumerate().find_map(|(node, it)| {
            let (port, lrh, mad) = match it {
                Node::Ca(ca) => ca.trap()?,
                Node::Switch(switch) => switch.trap()?,
            };
            Some((node, port, lrh, mad))
        })
    }
}

/// A path of output ports, from the subnet manager's own port.
pub type Path = Vec<u8>;

pub fn smp(method: u8, attr_id: u16, attr_mod: u32, data: &Data) -> Mad {
    let mut mad = [0; LEN];
    let smp = Smp::of_mut(&mut mad);
    smp.base_version = BASE_VERSION;
    smp.mgmt_class = CLASS_LID_ROUTED;
    smp.class_version = CLASS_VERSION;
    smp.method = method;
    smp.tid = 0x1234_5678.into();
    smp.attr_id = attr_id.into();
    smp.attr_mod = attr_mod.into();
    smp.data = *data;
    mad
}

pub fn directed(mut mad: Mad, path: &[u8]) -> Mad {
    let smp = Smp::of_mut(&mut mad);
    smp.mgmt_class = CLASS_DIRECTED;
    smp.dr_slid = PERMISSIVE.into();
    smp.dr_dlid = PERMISSIVE.into();
    smp.hop_cnt = path.len() as u8;
    for (to, port) in smp.initial_path[1..].iter_mut().zip(path) {
        *to = *port;
    }
    mad
}

/// A node as a sweep finds it.
#[derive(Clone, Debug)]
pub struct Found {
    pub path: Path,
    pub info: NodeInfo,
    pub lid: u16,
    /// The GUID and port at the other end of each port's link.
    pub neighbors: HashMap<u8, (u64, u8)>,
}

/// A subnet manager at a port of an adapter.
pub struct Manager {
    pub at: End,
    pub mkey: u64,
    pub nodes: HashMap<u64, Found>,
    order: Vec<u64>,
}

impl Manager {
    pub fn new(at: End) -> Self {
        Self {
            at,
            mkey: 0,
            nodes: HashMap::new(),
            order: Vec::new(),
        }
    }

    /// Returns the attribute in the response, or its status without the direction bit; `None` if
    /// there is no response.
    pub fn ask(&self, fabric: &mut Fabric, path: &[u8], mut mad: Mad) -> Option<Result<Data, u16>> {
        Smp::of_mut(&mut mad).mkey = self.mkey.into();
        let (_, reply) = fabric.request(self.at, Lrh::PERMISSIVE, directed(mad, path))?;
        let (asked, said) = (Smp::of(&mad), Smp::of(&reply));
        assert_eq!(said.method, 0x81);
        assert_eq!(said.tid, asked.tid);
        assert_eq!(
            (said.attr_id, said.attr_mod),
            (asked.attr_id, asked.attr_mod)
        );
        assert_eq!(
            (said.hop_cnt, said.hop_ptr),
            (path.len() as u8, u8::from(path.is_empty()))
        );
        let status = said.status.get();
        assert_eq!(status & 0x8000, 0x8000);
        Some(match status & 0x7fff {
            0 => Ok(said.data),
            refused => Err(refused),
        })
    }

    pub fn get(&self, fabric: &mut Fabric, path: &[u8], attr_id: u16, attr_mod: u32) -> Data {
        let said = self.ask(fabric, path, smp(GET, attr_id, attr_mod, &[0; 64]));
        said.expect("a response").expect("an attribute")
    }

    pub fn set(&self, fabric: &mut Fabric, path: &[u8], attr_id: u16, attr_mod: u32, data: &Data) {
        let said = self.ask(fabric, path, smp(SET, attr_id, attr_mod, data));
        said.expect("a response").expect("obedience");
    }

    /// Finds all nodes.
    pub fn discover(&mut self, fabric: &mut Fabric) {
        self.nodes.clear();
        self.order.clear();
        let mut paths: VecDeque<(Path, Option<(u64, u8)>)> = VecDeque::from([(vec![], None)]);
        while let Some((path, from)) = paths.pop_front() {
            let info = self.get(fabric, &path, attribute::NODE_INFO, 0);
            let info: NodeInfo = zerocopy::transmute!(info);
            let guid = info.node_guid.get();
            if let Some(from) = from {
                // The other end of the last link of the path.
                let (there, back) = ((guid, info.local_port_num), from);
                self.nodes
                    .get_mut(&back.0)
                    .unwrap()
                    .neighbors
                    .insert(back.1, there);
            }
            if let Some(known) = self.nodes.get_mut(&guid) {
                if let Some(from) = from {
                    known.neighbors.insert(info.local_port_num, from);
                }
                continue;
            }
            let mut found = Found {
                path: path.clone(),
                info,
                lid: 0,
                neighbors: HashMap::new(),
            };
            if let Some(from) = from {
                found.neighbors.insert(info.local_port_num, from);
            }
            self.nodes.insert(guid, found);
            self.order.push(guid);
            let ports = match info.node_type {
                1 if path.is_empty() => vec![info.local_port_num],
                1 => vec![],
                2 => (1..=info.num_ports).collect(),
                other => panic!("node type {other}"),
            };
            for port in ports {
                let state = self.get(fabric, &path, attribute::PORT_INFO, port.into());
                if PortInfo::of(&state).speed_state & 0x0f > 1 {
                    let mut further = path.clone();
                    further.push(port);
                    paths.push_back((further, Some((guid, port))));
                }
            }
        }
    }

    /// Assigns a LID to every node, sets the routes of every switch, and brings all ports to
    /// ACTIVE.
    pub fn configure(&mut self, fabric: &mut Fabric) {
        let guids = self.order.clone();
        for (lid, guid) in (1..).zip(&guids) {
            self.nodes.get_mut(guid).unwrap().lid = lid;
        }
        let sm_lid = self.nodes[&guids[0]].lid;
        for guid in &guids {
            let found = self.nodes[guid].clone();
            let path = &found.path;
            let port = if found.info.node_type == 2 {
                0
            } else {
                found.info.local_port_num.into()
            };
            let mut data = self.get(fabric, path, attribute::PORT_INFO, port);
            let info = PortInfo::of_mut(&mut data);
            info.lid = found.lid.into();
            info.sm_lid = sm_lid.into();
            info.gid_prefix = 0xfec0_0000_0000_0001_u64.into();
            info.mtu_sm_sl = 0x50;
            info.reregister_timeout = 18;
            info.vls_enforce = info.vl_cap_init & 0xf0;
            info.speed_state &= 0xf0;
            info.physical_down &= 0x0f;
            self.set(fabric, path, attribute::PORT_INFO, port, &data);
            if found.info.node_type != 2 {
                continue;
            }
            let mut data = self.get(fabric, path, attribute::SWITCH_INFO, 0);
            let top = guids.len() as u16;
            let mut info: SwitchInfo = zerocopy::transmute!(data);
            info.linear_fdb_top = top.into();
            data = zerocopy::transmute!(info);
            self.set(fabric, path, attribute::SWITCH_INFO, 0, &data);
            let mut table = [0xff; 64];
            for other in &guids {
                let lid = usize::from(self.nodes[other].lid);
                table[lid] = self.port_towards(*guid, *other);
            }
            self.set(fabric, path, attribute::LINEAR_FORWARD_TABLE, 0, &table);
        }
        for state in [3, 4] {
            for guid in &guids {
                let found = self.nodes[guid].clone();
                for port in found.neighbors.keys() {
                    let data = self.get(fabric, &found.path, attribute::PORT_INFO, (*port).into());
                    if PortInfo::of(&data).speed_state & 0x0f < state {
                        self.bring(fabric, &found.path, *port, state);
                    }
                }
            }
        }
    }

    /// Sets the state of a port.
    pub fn bring(&self, fabric: &mut Fabric, path: &[u8], port: u8, state: u8) {
        let mut data = self.get(fabric, path, attribute::PORT_INFO, port.into());
        let info = PortInfo::of_mut(&mut data);
        info.speed_state = info.speed_state & 0xf0 | state;
        info.physical_down &= 0x0f;
        info.mtu_sm_sl = info.mtu_sm_sl & 0x0f | 0x50;
        self.set(fabric, path, attribute::PORT_INFO, port.into(), &data);
    }

    /// The port of switch `from` at which the shortest path to `to` begins.
    fn port_towards(&self, from: u64, to: u64) -> u8 {
        if from == to {
            return 0;
        }
        let mut seen = vec![from];
        let mut ways: VecDeque<(u64, Option<u8>)> = VecDeque::from([(from, None)]);
        while let Some((at, first)) = ways.pop_front() {
            if at == to {
                return first.unwrap();
            }
            if at != from && self.nodes[&at].info.node_type != 2 {
                continue;
            }
            for (port, (next, _)) in &self.nodes[&at].neighbors {
                if !seen.contains(next) {
                    seen.push(*next);
                    ways.push_back((*next, first.or(Some(*port))));
                }
            }
        }
        0xff
    }
}
