// SPDX-License-Identifier: GPL-2.0

//! Transport classes: the common part of the hosts of one transport.
//!
//! A class shows the remote end in sysfs and decides what happens to the devices of a host that has
//! lost its connection. A host need not belong to one.
//!
//! C header: [`include/scsi/scsi_transport.h`](srctree/include/scsi/scsi_transport.h)

use crate::bindings;
use core::ptr::null_mut;

/// `eh_timed_out` of a host template: decides about a command that has timed out.
pub type TimedOut = unsafe extern "C" fn(*mut bindings::scsi_cmnd) -> bindings::scsi_timeout_action;

/// A driver's registration with a transport class, shared by its hosts.
///
/// # Safety
///
/// - [`Transport::template`] always returns the same pointer: null, or a template that is
///   registered as long as the object lives.
/// - The midlayer may call [`Transport::TIMED_OUT`] for the commands of a host that has this
///   template.
pub unsafe trait Transport: Send + Sync + 'static {
    /// Called before error handling begins.
    const TIMED_OUT: Option<TimedOut>;

    /// Returns the template; null if hosts need none.
    fn template(&self) -> *mut bindings::scsi_transport_template;

    /// Removes the objects of the class below a host that is about to be removed. May sleep.
    ///
    /// # Safety
    ///
    /// `shost` was added with this template and is not removed yet.
    unsafe fn remove_host(&self, shost: *mut bindings::Scsi_Host);
}

/// For hosts without a transport class.
pub struct NoTransport;

// SAFETY: `template()` always returns null, and `TIMED_OUT` is `None`.
unsafe impl Transport for NoTransport {
    const TIMED_OUT: Option<TimedOut> = None;

    fn template(&self) -> *mut bindings::scsi_transport_template {
        null_mut()
    }

    unsafe fn remove_host(&self, _: *mut bindings::Scsi_Host) {}
}
