// SPDX-License-Identifier: GPL-2.0

//! The queue pair of a target.

use super::target::Script;
use crate::{
    bindings,
    dma::DataDirection,
    errno::ENOTCONN,
    rdma::{
        cm_id::{
            try_destroy,
            CmId, //
        },
        dma::{
            Chunk,
            Pool, //
        },
        mr::Regions,
        pd::Pd,
        qp::{
            Failure,
            Handler,
            Memory,
            PollContext,
            Qp,
            Sizes, //
        },
        wc::Flags,
        CALLER, //
    },
    scsi::Command,
    sync::{
        new_spinlock_irq,
        SpinLockIrq, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc,
        Mutex, //
    },
};

/// Maximum number of messages in flight per direction.
const MESSAGES: u32 = 32;
/// Maximum length of a message to the target, in bytes.
const RECEIVE: usize = 1024;
/// Maximum length of a message from the target, in bytes.
const REPLY: usize = 128;

/// Handles the messages of a connection.
pub(super) struct Ear {
    script: Arc<dyn Script>,
    /// The reply buffers, used in turn because few are in flight, and the number of replies so far.
    replies: Pin<KBox<SpinLockIrq<(KVVec<Chunk>, usize)>>>,
    /// Numbers of actions other than messages that have begun and have completed.
    begun: Atomic<u32>,
    done: Atomic<u32>,
}

impl Ear {
    /// Creates a queue pair that is not connected.
    pub(super) fn listen(pd: &Arc<Pd>, script: Arc<dyn Script>) -> Result<Arc<Qp<Self>>> {
        let (_, receives) = Pool::new(pd, MESSAGES as usize, RECEIVE, DataDirection::FromDevice)?;
        let (messages, chunks) = Pool::new(pd, MESSAGES as usize, REPLY, DataDirection::ToDevice)?;
        let (regions, _) = Regions::new::<Command>(pd, 0, 1)?;
        let ear = Self {
            script,
            replies: KBox::pin_init(new_spinlock_irq!((chunks, 0)), GFP_KERNEL)?,
            begun: Atomic::new(0),
            done: Atomic::new(0),
        };
        let sizes = Sizes {
            send: MESSAGES + 1,
            send_sge: 1,
            receive: MESSAGES,
            vector: 0,
            context: PollContext::Interrupt,
            handles: 0,
        };
        let memory = Memory {
            receives,
            messages,
            data: None,
            regions,
            fixed: None,
        };
        Qp::new(pd, sizes, memory, ear)
    }
}

