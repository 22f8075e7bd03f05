// SPDX-License-Identifier: GPL-2.0

//! The verbs of a device.

use super::{
    attr::{
        DeviceAttr,
        Kind,
        Mask,
        PdName,
        PortAttr,
        QpAttr,
        Sizes, //
    },
    event::{
        CqTarget,
        DeviceTarget,
        QpTarget, //
    },
    notify::{
        CqHandle,
        Notify, //
    },
    pages::Pages,
    umem::Umem,
    wc::{
        QpName,
        Room, //
    },
    wr::{
        Datagrams,
        RecvWr,
        SendWr, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A management datagram.
pub type Mad = [u8; 256];

/// The outcome of a management datagram at the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MadResult {
    /// There is a response.
    Reply,
    /// The device consumed the datagram; there is no response.
    Consumed,
    /// The datagram is not for the device.
    Ignored,
}

/// The first refused request (all after it are refused too), and the error.
pub type Refused<W> = (W, Error);

/// The parameters of a new queue pair.
pub struct QpInit<'a, P: Provider> {
    /// Type of the queue pair.
    pub kind: Kind,
    /// Port number, for [`Kind::Smi`] and [`Kind::Gsi`].
    pub port: u32,
    /// Protection domain.
    pub pd: PdName,
    /// Sizes of the queues.
    pub sizes: Sizes,
    /// Whether each request has a completion.
    pub all_signaled: bool,
    /// Completion queue of send requests.
    pub send_cq: &'a Arc<P::Cq>,
    /// Completion queue of receive requests.
    pub recv_cq: &'a Arc<P::Cq>,
    /// The name of the queue pair in completions.
    pub name: QpName,
}

/// The memory of a region.
pub enum Region {
    /// All memory.
    All,
    /// At most this many pages, described and registered later.
    Pages(u32),
    /// Like `Pages`, but with pieces of any size (`IB_MR_TYPE_SG_GAPS`).
    Pieces(u32),
    /// Memory of a process, fixed at creation.
    Process(Umem),
}

