// SPDX-License-Identifier: GPL-2.0

//! Clients of the RDMA core: told of every device that comes and goes.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! Not supported: more than one client in a module. `struct ib_client` has no room for a context,
//! so the context is the module's.
//!
//! # Examples
//!
//! ```
//! use ib_srp::rdma::{
//!     client::{Client, Registration},
//!     device::Device,
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
//!     fn add(&self, device: &Device) -> Result<Arc<Pd>> {
//!         Pd::new(device.hold()?)
//!     }
//!
//!     fn remove(&self, _: &Device, pd: Arc<Pd>, _unplugged: bool) {
//!         // Whatever else has the domain must let it go first.
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
    device::Device,
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
    prelude::*,
    str::CStr,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// A client. The value is the context that its callbacks get.
pub trait Client: Send + Sync + 'static {
    /// The name of the client.
    const NAME: &'static CStr;

    /// What the client keeps for each device.
    type Data: ForeignOwnable + Send + Sync;

    /// A device came. May sleep.
    ///
    /// # Errors
    ///
    /// On any error the client is not told of the device again; with a line in the log unless
    /// it is `EOPNOTSUPP`.
    fn add(&self, device: &Device) -> Result<Self::Data>;

    /// A device goes, if `unplugged`, or the client does.
    ///
    /// Must return only when nothing uses the device any more. May sleep.
    fn remove(&self, device: &Device, data: Self::Data, unplugged: bool);

    /// The device got another name. May sleep.
    fn rename(&self, device: &Device, data: <Self::Data as ForeignOwnable>::Borrowed<'_>);
}

/// The address of the one registration of this module, or 0.
static REGISTRATION: Atomic<usize> = Atomic::new(0);

/// A registered client. Dropping it removes the client from every device and waits for that, and
/// until the module has no guard of a device and no identifier of `rdma_cm`: for ever, if one was
/// forgotten.
///
/// # Invariants
///
/// If `registered`, `client` is registered and [`REGISTRATION`] is the address of this object, which
/// does not move.
#[pin_data(PinnedDrop)]
pub struct Registration<C: Client> {
    #[pin]
    client: Opaque<bindings::ib_client>,
    registered: Atomic<bool>,
    /// The client is being removed from all devices.
    leaving: Atomic<bool>,
    context: C,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Registration and its end are not tied to a thread.
unsafe impl<C: Client> Send for Registration<C> {}
// SAFETY: A shared registration gives access to nothing.
unsafe impl<C: Client> Sync for Registration<C> {}

impl<C: Client> Registration<C> {
    /// Registers a client; it is told of all devices there are before this returns. May sleep.
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
            registered: Atomic::new(false),
            leaving: Atomic::new(false),
            context,
            _pin: PhantomPinned,
        })
        .pin_chain(|this| {
            let address = core::ptr::from_ref(&*this).expose_provenance();
            REGISTRATION.cmpxchg(0, address, Full).map_err(|_| EBUSY)?;
            // SAFETY: The client is initialised and pinned, and stays so until `drop` has removed
            // it. What its callbacks use is set.
            let result = to_result(unsafe { bindings::ib_register_client(this.client.get()) });
            match result {
                // INVARIANT: Both have just been set.
                Ok(()) => this.registered.store(true, Relaxed),
                // The core has removed the client from the devices that it had added it to.
                Err(_) => REGISTRATION.store(0, Relaxed),
            }
            result
        })
    }

    /// # Safety
    ///
    /// Only to be called in a callback of the client.
    unsafe fn this<'a>() -> &'a Self {
        let address = REGISTRATION.load(Relaxed);
        // SAFETY: By the type invariant, or in `new` while it registers. There is one registration,
        // and it waits for the callbacks before it goes.
        unsafe { &*core::ptr::with_exposed_provenance(address) }
    }

    /// # Safety
    ///
    /// Called by the core with a device that is being registered.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> i32 {
        // SAFETY: This is a callback.
        let this = unsafe { Self::this() };
        // SAFETY: The device is registered for the duration of the call.
        let device = unsafe { Device::from_raw(device) };
        from_result(|| {
            let data = this.context.add(device).inspect_err(|e| {
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
            // SAFETY: The core adds a client to a device once, and takes the data back in `remove`.
            unsafe { bindings::ib_set_client_data(device.as_raw(), client, data) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core with a device that `add` was called for, and the data it set.
    unsafe extern "C" fn remove(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        if data.is_null() {
            return;
        }
        // SAFETY: This is a callback.
        let this = unsafe { Self::this() };
        // SAFETY: The core waits for this call before it unregisters the device.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` was made by `add`, and the core calls `remove` once for it.
        let data = unsafe { C::Data::from_foreign(data) };
        this.context
            .remove(device, data, !this.leaving.load(Relaxed));
    }

    /// # Safety
    ///
    /// Called by the core with a device that `add` was called for, and the data it set.
    unsafe extern "C" fn rename(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        if data.is_null() {
            return;
        }
        // SAFETY: This is a callback.
        let this = unsafe { Self::this() };
        // SAFETY: The core does not rename a device while it unregisters it.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` was made by `add`, and is not taken back during this call.
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
        self.leaving.store(true, Relaxed);
        // SAFETY: By the type invariant the client is registered. The call waits for `remove` of
        // every device, and no callback runs after it.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        REGISTRATION.store(0, Relaxed);
        // The module goes next, and with it the functions that they lead to.
        USERS.wait();
    }
}
