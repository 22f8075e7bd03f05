// SPDX-License-Identifier: GPL-2.0

//! The fabric: host channel adapters and one switch, with a cable from each adapter port to a
//! switch port.
//!
//! One lock protects the management of all nodes. The fast path takes it only when
//! [`Fabric::generation`] has changed.

use super::{
    ca::{
        Ca,
        Outcome, //
    },
    changes::Changes,
    link::State,
    mad::{
        Data,
        Lrh,
        Mad,
        Smp,
        PERMISSIVE,
        SET, //
    },
    port::{
        Port,
        PKEYS, //
    },
    switch::{
        Next,
        Switch,
        MAX_PORTS, //
    },
};
use crate::compat::{
    new_spinlock_irq,
    SpinLockIrq, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

/// A port of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortId {
    /// Adapter number, starting at 0.
    pub ca: u8,
    /// Port number on the adapter, starting at 1.
    pub port: u8,
}

/// Number of spare switch ports, as far as [`MAX_PORTS`] permits.
const SPARE: u8 = 2;
/// Base of all node GUIDs; the lower bits number the nodes.
const GUID: u64 = 0x5eed_0000_0000_0000;
/// The bits of [`Changes`] that [`Fabric::news`] reports, in the order of reporting.
const BITS: [u8; 7] = [
    Changes::ERROR,
    Changes::ACTIVE,
    Changes::LID,
    Changes::SM,
    Changes::PKEY,
    Changes::GID,
    Changes::REREGISTER,
];

struct Inner {
    switch: KBox<Switch>,
    cas: KVec<Ca>,
    per_ca: u8,
    /// Whether each adapter has power.
    power: [bool; MAX_PORTS],
    /// The cable of each adapter port.
    ends: [Cable; MAX_PORTS],
}

/// The cable of an adapter port.
#[derive(Clone, Copy)]
struct Cable {
    /// Switch port number, starting at 1. No two cables share a switch port.
    at: u8,
    /// Whether the cable is plugged in.
    plugged: bool,
    /// Whether the link is up.
    up: bool,
    /// Changes at the adapter port that have not been reported yet.
    changes: Changes,
}

/// Adapters, cables and the switch.
#[pin_data]
pub struct Fabric {
    #[pin]
    inner: SpinLockIrq<Inner>,
    generation: Atomic<u32>,
}

#[inline(never)]
fn new_switch(ports: u8) -> Result<KBox<Switch>> {
    Ok(KBox::new(Switch::new(GUID | 0xffff, ports), GFP_KERNEL)?)
}

