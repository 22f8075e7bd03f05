// SPDX-License-Identifier: GPL-2.0

//! The SRP transport class: the remote port of a host in sysfs, its state, and the timeouts after
//! the loss of a connection.
//!
//! The class blocks the devices of a host that has lost its connection, fails their commands after
//! `fast_io_fail_tmo`, removes the port after `dev_loss_tmo`, and requests a reconnect every
//! `reconnect_delay`. It calls the driver, except for [`Operations::rport_delete`], with the port's
//! mutex held, which its timers also take: a callback that waits for the network delays the timers.
//!
//! C header: [`include/scsi/scsi_transport_srp.h`](srctree/include/scsi/scsi_transport_srp.h)

use super::{
    super::{
        Driver,
        Host, //
    },
    TimedOut, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    device::Device,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi,
    prelude::*,
    sync::{
        atomic::{
            atomic_load,
            atomic_store,
            ordering::{
                Acquire,
                Release, //
            },
            Atomic, //
        },
        Arc,
        ArcBorrow, //
    },
    time::Msecs, //
};

/// The driver's side of a remote port: the connection to it.
///
/// The class may call these functions until the [`Rport`] is stopped for the last time.
pub trait Operations: Send + Sync + Sized + 'static {
    /// Called when the administrator deletes the port, or `dev_loss_tmo` has passed.
    ///
    /// [`Host::remove`] waits for this call, so another context must do the removal.
    ///
    /// Context: process, may sleep.
    fn rport_delete(this: ArcBorrow<'_, Self>);

    /// Takes over a new connection or starts one. Called every `reconnect_delay` while the port has
    /// no connection, and by [`Rport::reconnect`].
    ///
    /// On success the devices are unblocked and all timers stop.
    ///
    /// # Errors
    ///
    /// Any error means that there is no connection yet; the next call comes later. With both
    /// timeouts off, an error makes the commands fail.
    ///
    /// Context: process, with the mutex of the port held: must not wait for the network if there is
    /// a timeout.
    fn reconnect(this: ArcBorrow<'_, Self>) -> Result;

    /// Returns the number of attempts that the timer of the class has started since the connection
    /// was lost, including the current one.
    fn failed_reconnects(&self) -> u32;

    /// Called when the port has had no connection for `fast_io_fail_tmo`, or is being removed.
    /// Commands must fail from now on.
    ///
    /// Context: process, with the mutex of the port held.
    fn terminate_io(this: ArcBorrow<'_, Self>);
}

/// The timeouts of a remote port, in seconds; a negative value turns a timeout off.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time between two reconnect attempts.
    pub reconnect_delay: i32,
    /// Time from the loss of the connection until commands fail.
    pub fast_io_fail_tmo: i32,
    /// Time from the loss of the connection until the port is removed.
    pub dev_loss_tmo: i32,
}

impl Timeouts {
    /// Returns whether the loss of a connection blocks the devices.
    pub fn block(&self) -> bool {
        self.fast_io_fail_tmo >= 0 || self.dev_loss_tmo >= 0
    }
}

/// The initial [`Timeouts`] of a new port. The class reads them when it adds a port; they may
/// change at any time.
#[derive(Clone, Copy)]
pub struct Defaults {
    /// See [`Timeouts::reconnect_delay`].
    pub reconnect_delay: &'static Atomic<i32>,
    /// See [`Timeouts::fast_io_fail_tmo`].
    pub fast_io_fail_tmo: &'static Atomic<i32>,
    /// See [`Timeouts::dev_loss_tmo`].
    pub dev_loss_tmo: &'static Atomic<i32>,
}

/// A driver's registration with the transport class, for all hosts with remote ports backed by `T`.
///
/// The module keeps this object until it is unloaded. Each [`Host`] holds a reference, too.
///
/// # Invariants
///
/// - `template` is null or was returned by `srp_attach_transport()` for `functions`.
/// - `functions` points to an object of a [`KBox`] that this object owns.
pub struct Transport<T> {
    template: *mut bindings::scsi_transport_template,
    functions: NonNull<bindings::srp_function_template>,
    _operations: PhantomData<fn(&T)>,
}

// SAFETY: The transport class does its own locking, and nothing here changes after `new()`.
unsafe impl<T> Send for Transport<T> {}
// SAFETY: The transport class does its own locking, and nothing here changes after `new()`.
unsafe impl<T> Sync for Transport<T> {}

impl<T: Operations> Transport<T> {
    /// Registers the driver.
    ///
    /// Errors: `ENOMEM`.
    ///
    /// Context: process, may sleep.
    pub fn new(defaults: Defaults) -> Result<Self> {
        let functions = KBox::new(
            bindings::srp_function_template {
                has_rport_state: true,
                reset_timer_if_blocked: true,
                reconnect_delay: defaults.reconnect_delay.as_ptr(),
                fast_io_fail_tmo: defaults.fast_io_fail_tmo.as_ptr(),
                dev_loss_tmo: defaults.dev_loss_tmo.as_ptr(),
                reconnect: Some(reconnect_callback::<T>),
                terminate_rport_io: Some(terminate_io_callback::<T>),
                rport_delete: Some(rport_delete_callback::<T>),
            },
            GFP_KERNEL,
        )?;

        // INVARIANT: `template` is null until it is attached.
        let mut this = Self {
            template: core::ptr::null_mut(),
            functions: NonNull::from(KBox::leak(functions)),
            _operations: PhantomData,
        };

        let functions = this.functions.as_ptr();
        // SAFETY: The function table is not freed before the template is released.
        this.template = unsafe { bindings::srp_attach_transport(functions) };
        if this.template.is_null() {
            return Err(ENOMEM);
        }
        Ok(this)
    }
}

impl<T> Drop for Transport<T> {
    fn drop(&mut self) {
        if !self.template.is_null() {
            // SAFETY: By the type invariant, `srp_attach_transport()` returned the template. Hosts
            // hold a reference to this object until they and the contents of the template's
            // containers have been removed.
            unsafe { bindings::srp_release_transport(self.template) };
        }

        // SAFETY: By the type invariant, this object owns the table. The template that used it is
        // gone.
        drop(unsafe { KBox::from_raw(self.functions.as_ptr()) });
    }
}

// SAFETY: By the type invariant the template is registered until the object is dropped.
// `srp_timed_out()` is for hosts with a template of its class.
unsafe impl<T: 'static> super::Transport for Transport<T> {
    /// With fast_io_fail_tmo and dev_loss_tmo off, commands of a blocked device do not time out.
    const TIMED_OUT: Option<TimedOut> = Some(bindings::srp_timed_out);

    fn template(&self) -> *mut bindings::scsi_transport_template {
        self.template
    }

    unsafe fn remove_host(&self, shost: *mut bindings::Scsi_Host) {
        // SAFETY: By the safety requirements, `shost` was added with this template and is not
        // removed.
        unsafe { bindings::srp_remove_host(shost) };
    }
}

