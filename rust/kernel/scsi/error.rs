// SPDX-License-Identifier: GPL-2.0

//! Results of commands, of attempts to queue them and of error handling.
//!
//! C headers: [`include/scsi/scsi_status.h`](srctree/include/scsi/scsi_status.h),
//! [`include/scsi/scsi.h`](srctree/include/scsi/scsi.h)

use crate::{
    bindings,
    compat, //
};
use kernel::ffi;

/// The result of a command: the transport's host byte and the device's SAM status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResult {
    host: u8,
    status: u8,
    /// The first byte of the sense data, which marks the data as valid; 0 without sense data.
    response_code: u8,
}

impl ScsiResult {
    /// The command was carried out and its status is GOOD.
    pub const DID_OK: Self = Self::host(bindings::scsi_host_status_DID_OK);
    /// There is no connection to the target; not retried.
    pub const DID_NO_CONNECT: Self = Self::host(bindings::scsi_host_status_DID_NO_CONNECT);
    /// The command was aborted for a reason other than the device; not retried.
    pub const DID_ABORT: Self = Self::host(bindings::scsi_host_status_DID_ABORT);
    /// An error inside the host adapter; retried as long as the command has retries left.
    pub const DID_ERROR: Self = Self::host(bindings::scsi_host_status_DID_ERROR);
    /// The data is in doubt; retried as long as the command has retries left, at the cost of one.
    pub const DID_SOFT_ERROR: Self = Self::host(bindings::scsi_host_status_DID_SOFT_ERROR);
    /// A reset ended the command; retried.
    pub const DID_RESET: Self = Self::host(bindings::scsi_host_status_DID_RESET);
    /// The transport broke while the command was in flight and is being recovered; retried.
    pub const DID_TRANSPORT_DISRUPTED: Self =
        Self::host(bindings::scsi_host_status_DID_TRANSPORT_DISRUPTED);
    /// The transport was given up; not retried on this path.
    pub const DID_TRANSPORT_FAILFAST: Self =
        Self::host(bindings::scsi_host_status_DID_TRANSPORT_FAILFAST);
    /// Too many commands for now: the midlayer requeues the command and lowers the queue depth.
    pub const TASK_SET_FULL: Self = Self::status(bindings::sam_status_SAM_STAT_TASK_SET_FULL as u8);

    const fn host(host: bindings::scsi_host_status) -> Self {
        // CAST: The host bytes are those of `enum scsi_host_status`, all below 0x100.
        Self {
            host: host as u8,
            status: 0,
            response_code: 0,
        }
    }

    /// `DID_OK` with the SAM status from the device; any byte is valid.
    pub const fn status(status: u8) -> Self {
        Self {
            host: 0,
            status,
            response_code: 0,
        }
    }

    /// Adds the first byte of the sense data; [`Command::with_sense`](super::Command::with_sense)
    /// has stored the rest.
    pub(super) const fn with_response_code(self, response_code: u8) -> Self {
        Self {
            response_code,
            ..self
        }
    }

    pub(super) const fn response_code(self) -> u8 {
        self.response_code
    }

    /// Returns the host byte in bits 16 to 23 and the SAM status in bits 0 to 7, as the kernel logs
    /// it.
    pub const fn number(self) -> u32 {
        (self.host as u32) << 16 | self.status as u32
    }

    /// Returns the value for `scsi_cmnd.result`.
    pub(super) const fn as_raw(self) -> ffi::c_int {
        // CAST: The number has 24 bits.
        self.number() as ffi::c_int
    }
}

/// The reason why a command was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Nothing can be sent to any device of the host for now.
    Host,
    /// Nothing can be sent to this device for now.
    Device,
}

impl Busy {
    pub(super) const fn as_raw(self) -> compat::queue_status::Status {
        match self {
            Busy::Host => compat::queue_status::HOST_BUSY,
            Busy::Device => compat::queue_status::DEVICE_BUSY,
        }
    }
}

/// The outcome of a step of error handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The step was carried out and the driver has given up the commands it concerns.
    Success,
    /// The step was not carried out; the midlayer goes on to the next, more drastic one.
    Failed,
    /// The transport is gone. After a reset, the midlayer ends the commands, so the driver must
    /// have given them up as for [`Disposition::Success`].
    FastIoFail,
}

impl Disposition {
    pub(super) const fn as_raw(self) -> ffi::c_int {
        // CAST: The values of `enum scsi_disposition` are below 0x3000.
        (match self {
            Disposition::Success => bindings::scsi_disposition_SUCCESS,
            Disposition::Failed => bindings::scsi_disposition_FAILED,
            Disposition::FastIoFail => bindings::scsi_disposition_FAST_IO_FAIL,
        }) as ffi::c_int
    }
}

/// The outcome of a host reset. Failure is not an outcome: the midlayer would take the devices
/// offline and end their commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReset {
    /// The midlayer tests the devices and sends the commands again.
    Done,
    /// There is no transport for now: the midlayer ends the commands.
    TransportGone,
}

impl From<HostReset> for Disposition {
    fn from(outcome: HostReset) -> Self {
        match outcome {
            HostReset::Done => Self::Success,
            HostReset::TransportGone => Self::FastIoFail,
        }
    }
}

#[cfg(SRP_KUNIT)]
#[kernel::prelude::kunit_tests(srp_scsi_error)]
mod tests {
    use super::*;

    #[test]
    fn result_has_host_byte_and_status() {
        assert_eq!(ScsiResult::DID_OK.as_raw(), 0);
        assert_eq!(ScsiResult::DID_ERROR.as_raw(), 0x0007_0000);
        assert_eq!(ScsiResult::DID_TRANSPORT_FAILFAST.as_raw(), 0x000f_0000);
        assert_eq!(ScsiResult::status(0x02).as_raw(), 2);
        assert_eq!(ScsiResult::TASK_SET_FULL.as_raw(), 0x28);
    }
}