/// An RDMA device with InfiniBand ports.
///
/// # Safety
///
/// - [`notify`](Self::notify), [`cq_target`](Self::cq_target), [`qp_target`](Self::qp_target) and
///   [`target`](Self::target) return the same object each time, which belongs to that queue, queue
///   pair or device alone. The [`Notify`] that `notify` returns is the only one created from the
///   handle of that queue.
/// - The device accesses memory only by the addresses of posted requests, until their completion
///   can be polled, and of registered regions, until they are invalidated or destroyed.
/// - A [destroyed](Self::destroy_qp) queue pair accesses no memory.
pub unsafe trait Provider: Send + Sync + Sized + 'static {
    /// A completion queue.
    type Cq: Send + Sync;
    /// A queue pair.
    type Qp: Send + Sync;
    /// A memory region.
    type Mr: Send + Sync;

    /// The key of all memory by its DMA addresses, valid in local requests only.
    const LOCAL_DMA_LKEY: u32;

    /// The target of the device's events.
    fn target(&self) -> &DeviceTarget;
    /// The device's capabilities.
    fn device_attr(&self) -> DeviceAttr;
    /// The attributes of `port`, counted from 1.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    fn port_attr(&self, port: u32) -> Result<PortAttr>;
    /// An entry of the P_Key table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such entry.
    fn pkey(&self, port: u32, index: u16) -> Result<u16>;
    /// An entry of the GID table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such entry.
    fn gid(&self, port: u32, index: i32) -> Result<[u8; 16]>;
    /// Sets and clears bits of a port's CapabilityMask.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    fn set_capabilities(&self, port: u32, set: u32, clear: u32) -> Result;
    /// Sets the node description.
    fn set_description(&self, description: &[u8; 64]);
    /// Processes a management datagram that `port` received from LID `slid`.
    fn process_mad(&self, port: u32, slid: u16, mad: &Mad, reply: &mut Mad) -> MadResult;

    /// Creates a completion queue for `cqe` completions.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_cq(&self, cqe: u32, handle: CqHandle) -> Result<Arc<Self::Cq>>;
    /// The capacity of a completion queue.
    fn cqe(cq: &Self::Cq) -> u32;
    /// The interrupt of a completion queue.
    fn notify(cq: &Self::Cq) -> &Notify;
    /// The target of a completion queue's events.
    fn cq_target(cq: &Self::Cq) -> &CqTarget;
    /// Stops the completions of a queue. Sleeps.
    fn destroy_cq(cq: &Self::Cq);
    /// Moves completions to `room`; returns their number.
    fn poll_cq(cq: &Self::Cq, room: &mut Room<'_>) -> usize;
    /// Requests an interrupt for the next completion; returns whether a completion is queued
    /// already.
    fn arm_cq(cq: &Self::Cq, solicited_only: bool) -> bool;
    /// Delays the interrupt of a queue until `count` completions, for at most `period` us. Does not
    /// delay it if `count` is 1 or less, or if `period` is 0.
    fn moderate_cq(cq: &Self::Cq, count: u16, period: u16);

    /// Creates a queue pair; returns it and its number.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_qp(this: &Arc<Self>, init: &QpInit<'_, Self>) -> Result<(Arc<Self::Qp>, u32)>;
    /// The target of a queue pair's events.
    fn qp_target(qp: &Self::Qp) -> &QpTarget;
    /// Modifies a queue pair.
    ///
    /// # Errors
    ///
    /// `EINVAL`
    fn modify_qp(&self, qp: &Arc<Self::Qp>, attr: &QpAttr, mask: Mask) -> Result;
    /// The attributes and sizes of a queue pair.
    fn query_qp(qp: &Self::Qp) -> (QpAttr, Sizes);
    /// Called when a drain by the device ([`DeviceAttr::drains`]) starts or ends. Returns whether
    /// the device has stopped. If so, a failure to move the queue pair to the error state is
    /// harmless.
    fn draining(_qp: &Self::Qp, _on: bool) -> bool {
        false
    }
    /// Destroys a queue pair. No access to memory and no completion follows.
    ///
    /// # Errors
    ///
    /// The errors of the device; the queue pair does not change.
    fn destroy_qp(&self, qp: &Arc<Self::Qp>) -> Result;
    /// Attaches a queue pair of datagrams to a multicast group.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is attached already, `ENOMEM` if there are too many members.
    fn attach(&self, qp: &Arc<Self::Qp>, gid: [u8; 16], lid: u16) -> Result;
    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not attached.
    fn detach(&self, qp: &Arc<Self::Qp>, gid: [u8; 16], lid: u16) -> Result;
    /// Posts send requests. `datagrams` is given for a queue pair of datagrams.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a request is invalid, `ENOMEM` if the queue is full.
    fn post_send<'a>(
        qp: &Arc<Self::Qp>,
        first: SendWr<'a, Self::Mr>,
        datagrams: Option<&Datagrams>,
    ) -> Result<(), Refused<SendWr<'a, Self::Mr>>>;
    /// Posts receive requests.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a request is invalid, `ENOMEM` if the queue is full.
    fn post_recv<'a>(qp: &Arc<Self::Qp>, first: RecvWr<'a>) -> Result<(), Refused<RecvWr<'a>>>;

    /// Creates a region; returns it and its key.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_mr(&self, pd: PdName, region: Region, access: u32) -> Result<(Arc<Self::Mr>, u32)>;
    /// Called before the memory of a region is described. Any context.
    #[inline]
    fn describing(&self) {}
    /// The described memory, for [`Region::Pages`] and [`Region::Pieces`].
    fn pages(mr: &Self::Mr) -> Option<&Pages>;
    /// Destroys a region. No access to its memory follows.
    ///
    /// # Errors
    ///
    /// The errors of a failed device; the region still exists.
    fn destroy_mr(&self, mr: &Arc<Self::Mr>) -> Result;
}
