// SPDX-License-Identifier: GPL-2.0

//! Clients of the RDMA core, which notifies them of each device that is added or removed.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! Not supported: more than one client in a module. `struct ib_client` has no room for a context,
//! so the context is global to the module.
//!
//! The core does not call [`Client::remove`] again for a device that is removed while the client is
//! being unregistered. So a second `struct ib_client` marks the [`Health`] of each removed device.
//! The core notifies it first, and it stays registered until the client is unregistered.
//!
//! # Examples
//!
//! ```
//! use ib_srp::rdma::{
//!     client::{Client, Registration},
//!     device::{Device, Health},
//!     pd::Pd,
//! };
//! use kernel::{
//!     prelude::*,
//!     str::CStr,
//!     sync::{Arc, ArcBorrow},
//! };
//!
//! struct Example;
//!
//! impl Client for Example {
//!     const NAME: &'static CStr = c"example";
//!     type Data = Arc<Pd>;
//!
//!     fn add(&self, device: &Device, health: &Arc<Health>) -> Result<Arc<Pd>> {
//!         Pd::of(device.hold()?, health.clone())
//!     }
//!
//!     fn remove(&self, _: &Device, pd: Arc<Pd>, _: &Health) {
//!         // All other references to the domain must be dropped first.
//!         drop(pd);
//!     }
//!
//!     fn rename(&self, _: &Device, _: ArcBorrow<'_, Pd>) {}
//! }
//!
//! fn register() -> Result<Pin<KBox<Registration<Example>>>> {
//!     KBox::try_pin_init(Registration::new(Example), GFP_KERNEL)
//! }
//! ```

use super::{
    device::{
        Device,
        Health, //
    },
    users::USERS, //
};
use crate::{
    bindings,
    errno::EOPNOTSUPP, //
};
use core::marker::PhantomPinned;
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// A client. The value is the context of its callbacks.
pub trait Client: Send + Sync + 'static {
    /// The name of the client.
    const NAME: &'static CStr;

    /// Data of the client for one device.
    type Data: ForeignOwnable + Send + Sync;

    /// Called when a device is added. `health` is marked when the device is removed. May sleep.
    ///
    /// # Errors
    ///
    /// After an error the client gets no further callbacks for the device. Errors except
    /// `EOPNOTSUPP` are logged.
    fn add(&self, device: &Device, health: &Arc<Health>) -> Result<Self::Data>;

    /// Called when the device is removed ([`Health::is_going`] is true), or when the client is
    /// unregistered. In the latter case the removal of the device may begin before this returns.
    ///
    /// Must return only when nothing uses the device. May sleep.
    fn remove(&self, device: &Device, data: Self::Data, health: &Health);

    /// The device was renamed. May sleep.
    fn rename(&self, device: &Device, data: <Self::Data as ForeignOwnable>::Borrowed<'_>);
}

/// The address of the one registration of this module, or 0.
static REGISTRATION: Atomic<usize> = Atomic::new(0);

