// SPDX-License-Identifier: GPL-2.0

//! The passive side: a target that listens, records requests, and answers as its script says.

pub(crate) use super::passive::Unsolicited;

use super::passive::{
    Ear,
    Passive, //
};
use crate::{
    bindings,
    errno::ENOTCONN,
    random::random_u64,
    rdma::{
        device::{
            Device,
            Gid,
            Registered, //
        },
        pd::Pd,
        qp::Qp,
        tests::peer::within, //
    }, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The private data, at its full length.
    pub(crate) data: [u8; 92],
    /// Source of the request.
    pub(crate) sgid: Gid,
    /// Destination of the request.
    pub(crate) dgid: Gid,
    pub(crate) pkey: u16,
    pub(crate) retry_count: u8,
    /// Maximum number of RDMA reads that the peer serves concurrently.
    pub(crate) reads: u8,
    /// Whether the other parameters have the expected values.
    pub(crate) usual: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// Accepts, with private data, its length, and the numbers of concurrent RDMA reads to start
    /// and to serve.
    Accept([u8; 196], u8, [u8; 2]),
    /// Rejects, with a reason, additional information and private data.
    Reject(u16, ([u8; 72], u8), [u8; 148]),
    /// No answer.
    Silence,
    /// An MRA if the request is repeated; [`Target::answer`] gives the answer.
    Later,
}

/// `data`, cut off or padded with zeros.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(data) {
        *to = *from;
    }
    all
}

impl Answer {
    pub(crate) fn accept(data: &[u8]) -> Self {
        Self::Accept(filled(data), data.len().min(196) as u8, [3, 0])
    }

    pub(crate) fn reject(reason: u16, info: &[u8], data: &[u8]) -> Self {
        Self::Reject(
            reason,
            (filled(info), info.len().min(72) as u8),
            filled(data),
        )
    }
}

/// The behaviour of a target.
pub(crate) trait Script: Send + Sync + 'static {
    /// Returns the answer to request `number`, counted from 0. May sleep.
    fn asked(&self, number: usize, request: &Asked) -> Answer;

    /// Handles a message. Returns the length of `reply`, 0 for none. In softirq context.
    fn told(&self, _message: &[u8], _reply: &mut [u8]) -> usize {
        0
    }
}

impl<F: Fn(usize, &Asked) -> Answer + Send + Sync + 'static> Script for F {
    fn asked(&self, number: usize, request: &Asked) -> Answer {
        self(number, request)
    }
}

/// Counts of received messages, on all connections together.
pub(crate) struct Heard {
    /// The reply was confirmed.
    pub(crate) confirmed: Atomic<u32>,
    /// The peer refused or gave up.
    pub(crate) refused: Atomic<u32>,
    /// The reason of the last reject.
    pub(crate) reason: Atomic<u32>,
    /// The peer disconnects.
    pub(crate) disconnected: Atomic<u32>,
    /// The peer acknowledged our disconnect.
    pub(crate) released: Atomic<u32>,
    /// The peer asks for more time.
    pub(crate) delayed: Atomic<u32>,
}

/// A connection, possibly not established yet.
///
/// # Invariants
///
/// `id` is the address of an identifier of this target; `qp` is its queue pair, if any.
struct Connection {
    id: usize,
    qp: Option<Arc<Qp<Ear>>>,
}

/// The context of the callbacks.
#[pin_data]
struct Inner {
    script: Arc<dyn Script>,
    service_id: u64,
    pd: Arc<Pd>,
    #[pin]
    connections: Mutex<KVec<Connection>>,
    #[pin]
    requests: Mutex<KVec<Asked>>,
    heard: Heard,
    // Must be dropped last.
    _device: Registered,
}

/// A target.
///
/// # Invariants
///
/// `id` is a listening identifier. Its context and that of the connections' identifiers is `inner`.
pub(crate) struct Target {
    id: NonNull<bindings::ib_cm_id>,
    inner: Arc<Inner>,
}

// SAFETY: An identifier has no thread affinity.
unsafe impl Send for Target {}
// SAFETY: The connection manager does its own locking.
unsafe impl Sync for Target {}