/// A host with this transport and any driver, for code that the driver depends on.
pub trait AnyHost<T: Operations>: Send + Sync {
    /// As [`Host::number`].
    fn number(&self) -> u32;

    /// Adds the host, with a remote port for `driver`. On error the host is removed.
    ///
    /// Errors: those of [`Host::add`] and [`Rport::add`].
    ///
    /// Context: process, may sleep.
    fn add_with_rport(
        self: Arc<Self>,
        parent: Option<&Device>,
        port_id: &[u8; 16],
        driver: Arc<T>,
    ) -> Result<Rport<T>>;

    /// As [`Host::scan`].
    fn scan(&self);

    /// As [`Host::rescan`].
    fn rescan(&self);

    /// As [`Host::request_timeout`].
    fn request_timeout(&self) -> Msecs;

    /// As [`Host::remove`].
    fn remove(&self);
}

impl<T: Operations, D: Driver<Transport = Transport<T>>> AnyHost<T> for Host<D> {
    fn number(&self) -> u32 {
        Host::number(self)
    }

    fn add_with_rport(
        self: Arc<Self>,
        parent: Option<&Device>,
        port_id: &[u8; 16],
        driver: Arc<T>,
    ) -> Result<Rport<T>> {
        Host::add(&self, parent)?;
        Rport::add(&self, port_id, driver)
    }

