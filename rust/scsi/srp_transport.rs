// SPDX-License-Identifier: GPL-2.0

//! The SRP transport class: the remote port of a host in sysfs, and its `delete` attribute.
//!
//! What is not supported: reconnecting, and the timeouts that go with it. Their attributes do not
//! exist then.
//!
//! C header: [`include/scsi/scsi_transport_srp.h`](srctree/include/scsi/scsi_transport_srp.h)

use super::Driver;
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    ffi,
    prelude::*,
    sync::{
        atomic::{
            atomic_load, atomic_store,
            ordering::{
                Acquire,
                Release, //
            },
        },
        Arc, //
    },
};

/// What a driver does for the attributes of its hosts' remote ports.
pub trait Operations: Driver {
    /// The administrator wants the port to be gone.
    ///
    /// [`Host::remove`](super::Host::remove) waits for this call, so the removal must be left to
    /// somebody else.
    ///
    /// Context: process, may sleep.
    fn rport_delete(&self);
}

/// A driver's registration with the transport class, for all its hosts.
///
/// To be kept by the module until it is unloaded. Each [`Host`](super::Host) keeps it, too.
pub struct Transport<T: Operations>(Arc<Attachment>, PhantomData<fn(&T)>);

impl<T: Operations> Transport<T> {
    /// Registers the driver.
    ///
    /// Errors: `ENOMEM`.
    ///
    /// Context: process, may sleep.
    pub fn new() -> Result<Self> {
        let functions = KBox::new(
            bindings::srp_function_template {
                rport_delete: Some(rport_delete_callback::<T>),
                ..pin_init::zeroed()
            },
            GFP_KERNEL,
        )?;

        // INVARIANT: `template` is null until it is attached.
        let mut attachment = Attachment {
            template: core::ptr::null_mut(),
            functions: NonNull::from(KBox::leak(functions)),
        };

        let functions = attachment.functions.as_ptr();
        // SAFETY: The function table is not freed before the template is released.
        attachment.template = unsafe { bindings::srp_attach_transport(functions) };
        if attachment.template.is_null() {
            return Err(ENOMEM);
        }
        Ok(Self(Arc::new(attachment, GFP_KERNEL)?, PhantomData))
    }

    pub(super) fn attachment(&self) -> Arc<Attachment> {
        self.0.clone()
    }
}

/// A transport template.
///
/// # Invariants
///
/// - `template` is null or was returned by `srp_attach_transport()` for `functions`.
/// - `functions` points to an object of a [`KBox`] that belongs to this one.
pub(super) struct Attachment {
    template: *mut bindings::scsi_transport_template,
    functions: NonNull<bindings::srp_function_template>,
}

// SAFETY: The transport class does its own locking, and nothing here changes after `new()`.
unsafe impl Send for Attachment {}
// SAFETY: As above.
unsafe impl Sync for Attachment {}

impl Attachment {
    pub(super) fn as_raw(&self) -> *mut bindings::scsi_transport_template {
        self.template
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.template.is_null() {
            // SAFETY: By the type invariant. Hosts have a reference to this object until they have
            // been removed and with them all that the template's containers hold.
            unsafe { bindings::srp_release_transport(self.template) };
        }

        // SAFETY: By the type invariant; the template that used the table is gone.
        drop(unsafe { KBox::from_raw(self.functions.as_ptr()) });
    }
}

/// The remote port of a host.
///
/// # Invariants
///
/// The pointer is that of a `struct srp_rport` which this object has a reference to.
pub(super) struct Rport(NonNull<bindings::srp_rport>);

impl Rport {
    /// Adds the target port of a host; it is removed by `srp_remove_host()`.
    ///
    /// Errors: `ENOMEM`, or those of `device_add()`.
    ///
    /// # Safety
    ///
    /// - `shost` has been added, with the transport template of a [`Transport<T>`].
    /// - `driver` lives until `srp_remove_host()` for it has returned.
    pub(super) unsafe fn add<T: Operations>(
        shost: *mut bindings::Scsi_Host,
        port_id: &[u8; 16],
        driver: NonNull<T>,
    ) -> Result<Self> {
        let mut identifiers = bindings::srp_rport_identifiers {
            port_id: *port_id,
            // CAST: 1.
            roles: bindings::SRP_RPORT_ROLE_TARGET as u8,
        };

        // SAFETY: By the requirements of this function.
        let rport = from_err_ptr(unsafe { bindings::srp_rport_add(shost, &mut identifiers) })?;
        let rport = NonNull::new(rport).ok_or(ENOMEM)?;

        // SAFETY: The port was added just now. It cannot be removed before this function has
        // returned, since that is up to the caller's owner of the host.
        unsafe { bindings::srp_rport_get(rport.as_ptr()) };
        // INVARIANT: The reference was taken just now.
        let rport = Self(rport);

        // SAFETY: The port is alive. Its attributes exist already, but `lld_data` is only accessed
        // atomically.
        unsafe { atomic_store(rport.lld_data(), driver.as_ptr().cast(), Release) };
        Ok(rport)
    }

    fn lld_data(&self) -> *mut *mut ffi::c_void {
        // SAFETY: By the type invariant the port is alive.
        unsafe { &raw mut (*self.0.as_ptr()).lld_data }
    }
}

impl Drop for Rport {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference to give back.
        unsafe { bindings::srp_rport_put(self.0.as_ptr()) };
    }
}

/// # Safety
///
/// May only be called by the transport class for the `delete` attribute of a port that was added
/// by [`Rport::add`] for the same `T`.
unsafe extern "C" fn rport_delete_callback<T: Operations>(rport: *mut bindings::srp_rport) {
    // SAFETY: By the requirements of this function the port is alive.
    let lld_data = unsafe { &raw mut (*rport).lld_data };
    // SAFETY: `lld_data` is valid and only accessed atomically.
    let driver = unsafe { atomic_load(lld_data, Acquire) }.cast::<T>();

    // The attribute is there shortly before `lld_data` is.
    // SAFETY: If it is not null, `Rport::add` set it to a driver that lives until
    // `srp_remove_host()` has returned. That deletes the attribute, which waits for this call.
    if let Some(driver) = unsafe { driver.as_ref() } {
        driver.rport_delete();
    }
}