impl Target {
    /// Starts to listen, with a service ID of its own.
    pub(crate) fn new(device: &Device, script: impl Script) -> Result<Self> {
        let script: Arc<dyn Script> = Arc::new(script, GFP_KERNEL)?;
        let device = device.hold()?;
        let pd = Pd::new(device.hold()?)?;
        let zero = || Atomic::new(0);
        let inner = Arc::pin_init(
            pin_init!(Inner {
                script,
                // This ID is outside the assigned ranges and that of rdma_cm.
                service_id: random_u64() >> 8 | 1 << 62,
                pd,
                connections <- new_mutex!(KVec::new(), "Target::connections"),
                requests <- new_mutex!(KVec::new(), "Target::requests"),
                heard: Heard {
                    confirmed: zero(),
                    refused: zero(),
                    reason: zero(),
                    disconnected: zero(),
                    released: zero(),
                    delayed: zero(),
                },
                _device: device,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The device is registered; the context lives until the identifiers are destroyed.
        let id = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                inner._device.as_raw(),
                Some(Self::callback),
                Arc::as_ptr(&inner).cast_mut().cast(),
            )
        })?;
        // INVARIANT: The identifier was just created with this context.
        let this = Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            inner,
        };
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::ib_cm_listen(id, this.service_id().to_be()) })?;
        Ok(this)
    }

    /// The service ID that the target listens on.
    pub(crate) fn service_id(&self) -> u64 {
        self.inner.service_id
    }

    pub(crate) fn heard(&self) -> &Heard {
        &self.inner.heard
    }

    /// Number of requests received.
    pub(crate) fn requests(&self) -> usize {
        self.inner.requests.lock().len()
    }

    /// A request, by its number.
    pub(crate) fn request(&self, number: usize) -> Result<Asked> {
        self.inner
            .requests
            .lock()
            .get(number)
            .copied()
            .ok_or(ENOENT)
    }

    /// Answers a request that is still unanswered.
    pub(crate) fn answer(&self, number: usize, answer: &Answer) -> Result {
        let id = self.id(number)?;
        // SAFETY: `id` is an identifier, which is not destroyed before `drop`. The connection
        // manager refuses what its state does not allow.
        unsafe { self.inner.answer(id, number, answer) }
    }

    fn id(&self, number: usize) -> Result<*mut bindings::ib_cm_id> {
        let connections = self.inner.connections.lock();
        let id = connections.get(number).ok_or(ENOENT)?.id;
        Ok(core::ptr::with_exposed_provenance_mut(id))
    }

    /// Acts on the connection of the last request, in process context.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it has no queue pair.
    pub(crate) fn post(&self, action: Unsolicited<'_>) -> Result {
        let connections = self.inner.connections.lock();
        let last = connections.last().and_then(|c| c.qp.clone());
        drop(connections);
        Ear::post(&*last.ok_or(ENOTCONN)?, action)
    }

    /// Disconnects a connection.
    pub(crate) fn disconnect(&self, number: usize) -> Result {
        let id = self.id(number)?;
        // SAFETY: `id` is an identifier, which is not destroyed before `drop`.
        to_result(unsafe { bindings::ib_send_cm_dreq(id, core::ptr::null(), 0) })
    }

    /// Waits until `what` reaches `count`, and checks that it does not exceed it.
    pub(crate) fn has_heard(&self, what: fn(&Heard) -> &Atomic<u32>, count: u32) -> Result {
        let what = what(&self.inner.heard);
        within(|| what.load(Acquire) >= count)?;
        if what.load(Acquire) == count {
            Ok(())
        } else {
            Err(EOVERFLOW)
        }
    }

    /// # Safety
    ///
    /// Only the connection manager may call this, with an identifier of a target and its event.
    unsafe extern "C" fn callback(
        id: *mut bindings::ib_cm_id,
        event: *const bindings::ib_cm_event,
    ) -> c_int {
        // SAFETY: The context is `Inner`, which lives longer than the identifiers.
        let inner = unsafe { &*(*id).context.cast::<Inner>() };
        // SAFETY: The event is valid for the call.
        let event = unsafe { &*event };
        let heard = &inner.heard;
        let count = match event.event {
            bindings::ib_cm_event_type_IB_CM_REQ_RECEIVED => {
                // SAFETY: The event is a request.
                return match unsafe { inner.asked(id, event) } {
                    Ok(()) => 0,
                    // The connection manager destroys the identifier.
                    Err(e) => e.to_errno(),
                };
            }
            bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED => &heard.confirmed,
            bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => {
                // SAFETY: The event is a reject.
                let rej = unsafe { event.param.rej_rcvd.as_ref() };
                heard.reason.store(rej.reason, Relaxed);
                &heard.refused
            }
            bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => {
                // SAFETY: The identifier is valid.
                let _ = unsafe { bindings::ib_send_cm_drep(id, core::ptr::null(), 0) };
                &heard.disconnected
            }
            bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED => &heard.released,
            bindings::ib_cm_event_type_IB_CM_MRA_RECEIVED => &heard.delayed,
            _ => return 0,
        };
        count.fetch_add(1, Release);
        0
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: `id` is valid; the call waits for the last request, and no new one follows.
        unsafe { bindings::ib_destroy_cm_id(self.id.as_ptr()) };
        // The lock is not held below: the destruction waits for callbacks that take it.
        let connections = core::mem::take(&mut *self.inner.connections.lock());
        for connection in connections {
            if let Some(qp) = connection.qp {
                qp.hang_up();
                qp.destroy();
            }
            let id = core::ptr::with_exposed_provenance_mut(connection.id);
            // SAFETY: `id` is an identifier, which nothing else destroys, and its queue pair is
            // gone.
            unsafe { bindings::ib_destroy_cm_id(id) };
        }
    }
}

