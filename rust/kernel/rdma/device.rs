// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::{
    iova::iova_mask,
    reports::Reports,
    users::{
        User,
        USERS, //
    }, //
};
use crate::{
    bindings,
    compat,
    net::SysfsTag, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    device,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    },
    types::Opaque, //
};

pub use super::limits::Limits;

/// A registered `struct ib_device`.
///
/// References come only from a [`Registered`] guard or the callbacks of a
/// [`client::Client`](super::client::Client), so the device is registered while a reference lives.
#[repr(transparent)]
pub struct Device(Opaque<bindings::ib_device>);

// SAFETY: A device is not bound to a thread.
unsafe impl Send for Device {}
// SAFETY: All methods read fields that are constant while the device is registered, or call
// functions that do their own locking.
unsafe impl Sync for Device {}

/// A 16-byte global identifier.
pub type Gid = [u8; 16];

/// The addresses by which the InfiniBand connection manager of a port reaches its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// By LIDs; the subnet administrator knows the paths.
    InfiniBand,
    /// Like InfiniBand, with wider LIDs.
    Opa,
    /// By Ethernet addresses; there is no subnet administrator.
    Roce,
    /// No InfiniBand connection manager: iWARP.
    Other,
}

/// Attributes of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// Transit time of a packet in the subnet, as n in 4.096 us * 2^n; 0 without a subnet manager.
    pub subnet_timeout: u8,
    /// The active MTU, an `enum ib_mtu`.
    pub(super) active_mtu: bindings::ib_mtu,
}

impl Device {
    /// # Safety
    ///
    /// `ptr` must be a device that stays registered for `'a`.
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: `Device` is a transparent wrapper; the caller promises that the device is valid.
        unsafe { &*ptr.cast() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// The name, as in `/sys/class/infiniband/`. It is a copy, because a device can be renamed.
    pub fn name(&self) -> Name {
        // SAFETY: The device is valid; `name` is an array inside it.
        let from = unsafe { &raw const (*self.as_raw()).name }.cast::<u8>();
        Name(core::array::from_fn(|at| {
            // SAFETY: The array has 64 bytes. A concurrent rename may mix two names.
            unsafe { from.add(at).read_volatile() }
        }))
    }

    /// The port numbers: 1 to the number of physical ports, or only 0 for a switch.
    pub fn ports(&self) -> core::ops::RangeInclusive<u32> {
        // SAFETY: The device is valid; what the function reads is constant after registration.
        let first = unsafe { bindings::srp_helper_rdma_start_port(self.as_raw()) };
        // SAFETY: The device is valid; what the function reads is constant after registration.
        let last = unsafe { bindings::srp_helper_rdma_end_port(self.as_raw()) };
        first..=last
    }

    /// The globally unique identifier of the node.
    pub fn node_guid(&self) -> u64 {
        // SAFETY: The device is valid; a device driver sets the field before registration.
        u64::from_be(unsafe { (*self.as_raw()).node_guid })
    }

    /// The parent in the device tree; a software device has none.
    pub fn parent(&self) -> Option<&device::Device> {
        // SAFETY: The device is valid, and so is its `struct device`.
        let parent = unsafe { bindings::srp_helper_ib_device_parent(self.as_raw()) };
        if parent.is_null() {
            return None;
        }
        // SAFETY: A device that is registered holds a reference to its parent.
        Some(unsafe { device::Device::from_raw(parent) })
    }

    /// The network namespace of the device: the initial one, unless `rdma system` gives namespaces
    /// their own devices. It does not change while the device is registered. Any context.
    ///
    /// The device holds no reference to the namespace, whose count may have reached 0.
    pub fn namespace(&self) -> SysfsTag<'_> {
        // SAFETY: The device is valid.
        let net = unsafe { bindings::srp_helper_rdma_dev_net(self.as_raw()) };
        // SAFETY: A registered device is in a namespace. All clients release the device before the
        // namespace is destroyed or the device moves to another.
        unsafe { SysfsTag::of(net) }
    }

    /// Entry `index` of the GID table of `port`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port or index that does not exist, `ENOENT` for an empty entry.
    pub fn gid(&self, port: u32, index: u16) -> Result<Gid> {
        let mut gid = bindings::ib_gid::default();
        // SAFETY: The device is registered; `gid` is valid for writing.
        to_result(unsafe {
            bindings::rdma_query_gid(self.as_raw(), port, i32::from(index), &mut gid)
        })?;
        // SAFETY: Every bit pattern is a valid byte array.
        Ok(unsafe { *gid.raw.as_ref() })
    }

    /// The fabric of `port`; [`Fabric::Other`] if there is no such port.
    pub fn fabric(&self, port: u32) -> Fabric {
        if !self.ports().contains(&port) {
            return Fabric::Other;
        }
        // SAFETY: The device is registered and has this port; what the function reads is constant.
        if !unsafe { bindings::srp_helper_rdma_cap_ib_cm(self.as_raw(), port) } {
            return Fabric::Other;
        }
        // SAFETY: The device is registered and has this port; what the function reads is constant.
        if unsafe { bindings::srp_helper_rdma_protocol_roce(self.as_raw(), port) } {
            return Fabric::Roce;
        }
        // SAFETY: The device is registered and has this port; what the function reads is constant.
        if unsafe { bindings::srp_helper_rdma_cap_opa_ah(self.as_raw(), port) } {
            return Fabric::Opa;
        }
        Fabric::InfiniBand
    }

