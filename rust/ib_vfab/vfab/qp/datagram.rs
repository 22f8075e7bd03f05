// SPDX-License-Identifier: GPL-2.0

//! Datagrams: of queue pair 0 (subnet management), of queue pair 1, and of UD queue pairs.

use super::{
    super::{
        fabric::{
            Fabric,
            PortId, //
        },
        fault::{
            gmp_bit,
            Kind as Fault,
            SEND, //
        },
        gmp,
        mad::{
            Lrh,
            Mad,
            FIRST_MULTICAST,
            LEN,
            PERMISSIVE, //
        },
        memory::{
            Memory,
            Pieces, //
        },
    },
    groups::Group,
    net::{
        End,
        Late, //
    },
    requester::Wqe,
    Qp, //
};
use crate::provider::{
    attr::{
        Grh,
        Kind,
        PdName,
        QpAttr, //
    },
    wc::{
        Opcode,
        Source,
        Status, //
    },
    wr::{
        Datagram,
        Sge, //
    }, //
};
use kernel::sync::Arc;

/// Length of a global route header, or of the space for it, in bytes.
const GRH_LEN: usize = 40;
/// Maximum length of a datagram, in bytes.
const MTU: u32 = 4096;
/// A Q_Key with this bit means the Q_Key of the sending queue pair.
const OWN_QKEY: u32 = 1 << 31;
/// Destination queue pair number of a datagram to a group.
const GROUP: u32 = 0xff_ffff;
/// Number of a port's queue pair for general management.
const GSI: u32 = 1;
/// Next header field: an InfiniBand packet follows.
const NEXT_HEADER: u8 = 0x1b;

/// A datagram in flight.
struct Packet<'a> {
    from: Source,
    pkey: u16,
    qkey: u32,
    imm: Option<u32>,
    /// Another queue pair receives the datagram in place of queue pair 1. Like queue pair 1, it
    /// accepts all partitions of the port.
    instead: bool,
    header: [u8; GRH_LEN],
    solicited: bool,
    len: u32,
    /// Index into [`gmp::NAMES`], if it is a management datagram.
    gmp: Option<usize>,
    /// SGEs in the sender's memory.
    pieces: &'a [Sge],
    memory: &'a Memory,
    pd: PdName,
}

impl Packet<'_> {
    /// The datagram's management class.
    fn class(&self) -> u8 {
        let mut head = [0; 2];
        let mut pieces = Pieces::local(self.memory, self.pd, 0, self.pieces);
        match pieces.read(&mut head) {
            Ok(()) => head[1],
            Err(_) => 0,
        }
    }
}

/// Returns GID `index` of a port.
pub fn gid(fabric: &Fabric, id: PortId, index: usize) -> Option<[u8; 16]> {
    let (prefix, guid) = fabric.look(id, |port| Some((port.prefix(), port.guid(index)?)))??;
    let mut gid = [0; 16];
    let (subnet, interface) = gid.split_at_mut(8);
    subnet.copy_from_slice(&prefix.to_be_bytes());
    interface.copy_from_slice(&guid.to_be_bytes());
    Some(gid)
}

fn header(grh: &Grh, sgid: [u8; 16], len: u32) -> [u8; GRH_LEN] {
    let mut bytes = [0; GRH_LEN];
    let first = 6 << 28 | u32::from(grh.class) << 20 | grh.flow & 0xf_ffff;
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    // CAST: `len` is at most `MTU`.
    bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[6] = NEXT_HEADER;
    bytes[7] = grh.hops;
    bytes[8..24].copy_from_slice(&sgid);
    bytes[24..].copy_from_slice(&grh.dgid);
    bytes
}