impl Fabric {
    /// Creates `cas` adapters with `per_ca` ports each, all with their cables plugged in.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are no ports, or more than the switch can have; `ENOMEM`.
    pub fn new(cas: u8, per_ca: u8) -> Result<Arc<Self>> {
        let ports = cas.checked_mul(per_ca).ok_or(EINVAL)?;
        if ports == 0 || usize::from(ports) > MAX_PORTS {
            return Err(EINVAL);
        }
        let mut list = KVec::with_capacity(cas.into(), GFP_KERNEL)?;
        for n in 0..cas {
            list.push(Ca::new(Self::guid(n), per_ca), GFP_KERNEL)?;
        }
        let inner = Inner {
            switch: new_switch((MAX_PORTS as u8).min(ports + SPARE))?,
            cas: list,
            per_ca,
            power: [true; MAX_PORTS],
            ends: core::array::from_fn(|n| Cable {
                // CAST: It is below [`MAX_PORTS`], 16.
                at: n as u8 + 1,
                plugged: false,
                up: false,
                changes: Changes::none(0),
            }),
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                inner <- new_spinlock_irq!(inner, "vfab::Fabric"),
                generation: Atomic::new(1),
            }),
            GFP_KERNEL,
        )?;
        for ca in 0..cas {
            for port in 1..=per_ca {
                this.plug(PortId { ca, port }, true);
            }
        }
        Ok(this)
    }

    /// The node GUID of an adapter.
    pub fn guid(ca: u8) -> u64 {
        GUID | (u64::from(ca) + 1) << 8
    }

    /// Returns a number that changes whenever a path between two ports may have changed.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Full);
    }

    /// Calls `at` with a port, with the lock held.
    pub fn look<R>(&self, id: PortId, at: impl FnOnce(&Port) -> R) -> Option<R> {
        let inner = self.inner.lock();
        inner.port(id).map(at)
    }

    /// Calls `at` under the lock, with the adapter and port number of `id`. `at` may change
    /// violation counts and capabilities.
    pub fn with<R>(&self, id: PortId, at: impl FnOnce(&mut Ca, u8) -> R) -> Option<R> {
        let mut inner = self.inner.lock();
        let result = inner
            .cas
            .get_mut(usize::from(id.ca))
            .map(|ca| at(ca, id.port));
        drop(inner);
        self.changed();
        result
    }

    /// Plugs in or unplugs a port's cable.
    pub fn plug(&self, id: PortId, plugged: bool) {
        let mut inner = self.inner.lock();
        if let Some(cable) = inner.cable_mut(id) {
            cable.plugged = plugged;
        }
        inner.relink(id);
        drop(inner);
        self.changed();
    }

    /// Moves a port's cable to switch port `number`. The cable stays plugged in or unplugged.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the switch has no such port, `EBUSY` if that port has a cable.
    pub fn move_to(&self, id: PortId, number: u8) -> Result {
        let mut inner = self.inner.lock();
        if number == 0 || number > inner.switch.ports() {
            return Err(EINVAL);
        }
        if inner.id(number).is_some() {
            return Err(EBUSY);
        }
        inner.set_link(id, false);
        if let Some(cable) = inner.cable_mut(id) {
            cable.at = number;
        }
        inner.relink(id);
        drop(inner);
        self.changed();
        Ok(())
    }

    /// Switches an adapter on or off. Without power it loses the settings of the subnet manager.
    pub fn power(&self, ca: u8, on: bool) {
        let mut inner = self.inner.lock();
        let per_ca = inner.per_ca;
        if let Some(power) = inner.power.get_mut(usize::from(ca)) {
            *power = on;
        }
        for port in 1..=per_ca {
            inner.relink(PortId { ca, port });
        }
        if let Some(place) = inner.cas.get_mut(usize::from(ca)).filter(|_| !on) {
            *place = Ca::new(Self::guid(ca), per_ca);
        }
        drop(inner);
        self.changed();
    }

    /// Whether a port has a link.
    pub fn is_up(&self, id: PortId) -> bool {
        let inner = self.inner.lock();
        inner.is_up(id)
    }

    /// Switch port number of the cable of `id`, starting at 1.
    pub fn switch_port(&self, id: PortId) -> u8 {
        self.inner.lock().number(id)
    }

    /// Returns the port at which a packet from `from` to `dlid` arrives, or `None` if it is lost.
    /// Only ACTIVE ports send and receive.
    pub fn route(&self, from: PortId, dlid: u16) -> Option<PortId> {
        let inner = self.inner.lock();
        let own = inner
            .port(from)
            .filter(|p| p.link.state() == State::Active)?;
        if own.lid() == dlid {
            return Some(from);
        }
        if !inner.switch.carries(inner.number(from)) {
            return None;
        }
        let out = inner.switch.forward(dlid).filter(|n| *n > 0)?;
        let to = inner.id(out)?;
        let arrives = inner.switch.carries(out)
            && inner
                .port(to)
                .is_some_and(|p| p.link.state() == State::Active && p.lid() == dlid);
        arrives.then_some(to)
    }

    /// Returns the ports that receive a copy of a packet to a group: those to which the switch
    /// copies it, and `from` itself, as other queue pairs of that port may be in the group.
    pub fn spread(&self, from: PortId, mlid: u16) -> impl Iterator<Item = PortId> {
        let inner = self.inner.lock();
        let mut to = [None; MAX_PORTS];
        if inner.is_active(from) {
            let own = inner.number(from);
            let copies = if inner.switch.carries(own) {
                inner.switch.multicast(mlid, own)
            } else {
                0
            };
            for (place, n) in to.iter_mut().zip(1u8..) {
                let copied = copies & 1 << n != 0 && inner.switch.carries(n);
                *place = inner
                    .id(n)
                    .filter(|id| *id == from || copied && inner.is_active(*id));
            }
        }
        drop(inner);
        to.into_iter().flatten()
    }

    /// Passes a management datagram to an adapter's agent. [`Fabric::news`] reports the changes.
    pub fn process(&self, id: PortId, slid: u16, mad: &Mad, reply: &mut Mad) -> Outcome {
        let mut inner = self.inner.lock();
        let Some(ca) = inner.cas.get_mut(usize::from(id.ca)) else {
            return Outcome::Ignored;
        };
        let outcome = ca.process(id.port, slid, mad, reply);
        if let Outcome::Reply(changes) = outcome {
            let id = PortId {
                port: changes.port,
                ..id
            };
            inner.note(id, changes);
            if changes.has(Changes::LINK) {
                inner.retrain(id);
            }
        }
        drop(inner);
        if Smp::of(mad).method == SET {
            self.changed();
        }
        outcome
    }

    /// Routes an SMP that `from` sends. Returns the port at which the SMP, or the switch's
    /// response, arrives. Updates `lrh` and `mad` to the packet there.
    pub fn smp(&self, from: PortId, lrh: &mut Lrh, mad: &mut Mad) -> Option<PortId> {
        let mut inner = self.inner.lock();
        let own = inner.port(from)?;
        if lrh.dlid != PERMISSIVE && lrh.dlid != 0 && lrh.dlid == own.lid() {
            return Some(from);
        }
        if !inner.is_up(from) {
            return None;
        }
        let set = Smp::of(mad).method == SET;
        let n = inner.number(from);
        let next = inner.switch.smp(n, lrh, mad);
        let mut to = None;
        if let Next::Out(out, changes) = next {
            if let Some(id) = inner
                .id(changes.port)
                .filter(|_| changes.has(Changes::LINK))
            {
                inner.retrain(id);
            }
            to = inner.id(out).filter(|id| inner.is_up(*id));
        }
        drop(inner);
        if set {
            self.changed();
        }
        to
    }

    /// Called once per second.
    pub fn tick(&self) {
        let mut inner = self.inner.lock();
        for ca in &mut inner.cas {
            ca.tick();
        }
        inner.switch.tick();
    }

    /// Takes the next due trap of any node. Returns the port at which it arrives, and sets `lrh`
    /// and `mad` to the packet that arrives.
    pub fn trap(&self, lrh: &mut Lrh, mad: &mut Mad) -> Option<PortId> {
        // A trap for a port that is down is lost.
        loop {
            let mut inner = self.inner.lock();
            if let Some((out, l, m)) = inner.switch.trap() {
                (*lrh, *mad) = (l, m);
                match inner.id(out).filter(|id| inner.is_up(*id)) {
                    Some(to) => return Some(to),
                    None => continue,
                }
            }
            let due = (0u8..)
                .zip(inner.cas.iter_mut())
                .find_map(|(ca, this)| this.trap().map(|(port, l, m)| (PortId { ca, port }, l, m)));
            let (from, l, m) = due?;
            (*lrh, *mad) = (l, m);
            drop(inner);
            if let Some(to) = self.smp(from, lrh, mad) {
                return Some(to);
            }
        }
    }

    /// Takes the next unreported change: a port and one bit of [`Changes`].
    pub fn news(&self) -> Option<(PortId, u8)> {
        let mut inner = self.inner.lock();
        for id in inner.ids() {
            let Some(cable) = inner.cable_mut(id) else {
                continue;
            };
            let changes = cable.changes;
            let Some(bit) = BITS.into_iter().find(|b| changes.has(*b)) else {
                continue;
            };
            let mut rest = Changes::none(0);
            for other in BITS {
                rest.add(other, other != bit && changes.has(other));
            }
            cable.changes = rest;
            return Some((id, bit));
        }
        None
    }

    /// Sets the node description of an adapter.
    pub fn describe(&self, ca: u8, text: &Data) {
        let mut inner = self.inner.lock();
        if let Some(ca) = inner.cas.get_mut(usize::from(ca)) {
            ca.set_description(text);
        }
    }

    /// Passes an SMP to the switch as if a manager sent it from a port with a link.
    pub fn manage_switch(&self, mad: &mut Mad) {
        let mut lrh = Lrh::PERMISSIVE;
        let mut inner = self.inner.lock();
        let from = inner.ids().find(|id| inner.is_up(*id));
        let n = from.map_or(1, |id| inner.number(id));
        inner.switch.smp(n, &mut lrh, mad);
        drop(inner);
        self.changed();
    }

    /// Returns all adapter ports.
    pub fn ports(&self) -> impl Iterator<Item = PortId> {
        self.inner.lock().ids()
    }

    /// Whether two P_Keys match: limited members of a partition do not reach each other.
    pub fn partners(a: u16, b: u16) -> bool {
        a & 0x7fff != 0 && a & 0x7fff == b & 0x7fff && (a | b) & 0x8000 != 0
    }

    /// The index of the first entry in the port's P_Key table that matches `pkey`.
    pub fn partition(&self, id: PortId, pkey: u16) -> Option<u16> {
        self.look(id, |port| {
            // CAST: `PKEYS` is 16.
            (0..PKEYS as u16).find(|n| {
                port.pkey((*n).into())
                    .is_some_and(|ours| Self::partners(ours, pkey))
            })
        })?
    }
}

