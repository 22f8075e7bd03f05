// SPDX-License-Identifier: GPL-2.0

//! The behaviour of an adapter that a user of the verbs can see, as data.
//!
//! Each [`Personality`] is one constant of [`table`]; `docs/adapters.md` has the source of each
//! value. No other file knows their names.

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

/// The behaviour of an adapter.
#[derive(Clone, Copy)]
pub struct Personality {
    /// The name by which a user selects it.
    pub name: &'static str,
    /// The driver that the device reports.
    pub driver: Driver,
    /// Its limits.
    pub limits: Limits,
    /// Properties of its regions.
    pub regions: Regions,
    /// Properties of its connections.
    pub connections: Connections,
    /// How requests of a queue pair in error are flushed.
    pub flush: Flush,
    /// It drains queue pairs itself, with requests that it accepts while it refuses all others.
    pub drains: bool,
    /// Destroying a queue pair removes its completions.
    pub purges: bool,
    /// What `reset` does to it.
    pub reset: Reset,
    /// Its behaviour from the moment at which its driver removes it.
    pub removal: Outage,
}

/// Limits: fields of `struct ib_device_attr`, and of `struct ib_device`.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Requests of a queue.
    pub qp_wr: u32,
    /// Pieces of a request of a send queue.
    pub send_sge: u32,
    /// Pieces of a receive request.
    pub recv_sge: u32,
    /// Pieces of an RDMA READ.
    pub read_sge: u32,
    /// Completions of a queue.
    pub cqe: u32,
    /// Completion queues.
    pub cq: u32,
    /// Regions, 65,535 at most.
    pub mr: u32,
    /// Concurrent RDMA READs of a connection.
    pub reads: u32,
    /// Completion vectors, if there are as many CPUs.
    pub vectors: u32,
}

/// Properties of regions.
#[derive(Clone, Copy)]
pub struct Regions {
    /// Pages or pieces of a region that requests register; 0 if there are none.
    pub pages: u32,
    /// A bit for each page size.
    pub page_sizes: u64,
    /// Maximum length in bytes.
    pub len: u64,
    /// Regions may be of pieces of any size (`IB_MR_TYPE_SG_GAPS`).
    pub gaps: bool,
    /// All memory has a key of its own (`IBK_LOCAL_DMA_LKEY`).
    pub local_dma_lkey: bool,
    /// The first value of the eight bits of the key that a user may change.
    pub variant: Variant,
    /// The addresses that a region may have.
    pub iova: Iova,
    /// The keys with which LOCAL_INV of a region that is not registered succeeds. It does nothing.
    pub free_keys: FreeKeys,
}

/// Keys with which a region that is not registered may be invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeKeys {
    /// None: it is an error.
    None,
    /// Its last key.
    Same,
    /// Its key with any lower eight bits.
    Any,
}

/// The lower eight bits of the key of a new region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// 0
    Zero,
    /// Different each time.
    Changing,
}

/// The addresses of regions that requests register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iova {
    /// Any: only the bits of the offset in the first page count.
    Any,
    /// One in the first page, by its DMA address: the device takes the distance to that as an
    /// offset.
    FirstPage,
}

/// Properties of connections.
#[derive(Clone, Copy)]
pub struct Connections {
    /// A message without a receive request is retried, as the attributes say; otherwise it ends the
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
    /// One of each in turn, while there are both, a send first.
    Interleaved,
}

/// How requests of a queue pair in error are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Which come first.
    pub order: Order,
    /// Delay until the first, and between batches, in ns; 0 is no delay.
    pub pause: u64,
    /// Requests in a batch. An interrupt follows each batch.
    pub at_once: u32,
}

impl Flush {
    /// A queue pair flushes in the call that causes the error, in the order of its locks.
    pub const SIMPLE: Self = Self {
        order: Order::ReceivesFirst,
        pause: 0,
        at_once: u32::MAX,
    };
}

/// What a device reports or does when it goes out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// IB_EVENT_DEVICE_FATAL
    DeviceFatal,
    /// The link of each port goes down, with IB_EVENT_PORT_ERR.
    PortErr,
    /// IB_EVENT_QP_FATAL of each connected queue pair.
    QpFatal,
}

/// The error of a verb; `None` if it works.
pub type Answer = Option<Error>;

