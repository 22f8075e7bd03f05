// SPDX-License-Identifier: GPL-2.0

//! What the API forbids or serialises although the C functions do not.

use super::{
    check,
    check_eq,
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    net::{
        Namespace,
        SocketAddr, //
    },
    rdma::{
        cm::{
            Event,
            EventHandler,
            Id, //
        },
        path::SgidAttr, //
    },
    sync::race::race, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// Number of identifiers that two threads resolve.
const ROUNDS: u32 = 200;

/// Takes no action on an event.
struct Silent;

impl EventHandler for Silent {
    fn event(&self, _: Event<'_>) {}
}

/// An identifier, and the number of its resolutions that began.
struct Resolution {
    id: Arc<Id<Silent>>,
    address: SocketAddr,
    begun: Atomic<u32>,
}

impl Resolution {
    fn begin(&self) {
        let (src, dst) = (Some(&self.address), &self.address);
        if self.id.resolve_addr(src, dst, 5_000).is_ok() {
            self.begun.fetch_add(1, Relaxed);
        }
    }
}

/// Two threads resolve an address by one identifier. The connection manager does not lock against
/// that: both bind the identifier to the device, and its list of identifiers breaks.
fn threads_share_an_identifier(soft: &Soft) -> Result {
    let silent = Arc::new(Silent, GFP_KERNEL)?;
    for _ in 0..ROUNDS {
        let resolution = Arc::new(
            Resolution {
                id: Id::new(&*Namespace::current().ok_or(ESRCH)?, silent.clone())?,
                address: SocketAddr::new(IpAddr::V4(soft.address), 0),
                begun: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        race(&resolution, &[Resolution::begin, Resolution::begin])?;
        check_eq!(resolution.begun.load(Relaxed), 1);
    }
    Ok(())
}

/// The core frees the GID table with the device, even if a path uses an entry.
fn an_entry_holds_its_device(soft: &Soft) -> Result {
    // SAFETY: The device is registered while `soft` holds it.
    let users = || unsafe { (*soft.device.as_raw()).refcount.refs.counter };
    let gid = soft.device.gid(1, 0)?;
    let before = users();
    let entry = SgidAttr::find(
        &soft.device,
        1,
        gid,
        &[
            bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE,
        ],
    )?;
    check!(users() > before);
    drop(entry);
    check_eq!(users(), before);
    Ok(())
}

suite!(
    srp_rdma_calls,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [threads_share_an_identifier, an_entry_holds_its_device]
);
suite!(
    srp_rdma_calls_siw,
    siw,
    crate::rdma::tests::soft::Kind::Siw,
    [threads_share_an_identifier]
);
