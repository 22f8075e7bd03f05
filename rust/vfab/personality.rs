// SPDX-License-Identifier: GPL-2.0

//! What an adapter is like, as far as a user of the verbs can see: data that others consult.
//!
//! Each [`Personality`] is one constant of [`table`]; `docs/adapters.md` has where each value is
//! from. No other file knows their names.

mod table;

pub use table::{
    DEFAULT,
    PERSONALITIES, //
};

use crate::rdma::provider::attr::{
    DeviceAttr,
    Driver, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};

/// What an adapter is like.
#[derive(Clone, Copy)]
pub struct Personality {
    /// The name by which a user asks for it.
    pub name: &'static str,
    /// The driver that the device says it is of.
    pub driver: Driver,
    /// How much of what there can be.
    pub limits: Limits,
    /// What regions are like.
    pub regions: Regions,
    /// What connections are like.
    pub connections: Connections,
    /// How requests of a queue pair in error are flushed.
    pub flush: Flush,
    /// It drains queue pairs itself, by requests that it takes when it takes no others.
    pub drains: bool,
    /// No completion of a queue pair is left when that is destroyed.
    pub purges: bool,
    /// What `reset` does to it.
    pub reset: Reset,
    /// What it is like from the moment on at which its driver takes it away.
    pub removal: Outage,
}

/// How much of what there can be: fields of `struct ib_device_attr`, and of `struct ib_device`.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Requests of a queue.
    pub qp_wr: u32,
    /// Pieces of a request of a send queue.
    pub send_sge: u32,
    /// Pieces of a receive request.
    pub recv_sge: u32,
    /// Pieces of a request that reads the peer's memory.
    pub read_sge: u32,
    /// Completions of a queue.
    pub cqe: u32,
    /// Completion queues.
    pub cq: u32,
    /// Regions. There are 65,535 at most.
    pub mr: u32,
    /// Reads of a peer at once.
    pub reads: u32,
    /// Completion vectors, if there are so many CPUs.
    pub vectors: u32,
}

/// What regions are like.
#[derive(Clone, Copy)]
pub struct Regions {
    /// Pages, or pieces, of one that requests register; 0 if there are no such ones.
    pub pages: u32,
    /// A bit for each size of a page.
    pub page_sizes: u64,
    /// Bytes of one.
    pub len: u64,
    /// One may be of pieces of any size (`IB_MR_TYPE_SG_GAPS`).
    pub gaps: bool,
    /// All memory has a key of its own (`IBK_LOCAL_DMA_LKEY`).
    pub local_dma_lkey: bool,
    /// The eight bits of the first key that a user may change.
    pub variant: Variant,
    /// What its address may be.
    pub iova: Iova,
    /// With which keys one may be invalidated that is not registered. That does nothing.
    pub free_keys: FreeKeys,
}

/// Keys with which a region may be invalidated that is not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeKeys {
    /// None: it is an error.
    None,
    /// That which it had.
    Same,
    /// That with any lower eight bits.
    Any,
}

/// The lower eight bits of the key that a new region has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// 0
    Zero,
    /// Another one each time.
    Changing,
}

/// What the address of a region may be that a request registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iova {
    /// Any: of its bits only those of the offset in the first page count.
    Any,
    /// One in the first page, by its DMA address: the device takes its distance to that as an
    /// offset.
    FirstPage,
}

/// What connections are like.
#[derive(Clone, Copy)]
pub struct Connections {
    /// A message without a receive request is tried again, as the attributes say; else it ends the
    /// connection.
    pub rnr_retries: bool,
}

/// Which flushed requests come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Those of the receive queue.
    ReceivesFirst,
    /// Those of the send queue.
    SendsFirst,
    /// One of each in turn, as long as there are both; a send is the first.
    Interleaved,
}

/// How requests of a queue pair in error are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Which come first.
    pub order: Order,
    /// How long it takes until the first, and from some to the next, in ns; 0 for the call that
    /// makes the error.
    pub pause: u64,
    /// How many come at a time, after which there is an interrupt.
    pub at_once: u32,
}

impl Flush {
    /// What a queue pair does in the call that makes the error, in the order of its locks.
    pub const SIMPLE: Self = Self {
        order: Order::ReceivesFirst,
        pause: 0,
        at_once: u32::MAX,
    };
}

/// What a device tells, or does, when it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// IB_EVENT_DEVICE_FATAL
    DeviceFatal,
    /// The link of each port goes, with IB_EVENT_PORT_ERR.
    PortErr,
    /// IB_EVENT_QP_FATAL of each connected queue pair.
    QpFatal,
}

/// What a verb returns instead of what it does; `None` if it does it.
pub type Answer = Option<Error>;

/// What verbs return while the device does nothing. Those that destroy a queue pair or a completion
/// queue succeed in all drivers.
#[derive(Clone, Copy)]
pub struct Verbs {
    /// `ib_modify_qp` to the error state.
    pub stop: Answer,
    /// How often that is so; then it succeeds.
    pub stops: u32,
    /// `ib_modify_qp` to other states.
    pub modify: Answer,
    /// What creates a completion queue, a queue pair, a region.
    pub create: Answer,
    /// `ib_dereg_mr`: the region stays.
    pub dereg: Answer,
    /// `ib_post_send`, `ib_post_recv`
    pub post: Answer,
}