    /// The index of `pkey` in the partition table of `port`; limited membership suffices.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the port is not a member of the partition.
    pub fn pkey_index(&self, port: u32, pkey: u16) -> Result<u16> {
        let mut index = 0;
        // SAFETY: The device is registered; `index` is valid for writing.
        to_result(unsafe { bindings::ib_find_cached_pkey(self.as_raw(), port, pkey, &mut index) })?;
        Ok(index)
    }

    /// Queries the attributes of `port`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port, otherwise the error of the device driver.
    pub fn port_info(&self, port: u32) -> Result<PortInfo> {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: The device is registered; `attr` is valid for writing.
        to_result(unsafe { bindings::ib_query_port(self.as_raw(), port, &mut attr) })?;
        Ok(PortInfo {
            subnet_timeout: attr.subnet_timeout,
            active_mtu: attr.active_mtu,
        })
    }

    /// The limits of the device.
    pub fn limits(&self) -> Limits {
        // SAFETY: The device is registered, so its attributes are set and constant.
        let attrs = unsafe { &(*self.as_raw()).attrs };
        // SAFETY: The device is registered, so the number is set and constant.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        let page_shift = attrs.page_size_cap.trailing_zeros().clamp(12, 30);
        let page_size = 1u32 << page_shift;
        let by_size = u32::try_from(attrs.max_mr_size >> page_shift).unwrap_or(u32::MAX);
        let extensions = attrs.device_cap_flags
            & bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
        let pages = if extensions == 0 {
            0
        } else {
            attrs.max_fast_reg_page_list_len.min(by_size).min(512)
        };
        let gaps = u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG);
        // SAFETY: The device is registered, so its operations are set and constant.
        let driver = unsafe { (*self.as_raw()).ops.driver_id };
        Limits {
            max_qp_wr: compat::count(attrs.max_qp_wr),
            max_cqe: compat::count(attrs.max_cqe),
            max_send_sge: compat::count(attrs.max_send_sge),
            max_qp_rd_atom: u8::try_from(attrs.max_qp_rd_atom.clamp(0, 255)).unwrap_or(0),
            mr_page_size: page_size,
            max_pages_per_mr: pages,
            sg_gaps: attrs.kernel_cap_flags & gaps != 0,
            // SAFETY: The device is registered.
            bounces: unsafe { bindings::srp_helper_ib_dma_bounces(self.as_raw(), page_size - 1) },
            // CAST: At most 64 KiB.
            memory_page: PAGE_SIZE as u32,
            iova_mask: iova_mask(driver),
            // SAFETY: The device is registered.
            max_segment_size: unsafe { bindings::srp_helper_ib_dma_max_seg_size(self.as_raw()) },
            num_comp_vectors: u32::try_from(vectors).unwrap_or(0).max(1),
        }
    }

    /// The operations for which the driver returns the result of the device.
    pub(super) fn reports(&self) -> Reports {
        // SAFETY: The device is registered, so its operations are set and constant.
        Reports::of(unsafe { (*self.as_raw()).ops.driver_id })
    }

    /// Returns a guard that keeps the device registered.
    ///
    /// While the guard lives, `ib_unregister_device()` waits, after the `remove` callbacks of all
    /// clients. Any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is being unregistered.
    pub fn hold(&self) -> Result<Registered> {
        // SAFETY: The device is valid memory while `self` is borrowed.
        if !unsafe { bindings::srp_helper_ib_device_try_get(self.as_raw()) } {
            return Err(ENODEV);
        }
        // INVARIANT: The registration count was raised.
        Ok(Registered {
            device: NonNull::from(self),
            _user: USERS.one(),
        })
    }
}

/// The health of a device, shared by its users: whether the device has failed or is being removed.
/// Neither mark is ever cleared. An operation that a failed device refuses is retried only a few
/// times. Nothing waits for an operation that a device refuses during its removal.
pub struct Health {
    failed: Atomic<bool>,
    going: Atomic<bool>,
    told: Atomic<bool>,
}

impl Health {
    /// Creates the state of a device without known errors.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>> {
        let this = Self {
            failed: Atomic::new(false),
            going: Atomic::new(false),
            told: Atomic::new(false),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Marks the device as failed. Any context.
    pub fn fail(&self) {
        self.failed.store(true, Release);
    }

    /// Marks the device as being removed by its driver: see
    /// [`Client::remove`](super::client::Client::remove). Any context.
    pub fn go(&self) {
        self.going.store(true, Release);
        self.fail();
    }

    /// Returns whether the device has failed or is being removed.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Returns whether the device is being removed.
    pub fn is_going(&self) -> bool {
        self.going.load(Acquire)
    }

    /// Returns true on the first call only, so that only one of many queue pairs logs the failure.
    pub(super) fn is_news(&self) -> bool {
        !self.told.xchg(true, Full)
    }
}

/// The name of a [`Device`].
pub struct Name([u8; 64]);

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = self.0.split(|b| *b == 0).next().unwrap_or_default();
        f.write_str(core::str::from_utf8(text).unwrap_or("?"))
    }
}

impl Name {
    /// The name as bytes without the terminator.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|b| *b == 0).next().unwrap_or_default()
    }
}

/// A guard that keeps a device registered: unregistration waits for it.
///
/// # Invariants
///
/// Holds one count of the device's registration.
pub struct Registered {
    device: NonNull<Device>,
    _user: User<'static>,
}

// SAFETY: The user count may be dropped in any context, and `Device` is `Sync`.
unsafe impl Send for Registered {}
// SAFETY: A shared guard gives a shared `Device`, which is `Sync`.
unsafe impl Sync for Registered {}

impl Deref for Registered {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: By the type invariant the device stays registered while the guard lives.
        unsafe { self.device.as_ref() }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns a count.
        unsafe { bindings::ib_device_put(self.as_raw()) }
    }
}
