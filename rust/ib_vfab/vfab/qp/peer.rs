// SPDX-License-Identifier: GPL-2.0

//! The peer of a connection: the search for the peer, requests to it, and the effect of its
//! responses on the send queue.

use super::{
    super::{
        fabric::Fabric,
        fault::{
            Faults,
            Kind as Fault, //
        },
    },
    requester::{
        Done,
        Requester,
        Wqe, //
    },
    responder::{
        Ack,
        Nak,
        Packet,
        Task, //
    },
    Qp,
    PSN, //
};
use crate::provider::{
    attr::{
        access,
        Kind, //
    },
    wc::Status, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// The peer of a connection, valid while the fabric has this generation and the peer this epoch.
pub(super) struct Peer {
    qp: Arc<Qp>,
    generation: u32,
    epoch: u32,
}

/// Converts the peer's RNR timer code to nanoseconds.
fn rnr_ns(code: u8) -> u64 {
    // Hundredths of a millisecond.
    const TIMES: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    u64::from(TIMES[usize::from(code & 31)]) * 10_000
}

impl Qp {
    /// Sends a request to the peer and evaluates its response.
    pub(super) fn request(
        self: &Arc<Self>,
        sq: &mut Requester,
        wqe: &Wqe,
        task: &Task,
        faults: Option<&Faults>,
    ) -> Done {
        let lost = faults.is_some_and(|f| f.hit(Fault::Loss, wqe.op.which()).is_some());
        let mtu = 128u32 << sq.attr.path_mtu;
        let packets = if wqe.len <= mtu {
            1
        } else {
            wqe.len.div_ceil(mtu)
        };
        let ack = match self.find_peer(sq) {
            _ if lost => Ack::None("packet lost"),
            Err(why) => Ack::None(why),
            Ok(()) => {
                let packet = Packet {
                    from: self,
                    psn: sq.psn,
                    packets,
                    task,
                    solicited: wqe.solicited,
                    len: wqe.len,
                    pieces: sq.wqes.sges(wqe.pieces),
                    memory: &self.memory,
                    pd: self.pd,
                };
                match &sq.peer {
                    Some(peer) => peer.qp.receive(&packet, peer.epoch),
                    None => Ack::None("no peer"),
                }
            }
        };
        let late = faults.is_some_and(|f| f.hit(Fault::Ack, wqe.op.which()).is_some());
        let ack = if late {
            Ack::None("acknowledgement lost")
        } else {
            ack
        };
        match ack {
            Ack::Done => {
                sq.psn = sq.psn.wrapping_add(packets) & PSN;
                sq.refill();
                Done::Over(Status::SUCCESS)
            }
            Ack::Nak(nak) => Done::Over(match nak {
                Nak::Local => Status::LOC_PROT_ERR,
                Nak::InvalidRequest => Status::REM_INV_REQ_ERR,
                Nak::Access => Status::REM_ACCESS_ERR,
                Nak::Operation => Status::REM_OP_ERR,
            }),
            Ack::NotReady(code) => {
                // 7 means to retry forever.
                let tries = self.manner.personality.connections.rnr_retries;
                if sq.attr.rnr_retry != 7 || !tries {
                    if sq.rnr_retries == 0 || !tries {
                        return Done::Over(Status::RNR_RETRY_EXC_ERR);
                    }
                    sq.rnr_retries -= 1;
                }
                Done::Again(rnr_ns(code))
            }
            Ack::None(why) => {
                if sq.attr.timeout == 0 {
                    // Without a timeout the queue pair tries once a second forever, and uses up no
                    // retries.
                    return Done::Again(1_000_000_000);
                }
                if sq.retries == 0 {
                    pr_info!("{self}: out of retries: {why}\n");
                    return Done::Over(Status::RETRY_EXC_ERR);
                }
                sq.retries -= 1;
                Done::Again(4096 << sq.attr.timeout.min(31))
            }
        }
    }

    /// Finds the peer at the other end of the connection, or returns the reason why there is none.
    #[inline]
    fn find_peer(self: &Arc<Self>, sq: &mut Requester) -> Result<(), &'static str> {
        if let Some(peer) = &sq.peer {
            if peer.generation == self.net.fabric.generation()
                && peer.qp.epoch.load(Relaxed) == peer.epoch
            {
                return Ok(());
            }
        }
        self.look_for_peer(sq)
    }

    /// Releases the peer if it belongs to adapter `ca`, which has been removed. Freeing the peer
    /// may sleep.
    pub(super) fn forget_peer_of(&self, ca: u8) {
        let peer = {
            let mut sq = self.sq.lock();
            let gone = sq.peer.as_ref().is_some_and(|p| p.qp.end().id.ca == ca);
            sq.forget_peer_if(gone)
        };
        drop(peer);
    }

    #[cold]
    fn look_for_peer(self: &Arc<Self>, sq: &mut Requester) -> Result<(), &'static str> {
        let end = self.end();
        let fabric = &end.net.fabric;
        let generation = fabric.generation();
        // Dropping the peer cannot sleep: its device holds a reference, or has released its queues.
        sq.peer = None;
        let to = fabric
            .route(end.id, sq.attr.address.dlid)
            .ok_or("no route to the peer")?;
        let qp = end
            .net
            .end(to)
            .and_then(|end| end.qp(sq.attr.dest_qp_num))
            .filter(|qp| qp.kind == Kind::Rc)
            .ok_or("no such queue pair")?;
        let epoch = qp.epoch.load(Acquire);
        let theirs = qp.rq.lock().attr;
        let pkey = |id, index: u16| fabric.look(id, |p| p.pkey(index.into())).flatten();
        let pkeys = (
            pkey(end.id, sq.attr.pkey_index).unwrap_or(0),
            pkey(to, theirs.pkey_index).unwrap_or(0),
        );
        let own = fabric.look(end.id, |p| p.lid()).unwrap_or(0);
        if theirs.dest_qp_num != self.num || theirs.address.dlid != own {
            return Err("the peer is connected to another queue pair");
        }
        if theirs.path_mtu != sq.attr.path_mtu {
            return Err("the peer has another MTU");
        }
        if !Fabric::partners(pkeys.0, pkeys.1) {
            return Err("the peer is in another partition");
        }
        // The acknowledgement needs a route, too.
        if fabric.route(to, own) != Some(end.id) {
            return Err("no route back from the peer");
        }
        sq.peer = Some(Peer {
            qp,
            generation,
            epoch,
        });
        Ok(())
    }
}

impl Task {
    /// Rights that the sender needs to its own SGEs.
    pub(super) fn local_access(self) -> u32 {
        match self {
            Self::Read { .. } => access::LOCAL_WRITE,
            _ => 0,
        }
    }
}