    fn scan(&self) {
        Host::scan(self);
    }

    fn rescan(&self) {
        Host::rescan(self);
    }

    fn request_timeout(&self) -> Msecs {
        Host::request_timeout(self)
    }

    fn remove(&self) {
        Host::remove(self);
    }
}

/// The remote port of a host.
///
/// Dropping it removes the host, see [`Host::remove`].
///
/// # Invariants
///
/// - `rport` is a port that was added for `host`, and this object has a reference to it.
/// - The port's `lld_data` is null or the pointer of `driver`.
pub struct Rport<T: Operations> {
    rport: NonNull<bindings::srp_rport>,
    driver: Arc<T>,
    host: Arc<dyn AnyHost<T>>,
}

// SAFETY: References are counted, the functions of the transport class do their own locking, and
// `T` is `Send` and `Sync`.
unsafe impl<T: Operations> Send for Rport<T> {}
// SAFETY: The functions of the transport class do their own locking, and `T` is `Sync`.
unsafe impl<T: Operations> Sync for Rport<T> {}

impl<T: Operations> Rport<T> {
    /// Adds the target port of a host. The port stays in sysfs until the host is removed.
    ///
    /// Errors: `ENODEV` if the host was not added or was removed, `ENOMEM`, or those of
    /// `device_add()`. On error the host is removed.
    ///
    /// Context: process, may sleep.
    pub fn add<D: Driver<Transport = Transport<T>>>(
        host: &Arc<Host<D>>,
        port_id: &[u8; 16],
        driver: Arc<T>,
    ) -> Result<Self> {
        let added = host.while_added(|shost| {
            // SAFETY: The host is added and stays so during the call, with a template of a
            // `Transport<T>`.
            unsafe { add_rport(shost, port_id) }
        });
        let rport = added.inspect_err(|_| host.remove())?;
        // INVARIANT: The port was added to this host, with a reference for this object. It has no
        // driver yet.
        let this = Self {
            rport,
            driver,
            host: host.clone(),
        };

        // INVARIANT: This is the pointer of `driver`.
        let driver = Arc::as_ptr(&this.driver).cast_mut();
        // SAFETY: By the type invariant the port is alive. Its attributes exist already, but
        // `lld_data` is only accessed atomically.
        unsafe { atomic_store(this.lld_data(), driver.cast(), Release) };
        Ok(this)
    }

    /// Reports the loss of the connection: blocks the devices and starts the timers.
    ///
    /// Context: process, may sleep.
    pub fn start_tl_fail_timers(&self) {
        // SAFETY: By the type invariant, the port is alive. The host exists as long as the port.
        unsafe { bindings::srp_start_tl_fail_timers(self.rport.as_ptr()) };
    }

    /// Reconnects the port: the class calls [`Operations::reconnect`].
    ///
    /// Errors: those of the driver, `ENODEV` if the port is lost, `EINTR` after a signal.
    ///
    /// Context: process, may sleep.
    pub fn reconnect(&self) -> Result {
        // SAFETY: By the type invariant, the port is alive. The host exists as long as the port.
        to_result(unsafe { bindings::srp_reconnect_rport(self.rport.as_ptr()) })
    }

    /// Returns whether the class considers the connection up: no loss was reported, or a reconnect
    /// has succeeded since. The value does not change during [`Operations::reconnect`].
    pub fn is_running(&self) -> bool {
        // SAFETY: By the type invariant the port is alive.
        let state = unsafe { &raw const (*self.rport.as_ptr()).state };
        // SAFETY: The port is alive; the class writes the field with one store.
        unsafe { state.read_volatile() == bindings::srp_rport_state_SRP_RPORT_RUNNING }
    }