/// A registered client. Dropping it removes the client from every device, and waits until the
/// module has no device guard and no `rdma_cm` identifier: forever, if one was leaked.
///
/// # Invariants
///
/// If `registered` is set, `client` and `watch` are registered, in this order, and [`REGISTRATION`]
/// is the address of this object, which does not move.
#[pin_data(PinnedDrop)]
pub struct Registration<C: Client> {
    #[pin]
    client: Opaque<bindings::ib_client>,
    /// Registered after `client`: the core notifies clients of a removal in reverse order.
    #[pin]
    watch: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    /// The address and the health of each device of the client.
    #[pin]
    devices: Mutex<KVec<(usize, Arc<Health>)>>,
    context: C,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Registration and unregistration are not tied to a thread.
unsafe impl<C: Client> Send for Registration<C> {}
// SAFETY: `&Registration` has no methods, and the context that callbacks share is `Sync`.
unsafe impl<C: Client> Sync for Registration<C> {}

impl<C: Client> Registration<C> {
    /// Registers a client, which is notified of all present devices before this returns. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the module has a client already, `ENOMEM`.
    pub fn new(context: C) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            client <- Opaque::ffi_init(|slot: *mut bindings::ib_client| {
                let client = bindings::ib_client {
                    name: C::NAME.as_char_ptr(),
                    add: Some(Self::add),
                    remove: Some(Self::remove),
                    rename: Some(Self::rename),
                    ..Default::default()
                };
                // SAFETY: `slot` is valid for writing.
                unsafe { slot.write(client) };
            }),
            watch <- Opaque::ffi_init(|slot: *mut bindings::ib_client| {
                let client = bindings::ib_client {
                    name: C::NAME.as_char_ptr(),
                    remove: Some(Self::goes),
                    ..Default::default()
                };
                // SAFETY: `slot` is valid for writing.
                unsafe { slot.write(client) };
            }),
            registered: Atomic::new(false),
            devices <- new_mutex!(KVec::new(), "Registration::devices"),
            context,
            _pin: PhantomPinned,
        })
        .pin_chain(|this| {
            let address = core::ptr::from_ref(&*this).expose_provenance();
            REGISTRATION.cmpxchg(0, address, Full).map_err(|_| EBUSY)?;
            // SAFETY: `client` is initialised, and pinned until it is unregistered. The fields that
            // its callbacks use are set.
            let result = to_result(unsafe { bindings::ib_register_client(this.client.get()) });
            let result = result.and_then(|()| {
                // SAFETY: `watch` is initialised, and pinned until `drop` has unregistered it. The
                // fields that its callbacks use are set.
                to_result(unsafe { bindings::ib_register_client(this.watch.get()) }).inspect_err(
                    // SAFETY: `client` has just been registered.
                    |_| unsafe { bindings::ib_unregister_client(this.client.get()) },
                )
            });
            match result {
                // INVARIANT: Both clients are registered, and `REGISTRATION` is set.
                Ok(()) => this.registered.store(true, Relaxed),
                // The core has removed `client` from all devices.
                Err(_) => REGISTRATION.store(0, Relaxed),
            }
            result
        })
    }

    /// # Safety
    ///
    /// Must be called in a callback of `client` or `watch`.
    unsafe fn this<'a>() -> &'a Self {
        let address = REGISTRATION.load(Relaxed);
        // SAFETY: Callbacks run only while `REGISTRATION` is the address of the pinned
        // registration. Its drop waits for them.
        unsafe { &*core::ptr::with_exposed_provenance(address) }
    }

    /// # Safety
    ///
    /// Only the core may call this, with a device that is being registered.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> i32 {
        // SAFETY: This is a callback of `client`.
        let this = unsafe { Self::this() };
        // SAFETY: The device is registered for the duration of the call.
        let device = unsafe { Device::from_raw(device) };
        from_result(|| {
            let data = this.know(device).inspect_err(|e| {
                if *e != EOPNOTSUPP {
                    pr_warn!(
                        "{}: the device is not used: error {}\n",
                        format_args!("{}", device.name()),
                        e.to_errno()
                    );
                }
            })?;
            let data = data.into_foreign();
            let client = this.client.get();
            // SAFETY: The core adds a client to a device once, and passes the data to `remove`.
            unsafe { bindings::ib_set_client_data(device.as_raw(), client, data) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only the core may call this, with a device that `add` was called for, and the data that
    /// `add` set.
    unsafe extern "C" fn remove(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        if data.is_null() {
            return;
        }
        // SAFETY: This is a callback of `client`.
        let this = unsafe { Self::this() };
        // SAFETY: The core waits for this call before it unregisters the device.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` is from `add`, and the core calls `remove` once for it.
        let data = unsafe { C::Data::from_foreign(data) };
        if let Some(health) = this.health(device) {
            this.context.remove(device, data, &health);
        }
        this.forget(device);
    }

    /// # Safety
    ///
    /// Only the core may call this, with a device that is being removed, or when `watch` is
    /// unregistered.
    unsafe extern "C" fn goes(device: *mut bindings::ib_device, _: *mut core::ffi::c_void) {
        // SAFETY: This is a callback of `watch`.
        let this = unsafe { Self::this() };
        // SAFETY: The core waits for this call before it unregisters the device.
        let device = unsafe { Device::from_raw(device) };
        // When `watch` is unregistered, `devices` is already empty.
        if let Some(health) = this.health(device) {
            health.go();
        }
    }

    /// Adds a device to `devices` and calls [`Client::add`]. Undone on error.
    fn know(&self, device: &Device) -> Result<C::Data> {
        let health = Health::new()?;
        let entry = (device.as_raw().addr(), health.clone());
        self.devices.lock().push(entry, GFP_KERNEL)?;
        self.context
            .add(device, &health)
            .inspect_err(|_| self.forget(device))
    }

    fn health(&self, device: &Device) -> Option<Arc<Health>> {
        let devices = self.devices.lock();
        let (_, health) = devices.iter().find(|d| d.0 == device.as_raw().addr())?;
        Some(health.clone())
    }

    fn forget(&self, device: &Device) {
        self.devices
            .lock()
            .retain(|d| d.0 != device.as_raw().addr());
    }

    /// # Safety
    ///
    /// Only the core may call this, with a device that `add` was called for, and the data that
    /// `add` set.
    unsafe extern "C" fn rename(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        if data.is_null() {
            return;
        }
        // SAFETY: This is a callback of `client`.
        let this = unsafe { Self::this() };
        // SAFETY: The core does not rename a device while it unregisters it.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` is from `add`, and `remove` does not run during this call.
        let data = unsafe { C::Data::borrow(data) };
        this.context.rename(device, data);
    }
}

#[pinned_drop]
impl<C: Client> PinnedDrop for Registration<C> {
    fn drop(self: Pin<&mut Self>) {
        if !self.registered.load(Relaxed) {
            return;
        }
        // SAFETY: By the type invariant the client is registered. The call waits for `remove` of
        // every device, and no callback runs after it.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        // SAFETY: By the type invariant `watch` is registered.
        unsafe { bindings::ib_unregister_client(self.watch.get()) };
        REGISTRATION.store(0, Relaxed);
        // The module may be unloaded next, with the callbacks of these objects.
        USERS.wait();
    }
}
