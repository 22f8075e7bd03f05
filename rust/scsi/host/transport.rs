// SPDX-License-Identifier: GPL-2.0

//! Transport classes: what the hosts of one kind of transport have in common.
//!
//! A class shows in sysfs what is at the other end of the wire, and decides what becomes of the devices
//! of a host whose wire is cut. A host need not belong to one.
//!
//! C header: [`include/scsi/scsi_transport.h`](srctree/include/scsi/scsi_transport.h)

use crate::bindings;
use core::ptr::null_mut;

/// What decides about a command that has timed out: `eh_timed_out` of a host template.
pub type TimedOut = unsafe extern "C" fn(*mut bindings::scsi_cmnd) -> bindings::scsi_timeout_action;

/// A driver's registration with a transport class, which its hosts are given.
///
/// # Safety
///
/// - [`Transport::template`] returns the same pointer each time: null, or to a template that is registered for
///   as long as the object lives.
/// - The midlayer may call [`Transport::TIMED_OUT`] for the commands of a host that has this template.
pub unsafe trait Transport: Send + Sync + 'static {
    /// Asked before error handling begins.
    const TIMED_OUT: Option<TimedOut>;

    /// Returns the template; null if a host needs none.
    fn template(&self) -> *mut bindings::scsi_transport_template;

    /// Takes away what the class has below a host that is about to be removed. May sleep.
    ///
    /// # Safety
    ///
    /// `shost` was added with this template, and is not removed yet.
    unsafe fn remove_host(&self, shost: *mut bindings::Scsi_Host);
}

/// No class.
pub struct NoTransport;

// SAFETY: There is no template, and no function.
unsafe impl Transport for NoTransport {
    const TIMED_OUT: Option<TimedOut> = None;

    fn template(&self) -> *mut bindings::scsi_transport_template {
        null_mut()
    }

    unsafe fn remove_host(&self, _: *mut bindings::Scsi_Host) {}
}
