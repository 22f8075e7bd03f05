// SPDX-License-Identifier: GPL-2.0

//! SCSI host adapters.
//!
//! A driver implements [`Driver`], creates a [`Host`] from it and adds the host to the SCSI
//! midlayer. [`Driver::queue_command`] receives commands as owned [`Command`] values; consuming the
//! value completes the command, so each command completes exactly once. A timed-out command belongs
//! to the error handler, see [`command`].
//!
//! A host may belong to a transport class, see [`transport`].
//!
//! Not supported: bidirectional commands, protection information (T10-PI), reserved commands,
//! host-wide tags, per-command driver data, and a driver's own mapping of hardware queues: the last
//! queues are the polled ones, the CPUs share the others.
//!
//! C headers: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h),
//! [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h)
//!
//! # Examples
//!
//! A host that has no disks.
//!
//! ```
//! use ib_srp::{
//!     compat,
//!     scsi::{
//!         transport::NoTransport, Command, CommandRef, Device, Disposition, Driver, Host,
//!         HostReset, Limits, Rejected, ScsiResult,
//!     },
//! };
//! use kernel::{prelude::*, str::CStr, sync::Arc};
//!
//! # // What `module!` generates, for `#[vtable]`.
//! # struct LocalModule;
//! # impl kernel::ModuleMetadata for LocalModule {
//! #     const NAME: &'static CStr = c"example";
//! #     // SAFETY: There is no module.
//! #     const THIS_MODULE: ThisModule = unsafe { ThisModule::from_ptr(core::ptr::null_mut()) };
//! # }
//! # fn main() {}
//! struct Example;
//!
//! #[vtable]
//! impl Driver for Example {
//!     const MODULE: &'static ThisModule = compat::THIS_MODULE;
//!     const NAME: &'static CStr = c"an example";
//!     const PROC_NAME: &'static CStr = c"example";
//!     type Transport = NoTransport;
//!
//!     fn queue_command(&self, cmd: Command) -> Result<(), Rejected> {
//!         cmd.done(ScsiResult::DID_NO_CONNECT);
//!         Ok(())
//!     }
//!
//!     fn abort(&self, _: &CommandRef<'_>) -> Disposition {
//!         Disposition::Failed
//!     }
//!
//!     fn device_reset(&self, _: &Device, _: &CommandRef<'_>) -> Disposition {
//!         Disposition::Failed
//!     }
//!
//!     fn host_reset(&self) -> HostReset {
//!         HostReset::Done
//!     }
//! }
//!
//! /// Dropping the host removes it.
//! fn host(limits: &Limits) -> Result<Host<Example>> {
//!     let driver = Arc::new(Example, GFP_KERNEL)?;
//!     let host = Host::new(limits, c"nothing", Arc::new(NoTransport, GFP_KERNEL)?, driver)?;
//!     host.add(None)?;
//!     Ok(host)
//! }
//! ```

pub mod command;
pub mod device;
pub mod error;
pub mod host;
pub mod limits;
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
        SG_MAX_SEGMENTS, //
    },
    limits::Limits, //
};