    /// Returns the timeouts of the port.
    pub fn timeouts(&self) -> Timeouts {
        let rport = self.rport.as_ptr();
        let read = |field: *const ffi::c_int| {
            // SAFETY: By the type invariant the port is alive. An attribute writes to the field
            // with one store; a volatile read is one load.
            unsafe { field.read_volatile() }
        };
        Timeouts {
            // SAFETY: By the type invariant the port is alive.
            reconnect_delay: read(unsafe { &raw const (*rport).reconnect_delay }),
            // SAFETY: By the type invariant the port is alive.
            fast_io_fail_tmo: read(unsafe { &raw const (*rport).fast_io_fail_tmo }),
            // SAFETY: By the type invariant the port is alive.
            dev_loss_tmo: read(unsafe { &raw const (*rport).dev_loss_tmo }),
        }
    }

    /// Gives the port up permanently: unblocks the devices, fails their commands from now on, stops
    /// the timers and waits for running ones.
    ///
    /// Must be called before [`Host::remove`], which otherwise could wait for a command of a
    /// blocked device. It could also, during a reconnect, remove a device while its last writes
    /// could still complete. Must be called again afterwards, because a write to an attribute can
    /// restart the timer of [`Operations::reconnect`].
    ///
    /// Context: process, may sleep.
    pub fn stop(&self) {
        // SAFETY: By the type invariant, the port is alive. The host exists as long as the port.
        unsafe { bindings::srp_stop_rport_timers(self.rport.as_ptr()) };
    }

    fn lld_data(&self) -> *mut *mut ffi::c_void {
        // SAFETY: By the type invariant the port is alive.
        unsafe { &raw mut (*self.rport.as_ptr()).lld_data }
    }
}

impl<T: Operations> Drop for Rport<T> {
    fn drop(&mut self) {
        // After these two calls, no attribute and no timer can use the driver.
        self.host.remove();
        self.stop();
        // SAFETY: By the type invariant there is a reference to give back.
        unsafe { bindings::srp_rport_put(self.rport.as_ptr()) };
    }
}

/// Adds a port without a driver and takes a reference to it.
///
/// # Safety
///
/// `shost` was added with the template of a [`Transport`] and is not removed meanwhile.
unsafe fn add_rport(
    shost: *mut bindings::Scsi_Host,
    port_id: &[u8; 16],
) -> Result<NonNull<bindings::srp_rport>> {
    let mut identifiers = bindings::srp_rport_identifiers {
        port_id: *port_id,
        // CAST: The constant is 1.
        roles: bindings::SRP_RPORT_ROLE_TARGET as u8,
    };

    // SAFETY: By the safety requirements, `shost` was added and is not removed.
    let rport = from_err_ptr(unsafe { bindings::srp_rport_add(shost, &mut identifiers) })?;
    let rport = NonNull::new(rport).ok_or(ENOMEM)?;

    // SAFETY: The port was added just now, and stays until the host is removed.
    let dev = unsafe { &raw mut (*rport.as_ptr()).dev };
    // The class ignores errors from creating the port's child device and its files in sysfs.
    // SAFETY: The port stays until the host is removed. `complete` expects the child of a port.
    match unsafe { bindings::device_for_each_child(dev, core::ptr::null_mut(), Some(complete)) } {
        0 => {
            // The class would later remove the child device even though it was not added, and
            // crash.
            // SAFETY: The port stays until the host is removed. Its child is not in sysfs, so it
            // has no other user.
            unsafe { bindings::transport_destroy_device(dev) };
            return Err(ENOMEM);
        }
        1 => {}
        _ => return Err(ENOMEM),
    }

    // SAFETY: The port stays until the host is removed.
    unsafe { bindings::srp_rport_get(rport.as_ptr()) };
    Ok(rport)
}

