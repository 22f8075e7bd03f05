// SPDX-License-Identifier: GPL-2.0

//! The behaviour of an adapter that is visible to a user of the verbs, as data.
//!
//! Each [`Personality`] is one constant of [`table`]; `docs/adapters.md` has the source of each
//! value. No other file depends on the names of the constants.

mod table;

pub use table::{
    DEFAULT,
    PERSONALITIES, //
};

use crate::provider::attr::{
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
    /// The name by which a user selects the personality.
    pub name: &'static str,
    /// The driver that the device reports.
    pub driver: Driver,
    /// Limits of the adapter.
    pub limits: Limits,
    /// Properties of its memory regions.
    pub regions: Regions,
    /// Properties of its RC connections.
    pub connections: Connections,
    /// The flush of requests when a queue pair is in error.
    pub flush: Flush,
    /// Whether the device drains queue pairs itself, and accepts drain requests while it refuses
    /// all others.
    pub drains: bool,
    /// Whether completion interrupts can be moderated, and `ib_core` adapts the moderation.
    pub moderates: bool,
    /// Whether destroying a queue pair removes its completions.
    pub purges: bool,
    /// The effect of `reset` on the device.
    pub reset: Reset,
    /// Behaviour of the device from the moment its driver begins to remove it.
    pub removal: Outage,
}

/// Limits that the device reports in `struct ib_device_attr` and `struct ib_device`.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Maximum number of requests per work queue.
    pub qp_wr: u32,
    /// Maximum number of SGEs per send request.
    pub send_sge: u32,
    /// Maximum number of SGEs per receive request.
    pub recv_sge: u32,
    /// Maximum number of SGEs per RDMA READ.
    pub read_sge: u32,
    /// Maximum number of completions per completion queue.
    pub cqe: u32,
    /// Maximum number of completion queues.
    pub cq: u32,
    /// Maximum number of memory regions; capped at 65,535.
    pub mr: u32,
    /// Maximum number of concurrent RDMA READs per connection.
    pub reads: u32,
    /// Maximum number of completion vectors; capped at the number of CPUs.
    pub vectors: u32,
}

/// Properties of regions.
#[derive(Clone, Copy)]
pub struct Regions {
    /// Maximum number of pages or pieces per region that REG_MR registers; 0 if it is not
    /// supported.
    pub pages: u32,
    /// Supported page sizes, a bit for each.
    pub page_sizes: u64,
    /// Maximum length of a region, in bytes.
    pub len: u64,
    /// Whether a region may consist of pieces of any size (`IB_MR_TYPE_SG_GAPS`).
    pub gaps: bool,
    /// Whether a reserved key gives local access to all memory (`IBK_LOCAL_DMA_LKEY`).
    pub local_dma_lkey: bool,
    /// Initial low eight bits of a key, which the user may change.
    pub variant: Variant,
    /// The addresses that a region may have.
    pub iova: Iova,
    /// `map_mr_sg` maps nothing if the offset into the first entry is not a multiple of this.
    pub offsets: u32,
    /// The keys with which LOCAL_INV of an unregistered region succeeds, without effect.
    pub free_keys: FreeKeys,
}

/// Keys with which an unregistered region may be invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeKeys {
    /// None: LOCAL_INV fails.
    None,
    /// The last key of the region.
    Same,
    /// The key of the region, with any low eight bits.
    Any,
}

/// Initial low eight bits of the key of a new region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// 0
    Zero,
    /// Different for each region.
    Changing,
}

/// The addresses that REG_MR may give a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iova {
    /// Any address: only its offset in the first page matters.
    Any,
    /// A DMA address within the first page: the device uses its distance from the start of that
    /// page as an offset.
    FirstPage,
}

/// Properties of connections.
#[derive(Clone, Copy)]
pub struct Connections {
    /// Whether a message that finds no receive request is retried as the attributes specify.
    /// Otherwise it ends the connection.
    pub rnr_retries: bool,
}

/// The order in which requests of the two queues are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// All receive requests first.
    ReceivesFirst,
    /// All send requests first.
    SendsFirst,
    /// Alternating while both queues have requests, starting with a send.
    Interleaved,
}

/// The flush of requests when a queue pair is in error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// The order of the queues.
    pub order: Order,
    /// Delay before the first batch and between batches, in ns; 0 for no delay.
    pub pause: u64,
    /// Maximum number of requests per batch. An interrupt follows each batch.
    pub at_once: u32,
}

impl Flush {
    /// A queue pair flushes its receive queue in the call that causes the error. The send queue
    /// follows there, or in a work item.
    pub const SIMPLE: Self = Self {
        order: Order::ReceivesFirst,
        pause: 0,
        at_once: u32::MAX,
    };
}

