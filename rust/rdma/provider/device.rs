// SPDX-License-Identifier: GPL-2.0

//! Devices, and their registration with `ib_core`.

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
    dma::DmaDevice,
    event::{
        CqTarget,
        DeviceTarget,
        QpTarget, //
    },
    notify::{
        CqHandle,
        Notify, //
    },
    ops::{
        self,
        DeviceObject, //
    },
    pages::Pages,
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
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
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

/// An RDMA device with InfiniBand ports.
pub trait Provider: Send + Sync + Sized + 'static {
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
    /// It is gone after this: no completion, no access to memory, nothing of it in a completion queue.
    fn destroy_qp(&self, qp: &Arc<Self::Qp>);
    /// Takes requests. `datagrams` is given if it is of that kind.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM` if the queue is full.
    fn post_send<'a>(
        qp: &Arc<Self::Qp>,
        first: SendWr<'a, Self>,
        datagrams: Option<&Datagrams>,
    ) -> Result<(), Refused<SendWr<'a, Self>>>;
    /// Takes requests.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM` if the queue is full.
    fn post_recv<'a>(
        qp: &Arc<Self::Qp>,
        first: RecvWr<'a>,
    ) -> Result<(), Refused<RecvWr<'a>>>;

    /// Creates a region for up to `pages` pages, or of all memory if that is `None`; returns its key.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`
    fn create_mr(
        &self,
        pd: PdName,
        pages: Option<u32>,
        access: u32,
    ) -> Result<(Arc<Self::Mr>, u32)>;
    /// The memory that it describes, unless it is of all memory.
    fn pages(mr: &Self::Mr) -> Option<&Pages>;
    /// It is gone after this.
    fn destroy_mr(&self, mr: &Arc<Self::Mr>);
}

/// A device that `ib_core` knows. Dropping it takes the device away from all its users, and waits for them.
///
/// # Invariants
///
/// It is registered.
pub struct Registration<P: Provider> {
    pub(super) device: NonNull<bindings::ib_device>,
    provider: Arc<P>,
}

// SAFETY: A device has no thread affinity.
unsafe impl<P: Provider> Send for Registration<P> {}
// SAFETY: What a shared one gives out may be shared.
unsafe impl<P: Provider> Sync for Registration<P> {}

impl<P: Provider> Registration<P> {
    /// Registers a device with so many ports, and an interrupt for each CPU. May sleep.
    ///
    /// # Errors
    ///
    /// What `ib_core` says.
    pub fn new(
        provider: Arc<P>,
        name: &CStr,
        node_guid: u64,
        ports: u32,
        dma: &DmaDevice,
    ) -> Result<Self> {
        let size = size_of::<DeviceObject<P>>();
        // SAFETY: The size is that of a structure that begins with a `struct ib_device`; the namespace is static.
        let raw = unsafe { bindings::_ib_alloc_device(size, &raw mut bindings::init_net) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let object = raw.cast::<DeviceObject<P>>().as_ptr();
        // SAFETY: It was just allocated with this size, and all zeroes is `None`.
        unsafe { (*object).provider = Some(provider.clone()) };
        // SAFETY: It was just allocated, and nobody else knows it.
        let device = unsafe { &mut *raw.as_ptr() };
        // CAST: A small number.
        device.node_type = bindings::srp_vfab_node_SRP_VFAB_NODE_IB_CA as u8;
        device.node_guid = node_guid.to_be();
        device.phys_port_cnt = ports;
        // SAFETY: No precondition.
        let vectors = unsafe { bindings::srp_helper_num_online_cpus() };
        // CAST: The count of CPUs.
        device.num_comp_vectors = vectors as i32;
        device.local_dma_lkey = P::LOCAL_DMA_LKEY;
        // SAFETY: The functions fit the objects, whose sizes are in it.
        unsafe { bindings::ib_set_device_ops(raw.as_ptr(), ops::Ops::<P>::OPS) };
        // The device's parent is what its memory is mapped for, as with hardware.
        // SAFETY: As above; the union's other field is for another view of the same.
        unsafe { bindings::srp_vfab_set_parent(raw.as_ptr(), dma.as_raw()) };
        // SAFETY: The device is set up, the name is a string, and the device for DMA lives longer than this.
        let registered = to_result(unsafe {
            bindings::ib_register_device(raw.as_ptr(), name.as_char_ptr(), dma.as_raw())
        });
        if let Err(e) = registered {
            // SAFETY: It was not registered, and is ours.
            unsafe { release::<P>(raw) };
            return Err(e);
        }
        // SAFETY: It is registered until `forget`.
        unsafe { provider.target().set(raw) };
        // INVARIANT: It was registered.
        Ok(Self {
            device: raw,
            provider,
        })
    }

    /// The device.
    pub fn provider(&self) -> &Arc<P> {
        &self.provider
    }
}

impl<P: Provider> Drop for Registration<P> {
    fn drop(&mut self) {
        self.provider.target().forget();
        // SAFETY: By the type invariant it is registered.
        unsafe { bindings::ib_unregister_device(self.device.as_ptr()) };
        // SAFETY: It is not registered any more, and is ours.
        unsafe { release::<P>(self.device) };
    }
}

/// Gives a device back.
///
/// # Safety
///
/// It was allocated here, is not registered, and nobody uses it after this.
unsafe fn release<P>(device: NonNull<bindings::ib_device>) {
    let object = device.cast::<DeviceObject<P>>().as_ptr();
    // SAFETY: By this function's contract it is the beginning of this.
    drop(unsafe { (*object).provider.take() });
    // SAFETY: By this function's contract.
    unsafe { bindings::ib_dealloc_device(device.as_ptr()) };
}
