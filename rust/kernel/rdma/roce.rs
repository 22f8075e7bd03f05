// SPDX-License-Identifier: GPL-2.0

//! Paths on RoCE, which has no subnet administrator.
//!
//! The two GIDs are IP addresses; the network's routes and neighbours give the Ethernet address of
//! the next hop. The other components are as in the path records of `rdma_cm`.
//!
//! C header: [`include/rdma/ib_addr.h`](srctree/include/rdma/ib_addr.h).

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
    marker::PhantomPinned, //
};
use kernel::{
    error::to_result,
    new_mutex,
    prelude::*,
    sync::Mutex,
    time::Msecs, //
};

/// Packet life time, as n in 4.096 us * 2^n: the value that `rdma_cm` uses for Ethernet.
const PACKET_LIFE_TIME: u8 = 16;
/// Hop limit, if the route has none or one above 255.
const HOP_LIMIT: u8 = 64;

/// The IP address in a GID.
fn gid2ip(gid: &bindings::ib_gid) -> bindings::__kernel_sockaddr_storage {
    let mut address = bindings::__kernel_sockaddr_storage::default();
    // SAFETY: `address` has room for an address of either family.
    unsafe { bindings::srp_helper_rdma_gid2ip((&raw mut address).cast(), gid) };
    address
}

/// A path without its next hop.
struct Wanted {
    record: bindings::sa_path_rec,
    sgid: SgidAttr,
}

/// A lookup of the next hop of a path.
///
/// # Invariants
///
/// The core uses `address`, and the GID entry that it names, from the start until the callback has
/// run or `rdma_addr_cancel()` has returned. `sgid` is dropped after that.
#[pin_data(PinnedDrop)]
pub struct Query {
    address: UnsafeCell<bindings::rdma_dev_addr>,
    #[pin]
    result: QueryResult<Result>,
    #[pin]
    wanted: Mutex<Option<Wanted>>,
    _device: Registered,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The query is not bound to a thread.
unsafe impl Send for Query {}
// SAFETY: The core owns `address` until it has answered. After that, only one `wait` uses it.
unsafe impl Sync for Query {}

impl Query {
    /// Starts the lookup. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the port has no such GID, `EINVAL` if the GIDs are addresses of different
    /// families, otherwise the error of the routing code.
    pub(super) fn start(
        device: &Device,
        port: u32,
        rec: &PathRec,
        timeout: Msecs,
    ) -> Result<Pin<KBox<Self>>> {
        let v2 = bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP;
        let v1 = bindings::ib_gid_type_IB_GID_TYPE_ROCE;
        let sgid = SgidAttr::find(device, port, rec.sgid, &[v2, v1])?;
        let mut record = rec.to_raw(if sgid.kind() == v2 {
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2
        } else {
            bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V1
        });
        record.reversible = 1;
        record.mtu_selector = bindings::ib_sa_selector_IB_SA_EQ as u8;
        // CAST: At most 5.
        record.mtu = device.port_info(port)?.active_mtu as u8;
        record.rate_selector = bindings::ib_sa_selector_IB_SA_EQ as u8;
        record.rate = bindings::ib_rate_IB_RATE_PORT_CURRENT as u8;
        record.packet_life_time_selector = bindings::ib_sa_selector_IB_SA_EQ as u8;
        record.packet_life_time = PACKET_LIFE_TIME;

        let mut src = gid2ip(&record.sgid);
        let mut dst = gid2ip(&record.dgid);

        let address = bindings::rdma_dev_addr {
            // The core requires a namespace, but uses that of the GID's network interface.
            net: (&raw mut bindings::init_net).cast(),
            sgid_attr: sgid.as_raw(),
            ..Default::default()
        };
        let this = KBox::pin_init(
            pin_init!(Self {
                address: UnsafeCell::new(address),
                result <- QueryResult::new(),
                wanted <- new_mutex!(Some(Wanted { record, sgid }), "roce::Query::wanted"),
                _device: device.hold()?,
                _pin: PhantomPinned,
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The call copies `src` and `dst`. The drop of the pinned query cancels the
        // request, so `address` and the context stay valid until the core is done.
        to_result(unsafe {
            bindings::rdma_resolve_ip(
                (&raw mut src).cast(),
                (&raw mut dst).cast(),
                this.address.get(),
                timeout as usize,
                Some(Self::answer_callback),
                true,
                core::ptr::from_ref(&*this).cast_mut().cast(),
            )
        })?;
        Ok(this)
    }

    /// # Safety
    ///
    /// Only the core may call this, once, with a query as its context.
    unsafe extern "C" fn answer_callback(
        status: c_int,
        _: *mut bindings::sockaddr,
        _: *mut bindings::rdma_dev_addr,
        context: *mut c_void,
    ) {
        // SAFETY: The drop of the query waits for this call.
        let this = unsafe { &*context.cast::<Self>() };
        this.result.set(to_result(status));
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
        let Some(Wanted { mut record, sgid }) = self.wanted.lock().take() else {
            return Ok(None);
        };
        if let Err(e) = result {
            return Ok(Some(Err(e)));
        }
        // SAFETY: The core has answered and does not use `address`; `wanted` is taken only once.
        let address = unsafe { &mut *self.address.get() };
        record.hop_limit = match u8::try_from(address.hoplimit) {
            Ok(0) | Err(_) => HOP_LIMIT,
            Ok(limit) => limit,
        };
        // SAFETY: `record` is a RoCE path record, and `dst_dev_addr` has more than six bytes.
        unsafe {
            bindings::srp_helper_sa_path_set_dmac(&mut record, address.dst_dev_addr.as_mut_ptr())
        };
        Ok(Some(Ok(Path::new(record, Some(sgid)))))
    }
}

#[pinned_drop]
impl PinnedDrop for Query {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `address` identifies the request, if it was started. Afterwards it is cancelled,
        // or its callback has run.
        unsafe { bindings::rdma_addr_cancel(self.address.get()) };
    }
}
