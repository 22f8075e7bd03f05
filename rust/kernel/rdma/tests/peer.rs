// SPDX-License-Identifier: GPL-2.0

//! The other end of a connection, on bare verbs: it listens, accepts one connection, and acts only
//! as its test requests.
//!
//! With `IB_POLL_DIRECT`, only the test polls its completion queue, so nothing happens without the
//! test.

use super::soft::Soft;
use crate::{
    bindings,
    dma::DataDirection,
    errno::ENOTCONN,
    net::{
        Namespace,
        SocketAddr, //
    },
    rdma::{
        dma::{
            Chunk,
            Pool,
            MAX_CHUNK, //
        },
        mr::Segment,
        pd::Pd,
        wc::Status,
        wr::{
            request,
            set_receive_cookie, //
        }, //
    },
};
use core::{
    net::IpAddr,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        UniqueArc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

#[cfg(SRP_BENCH)]
extern "C" {
    /// `include/linux/sched.h`
    #[link_name = "yield"]
    fn yield_now();
}

/// Maximum length of a message, in bytes.
const MESSAGE: usize = 64;
/// Number of posted receives.
const RECEIVES: usize = 32;
/// Number of waits of 1 ms until the tests give up.
const PATIENCE: u32 = 10_000;

/// Waits until `done` returns true, for at least ten seconds.
pub(crate) fn within(done: impl Fn() -> bool) -> Result {
    for _ in 0..PATIENCE {
        if done() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// The context of the callbacks.
///
/// # Invariants
///
/// - `cq` is null or a queue with this object as its context; only the owner may poll it.
/// - `id` is 0, or the address of the accepted identifier, which has a queue pair with `cq`.
struct Inner {
    pd: Arc<Pd>,
    cq: *mut bindings::ib_cq,
    id: Atomic<usize>,
    established: Atomic<bool>,
    disconnected: Atomic<bool>,
    receive_cqe: bindings::ib_cqe,
    send_cqe: bindings::ib_cqe,
    transfer_cqe: bindings::ib_cqe,
    receives: KVVec<Chunk>,
    received: Atomic<u32>,
    /// Number of received messages that were not the next in order.
    disordered: Atomic<u32>,
    sent: Atomic<u32>,
    /// Status of the last transfer, or [`PENDING`].
    transfer: Atomic<u32>,
    /// Arrival time of the last message, in nanoseconds.
    #[cfg(SRP_BENCH)]
    arrived: Atomic<i64>,
}

/// The value while there is no status yet.
const PENDING: u32 = u32::MAX;

// SAFETY: Identifiers and queues have no thread affinity.
unsafe impl Send for Inner {}
// SAFETY: The callbacks only use atomics and constants.
unsafe impl Sync for Inner {}

/// The passive side.
///
/// # Invariants
///
/// `listener` is a listening identifier with context `inner`.
pub(in crate::rdma) struct Peer {
    listener: NonNull<bindings::rdma_cm_id>,
    inner: Arc<Inner>,
    messages: KVVec<Chunk>,
    posted: u32,
    source: Chunk,
    sink: Chunk,
    poll_context: bindings::ib_poll_context,
    /// The address that the peer listens on.
    pub(in crate::rdma) address: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Transfer {
    /// Reads the other side's memory.
    Read,
    /// Writes the other side's memory.
    Write,
}

impl Peer {
    /// Starts to listen on the address of the device, on a free port. Either the test polls the
    /// completion queue, or callbacks run in `poll_context`.
    pub(in crate::rdma) fn new(
        soft: &Soft,
        poll_context: bindings::ib_poll_context,
    ) -> Result<Self> {
        let pd = Pd::new(soft.device.hold()?)?;
        let (_, receives) = Pool::new(&pd, RECEIVES, MESSAGE, DataDirection::FromDevice)?;
        let (_, messages) = Pool::new(&pd, RECEIVES, MESSAGE, DataDirection::ToDevice)?;
        let source = Pool::new(&pd, 1, MAX_CHUNK, DataDirection::ToDevice)?
            .1
            .pop();
        let sink = Pool::new(&pd, 1, MAX_CHUNK, DataDirection::FromDevice)?
            .1
            .pop();
        let mut inner = UniqueArc::new(
            Inner {
                pd,
                cq: null_mut(),
                id: Atomic::new(0),
                established: Atomic::new(false),
                disconnected: Atomic::new(false),
                receive_cqe: bindings::ib_cqe {
                    done: Some(Inner::receive_done),
                },
                send_cqe: bindings::ib_cqe {
                    done: Some(Inner::send_done),
                },
                transfer_cqe: bindings::ib_cqe {
                    done: Some(Inner::transfer_done),
                },
                receives,
                received: Atomic::new(0),
                disordered: Atomic::new(0),
                sent: Atomic::new(0),
                transfer: Atomic::new(PENDING),
                #[cfg(SRP_BENCH)]
                arrived: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let context: *mut Inner = &mut *inner;
        // SAFETY: The device is registered; the context lives until the queue is freed.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                soft.device.as_raw(),
                context.cast(),
                256,
                0,
                poll_context,
                crate::rdma::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The context of `cq` is this object.
        inner.cq = cq;
        let inner: Arc<Inner> = inner.into();
        let net = Namespace::current().ok_or(ESRCH)?;
        // SAFETY: The namespace is valid; the context lives until the identifier is destroyed.
        let listener = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(Inner::event),
                Arc::as_ptr(&inner).cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                crate::rdma::CALLER.as_char_ptr(),
            )
        })?;
        let ip = IpAddr::V4(soft.address);
        let mut this = Self {
            listener: NonNull::new(listener).ok_or(ENOMEM)?,
            inner,
            messages,
            posted: 0,
            source: source.ok_or(ENOMEM)?,
            sink: sink.ok_or(ENOMEM)?,
            poll_context,
            address: SocketAddr::new(ip, 0),
        };
        let mut address = this.address.to_raw();
        let address = (&raw mut address).cast();
        // SAFETY: The identifier is valid; the function copies the address.
        to_result(unsafe { bindings::rdma_bind_addr(listener, address) })?;
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::rdma_listen(listener, 1) })?;
        // SAFETY: The identifier is valid and bound.
        let bound = unsafe { &(*listener).route.addr.src_addr };
        this.address = SocketAddr::from_raw(bound).ok_or(EINVAL)?;
        Ok(this)
    }

    /// Waits until the other side's first message, or its confirmation, has arrived.
    pub(in crate::rdma) fn wait_established(&self) -> Result {
        within(|| self.inner.established.load(Acquire))
    }

    /// Runs the callbacks of completed requests.
    pub(in crate::rdma) fn poll(&self) {
        if self.poll_context != bindings::ib_poll_context_IB_POLL_DIRECT {
            return;
        }
        // SAFETY: Nothing else polls the queue.
        unsafe { bindings::ib_process_cq_direct(self.inner.cq, 64) };
    }

    /// Polls until `done` returns true.
    pub(in crate::rdma) fn poll_until(&self, done: impl Fn(&Self) -> bool) -> Result {
        within(|| {
            self.poll();
            done(self)
        })
    }

    /// Number of messages received.
    pub(in crate::rdma) fn received(&self) -> u32 {
        self.inner.received.load(Acquire)
    }

    /// Arrival time of the last message, in nanoseconds of the monotonic clock.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn arrived(&self) -> i64 {
        self.inner.arrived.load(Relaxed)
    }

    /// Number of messages received out of order.
    pub(in crate::rdma) fn disordered(&self) -> u32 {
        self.inner.disordered.load(Relaxed)
    }

    /// Number of messages sent or flushed.
    pub(in crate::rdma) fn sent(&self) -> u32 {
        self.inner.sent.load(Relaxed)
    }

    fn qp(&self) -> Result<*mut bindings::ib_qp> {
        let id = self.inner.id.load(Acquire) as *mut bindings::rdma_cm_id;
        if id.is_null() {
            return Err(ENOTCONN);
        }
        // SAFETY: The identifier is valid and has a queue pair.
        Ok(unsafe { (*id).qp })
    }

    fn post(&self, wr: &bindings::ib_send_wr) -> Result {
        let mut bad = core::ptr::null();
        // SAFETY: The queue pair is valid; the memory of the request belongs to a chunk of this
        // object, which drains the queue pair before it drops the chunk.
        to_result(unsafe { bindings::srp_helper_ib_post_send(self.qp()?, wr, &mut bad) })
    }

    /// Sends a message of `len` bytes, at least 4, that begins with the number of messages before
    /// it. At most 32 may be in flight.
    pub(in crate::rdma) fn send(&mut self, len: usize) -> Result {
        let posted = self.posted;
        let place = posted as usize % RECEIVES;
        let chunk = self.messages.get_mut(place).ok_or(EINVAL)?;
        for (at, byte) in chunk.bytes_mut().iter_mut().enumerate() {
            *byte = super::link::pattern(posted, at);
        }
        let (addr, length) = chunk.part(len)?;
        let mut sge = bindings::ib_sge {
            addr,
            length,
            lkey: self.inner.pd.local_dma_lkey(),
        };
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        self.post(&signaled(opcode, &mut sge, &self.inner.send_cqe))?;
        self.posted += 1;
        Ok(())
    }

    /// Sends `count` messages, with at most `window` of them not yet received; `seen` returns the
    /// number received.
    pub(in crate::rdma) fn send_all(
        &mut self,
        count: u32,
        window: u32,
        seen: impl Fn() -> u32,
    ) -> Result {
        for number in 0..count {
            let posted = self.posted;
            self.poll_until(|peer| {
                posted.wrapping_sub(seen()) < window && posted - peer.sent() < RECEIVES as u32
            })?;
            self.send(4 + number as usize % (MESSAGE - 3))?;
        }
        Ok(())
    }

    /// Starts to transfer a whole segment, of at most [`MAX_CHUNK`] bytes.
    pub(in crate::rdma) fn begin(&mut self, how: Transfer, segment: &Segment) -> Result {
        self.begin_all(how, core::slice::from_ref(segment))
    }

    /// Starts to transfer all of the segments; only the last one signals completion.
    pub(in crate::rdma) fn begin_all(&mut self, how: Transfer, segments: &[Segment]) -> Result {
        self.inner.transfer.store(PENDING, Relaxed);
        for (number, segment) in segments.iter().enumerate() {
            let len = segment.len as usize;
            let (opcode, addr) = match how {
                Transfer::Read => {
                    self.sink.sync_for_device(len);
                    (bindings::ib_wr_opcode_IB_WR_RDMA_READ, self.sink.addr())
                }
                Transfer::Write => (
                    bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
                    self.source.part(len)?.0,
                ),
            };
            let mut sge = bindings::ib_sge {
                addr,
                length: segment.len,
                lkey: self.inner.pd.local_dma_lkey(),
            };
            let mut wr = signaled(opcode, &mut sge, &self.inner.transfer_cqe);
            if number + 1 < segments.len() {
                wr.send_flags = 0;
            }
            let request = bindings::ib_rdma_wr {
                wr,
                remote_addr: segment.addr,
                rkey: segment.key,
            };
            self.post(&request.wr)?;
        }
        Ok(())
    }

    /// Transfers a whole segment and waits for its completion.
    pub(in crate::rdma) fn transfer(&mut self, how: Transfer, segment: &Segment) -> Result<Status> {
        self.begin(how, segment)?;
        self.poll_until(|peer| peer.inner.transfer.load(Relaxed) != PENDING)?;
        Ok(Status(self.inner.transfer.load(Relaxed)))
    }

    /// Polls without sleeping until `done` returns true.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn spin_until(&self, done: impl Fn(&Self) -> bool) -> Result {
        for _ in 0..100_000_000u64 {
            self.poll();
            if done(self) {
                return Ok(());
            }
            // SAFETY: A kernel thread without locks may always yield.
            unsafe { yield_now() };
        }
        Err(ETIMEDOUT)
    }

    /// Transfers all of the segments, without sleeping.
    #[cfg(SRP_BENCH)]
    pub(in crate::rdma) fn transfer_spinning(
        &mut self,
        how: Transfer,
        segments: &[Segment],
    ) -> Result<Status> {
        self.begin_all(how, segments)?;
        self.spin_until(|peer| peer.inner.transfer.load(Relaxed) != PENDING)?;
        Ok(Status(self.inner.transfer.load(Relaxed)))
    }

    /// The bytes that [`Self::transfer`] writes.
    pub(in crate::rdma) fn source(&mut self) -> &mut [u8] {
        self.source.bytes_mut()
    }

    /// The first bytes that [`Self::transfer`] has read.
    pub(in crate::rdma) fn sink(&self, len: usize) -> &[u8] {
        self.sink.received(len)
    }

    pub(in crate::rdma) fn is_disconnected(&self) -> bool {
        self.inner.disconnected.load(Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: `listener` is valid; after the call no connection is made and no event is
        // running.
        unsafe { bindings::rdma_destroy_id(self.listener.as_ptr()) };
        if let Ok(qp) = self.qp() {
            let id = self.inner.id.load(Relaxed) as *mut bindings::rdma_cm_id;
            // SAFETY: The queue pair is valid; both queues have a spare entry.
            unsafe { bindings::ib_drain_qp(qp) };
            // SAFETY: The queue pair is valid; it is drained.
            unsafe { bindings::rdma_destroy_qp(id) };
            // SAFETY: `id` is valid; the call waits for the last event.
            unsafe { bindings::rdma_destroy_id(id) };
        }
        // SAFETY: The queue pair of this queue is destroyed.
        unsafe { bindings::ib_free_cq(self.inner.cq) };
    }
}

