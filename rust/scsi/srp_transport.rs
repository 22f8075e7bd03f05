// SPDX-License-Identifier: GPL-2.0

//! The SRP transport class: the remote port of a host in sysfs, its state, and the timeouts after
//! the loss of a connection.
//!
//! The class blocks the devices of a host that has lost its connection, fails their commands after
//! `fast_io_fail_tmo`, removes the port after `dev_loss_tmo`, and asks for another connection each
//! `reconnect_delay`. It calls a driver with the port's mutex held, which its timers need as well: a
//! callback that waits for the network would delay them.
//!
//! C header: [`include/scsi/scsi_transport_srp.h`](srctree/include/scsi/scsi_transport_srp.h)

use super::Driver;
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
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

    /// Takes over a new connection, or begins to make one: called each `reconnect_delay` while the
    /// port has lost its connection, and by [`Host::reconnect_rport`](super::Host::reconnect_rport).
    ///
    /// On success the devices are unblocked, and all timers end.
    ///
    /// # Errors
    ///
    /// Any error says that there is no connection yet; the next call comes later. With both timeouts
    /// off, an error has the commands fail.
    ///
    /// Context: process, with the mutex of the port held: must not wait for the network, if there is a
    /// timeout.
    fn reconnect(&self) -> Result;

    /// How many tries to reconnect have failed since the connection was lost.
    fn failed_reconnects(&self) -> u32;

    /// The port has been without a connection for `fast_io_fail_tmo`, or is going: commands are to
    /// be failed from now on.
    ///
    /// Context: process, with the mutex of the port held.
    fn terminate_io(&self);
}

/// The timeouts of a remote port, in seconds; those below 0 are off.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Between two tries to reconnect.
    pub reconnect_delay: i32,
    /// From the loss of the connection until commands fail.
    pub fast_io_fail_tmo: i32,
    /// From the loss of the connection until the port is removed.
    pub dev_loss_tmo: i32,
}

impl Timeouts {
    /// There are none, for a host without a port.
    pub(super) const NONE: Self = Self {
        reconnect_delay: -1,
        fast_io_fail_tmo: -1,
        dev_loss_tmo: -1,
    };

    /// The loss of a connection blocks the devices.
    pub fn block(&self) -> bool {
        self.fast_io_fail_tmo >= 0 || self.dev_loss_tmo >= 0
    }
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
                has_rport_state: true,
                reset_timer_if_blocked: true,
                reconnect_delay: &raw mut bindings::srp_param_reconnect_delay,
                fast_io_fail_tmo: &raw mut bindings::srp_param_fast_io_fail_tmo,
                dev_loss_tmo: &raw mut bindings::srp_param_dev_loss_tmo,
                reconnect: Some(reconnect_callback::<T>),
                terminate_rport_io: Some(terminate_io_callback::<T>),
                rport_delete: Some(rport_delete_callback::<T>),
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

// SAFETY: References are counted, and the functions of the transport class lock for themselves.
unsafe impl Send for Rport {}
// SAFETY: As above.
unsafe impl Sync for Rport {}

impl Rport {
    /// Adds the target port of a host; it is removed by `srp_remove_host()`.
    ///
    /// Errors: `ENOMEM`, or those of `device_add()`. The host must be removed then.
    ///
    /// # Safety
    ///
    /// - `shost` has been added, with the transport template of a [`Transport<T>`].
    /// - `driver` lives until [`Rport::stop`] for it has returned.
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

        // SAFETY: The port was added just now.
        let dev = unsafe { &raw mut (*rport.as_ptr()).dev };
        // The class does not look whether it could make the folder of the port, a child of it, and the
        // files in there.
        // SAFETY: As above. `complete` is for the child of a port.
        match unsafe { bindings::device_for_each_child(dev, core::ptr::null_mut(), Some(complete)) }
        {
            0 => {
                // It would remove the folder later all the same, and crash.
                // SAFETY: As above. What is not in sysfs has no other user.
                unsafe { bindings::transport_destroy_device(dev) };
                return Err(ENOMEM);
            }
            1 => {}
            _ => return Err(ENOMEM),
        }

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

    /// Says that the connection is lost: blocks the devices and starts the timers. Sleeps.
    pub(super) fn start_tl_fail_timers(&self) {
        // SAFETY: By the type invariant. The host is there as long as the port is.
        unsafe { bindings::srp_start_tl_fail_timers(self.0.as_ptr()) };
    }

    /// Has the driver take over a new connection. Sleeps.
    ///
    /// Errors: those of [`Operations::reconnect`], `ENODEV` if the port is lost.
    pub(super) fn reconnect(&self) -> Result {
        // SAFETY: As above.
        to_result(unsafe { bindings::srp_reconnect_rport(self.0.as_ptr()) })
    }

    /// The class has not heard of a loss, or has heard that it is over. In
    /// [`Operations::reconnect`] that does not change.
    pub(super) fn is_running(&self) -> bool {
        // SAFETY: By the type invariant the port is alive.
        let state = unsafe { &raw const (*self.0.as_ptr()).state };
        // SAFETY: As above; the class writes it with one store.
        unsafe { state.read_volatile() == bindings::srp_rport_state_SRP_RPORT_RUNNING }
    }