/// A report or an action of a device that goes out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Reports IB_EVENT_DEVICE_FATAL.
    DeviceFatal,
    /// The link of each port goes down, with IB_EVENT_PORT_ERR.
    PortErr,
    /// Reports IB_EVENT_QP_FATAL for each RC queue pair that is not in RESET.
    QpFatal,
}

/// The error that a verb returns; `None` if the verb works.
pub type Answer = Option<Error>;

/// Results of verbs while the device is out of service. Destroying a queue pair or a completion
/// queue succeeds in all drivers.
#[derive(Clone, Copy)]
pub struct Verbs {
    /// `ib_modify_qp` to the error state.
    pub stop: Answer,
    /// Number of times that `ib_modify_qp` to the error state fails before it succeeds.
    pub stops: u32,
    /// `ib_modify_qp` to other states.
    pub modify: Answer,
    /// Creation of a completion queue, queue pair or region.
    pub create: Answer,
    /// `ib_dereg_mr`. If it fails, the region still exists.
    pub dereg: Answer,
    /// `ib_post_send`, `ib_post_recv`
    pub post: Answer,
}

impl Verbs {
    /// All verbs work.
    pub const WORK: Self = Self::fail(None);

    /// Every verb that creates or modifies an object returns `answer`.
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

/// The time at which a device that is out of service flushes the posted requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// When the device stops.
    AtOnce,
    /// When the queue pair has been moved to the error state.
    WhenStopped,
    /// When a user has tried to move the queue pair to the error state, even if that failed.
    WhenTried,
    /// Never: the requests get no completion.
    Never,
}

/// The behaviour of a device that is out of service.
#[derive(Clone, Copy)]
pub struct Outage {
    /// Whether queue pairs stop sending and receiving. Otherwise they work until they are
    /// destroyed.
    pub stops: bool,
    /// The time of the flush.
    pub flushed: Flushed,
    /// What the device reports and does when it goes out of service, in this order.
    pub told: &'static [Told],
    /// Results of verbs.
    pub verbs: Verbs,
}

impl Outage {
    /// The device works until it is unregistered.
    pub const NONE: Self = Self {
        stops: false,
        flushed: Flushed::WhenStopped,
        told: &[],
        verbs: Verbs::WORK,
    };
}

/// The action after the outage that a reset causes.
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
    /// The outage that begins the reset.
    pub outage: Outage,
    /// Time from the outage to `after`, in ms.
    pub pause: u32,
    /// The action after the outage.
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
            moderates: self.moderates,
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

/// Personality and current outage of an adapter.
pub struct Manner {
    /// The adapter's personality.
    pub personality: &'static Personality,
    /// 0, [`RESET`] or [`REMOVAL`].
    phase: Atomic<u32>,
    /// Number of `ib_modify_qp` calls to the error state since the reset began.
    refused: Atomic<u32>,
}

const RESET: u32 = 1;
const REMOVAL: u32 = 2;

impl Manner {
    /// The state of an adapter in service.
    pub fn new(personality: &'static Personality) -> Self {
        Self {
            personality,
            phase: Atomic::new(0),
            refused: Atomic::new(0),
        }
    }

    /// Begins a reset. Returns the outage that it causes.
    pub fn begin_reset(&self) -> &'static Outage {
        self.refused.store(0, Relaxed);
        self.phase.store(RESET, Release);
        &self.personality.reset.outage
    }

    /// Begins the removal and returns its outage; `None` if another outage has begun, which then
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

    /// The current outage, if the device is out of service.
    fn outage(&self) -> Option<&'static Outage> {
        match self.phase.load(Acquire) {
            RESET => Some(&self.personality.reset.outage),
            REMOVAL => Some(&self.personality.removal),
            _ => None,
        }
    }

    /// Whether the current outage has stopped the queue pairs.
    pub fn is_dead(&self) -> bool {
        self.outage().is_some_and(|outage| outage.stops)
    }

    /// Returns the time at which posted requests are flushed.
    pub fn flushed(&self) -> Flushed {
        self.outage().map_or(Flushed::AtOnce, |o| o.flushed)
    }

    /// The results of verbs.
    pub fn verbs(&self) -> &'static Verbs {
        self.outage().map_or(&Verbs::WORK, |outage| &outage.verbs)
    }

    /// Counts an `ib_modify_qp` to the error state and returns its result.
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

/// Converts an answer to a result.
///
/// # Errors
///
/// The error in `answer`.
pub fn answered(answer: Answer) -> Result {
    answer.map_or(Ok(()), Err)
}