impl Verbs {
    /// All do what they do.
    pub const WORK: Self = Self::fail(None);

    /// All that makes or changes something returns this.
    pub const fn fail(answer: Answer) -> Self {
        Self {
            stop: answer,
            stops: u32::MAX,
            modify: answer,
            create: answer,
            dereg: None,
            post: None,
        }
    }
}

/// When the requests that were posted to a device are flushed once it is out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// When it stops.
    AtOnce,
    /// When their queue pair was moved to the error state.
    WhenStopped,
    /// When a user has tried that, also if it failed.
    WhenTried,
    /// They are not, and no completion comes.
    Never,
}

/// What a device that is out of service is like.
#[derive(Clone, Copy)]
pub struct Outage {
    /// Queue pairs send and receive no more from then on; otherwise all goes on until the users
    /// have let go.
    pub stops: bool,
    /// When requests are flushed.
    pub flushed: Flushed,
    /// What is told then, in this order.
    pub told: &'static [Told],
    /// What verbs return.
    pub verbs: Verbs,
}

impl Outage {
    /// Nothing but the end of the registration.
    pub const NONE: Self = Self {
        stops: false,
        flushed: Flushed::WhenStopped,
        told: &[],
        verbs: Verbs::WORK,
    };
}

/// What follows the outage of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// The device is unregistered, and registered again after so many ms.
    Another(u32),
    /// It stays so until it is removed.
    Nothing,
}

/// What a reset is.
#[derive(Clone, Copy)]
pub struct Reset {
    /// What it is like from its begin on.
    pub outage: Outage,
    /// How long that is, in ms.
    pub pause: u32,
    /// What is then.
    pub after: After,
}

impl Personality {
    /// The one with this name.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        let mut all = PERSONALITIES.iter();
        all.find(|p| p.name == name).copied().ok_or(EINVAL)
    }

    /// What is the same whatever the adapter's number and ports.
    pub fn device_attr(&self) -> DeviceAttr {
        let Limits {
            qp_wr,
            send_sge,
            recv_sge,
            read_sge,
            cqe,
            cq,
            mr,
            reads,
            vectors,
        } = self.limits;
        DeviceAttr {
            driver: self.driver,
            max_vectors: vectors,
            drains: self.drains,
            max_qp_wr: qp_wr,
            send_sge,
            recv_sge,
            read_sge,
            max_cqe: cqe,
            max_cq: cq,
            max_mr: mr,
            max_reads: reads,
            max_pages: self.regions.pages,
            page_sizes: self.regions.page_sizes,
            max_mr_size: self.regions.len,
            gaps: self.regions.gaps,
            local_dma_lkey: self.regions.local_dma_lkey,
            ..Default::default()
        }
    }
}

/// What an adapter is like now.
pub struct Manner {
    /// What it is like.
    pub personality: &'static Personality,
    /// 0, [`RESET`] or [`REMOVAL`].
    phase: Atomic<u32>,
    /// How often `ib_modify_qp` to the error state was refused since that began.
    refused: Atomic<u32>,
}

const RESET: u32 = 1;
const REMOVAL: u32 = 2;

impl Manner {
    /// Of one that is well.
    pub fn new(personality: &'static Personality) -> Self {
        Self {
            personality,
            phase: Atomic::new(0),
            refused: Atomic::new(0),
        }
    }

    /// A reset begins, whose outage is returned.
    pub fn begin_reset(&self) -> &'static Outage {
        self.refused.store(0, Relaxed);
        self.phase.store(RESET, Release);
        &self.personality.reset.outage
    }

    /// The removal begins, unless a reset has, whose outage it is then.
    pub fn begin_removal(&self) -> Option<&'static Outage> {
        if self.phase.load(Acquire) != 0 {
            return None;
        }
        self.phase.store(REMOVAL, Release);
        Some(&self.personality.removal)
    }

    /// It is well again.
    #[cfg(SRP_KUNIT)]
    pub fn end(&self) {
        self.phase.store(0, Release);
    }

    /// What it is like if it is not well.
    fn outage(&self) -> Option<&'static Outage> {
        match self.phase.load(Acquire) {
            RESET => Some(&self.personality.reset.outage),
            REMOVAL => Some(&self.personality.removal),
            _ => None,
        }
    }

    /// It is out of service, and its queue pairs have stopped.
    pub fn is_dead(&self) -> bool {
        self.outage().is_some_and(|outage| outage.stops)
    }

    /// When requests are flushed.
    pub fn flushed(&self) -> Flushed {
        self.outage().map_or(Flushed::AtOnce, |o| o.flushed)
    }

    /// What verbs return now.
    pub fn verbs(&self) -> &'static Verbs {
        self.outage().map_or(&Verbs::WORK, |outage| &outage.verbs)
    }

    /// What `ib_modify_qp` to the error state returns.
    ///
    /// # Errors
    ///
    /// What the personality says.
    pub fn stop(&self) -> Result {
        let verbs = self.verbs();
        match verbs.stop {
            Some(e) if self.refused.fetch_add(1, Relaxed) < verbs.stops => Err(e),
            _ => Ok(()),
        }
    }
}

/// What a verb returns: an answer as a result.
///
/// # Errors
///
/// The answer.
pub fn answered(answer: Answer) -> Result {
    answer.map_or(Ok(()), Err)
}