impl Inner {
    /// Handles a request. On success the target owns the identifier.
    ///
    /// # Safety
    ///
    /// Only the connection manager may call this, with a request.
    unsafe fn asked(
        &self,
        id: *mut bindings::ib_cm_id,
        event: &bindings::ib_cm_event,
    ) -> Result<()> {
        // SAFETY: The event is a request.
        let request = unsafe { event.param.req_rcvd.as_ref() };
        // SAFETY: A request has a path.
        let path = unsafe { &*request.primary_path };
        // SAFETY: The private data of a request has 92 bytes.
        let data = unsafe { slice::from_raw_parts(event.private_data.cast::<u8>(), 92) };
        let asked = Asked {
            data: filled(data),
            // The path leads from the target to the requester.
            // SAFETY: Every bit pattern is a valid byte array.
            sgid: unsafe { *path.dgid.raw.as_ref() },
            // SAFETY: Every bit pattern is a valid byte array.
            dgid: unsafe { *path.sgid.raw.as_ref() },
            pkey: u16::from_be(path.pkey),
            retry_count: request.retry_count() as u8,
            reads: request.initiator_depth,
            // `rnr_retry_count` and `srq` are not checked: bindgen places them after the other bit
            // fields, where C begins a new unit.
            usual: request.responder_resources == 0
                && request.flow_control() == 1
                // The value without a subnet manager: 16, plus 2.
                && request.local_cm_response_timeout() == 18
                && request.remote_cm_response_timeout() == 18
                && request.qp_type == bindings::ib_qp_type_IB_QPT_RC
                && request.starting_psn <= 0x00ff_ffff,
        };
        let number = {
            let mut connections = self.connections.lock();
            connections.reserve(1, GFP_KERNEL)?;
            let mut requests = self.requests.lock();
            requests.push(asked, GFP_KERNEL)?;
            // INVARIANT: The identifier is that of a request to this target.
            connections.push(
                Connection {
                    id: id.expose_provenance(),
                    qp: None,
                },
                GFP_KERNEL,
            )?;
            connections.len() - 1
        };
        let answer = self.script.asked(number, &asked);
        // SAFETY: The identifier has an unanswered request.
        if let Err(e) = unsafe { self.answer(id, number, &answer) } {
            pr_err!("the target cannot answer: error {}\n", e.to_errno());
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `id` must be the identifier of connection `number`, and have an unanswered request.
    unsafe fn answer(&self, id: *mut bindings::ib_cm_id, number: usize, answer: &Answer) -> Result {
        match answer {
            Answer::Accept(data, len, [begun, answered]) => {
                let passive = Arc::new(Passive::new(NonNull::new(id).ok_or(EINVAL)?)?, GFP_KERNEL)?;
                let qp = Ear::listen(&self.pd, self.script.clone())?;
                qp.create(passive.clone())?;
                let qp_num = passive.establish()?;
                if let Some(connection) = self.connections.lock().get_mut(number) {
                    // INVARIANT: The queue pair is that of the identifier.
                    connection.qp = Some(qp);
                }
                let mut param = bindings::ib_cm_rep_param {
                    qp_num,
                    // `Passive::establish` starts at number 0, too.
                    starting_psn: 0,
                    private_data: data.as_ptr().cast(),
                    private_data_len: *len,
                    initiator_depth: *begun,
                    responder_resources: *answered,
                    rnr_retry_count: 7,
                    ..Default::default()
                };
                // SAFETY: `id` has an unanswered request.
                to_result(unsafe { bindings::ib_send_cm_rep(id, &mut param) })
            }
            Answer::Reject(reason, (info, len), data) => {
                // SAFETY: `id` has an unanswered request; the arrays have at least the given
                // lengths.
                to_result(unsafe {
                    bindings::ib_send_cm_rej(
                        id,
                        (*reason).into(),
                        info.as_ptr().cast_mut().cast(),
                        *len,
                        data.as_ptr().cast(),
                        148,
                    )
                })
            }
            Answer::Silence => Ok(()),
            // SAFETY: `id` has an unanswered request.
            Answer::Later => to_result(unsafe { bindings::ib_prepare_cm_mra(id) }),
        }
    }
}