/// Results of verbs while the device is out of service. Those that destroy a queue pair or a
/// completion queue succeed in all drivers.
#[derive(Clone, Copy)]
pub struct Verbs {
    /// `ib_modify_qp` to the error state.
    pub stop: Answer,
    /// How often that fails; then it succeeds.
    pub stops: u32,
    /// `ib_modify_qp` to other states.
    pub modify: Answer,
    /// Creation of a completion queue, a queue pair, a region.
    pub create: Answer,
    /// `ib_dereg_mr`: the region stays.
    pub dereg: Answer,
    /// `ib_post_send`, `ib_post_recv`
    pub post: Answer,
}

impl Verbs {
    /// All verbs work.
    pub const WORK: Self = Self::fail(None);

    /// All verbs that create or modify something return this.
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

/// When a device that is out of service flushes the posted requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// When it stops.
    AtOnce,
    /// When their queue pair has been moved to the error state.
    WhenStopped,
    /// When a user has tried that, even if it failed.
    WhenTried,
    /// Never: no completion comes.
    Never,
}

/// The behaviour of a device that is out of service.
#[derive(Clone, Copy)]
pub struct Outage {
    /// Queue pairs stop sending and receiving; otherwise they work until the users release them.
    pub stops: bool,
    /// When requests are flushed.
    pub flushed: Flushed,
    /// Reports and actions, in this order.
    pub told: &'static [Told],
    /// Results of verbs.
    pub verbs: Verbs,
}

impl Outage {
    /// Nothing except the unregistration.
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
    /// The device is unregistered, and registered again after this many ms.
    Another(u32),
    /// The outage lasts until the device is removed.
    Nothing,
}

/// A reset.
#[derive(Clone, Copy)]
pub struct Reset {
    /// Its behaviour from the beginning.
    pub outage: Outage,
    /// Time until `after`, in ms.
    pub pause: u32,
    /// What follows.
    pub after: After,
}

impl Personality {
    /// Returns the personality with this name.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    pub fn named(name: &str) -> Result<&'static Self> {
        let mut all = PERSONALITIES.iter();
        all.find(|p| p.name == name).copied().ok_or(EINVAL)
    }

    /// The attributes that do not depend on the adapter's number and ports.
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

/// Personality and outages of an adapter.
pub struct Manner {
    /// Its personality.
    pub personality: &'static Personality,
    /// 0, [`RESET`] or [`REMOVAL`].
    phase: Atomic<u32>,
    /// How often `ib_modify_qp` to the error state was refused since the reset.
    refused: Atomic<u32>,
}

const RESET: u32 = 1;
const REMOVAL: u32 = 2;

impl Manner {
    /// That of an adapter in service.
    pub fn new(personality: &'static Personality) -> Self {
        Self {
            personality,
            phase: Atomic::new(0),
            refused: Atomic::new(0),
        }
    }

    /// Begins a reset and returns its outage.
    pub fn begin_reset(&self) -> &'static Outage {
        self.refused.store(0, Relaxed);
        self.phase.store(RESET, Release);
        &self.personality.reset.outage
    }

    /// Begins the removal and returns its outage; `None` if an outage has begun, which then
    /// continues.
    pub fn begin_removal(&self) -> Option<&'static Outage> {
        if self.phase.load(Acquire) != 0 {
            return None;
        }
        self.phase.store(REMOVAL, Release);
        Some(&self.personality.removal)
    }

    /// Ends the outage.
    #[cfg(SRP_KUNIT)]
    pub fn end(&self) {
        self.phase.store(0, Release);
    }

    /// The outage, if it is out of service.
    fn outage(&self) -> Option<&'static Outage> {
        match self.phase.load(Acquire) {
            RESET => Some(&self.personality.reset.outage),
            REMOVAL => Some(&self.personality.removal),
            _ => None,
        }
    }

    /// Whether it is out of service, and its queue pairs have stopped.
    pub fn is_dead(&self) -> bool {
        self.outage().is_some_and(|outage| outage.stops)
    }

    /// When requests are flushed.
    pub fn flushed(&self) -> Flushed {
        self.outage().map_or(Flushed::AtOnce, |o| o.flushed)
    }

    /// The results of verbs.
    pub fn verbs(&self) -> &'static Verbs {
        self.outage().map_or(&Verbs::WORK, |outage| &outage.verbs)
    }

    /// The result of `ib_modify_qp` to the error state.
    ///
    /// # Errors
    ///
    /// The error of the personality.
    pub fn stop(&self) -> Result {
        let verbs = self.verbs();
        match verbs.stop {
            Some(e) if self.refused.fetch_add(1, Relaxed) < verbs.stops => Err(e),
            _ => Ok(()),
        }
    }
}

/// An answer as a result.
///
/// # Errors
///
/// The answer.
pub fn answered(answer: Answer) -> Result {
    answer.map_or(Ok(()), Err)
}
