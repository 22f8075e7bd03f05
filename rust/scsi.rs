// SPDX-License-Identifier: GPL-2.0

//! SCSI host adapters.
//!
//! A driver implements [`Driver`], makes a [`Host`] from it and adds it to the SCSI midlayer.
//! Commands come in by [`Driver::queue_command`] as owned [`Command`] values; consuming the value
//! completes the command, so it completes exactly once. A timed-out command belongs to the
//! error handler, see [`command`].
//!
//! A host may belong to a transport class, see [`transport`].
//!
//! What is not supported: bidirectional commands, protection information (T10-PI), reserved
//! commands, host-wide tags, per-command driver data, and a driver's own map of hardware queues: the
//! last ones are the polled ones, the CPUs share the others.
//!
//! C headers: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h),
//! [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h)

pub mod command;
pub mod device;
pub mod error;
pub mod host;
pub mod log;
#[cfg(all(SRP_KUNIT, CONFIG_KUNIT))]
pub(crate) mod tests;
pub mod transport;

pub use self::{
    command::{
        Command,
        CommandRef,
        Rejected,
        Tag, //
    },
    device::Device,
    error::{
        Busy,
        Disposition,
        HostReset,
        ScsiResult, //
    },
    host::{
        driver::Driver,
        Host,
        Limits,
        SG_MAX_SEGMENTS, //
    }, //
};