impl Inner {
    /// Returns all adapter ports.
    fn ids(&self) -> impl Iterator<Item = PortId> {
        let per_ca = self.per_ca;
        // CAST: There are at most 16 adapters.
        (0..self.cas.len() as u8)
            .flat_map(move |ca| (1..=per_ca).map(move |port| PortId { ca, port }))
    }

    fn index(&self, id: PortId) -> usize {
        (usize::from(id.ca) * usize::from(self.per_ca) + usize::from(id.port)).wrapping_sub(1)
    }

    fn cable(&self, id: PortId) -> Option<&Cable> {
        self.ends.get(self.index(id))
    }

    fn cable_mut(&mut self, id: PortId) -> Option<&mut Cable> {
        let at = self.index(id);
        self.ends.get_mut(at)
    }

    /// Switch port number of the cable of `id`, starting at 1.
    fn number(&self, id: PortId) -> u8 {
        self.cable(id).map_or(0, |cable| cable.at)
    }

    fn id(&self, number: u8) -> Option<PortId> {
        self.ids().find(|id| self.number(*id) == number)
    }

    fn port(&self, id: PortId) -> Option<&Port> {
        self.cas.get(usize::from(id.ca))?.port(id.port)
    }

    fn is_active(&self, id: PortId) -> bool {
        self.port(id).is_some_and(Port::is_active)
    }

