// SPDX-License-Identifier: GPL-2.0

//! What a device does, as its verbs.

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

/// What became of a management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MadResult {
    /// There is a response.
    Reply,
    /// It was for the device.
    Consumed,
    /// It is for somebody else.
    Ignored,
}

/// A request that was refused, with all that follow it, and why.
pub type Refused<W> = (W, Error);

/// What a queue pair is to be.
pub struct QpInit<'a, P: Provider> {
    /// Its kind.
    pub kind: Kind,
    /// Its port, for [`Kind::Smi`] and [`Kind::Gsi`].
    pub port: u32,
    /// Its protection domain.
    pub pd: PdName,
    /// Sizes of its queues.
    pub sizes: Sizes,
    /// Whether each request has a completion.
    pub all_signaled: bool,
    /// Where completions of send requests go.
    pub send_cq: &'a Arc<P::Cq>,
    /// Where those of receive requests go.
    pub recv_cq: &'a Arc<P::Cq>,
    /// The name that completions have.
    pub name: QpName,
}

/// What a region is to be of.
pub enum Region {
    /// All memory.
    All,
    /// Up to so many pages, which are described and registered later.
    Pages(u32),
    /// Up to so many pieces of any size, as above (`IB_MR_TYPE_SG_GAPS`).
    Pieces(u32),
    /// This, from the start.
    Process(Umem),
}

/// An RDMA device with InfiniBand ports.
///
/// # Safety
///
/// - [`notify`](Self::notify), [`cq_target`](Self::cq_target), [`qp_target`](Self::qp_target) and
///   [`target`](Self::target) give the same object each time, which belongs to that queue, queue
///   pair or device alone. A [`Notify`] made of the handle of a queue is the one that `notify`
///   gives, and no other is.
/// - Memory is accessed by the addresses of posted requests until their completion can be polled,
///   of registered regions until they are invalidated or destroyed, and by no others.
/// - What is [gone](Self::destroy_qp) accesses nothing.
pub unsafe trait Provider: Send + Sync + Sized + 'static {
    /// A completion queue.
    type Cq: Send + Sync;
    /// A queue pair.
    type Qp: Send + Sync;
    /// A memory region.
    type Mr: Send + Sync;

    /// The key of all memory by its DMA addresses, for requests of its own side only.
    const LOCAL_DMA_LKEY: u32;

    /// Who is told of its events.
    fn target(&self) -> &DeviceTarget;
    /// What it can do.
    fn device_attr(&self) -> DeviceAttr;
    /// What a port, from 1, is like now.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    fn port_attr(&self, port: u32) -> Result<PortAttr>;
    /// An entry of the table of partitions.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    fn pkey(&self, port: u32, index: u16) -> Result<u16>;
    /// An entry of the table of GIDs.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    fn gid(&self, port: u32, index: i32) -> Result<[u8; 16]>;
    /// Sets and clears bits of a port's CapabilityMask.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port.
    fn set_capabilities(&self, port: u32, set: u32, clear: u32) -> Result;
    /// Sets the description of the node.
    fn set_description(&self, description: &[u8; 64]);
    /// Looks at a management datagram that came to a port from a LID.
    fn process_mad(&self, port: u32, slid: u16, mad: &Mad, reply: &mut Mad) -> MadResult;

    /// Creates a completion queue for `cqe` completions.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_cq(&self, cqe: u32, handle: CqHandle) -> Result<Arc<Self::Cq>>;
    /// Completions that it has room for.
    fn cqe(cq: &Self::Cq) -> u32;
    /// The interrupt of a completion queue.
    fn notify(cq: &Self::Cq) -> &Notify;
    /// Who is told of its events.
    fn cq_target(cq: &Self::Cq) -> &CqTarget;
    /// No completion comes any more; sleeps.
    fn destroy_cq(cq: &Self::Cq);
    /// Takes completions out; returns how many.
    fn poll_cq(cq: &Self::Cq, room: &mut Room<'_>) -> usize;
    /// Has the next completion interrupt; returns whether there is one already.
    fn arm_cq(cq: &Self::Cq, solicited_only: bool) -> bool;

    /// Creates a queue pair, with its number.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_qp(this: &Arc<Self>, init: &QpInit<'_, Self>) -> Result<(Arc<Self::Qp>, u32)>;
    /// Who is told of its events.
    fn qp_target(qp: &Self::Qp) -> &QpTarget;
    /// Changes it.
    ///
    /// # Errors
    ///
    /// `EINVAL`
    fn modify_qp(&self, qp: &Arc<Self::Qp>, attr: &QpAttr, mask: Mask) -> Result;
    /// What it is like.
    fn query_qp(qp: &Self::Qp) -> (QpAttr, Sizes);
    /// The device itself begins to drain it, or ends that ([`DeviceAttr::drains`]). Returns whether
    /// the device has stopped, so that it does not matter if the queue pair cannot be moved to the
    /// error state.
    fn draining(_qp: &Self::Qp, _on: bool) -> bool {
        false
    }
    /// It is gone after this: no access to memory, and no further completion.
    ///
    /// # Errors
    ///
    /// Those of a device that does not do it: it stays as it is.
    fn destroy_qp(&self, qp: &Arc<Self::Qp>) -> Result;
    /// Has a queue pair of datagrams get those to a multicast group, which has a GID and a LID.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it gets them already, `ENOMEM` if there are too many members.
    fn attach(&self, qp: &Arc<Self::Qp>, gid: [u8; 16], lid: u16) -> Result;
    /// Ends that.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not get them.
    fn detach(&self, qp: &Arc<Self::Qp>, gid: [u8; 16], lid: u16) -> Result;
    /// Takes requests. `datagrams` is given if it is of that kind.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM` if the queue is full.
    fn post_send<'a>(
        qp: &Arc<Self::Qp>,
        first: SendWr<'a, Self::Mr>,
        datagrams: Option<&Datagrams>,
    ) -> Result<(), Refused<SendWr<'a, Self::Mr>>>;
    /// Takes requests.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM` if the queue is full.
    fn post_recv<'a>(qp: &Arc<Self::Qp>, first: RecvWr<'a>) -> Result<(), Refused<RecvWr<'a>>>;

    /// Creates a region; returns its key.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_mr(&self, pd: PdName, region: Region, access: u32) -> Result<(Arc<Self::Mr>, u32)>;
    /// A region is about to be described. Any context.
    #[inline]
    fn describing(&self) {}
    /// What is described, if it is one of [`Region::Pages`] or [`Region::Pieces`].
    fn pages(mr: &Self::Mr) -> Option<&Pages>;
    /// It is gone after this, and nobody accesses its memory.
    ///
    /// # Errors
    ///
    /// Those of a device that has failed: it is not gone then.
    fn destroy_mr(&self, mr: &Arc<Self::Mr>) -> Result;
}