impl Qp {
    pub(super) fn send_datagram(
        self: &Arc<Self>,
        attr: &QpAttr,
        wqe: &Wqe,
        pieces: &[Sge],
        to: &Datagram,
        imm: Option<u32>,
    ) -> Status {
        if wqe.len > MTU {
            return Status::LOC_LEN_ERR;
        }
        // Complete the request as if the datagram were lost: `ib_mad` waits for the completion of
        // each send.
        if self.manner.is_dead() {
            return Status::SUCCESS;
        }
        let end = self.end();
        if self.kind == Kind::Smi {
            let mut mad = [0; LEN];
            let mut pieces = Pieces::local(&self.memory, self.pd, 0, pieces);
            if wqe.len as usize != LEN || pieces.read(&mut mad).is_err() {
                return Status::LOC_PROT_ERR;
            }
            self.send_smp(&end, to, &mut mad);
            return Status::SUCCESS;
        }
        let fabric = &end.net.fabric;
        let own = if self.kind == Kind::Gsi {
            to.pkey_index
        } else {
            attr.pkey_index
        };
        // The sender does not learn of a datagram that is lost.
        let Some(Some((lid, pkey))) = fabric.look(end.id, |p| Some((p.lid(), p.pkey(own.into())?)))
        else {
            return Status::SUCCESS;
        };
        let mut managed = None;
        if self.kind == Kind::Gsi {
            match self.send_gmp(&end, wqe, pieces, to) {
                Some(gmp) => managed = gmp,
                None => return Status::SUCCESS,
            }
        }
        let grh = to.address.grh.as_ref();
        let sgid = grh.and_then(|g| gid(fabric, end.id, g.sgid_index.into()));
        let mut packet = Packet {
            from: Source {
                qp: self.num,
                lid,
                sl: to.address.sl,
                grh: grh.is_some(),
                ..Default::default()
            },
            pkey,
            qkey: if to.qkey & OWN_QKEY != 0 {
                attr.qkey
            } else {
                to.qkey
            },
            imm,
            instead: false,
            header: match (grh, sgid) {
                (Some(grh), Some(sgid)) => header(grh, sgid, wqe.len),
                _ => [0; GRH_LEN],
            },
            solicited: wqe.solicited,
            len: wqe.len,
            gmp: managed,
            pieces,
            memory: &self.memory,
            pd: self.pd,
        };
        let dlid = to.address.dlid;
        if dlid >= FIRST_MULTICAST {
            // A datagram to a group is lost if it has no GRH or is for a single queue pair.
            if let Some(grh) = grh.filter(|_| to.qp == GROUP) {
                let group = Group {
                    gid: grh.dgid,
                    lid: dlid,
                };
                return self.send_to_group(&end, &group, &mut packet);
            }
            return Status::SUCCESS;
        }
        let Some(at) = fabric.route(end.id, dlid) else {
            return Status::SUCCESS;
        };
        let taker = end.net.end(at).and_then(|there| {
            let manager = there.manager().filter(|_| to.qp == GSI);
            let manager = manager.filter(|_| packet.class() == gmp::CLASS_CM);
            packet.instead = manager.is_some();
            there.qp(manager.unwrap_or(to.qp))
        });
        let Some(taker) = taker else {
            return Status::SUCCESS;
        };
        if let Some(kind) = packet.gmp {
            if let Some(seconds) = self.faults.hit(Fault::GmpLate, gmp_bit(kind)) {
                if self.send_late(&end, &taker, at, &packet, seconds) {
                    return Status::SUCCESS;
                }
            }
            if self.faults.hit(Fault::GmpDouble, gmp_bit(kind)).is_some() {
                let _ = taker.receive_datagram(at, &mut packet);
            }
        }
        taker.receive_datagram(at, &mut packet)
    }

    /// Delays a management datagram by this many seconds; `false` if that is not possible.
    fn send_late(
        &self,
        end: &End,
        taker: &Arc<Self>,
        at: PortId,
        packet: &Packet<'_>,
        seconds: u64,
    ) -> bool {
        let mut mad = [0; LEN];
        let mut pieces = Pieces::local(packet.memory, packet.pd, 0, packet.pieces);
        let partition = end.net.fabric.partition(at, packet.pkey);
        match (partition, pieces.read(&mut mad)) {
            (Some(pkey_index), Ok(())) => end.net.hold(Late {
                ticks: seconds,
                at,
                taker: taker.num,
                from: Source {
                    pkey_index,
                    ..packet.from
                },
                mad,
            }),
            _ => false,
        }
    }

    /// Counts a datagram of queue pair 1 and applies faults. `None` if it must not be sent,
    /// otherwise its kind if it is a management datagram.
    #[inline(never)]
    fn send_gmp(
        self: &Arc<Self>,
        end: &End,
        wqe: &Wqe,
        pieces: &[Sge],
        to: &Datagram,
    ) -> Option<Option<usize>> {
        let mut mad = [0; LEN];
        let mut pieces = Pieces::local(&self.memory, self.pd, 0, pieces);
        if wqe.len as usize != LEN || pieces.read(&mut mad).is_err() {
            return Some(None);
        }
        let kind = gmp::kind(&mad);
        end.sent.add(kind);
        if self.faults.hit(Fault::GmpLoss, gmp_bit(kind)).is_some() {
            return None;
        }
        if !gmp::is_sa(kind) {
            return Some(Some(kind));
        }
        if self.faults.hit(Fault::SaLoss, SEND).is_some() {
            return None;
        }
        let mut answer = mad;
        if gmp::refuse(&mut answer) && self.faults.hit(Fault::SaBusy, SEND).is_some() {
            let from = Source {
                qp: self.num,
                lid: to.address.dlid,
                sl: to.address.sl,
                pkey_index: to.pkey_index,
                ..Default::default()
            };
            self.receive_mad(end.id, from, &mut answer);
            return None;
        }
        Some(Some(kind))
    }

