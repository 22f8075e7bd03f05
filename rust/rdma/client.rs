// SPDX-License-Identifier: GPL-2.0

//! Clients of the RDMA core: told of every device that comes and goes.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! Not supported: more than one client in a module. `struct ib_client` has no room for a context,
//! so the context is the module's.

use super::device::Device;
use crate::bindings;
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
    /// On any error the client is not told of the device again; `EOPNOTSUPP` is the quiet one.
    fn add(&self, device: &Device) -> Result<Self::Data>;

    /// A device goes, or the client does.
    ///
    /// Must return only when nothing uses the device any more. May sleep.
    fn remove(&self, device: &Device, data: Self::Data);

    /// The device got another name. May sleep.
    fn rename(&self, device: &Device, data: <Self::Data as ForeignOwnable>::Borrowed<'_>);
}

/// The context of the one registration of this module, or null.
static CONTEXT: Atomic<usize> = Atomic::new(0);

/// A registered client. Dropping it removes the client from every device and waits for that.
///
/// # Invariants
///
/// `client` is registered, and [`CONTEXT`] is the address of `context`.
#[pin_data(PinnedDrop)]
pub struct Registration<C: Client> {
    #[pin]
    client: Opaque<bindings::ib_client>,
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
                // SAFETY: `slot` is valid for writing, and all zeroes is a valid `ib_client`.
                unsafe { slot.write(bindings::ib_client::default()) };
                // SAFETY: `slot` was just written.
                let client = unsafe { &mut *slot };
                client.name = C::NAME.as_char_ptr();
                client.add = Some(Self::add);
                client.remove = Some(Self::remove);
                client.rename = Some(Self::rename);
            }),
            context,
            _pin: PhantomPinned,
        })
        .pin_chain(|this| {
            let address = core::ptr::from_ref(&this.context) as usize;
            CONTEXT.cmpxchg(0, address, Full).map_err(|_| EBUSY)?;
            // SAFETY: The client is initialised and pinned, and stays so until `drop` has removed
            // it. The context that its callbacks use is set.
            let result = to_result(unsafe { bindings::ib_register_client(this.client.get()) });
            if result.is_err() {
                CONTEXT.store(0, Relaxed);
            }
            // INVARIANT: On success both are set.
            result
        })
    }

    /// # Safety
    ///
    /// Only to be called while the client is registered.
    unsafe fn context<'a>() -> &'a C {
        // SAFETY: By the type invariant of the registration, of which there is one, and which waits
        // for the callbacks before it goes.
        unsafe { &*(CONTEXT.load(Relaxed) as *const C) }
    }

    /// # Safety
    ///
    /// Called by the core with a device that is being registered.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> i32 {
        // SAFETY: The core calls while the client is registered.
        let context = unsafe { Self::context() };
        // SAFETY: The device is registered for the duration of the call.
        let device = unsafe { Device::from_raw(device) };
        from_result(|| {
            let data = context.add(device)?.into_foreign();
            // SAFETY: The core adds a client to a device once, and takes the data back in `remove`.
            // `client` is the first field of the registration that `context` is in.
            unsafe { bindings::ib_set_client_data(device.as_raw(), client_of(context), data) };
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
        // SAFETY: The core calls while the client is registered.
        let context = unsafe { Self::context() };
        // SAFETY: The core waits for this call before it unregisters the device.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` was made by `add`, and the core calls `remove` once for it.
        context.remove(device, unsafe { C::Data::from_foreign(data) });
    }

    /// # Safety
    ///
    /// Called by the core with a device that `add` was called for, and the data it set.
    unsafe extern "C" fn rename(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        if data.is_null() {
            return;
        }
        // SAFETY: The core calls while the client is registered.
        let context = unsafe { Self::context() };
        // SAFETY: The core does not rename a device while it unregisters it.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: `data` was made by `add`, and is not taken back during this call.
        context.rename(device, unsafe { C::Data::borrow(data) });
    }
}

/// The `ib_client` of the registration that `context` is a field of.
fn client_of<C: Client>(context: &C) -> *mut bindings::ib_client {
    let offset = core::mem::offset_of!(Registration<C>, context);
    // SAFETY: `context` is a field of a `Registration`, by the invariant of `CONTEXT`.
    let registration = unsafe { core::ptr::from_ref(context).byte_sub(offset) };
    let registration = registration.cast::<Registration<C>>();
    // SAFETY: The registration is valid.
    Opaque::cast_into(unsafe { &raw const (*registration).client })
}

#[pinned_drop]
impl<C: Client> PinnedDrop for Registration<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the client is registered. The call waits for `remove` of
        // every device, and no callback runs after it.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        CONTEXT.store(0, Relaxed);
    }
}