    /// The timeouts of the port.
    pub(super) fn timeouts(&self) -> Timeouts {
        let rport = self.0.as_ptr();
        let read = |field: *const ffi::c_int| {
            // SAFETY: By the type invariant the port is alive. An attribute writes to the field with
            // one store; a volatile read is one load.
            unsafe { field.read_volatile() }
        };
        Timeouts {
            // SAFETY: By the type invariant the port is alive.
            reconnect_delay: read(unsafe { &raw const (*rport).reconnect_delay }),
            // SAFETY: As above.
            fast_io_fail_tmo: read(unsafe { &raw const (*rport).fast_io_fail_tmo }),
            // SAFETY: As above.
            dev_loss_tmo: read(unsafe { &raw const (*rport).dev_loss_tmo }),
        }
    }

    /// The port is lost for good: unblocks the devices, whose commands fail from now on, stops the
    /// timers and waits for those that run. Sleeps.
    ///
    /// An attribute can start the timer of [`Operations::reconnect`] again, so that it must be called
    /// once more after the removal of the host.
    pub(super) fn stop(&self) {
        // SAFETY: By the type invariant. The host is there as long as the port is.
        unsafe { bindings::srp_stop_rport_timers(self.0.as_ptr()) };
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

/// Whether the folder of a port has the file that is made last, `delete`: 1, or else `-ENOMEM`. Either
/// ends the walk at the first device.
///
/// # Safety
///
/// `child` is in sysfs and stays there.
unsafe extern "C" fn complete(child: *mut bindings::device, _: *mut ffi::c_void) -> ffi::c_int {
    // SAFETY: By the requirements of this function.
    let folder = unsafe { (*child).kobj.sd };
    // SAFETY: As above; the device keeps its folder.
    let file =
        unsafe { bindings::srp_helper_kernfs_find_and_get(folder.cast(), c"delete".as_char_ptr()) };
    if file.is_null() {
        return ENOMEM.to_errno();
    }
    // SAFETY: The reference was taken just now.
    unsafe { bindings::kernfs_put(file) };
    1
}

/// The driver of a port, if it is known already: the port is there shortly before.
///
/// # Safety
///
/// `rport` is a port that was added by [`Rport::add`] for the same `T`, and [`Rport::stop`] for it does
/// not return while the reference is in use.
unsafe fn driver<'a, T: Operations>(rport: *mut bindings::srp_rport) -> Option<&'a T> {
    // SAFETY: By the requirements of this function the port is alive.
    let lld_data = unsafe { &raw mut (*rport).lld_data };
    // SAFETY: `lld_data` is valid and only accessed atomically.
    let driver = unsafe { atomic_load(lld_data, Acquire) }.cast::<T>();
    // SAFETY: If it is not null, `Rport::add` set it to a driver that lives until `Rport::stop` has
    // returned.
    unsafe { driver.as_ref() }
}

/// # Safety
///
/// May only be called by the transport class for the `delete` attribute of a port that was added
/// by [`Rport::add`] for the same `T`, or when its `dev_loss_tmo` has passed.
unsafe extern "C" fn rport_delete_callback<T: Operations>(rport: *mut bindings::srp_rport) {
    // SAFETY: By the requirements of this function. The removal of the port deletes the attribute,
    // which waits for this call; `Rport::stop` waits for the timer.
    if let Some(driver) = unsafe { driver::<T>(rport) } {
        driver.rport_delete();
    }
}

/// # Safety
///
/// May only be called by `srp_reconnect_rport()` for a port that was added by [`Rport::add`] for the
/// same `T`.
unsafe extern "C" fn reconnect_callback<T: Operations>(
    rport: *mut bindings::srp_rport,
) -> ffi::c_int {
    // SAFETY: By the requirements of this function. `Rport::stop` waits for the timer that calls it;
    // the other caller is `Rport::reconnect`, whose caller has a reference to the driver.
    let driver = unsafe { driver::<T>(rport) };
    let result = driver.map_or(Err(ENODEV), T::reconnect);
    if let (Some(driver), Err(_)) = (driver, result) {
        // The class counts this call as a try that failed, and its pauses grow with the count.
        let failed = i32::try_from(driver.failed_reconnects()).unwrap_or(i32::MAX);
        // SAFETY: By the requirements of this function the port is alive. The caller holds the mutex,
        // or is the one work item that changes the count.
        unsafe { (*rport).failed_reconnects = failed.max(1) - 1 };
    }
    if result.is_ok() {
        // The class leaves its timer for the next try as it is, with the pause that it has grown to.
        // SAFETY: By the requirements of this function the port is alive; its work items are
        // initialised. The caller holds the mutex, under which the class sets this timer.
        unsafe { bindings::cancel_delayed_work(&raw mut (*rport).reconnect_work) };
    }
    result.err().map_or(0, |e| e.to_errno())
}

/// # Safety
///
/// May only be called by the transport class for a port that was added by [`Rport::add`] for the
/// same `T`.
unsafe extern "C" fn terminate_io_callback<T: Operations>(rport: *mut bindings::srp_rport) {
    // SAFETY: By the requirements of this function: it is called by the timers, by `Rport::stop` and
    // by `Rport::reconnect`.
    if let Some(driver) = unsafe { driver::<T>(rport) } {
        driver.terminate_io();
    }
}