    fn is_up(&self, id: PortId) -> bool {
        self.cable(id).is_some_and(|cable| cable.up)
    }

    fn note(&mut self, id: PortId, changes: Changes) {
        if let Some(cable) = self.cable_mut(id) {
            for bit in BITS {
                cable.changes.add(bit, changes.has(bit));
            }
        }
    }

    /// Takes a link down, and up again if both ends train.
    fn retrain(&mut self, id: PortId) {
        self.set_link(id, false);
        self.relink(id);
    }

    /// Brings a link up if it can be, otherwise down.
    fn relink(&mut self, id: PortId) {
        let Some(cable) = self.cable(id) else { return };
        let trains = self
            .cas
            .get(usize::from(id.ca))
            .is_some_and(|ca| ca.trains(id.port));
        let power = self.power.get(usize::from(id.ca)).is_some_and(|on| *on);
        let up = cable.plugged && power && trains && self.switch.trains(cable.at);
        if up != cable.up {
            self.set_link(id, up);
        }
    }

    fn set_link(&mut self, id: PortId, up: bool) {
        let Some(cable) = self.cable_mut(id) else {
            return;
        };
        cable.up = up;
        let number = cable.at;
        self.switch.link(number, up);
        if let Some(ca) = self.cas.get_mut(usize::from(id.ca)) {
            let changes = ca.link(id.port, up);
            self.note(id, changes);
        }
    }
}