    /// Gives each member of a group except the sender a copy.
    fn send_to_group(&self, end: &End, group: &Group, packet: &mut Packet<'_>) -> Status {
        let mut status = Status::SUCCESS;
        for at in end.net.fabric.spread(end.id, group.lid) {
            let Some(there) = end.net.end(at) else {
                continue;
            };
            there.each_of(group, |qp| {
                if core::ptr::eq(&**qp, self) {
                    return;
                }
                let one = qp.receive_datagram(at, packet);
                if one != Status::SUCCESS {
                    status = one;
                }
            });
        }
        status
    }

    /// Receives a datagram, if it is for this queue pair and a receive request has room.
    fn receive_datagram(self: &Arc<Self>, at: PortId, packet: &mut Packet<'_>) -> Status {
        let end = self.end();
        let fabric = &end.net.fabric;
        let mut rq = self.rq.lock();
        if !self.takes_datagrams() || packet.qkey != rq.attr.qkey {
            return Status::SUCCESS;
        }
        let partition = if self.kind == Kind::Gsi || packet.instead {
            fabric.partition(at, packet.pkey)
        } else {
            let index = rq.attr.pkey_index;
            fabric
                .look(at, |p| p.pkey(index.into()))
                .flatten()
                .filter(|ours| Fabric::partners(*ours, packet.pkey))
                .map(|_| index)
        };
        let Some(pkey_index) = partition else {
            return Status::SUCCESS;
        };
        let total = packet.len + GRH_LEN as u32;
        if rq.room().is_none_or(|room| room < total) {
            return Status::SUCCESS;
        }
        let mut to = rq.pieces(&self.memory, self.pd);
        let copied = to.write(&mut packet.header).is_ok();
        let mut from = Pieces::local(packet.memory, packet.pd, 0, packet.pieces);
        let done = copied.then(|| to.fill(&mut from, packet.len as usize));
        drop((to, from));
        match done {
            Some(Ok(())) => {
                if let Some(gmp) = packet.gmp.filter(|_| self.kind == Kind::Gsi) {
                    end.received.add(gmp);
                }
                let from = Source {
                    pkey_index,
                    port: at.port.into(),
                    ..packet.from
                };
                let mut wc = self
                    .received(&rq, Opcode::RECV, Status::SUCCESS)
                    .bytes(total)
                    .from(from);
                if let Some(imm) = packet.imm {
                    wc = wc.imm(imm);
                }
                self.complete_receive(&mut rq, &wc, packet.solicited);
                Status::SUCCESS
            }
            Some(Err(super::super::memory::Side::From)) => Status::LOC_PROT_ERR,
            _ => {
                let wc = self.received(&rq, Opcode::RECV, Status::LOC_PROT_ERR);
                self.complete_receive(&mut rq, &wc, false);
                self.break_receive(&mut rq, None);
                Status::SUCCESS
            }
        }
    }

    fn send_smp(&self, end: &End, to: &Datagram, mad: &mut Mad) {
        let net = &end.net;
        let own = net.fabric.look(end.id, |p| p.lid()).unwrap_or(0);
        let dlid = to.address.dlid;
        let mut lrh = Lrh {
            slid: if dlid == PERMISSIVE { PERMISSIVE } else { own },
            dlid,
            sl: to.address.sl,
        };
        net.send_smp(end.id, &mut lrh, mad);
        net.attend();
    }

    /// Receives an SMP at queue pair 0, or a delayed datagram or BUSY reply at another queue pair.
    pub(super) fn receive_mad(self: &Arc<Self>, at: PortId, from: Source, mad: &mut Mad) {
        let mut rq = self.rq.lock();
        let total = (GRH_LEN + LEN) as u32;
        if !self.takes_datagrams() || rq.room().is_none_or(|room| room < total) {
            return;
        }
        let mut to = rq.pieces(&self.memory, self.pd);
        let copied = to.write(&mut [0; GRH_LEN]).is_ok() && to.write(mad).is_ok();
        drop(to);
        let status = if copied {
            Status::SUCCESS
        } else {
            Status::LOC_PROT_ERR
        };
        let wc = self
            .received(&rq, Opcode::RECV, status)
            .bytes(total)
            .from(Source {
                port: at.port.into(),
                ..from
            });
        self.complete_receive(&mut rq, &wc, false);
    }
}
