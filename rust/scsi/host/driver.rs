// SPDX-License-Identifier: GPL-2.0

//! What a driver implements.
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

/// The callbacks of a [`Host`](super::Host), and what they have in common for all hosts of a
/// driver.
///
/// The object is shared: callbacks run at the same time on several CPUs. None of them runs when
/// [`Host::remove`](super::Host::remove) has returned, but the resets: those hold a reference and
/// may still be running.
#[vtable]
pub trait Driver: Send + Sync + Sized + 'static {
    /// The module that must stay while a device of the host is open.
    const MODULE: &'static ThisModule;

    /// Name of the adapter, for people.
    const NAME: &'static CStr;

    /// Name of the driver in `/proc/scsi` and in the `proc_name` attribute of the host.
    const PROC_NAME: &'static CStr;

    /// The transport class that hosts may belong to, or
    /// [`NoTransport`](super::transport::NoTransport).
    type Transport: Transport;

    /// The attributes of each host, in `/sys/class/scsi_host/host<n>/`.
    ///
    /// They exist from within [`Host::add`](super::Host::add) to [`Host::remove`].
    ///
    /// [`Host::remove`]: super::Host::remove
    const HOST_ATTRIBUTES: Option<&'static AttributeGroup<Host<Self>>> = None;

    /// Starts a command.
    ///
    /// To refuse it for now, give it back. The midlayer keeps a hardware queue to as many commands
    /// as [`Limits::queue_depth`](super::Limits::queue_depth), with a tag of its own each; the error
    /// handler's commands reuse the tag of the command that is being handled.
    ///
    /// Context: process or softirq, under RCU. Must not sleep.
    fn queue_command(&self, cmd: Command) -> Result<(), Rejected>;

    /// Completes what has ended on a polled hardware queue, see
    /// [`Limits::polled_queues`](super::Limits::polled_queues), and returns how many commands may have.
    ///
    /// Context: process. Must not sleep.
    fn poll(&self, _hw_queue: u16) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Aborts a command that timed out, or one of the error handler's that did.
    ///
    /// [`Disposition::Success`] says that the driver has given up its [`Command`]: it was completed
    /// or released, by this call or by another one that was faster. If it was not, the midlayer
    /// is told [`Disposition::Failed`].
    ///
    /// Context: process, may sleep. One call at a time per host.
    fn abort(&self, cmd: &CommandRef<'_>) -> Disposition;

    /// Resets a logical unit.
    ///
    /// Unless it fails, all commands of the device that have timed out must have been given up,
    /// as in [`Driver::abort`]. `cmd` is any of them, or the fake one of `SG_SCSI_RESET`.
    ///
    /// Context: process, may sleep.
    fn device_reset(&self, dev: &Device, cmd: &CommandRef<'_>) -> Disposition;

    /// Resets the host: the last step of error handling.
    ///
    /// It cannot fail, because the midlayer ends all commands after it, whatever it hears. What the driver
    /// has not given up on return is waited for, without a deadline.
    ///
    /// Context: process, may sleep, for as long as the adapter can reach the data of a command.
    fn host_reset(&self) -> HostReset;

    /// Returns how many commands may be under way to a new target, 0 for no limit but the host's.
    ///
    /// Context: process.
    fn target_can_queue(&self) -> u32 {
        0
    }

    /// Sets up a device that was found.
    ///
    /// # Errors
    ///
    /// Any error: the device is not added.
    ///
    /// Context: process, may sleep.
    fn sdev_configure(&self, _dev: &Device) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
