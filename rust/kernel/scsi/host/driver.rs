// SPDX-License-Identifier: GPL-2.0

//! The callbacks that a driver implements.
//!
//! C header: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h)

use super::{
    transport::Transport,
    Host, //
};
use crate::{
    scsi::{
        Command,
        CommandRef,
        Device,
        Disposition,
        HostReset,
        Rejected, //
    },
    sysfs::AttributeGroup, //
};
use kernel::{
    build_error,
    error::VTABLE_DEFAULT_ERROR,
    prelude::*,
    str::CStr, //
};

/// The callbacks of a [`Host`](super::Host), and the common properties of all hosts of a driver.
///
/// The object is shared: callbacks run concurrently on several CPUs. After
/// [`Host::remove`](super::Host::remove) has returned, only resets may run; they hold a reference.
#[vtable]
pub trait Driver: Send + Sync + Sized + 'static {
    /// The module that must stay loaded while a device of the host is open.
    const MODULE: &'static ThisModule;

    /// Human-readable name of the adapter.
    const NAME: &'static CStr;

    /// Name of the driver in `/proc/scsi` and in the `proc_name` attribute of the host.
    const PROC_NAME: &'static CStr;

    /// The transport class of the hosts, or [`NoTransport`](super::transport::NoTransport).
    type Transport: Transport;

    /// The attributes of each host, in `/sys/class/scsi_host/host<n>/`.
    ///
    /// The attributes exist from some point in [`Host::add`](super::Host::add) until
    /// [`Host::remove`].
    ///
    /// [`Host::remove`]: super::Host::remove
    const HOST_ATTRIBUTES: Option<&'static AttributeGroup<Host<Self>>> = None;

    /// Starts a command.
    ///
    /// To reject the command for now, the driver returns it. The midlayer limits a hardware queue
    /// to [`Limits::queue_depth`](super::Limits::queue_depth) commands, each with its own tag; the
    /// error handler's commands reuse the tag of the command being handled.
    ///
    /// Context: process or softirq, under RCU. Must not sleep.
    fn queue_command(&self, cmd: Command) -> Result<(), Rejected>;

    /// Completes the finished commands of a polled hardware queue, see
    /// [`Limits::polled_queues`](super::Limits::polled_queues), and returns how many may have
    /// completed.
    ///
    /// Context: process. Must not sleep.
    fn poll(&self, _hw_queue: u16) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Aborts a command that timed out, possibly one that the error handler has sent.
    ///
    /// [`Disposition::Success`] means that the driver has given up its [`Command`]: this call or a
    /// concurrent one has completed or released it. If the driver still holds it, the midlayer gets
    /// [`Disposition::Failed`].
    ///
    /// Context: process, may sleep. One call at a time per host.
    fn abort(&self, cmd: &CommandRef<'_>) -> Disposition;

    /// Resets a logical unit.
    ///
    /// Unless the reset fails, the driver must have given up all commands of the device that have
    /// timed out, as in [`Driver::abort`]. `cmd` is any of them, or the fake one of
    /// `SG_SCSI_RESET`.
    ///
    /// Context: process, may sleep.
    fn device_reset(&self, dev: &Device, cmd: &CommandRef<'_>) -> Disposition;

    /// Resets the host: the last step of error handling.
    ///
    /// A host reset cannot fail, because the midlayer ends all commands afterwards in any case. The
    /// caller waits, without a deadline, for commands that the driver has not given up on return.
    ///
    /// Context: process, may sleep until the adapter cannot access the data of any command.
    fn host_reset(&self) -> HostReset;

    /// Returns the maximum number of commands in flight to a new target; 0 to apply only the host's
    /// limit.
    ///
    /// Context: process.
    fn target_can_queue(&self) -> u32 {
        0
    }

    /// Sets up a new device.
    ///
    /// # Errors
    ///
    /// On any error the device is not added.
    ///
    /// Context: process, may sleep.
    fn sdev_configure(&self, _dev: &Device) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