/// Returns 1 if the child device of a port has `delete`, the file that is created last, and
/// `-ENOMEM` otherwise. Both end the iteration at the first child.
///
/// # Safety
///
/// `child` is in sysfs and stays there.
unsafe extern "C" fn complete(child: *mut bindings::device, _: *mut ffi::c_void) -> ffi::c_int {
    // SAFETY: By the safety requirements, `child` is in sysfs.
    let folder = unsafe { (*child).kobj.sd };
    // SAFETY: `child` stays in sysfs, and so does its directory.
    let file =
        unsafe { bindings::srp_helper_kernfs_find_and_get(folder.cast(), c"delete".as_char_ptr()) };
    if file.is_null() {
        return ENOMEM.to_errno();
    }
    // SAFETY: The reference was taken just now.
    unsafe { bindings::kernfs_put(file) };
    1
}

/// Returns the driver of a port; [`None`] in the short time before it is set.
///
/// # Safety
///
/// `rport` is a port of a [`Rport<T>`]. The drop of the `Rport` does not return while the result is
/// in use.
unsafe fn driver<'a, T: Operations>(rport: *mut bindings::srp_rport) -> Option<ArcBorrow<'a, T>> {
    // SAFETY: By the requirements of this function the port is alive.
    let lld_data = unsafe { &raw mut (*rport).lld_data };
    // SAFETY: `lld_data` is valid and only accessed atomically.
    let driver = unsafe { atomic_load(lld_data, Acquire) }.cast::<T>();
    if driver.is_null() {
        return None;
    }
    // SAFETY: By the type invariant of `Rport` this is the pointer of its `driver`, which it holds
    // until its drop has returned.
    Some(unsafe { ArcBorrow::from_raw(driver) })
}

/// # Safety
///
/// May only be called by the transport class for the `delete` attribute of a port of a
/// [`Rport<T>`], or when its `dev_loss_tmo` has passed.
unsafe extern "C" fn rport_delete_callback<T: Operations>(rport: *mut bindings::srp_rport) {
    // SAFETY: By the safety requirements, this is a port of a `Rport<T>`. The drop of the `Rport`
    // removes the attribute and then stops the timer; both wait for this call.
    if let Some(driver) = unsafe { driver::<T>(rport) } {
        T::rport_delete(driver);
    }
}

/// # Safety
///
/// May only be called by `srp_reconnect_rport()` for a port of a [`Rport<T>`].
unsafe extern "C" fn reconnect_callback<T: Operations>(
    rport: *mut bindings::srp_rport,
) -> ffi::c_int {
    // SAFETY: By the safety requirements, this is a port of a `Rport<T>`. The drop of the `Rport`
    // waits for the timer that calls this; the other caller, `Rport::reconnect`, has the `Rport`.
    let driver = unsafe { driver::<T>(rport) };
    let result = driver.map_or(Err(ENODEV), T::reconnect);
    if let (Some(driver), Err(_)) = (driver, result) {
        // The class counts this call as a failed attempt, and its delays grow with the count.
        let failed = i32::try_from(driver.failed_reconnects()).unwrap_or(i32::MAX);
        // SAFETY: By the safety requirements, the port is alive.
        let count = unsafe { &raw mut (*rport).failed_reconnects };
        // SAFETY: The count is a field of the port. `srp_reconnect_rport()` holds the mutex of the
        // port. The class's work item may increment the count without the mutex, in a single store;
        // this is one, too.
        unsafe { count.write_volatile(failed.max(1) - 1) };
    }
    if result.is_ok() {
        // The class leaves its reconnect timer armed, with an increased delay.
        // SAFETY: By the requirements of this function the port is alive; its work items are
        // initialised. The caller holds the mutex, under which the class sets this timer.
        unsafe { bindings::cancel_delayed_work(&raw mut (*rport).reconnect_work) };
    }
    result.err().map_or(0, |e| e.to_errno())
}

/// # Safety
///
/// May only be called by the transport class for a port of a [`Rport<T>`].
unsafe extern "C" fn terminate_io_callback<T: Operations>(rport: *mut bindings::srp_rport) {
    // SAFETY: By the safety requirements, the caller is a timer or a function of the `Rport`. The
    // drop of the `Rport` waits for the timers.
    if let Some(driver) = unsafe { driver::<T>(rport) } {
        T::terminate_io(driver);
    }
}

#[cfg(all(SRP_KUNIT, CONFIG_KUNIT))]
mod tests;
