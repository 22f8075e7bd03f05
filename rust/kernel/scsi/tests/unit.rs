// SPDX-License-Identifier: GPL-2.0

//! A device to which tests send commands.

use crate::bindings;
use core::ptr::{
    null,
    NonNull, //
};
use kernel::{
    ffi::c_uint,
    prelude::*,
    time::msecs_to_jiffies, //
};

/// A device of a host.
///
/// # Invariants
///
/// The object holds a reference to the device.
pub(crate) struct Unit(NonNull<bindings::scsi_device>);

// SAFETY: A device has no thread affinity.
unsafe impl Send for Unit {}
// SAFETY: Any number of threads may send commands to a device.
unsafe impl Sync for Unit {}

impl Unit {
    /// Looks up a scanned device by the number of its host. May sleep.
    pub(crate) fn find(host: u32, lun: u64) -> Option<Self> {
        // SAFETY: The function takes any number.
        let shost = NonNull::new(unsafe { bindings::scsi_host_lookup(host) })?;
        // SAFETY: The lookup has taken a reference to the host.
        let device = unsafe { bindings::scsi_device_lookup(shost.as_ptr(), 0, 0, lun) };
        // SAFETY: This puts the reference to the host.
        unsafe { bindings::scsi_host_put(shost.as_ptr()) };
        // INVARIANT: The lookup has taken a reference to the device.
        NonNull::new(device).map(Self)
    }

    /// Executes a read command without retries and returns its result. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` for more than 4 GiB, otherwise the errors of the block layer.
    pub(crate) fn read(&self, cdb: [u8; 16], data: &mut [u8]) -> Result<i32> {
        // CAST: A minute.
        let timeout = msecs_to_jiffies(60_000) as c_int;
        let len = c_uint::try_from(data.len()).map_err(|_| EOVERFLOW)?;
        // SAFETY: The object holds a reference to the device. The CDB has the maximum length, and
        // the data is `len` bytes for writing; both are used until the call returns.
        let result = unsafe {
            bindings::scsi_execute_cmd(
                self.0.as_ptr(),
                cdb.as_ptr(),
                bindings::req_op_REQ_OP_DRV_IN,
                data.as_mut_ptr().cast(),
                len,
                timeout,
                0,
                null(),
            )
        };
        match result {
            ..0 => Err(Error::from_errno(result)),
            _ => Ok(result),
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the object holds a reference, which is put here.
        unsafe { bindings::scsi_device_put(self.0.as_ptr()) };
    }
}
