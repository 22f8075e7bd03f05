// SPDX-License-Identifier: GPL-2.0

//! Queries to the subnet administrator.
//!
//! C header: [`include/rdma/ib_sa.h`](srctree/include/rdma/ib_sa.h).

use super::{
    device::{
        Device,
        Registered, //
    },
    path::{
        Path,
        PathRec,
        SgidAttr, //
    },
    query::QueryResult, //
};
use crate::bindings;
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomPinned,
    ptr::null_mut, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::Msecs,
    types::Opaque, //
};

/// `IB_SA_COMP_MASK`, a macro: a bit of the component mask, which the core sends in memory order.
const fn component(n: u32) -> u64 {
    (1u64 << n).to_be()
}

/// The components of the query: service identifier, both GIDs, the number of paths, partition.
const ASKED: u64 =
    component(0) | component(1) | component(2) | component(3) | component(12) | component(13);

/// A query for a path record.
///
/// # Invariants
///
/// `client` is registered, and used by this query alone. The drop unregisters it, which waits until
/// the core is done with the query: no callback runs after that.
#[pin_data(PinnedDrop)]
pub struct Query {
    #[pin]
    client: Opaque<bindings::ib_sa_client>,
    /// The core's number for the query, or negative if it was not started.
    id: Atomic<i32>,
    query: Atomic<*mut bindings::ib_sa_query>,
    /// The path record to query. The core may read it until it is done with the query.
    record: UnsafeCell<bindings::sa_path_rec>,
    #[pin]
    result: QueryResult<Result<bindings::sa_path_rec>>,
    port: u32,
    device: Registered,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The query is not bound to a thread.
unsafe impl Send for Query {}
// SAFETY: Shared fields are atomic or do their own locking; `record` is only accessed before the
// query is shared.
unsafe impl Sync for Query {}

impl Query {
    /// Starts one query for a path; `opa` if the port has wide LIDs. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the port has no subnet administrator, `EAGAIN` if it is not known (yet),
    /// `EINVAL` if its LID is too wide for the query, `ENOMEM`.
    pub(super) fn start(
        device: &Device,
        port: u32,
        rec: &PathRec,
        opa: bool,
        timeout: Msecs,
    ) -> Result<Pin<KBox<Self>>> {
        let record = rec.to_raw(if opa {
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_OPA
        } else {
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB
        });
        let device = device.hold()?;
        let this = KBox::pin_init(
            pin_init!(Self {
                // INVARIANT: `client` is registered here.
                client <- Opaque::ffi_init(|slot: *mut bindings::ib_sa_client| {
                    // SAFETY: `slot` is valid for writing.
                    unsafe { bindings::ib_sa_register_client(slot) }
                }),
                id: Atomic::new(-1),
                query: Atomic::new(null_mut()),
                record: UnsafeCell::new(record),
                result <- QueryResult::new(),
                port,
                device,
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        let mut query = null_mut();
        // SAFETY: The device and the client are registered. By the type invariant the drop of the
        // pinned query waits until the core is done with the record and the context.
        let id = unsafe {
            bindings::ib_sa_path_rec_get(
                this.client.get(),
                this.device.as_raw(),
                this.port,
                this.record.get(),
                ASKED,
                timeout as usize,
                bindings::GFP_KERNEL,
                Some(Self::answer_callback),
                core::ptr::from_ref(&*this).cast_mut().cast(),
                &mut query,
            )
        };
        if id < 0 {
            return Err(Error::from_errno(id));
        }
        this.query.store(query, Relaxed);
        this.id.store(id, Relaxed);
        Ok(this)
    }

    /// # Safety
    ///
    /// Only the core may call this, with a query as its context, and with at least `count` records
    /// if `status` is 0. The core may call it twice, if a query is cancelled just after its reply.
    unsafe extern "C" fn answer_callback(
        status: c_int,
        records: *mut bindings::sa_path_rec,
        count: c_uint,
        context: *mut c_void,
    ) {
        // SAFETY: By the type invariant the drop of the query waits for this call.
        let this = unsafe { &*context.cast::<Self>() };
        let result = match status {
            0 if count > 0 && !records.is_null() => {
                // SAFETY: There is at least one record, and it is plain data.
                Ok(unsafe { records.read() })
            }
            status if status < 0 => Err(Error::from_errno(status)),
            _ => Err(EIO),
        };
        this.result.set(result);
    }

    /// Waits for the result, at most `timeout` milliseconds. Returns `None` if there is none yet,
    /// or it was already taken. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub(super) fn wait(&self, timeout: Msecs) -> Result<Option<Result<Path>>> {
        let Some(result) = self.result.wait(timeout)? else {
            return Ok(None);
        };
        Ok(Some(result.map(|record| {
            // SAFETY: Every bit pattern is a valid byte array.
            let sgid = unsafe { *record.sgid.raw.as_ref() };
            let types = [bindings::ib_gid_type_IB_GID_TYPE_IB];
            // The entry distinguishes devices with the same GID, and is optional.
            let sgid = SgidAttr::find(&self.device, self.port, sgid, &types).ok();
            Path::new(record, sgid)
        })))
    }
}

#[pinned_drop]
impl PinnedDrop for Query {
    fn drop(self: Pin<&mut Self>) {
        let id = self.id.load(Relaxed);
        if id >= 0 && !self.result.is_set() {
            let query = self.query.load(Relaxed);
            // SAFETY: The core returned `id` and `query` for this query, and checks by `id` that it
            // still exists.
            unsafe { bindings::ib_sa_cancel_query(id, query) };
        }
        // SAFETY: By the type invariant the client is registered.
        unsafe { bindings::ib_sa_unregister_client(self.client.get()) };
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