/// An action that a target takes on its own.
#[derive(Clone, Copy)]
pub(crate) enum Unsolicited<'a> {
    /// Sends a message.
    Say(&'a [u8]),
    /// Sends a message that invalidates a key of the peer.
    Invalidate(&'a [u8], u32),
    /// Writes to an address of the peer, by its key.
    Write(&'a [u8], u64, u32),
}

impl Ear {
    /// Posts `action`.
    ///
    /// # Errors
    ///
    /// `EBUSY` for an action other than a message, if `MESSAGES / 2` such actions are in flight.
    pub(super) fn post(qp: &Qp<Self>, action: Unsolicited<'_>) -> Result {
        let (Unsolicited::Say(bytes)
        | Unsolicited::Invalidate(bytes, _)
        | Unsolicited::Write(bytes, ..)) = action;
        let mut replies = qp.replies.lock();
        let (chunks, count) = &mut *replies;
        let chunk = chunks.get_mut(*count % MESSAGES as usize).ok_or(EINVAL)?;
        let place = chunk.bytes_mut().get_mut(..bytes.len()).ok_or(EMSGSIZE)?;
        place.copy_from_slice(bytes);
        *count += 1;
        let section = rcu::read_lock();
        let live = qp.live(&section)?;
        if !matches!(action, Unsolicited::Say(_)) {
            let begun = qp.begun.load(Relaxed);
            if begun.wrapping_sub(qp.done.load(Relaxed)) >= MESSAGES / 2 {
                return Err(EBUSY);
            }
            qp.begun.store(begun.wrapping_add(1), Relaxed);
        }
        match action {
            Unsolicited::Say(_) => live.send(chunk, bytes.len())?.post(true),
            Unsolicited::Invalidate(_, key) => live.send_invalidating(chunk, bytes.len(), key),
            Unsolicited::Write(_, addr, key) => live.write(chunk, bytes.len(), addr, key),
        }
    }
}

impl Handler for Ear {
    fn received(qp: &Qp<Self>, message: &[u8], _: Flags) {
        let mut replies = qp.replies.lock();
        let (chunks, count) = &mut *replies;
        let Some(chunk) = chunks.get_mut(*count % MESSAGES as usize) else {
            return;
        };
        let len = qp.script.told(message, chunk.bytes_mut());
        if len == 0 {
            return;
        }
        *count += 1;
        let section = rcu::read_lock();
        let sent = qp
            .live(&section)
            .and_then(|live| live.send(chunk, len)?.post(true));
        if sent.is_err() {
            pr_err!("the target cannot reply\n");
        }
    }

    fn invalidated(_: &Qp<Self>, _: usize) {}

    fn control_sent(qp: &Qp<Self>) {
        qp.done.fetch_add(1, Relaxed);
    }

    fn last_sent(_: &Qp<Self>) {}

    // The peer may disconnect at any time.
    fn failed(_: &Qp<Self>, _: Failure) {}
}

/// The identifier of a request, as the [`CmId`] of its queue pair.
///
/// # Invariants
///
/// `qp` is valid while it is set. `id` stays valid until the queue pair is destroyed.
pub(super) struct Passive {
    id: NonNull<bindings::ib_cm_id>,
    qp: Pin<KBox<Mutex<Option<NonNull<bindings::ib_qp>>>>>,
}

// SAFETY: An identifier has no thread affinity.
unsafe impl Send for Passive {}
// SAFETY: The connection manager does its own locking, and a lock protects the queue pair.
unsafe impl Sync for Passive {}

impl Passive {
    /// Creates a link for `id`, which must outlive the queue pair.
    pub(super) fn new(id: NonNull<bindings::ib_cm_id>) -> Result<Self> {
        let qp = KBox::pin_init(new_mutex!(None, "Passive::qp"), GFP_KERNEL)?;
        Ok(Self { id, qp })
    }

    /// Moves the queue pair to RTR and RTS. Packets to the peer start at number 0. Returns the
    /// number of the queue pair.
    pub(super) fn establish(&self) -> Result<u32> {
        let qp = self.qp.lock();
        let qp = qp.ok_or(ENOTCONN)?;
        self.modify(qp, bindings::ib_qp_state_IB_QPS_RTR)?;
        self.modify(qp, bindings::ib_qp_state_IB_QPS_RTS)?;
        // SAFETY: The queue pair is valid.
        Ok(unsafe { (*qp.as_ptr()).qp_num })
    }

    fn modify(&self, qp: NonNull<bindings::ib_qp>, state: bindings::ib_qp_state) -> Result {
        let mut attr = KBox::new(
            bindings::ib_qp_attr {
                qp_state: state,
                ..Default::default()
            },
            GFP_KERNEL,
        )?;
        let mut mask = 0;
        let id = self.id.as_ptr();
        // SAFETY: The identifier is valid by the type invariant, `attr` and `mask` are valid for
        // writing.
        to_result(unsafe { bindings::ib_cm_init_qp_attr(id, &mut *attr, &mut mask) })?;
        // SAFETY: The callers pass a valid queue pair; `attr` has the attributes in `mask`.
        to_result(unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut *attr, mask) })
    }
}

// SAFETY: `ib_create_qp_kernel()` creates the queue pair as requested; nothing else uses it.
unsafe impl CmId for Passive {
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>> {
        // SAFETY: The domain is valid, and by this function's contract so are the queues; the
        // function copies `attr`.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), attr, CALLER.as_char_ptr())
        })?;
        let qp = NonNull::new(qp).ok_or(ENOMEM)?;
        // INVARIANT: The queue pair is valid until `release_qp`, which takes it out.
        *self.qp.lock() = Some(qp);
        self.modify(qp, bindings::ib_qp_state_IB_QPS_INIT)
            .inspect_err(|_| {
                self.release_qp();
                // SAFETY: The queue pair was just created, and nothing else has a pointer to it.
                let _ = unsafe { try_destroy(qp) };
            })?;
        Ok(qp)
    }

    fn release_qp(&self) {
        *self.qp.lock() = None;
    }

    fn disconnect(&self) {
        // SAFETY: The identifier is valid by the type invariant. The call fails if not connected.
        let _ = unsafe { bindings::ib_send_cm_dreq(self.id.as_ptr(), core::ptr::null(), 0) };
    }
}