impl Inner {
    /// # Safety
    ///
    /// `cq` must be the queue of an `Inner`.
    unsafe fn of<'a>(cq: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: The context of `cq` is an `Inner`.
        unsafe { &*(*cq).cq_context.cast() }
    }

    fn post_receive(&self, qp: *mut bindings::ib_qp, number: usize) -> Result {
        let chunk = self.receives.get(number % RECEIVES).ok_or(EINVAL)?;
        chunk.sync_for_device(chunk.size());
        let mut sge = bindings::ib_sge {
            addr: chunk.addr(),
            length: chunk.size() as u32,
            lkey: self.pd.local_dma_lkey(),
        };
        let mut wr = bindings::ib_recv_wr {
            sg_list: &mut sge,
            num_sge: 1,
            ..Default::default()
        };
        set_receive_cookie(&mut wr, &self.receive_cqe);
        let mut bad = core::ptr::null();
        // SAFETY: The caller passes a valid queue pair; memory and completion belong to this
        // object.
        to_result(unsafe { bindings::srp_helper_ib_post_recv(qp, &wr, &mut bad) })
    }

    /// Creates a queue pair on the identifier of a request and accepts the request.
    fn accept(&self, id: *mut bindings::rdma_cm_id) -> Result {
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
            cap: bindings::ib_qp_cap {
                max_send_wr: 2 * RECEIVES as u32,
                max_recv_wr: RECEIVES as u32 + 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The identifier is that of the event; the function copies `attr`.
        to_result(unsafe { bindings::rdma_create_qp(id, self.pd.as_raw(), &mut attr) })?;
        // SAFETY: The call above created the queue pair.
        let qp = unsafe { (*id).qp };
        let result = (0..RECEIVES)
            .try_for_each(|number| self.post_receive(qp, number))
            .and_then(|()| {
                let mut param = bindings::rdma_conn_param {
                    initiator_depth: 4,
                    retry_count: 7,
                    rnr_retry_count: 7,
                    ..Default::default()
                };
                // SAFETY: We are in the handler of the identifier; the parameters are copied.
                to_result(unsafe { bindings::rdma_accept(id, &mut param) })
            });
        match result {
            // INVARIANT: The peer now owns the identifier, which has a queue pair.
            Ok(()) => self.id.store(id as usize, Release),
            // SAFETY: The queue pair was created above; the caller destroys the identifier.
            Err(_) => unsafe { bindings::rdma_destroy_qp(id) },
        }
        result
    }

    /// # Safety
    ///
    /// Only the connection manager may call this, for the listener and the identifiers of its
    /// requests.
    unsafe extern "C" fn event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> i32 {
        // SAFETY: Requests inherit the context of the listener.
        let this = unsafe { &*(*id).context.cast::<Self>() };
        // SAFETY: The event is valid for the call.
        match unsafe { (*event).event } {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST => {
                if this.id.load(Relaxed) != 0 {
                    return EBUSY.to_errno();
                }
                this.accept(id).err().map_or(0, |e| e.to_errno())
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                this.established.store(true, Release);
                0
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => {
                this.disconnected.store(true, Release);
                0
            }
            _ => 0,
        }
    }

    /// # Safety
    ///
    /// Only the queue of an `Inner` may call this, for a receive.
    unsafe extern "C" fn receive_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: `cq` is the queue of an `Inner`.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let wc = unsafe { &*wc };
        if !Status(wc.status).is_success() {
            return;
        }
        let number = this.received.load(Relaxed);
        let Some(chunk) = this.receives.get(number as usize % RECEIVES) else {
            return;
        };
        let bytes = chunk.received(wc.byte_len as usize);
        if !super::link::is_pattern(number, bytes) {
            this.disordered.fetch_add(1, Relaxed);
        }
        #[cfg(SRP_BENCH)]
        this.arrived
            .store(crate::clock::ktime_get().to_ns(), Relaxed);
        this.received.store(number + 1, Release);
        let _ = this.post_receive(wc.qp, number as usize);
    }

    /// # Safety
    ///
    /// Only the queue of an `Inner` may call this, for a message.
    unsafe extern "C" fn send_done(cq: *mut bindings::ib_cq, _: *mut bindings::ib_wc) {
        // SAFETY: `cq` is the queue of an `Inner`.
        unsafe { Self::of(cq) }.sent.fetch_add(1, Relaxed);
    }

    /// # Safety
    ///
    /// Only the queue of an `Inner` may call this, for a transfer.
    unsafe extern "C" fn transfer_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The completion is valid for the call.
        let status = unsafe { (*wc).status };
        // SAFETY: `cq` is the queue of an `Inner`.
        unsafe { Self::of(cq) }.transfer.store(status, Relaxed);
    }
}

/// Creates a signaled request with one SGE.
fn signaled(
    opcode: bindings::ib_wr_opcode,
    sge: &mut bindings::ib_sge,
    cqe: &bindings::ib_cqe,
) -> bindings::ib_send_wr {
    let mut wr = request(opcode, bindings::ib_send_flags_IB_SEND_SIGNALED, cqe);
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr
}
