// SPDX-License-Identifier: GPL-2.0

//! The soft RDMA devices that the tests run on.

#[cfg(SRP_KUNIT)]
use super::check_eq;
use crate::{
    bindings, compat,
    net::Namespace,
    rdma::{
        device::{
            Device,
            Registered, //
        },
        qp::PollContext, //
    },
};
use core::net::Ipv4Addr;
use kernel::prelude::*;

/// The highest interface index to try.
const LAST_INTERFACE: i32 = 64;

// The types are those of the bindings, which allow this lint as well.
#[allow(improper_ctypes)]
extern "C" {
    /// `include/linux/netdevice.h`
    fn dev_get_by_index(net: *mut bindings::net, index: c_int) -> *mut bindings::net_device;
    /// `include/linux/inetdevice.h`; addresses are big-endian.
    fn inet_select_addr(dev: *const bindings::net_device, dst: u32, scope: c_int) -> u32;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA over Ethernet.
    Rxe,
    /// iWARP.
    Siw,
}

/// The device and the context of a test.
#[cfg(SRP_KUNIT)]
pub(crate) struct Place {
    kind: Kind,
    ours: PollContext,
}

#[cfg(SRP_KUNIT)]
impl From<Kind> for Place {
    fn from(kind: Kind) -> Self {
        Self {
            kind,
            ours: PollContext::Interrupt,
        }
    }
}

#[cfg(SRP_KUNIT)]
impl Kind {
    /// A device of this kind, with our completions in a work item.
    pub(crate) fn in_work(self) -> Place {
        Place {
            kind: self,
            ours: PollContext::Workqueue,
        }
    }
}

/// The numbers of a device's objects, by type.
type Resources = [u32; 5];

/// A device with the address of its network interface.
pub(crate) struct Soft {
    pub(crate) device: Registered,
    pub(crate) kind: Kind,
    pub(crate) address: Ipv4Addr,
    /// The context of our completions.
    pub(in crate::rdma) ours: PollContext,
}

impl Soft {
    /// Finds the first device of a kind with a network interface in the initial namespace.
    pub(in crate::rdma) fn find(kind: Kind) -> Option<Self> {
        let driver = match kind {
            Kind::Rxe => bindings::rdma_driver_id_RDMA_DRIVER_RXE,
            Kind::Siw => bindings::rdma_driver_id_RDMA_DRIVER_SIW,
        };
        let net = Namespace::current()?;
        for index in 1..=LAST_INTERFACE {
            // SAFETY: The namespace is valid.
            let dev = unsafe { dev_get_by_index(net.as_raw(), index) };
            if dev.is_null() {
                continue;
            }
            // SAFETY: The call above took a reference to the interface.
            let ib = unsafe { bindings::ib_device_get_by_netdev(dev, driver) };
            // SAFETY: We still hold the reference to the interface.
            let address = unsafe { inet_select_addr(dev, 0, 0) };
            // SAFETY: This drops the reference to the interface.
            unsafe { bindings::srp_helper_dev_put(dev) };
            if ib.is_null() {
                continue;
            }
            // SAFETY: The lookup took a reference to the registration.
            let device = unsafe { Device::from_raw(ib) }.hold();
            // SAFETY: This drops the reference of the lookup; `device` has its own.
            unsafe { bindings::ib_device_put(ib) };
            return Some(Self {
                device: device.ok()?,
                kind,
                ours: PollContext::Interrupt,
                address: Ipv4Addr::from_bits(u32::from_be(address)),
            });
        }
        None
    }

    /// Size of a page of the device's regions, in bytes: 4 KiB on rxe, a page of memory on siw.
    pub(in crate::rdma) fn page(&self) -> usize {
        self.device.limits().mr_page_size as usize
    }

    fn resources(&self) -> Resources {
        [
            bindings::rdma_restrack_type_RDMA_RESTRACK_PD,
            bindings::rdma_restrack_type_RDMA_RESTRACK_CQ,
            bindings::rdma_restrack_type_RDMA_RESTRACK_QP,
            bindings::rdma_restrack_type_RDMA_RESTRACK_CM_ID,
            bindings::rdma_restrack_type_RDMA_RESTRACK_MR,
        ]
        // SAFETY: The device is registered while `self` holds it.
        .map(|kind| {
            compat::count(unsafe {
                bindings::rdma_restrack_count(self.device.as_raw(), kind, true)
            })
        })
    }
}

/// Marks the running test as skipped; the test continues.
#[cfg(SRP_KUNIT)]
fn skip(why: &CStr) {
    // SAFETY: No precondition.
    let test = unsafe { bindings::kunit_get_current_test() };
    if test.is_null() {
        return;
    }
    // SAFETY: The test is the running one, and nothing else uses it now.
    unsafe { (*test).status = bindings::kunit_status_KUNIT_SKIPPED };
    // SAFETY: The test is the running one, and nothing else uses it now.
    let comment = unsafe { &mut (*test).status_comment };
    for (to, from) in comment.iter_mut().zip(why.to_bytes_with_nul()) {
        *to = *from as c_char;
    }
}

/// Runs a test on its device, or skips it if there is no such device. Fails if the test leaves
/// objects on the device.
#[cfg(SRP_KUNIT)]
pub(crate) fn on(place: impl Into<Place>, test: fn(&Soft) -> Result) -> Result {
    let Place { kind, ours } = place.into();
    let Some(mut soft) = Soft::find(kind) else {
        skip(match kind {
            Kind::Rxe => c"no rxe device",
            Kind::Siw => c"no siw device",
        });
        return Ok(());
    };
    soft.ours = ours;
    let before = soft.resources();
    test(&soft).inspect_err(|e| pr_err!("the test ends with error {}\n", e.to_errno()))?;
    check_eq!(soft.resources(), before);
    Ok(())
}
