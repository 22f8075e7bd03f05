// SPDX-License-Identifier: GPL-2.0

//! SCSI devices (logical units).
//!
//! C header: [`include/scsi/scsi_device.h`](srctree/include/scsi/scsi_device.h)

use crate::bindings;
use core::ptr::null_mut;
use kernel::{
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque, //
};

/// A logical unit, `struct scsi_device`.
///
/// # Invariants
///
/// The object is a `struct scsi_device` that the SCSI midlayer has initialised. It lives as long as
/// the reference to it; a callback gets the reference and cannot keep it.
#[repr(transparent)]
pub struct Device(Opaque<bindings::scsi_device>);

// SAFETY: The methods only read fields that are fixed once the device has answered INQUIRY, or
// write with `WRITE_ONCE` in C.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    ///
    /// `ptr` points to an initialised `struct scsi_device` that lives for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::scsi_device) -> &'a Self {
        // CAST: `Self` is a transparent wrapper of `bindings::scsi_device`.
        // SAFETY: By the safety requirements, `ptr` points to a device that lives for `'a`.
        unsafe { &*ptr.cast::<Self>() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::scsi_device {
        self.0.get()
    }

    /// Returns the LUN as the midlayer numbers it: the first of its four levels is in the lowest 16
    /// bits.
    pub fn lun(&self) -> u64 {
        // SAFETY: By the type invariant the device is alive; its LUN is fixed at allocation.
        unsafe { (*self.as_raw()).lun }
    }

    /// Returns the peripheral device type of the INQUIRY data.
    pub fn device_type(&self) -> u8 {
        // SAFETY: By the type invariant the device is alive; the type is set when it is probed,
        // before the driver sees the device.
        unsafe { (*self.as_raw()).type_ }
    }

    /// Returns whether this is a direct access block device.
    pub fn is_disk(&self) -> bool {
        u32::from(self.device_type()) == bindings::TYPE_DISK
    }

    /// Returns the logical block size in bytes, as set by the disk's driver; 0 before that.
    pub fn block_size(&self) -> u32 {
        // SAFETY: By the type invariant the device is alive.
        let size = unsafe { &raw const (*self.as_raw()).sector_size };
        // SAFETY: The device is alive. A revalidation may change the field concurrently, in a
        // single store.
        unsafe { size.read_volatile() }
    }

    /// Sets the timeout of the device's block layer requests, in milliseconds.
    pub fn set_request_timeout(&self, msecs: Msecs) {
        let jiffies = msecs_to_jiffies(msecs).try_into().unwrap_or(u32::MAX);

        // SAFETY: By the type invariant the device is alive.
        let queue = unsafe { (*self.as_raw()).request_queue };

        // SAFETY: A device has its request queue from `scsi_alloc_sdev()` until it is released.
        unsafe { bindings::blk_queue_rq_timeout(queue, jiffies) };
    }
}

/// Returns the longest request timeout of a host's devices, in milliseconds; 0 if there is no
/// device. Must not be called in interrupt context.
///
/// # Safety
///
/// `shost` points to a host that is alive.
pub(super) unsafe fn longest_request_timeout(shost: *mut bindings::Scsi_Host) -> Msecs {
    let mut longest = 0;
    let mut sdev = null_mut();
    loop {
        // SAFETY: By the safety requirements, the host is alive. The call puts the reference to the
        // last device and takes one to the next.
        sdev = unsafe { bindings::__scsi_iterate_devices(shost, sdev) };
        if sdev.is_null() {
            break;
        }
        // SAFETY: The iteration holds a reference to the device.
        let queue = unsafe { (*sdev).request_queue };
        // SAFETY: The device has its request queue until it is released.
        let timeout = unsafe { &raw const (*queue).rq_timeout };
        // SAFETY: The queue exists. The field may change concurrently, in a single store.
        longest = longest.max(unsafe { timeout.read_volatile() });
    }
    let msecs = u64::from(longest) * 1000 / u64::from(bindings::HZ);
    Msecs::try_from(msecs).unwrap_or(Msecs::MAX)
}
