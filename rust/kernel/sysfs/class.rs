// SPDX-License-Identifier: GPL-2.0

//! Device classes and the devices in them.

use super::{
    AttributeGroup,
    Container, //
};
use crate::{
    bindings,
    compat,
    net::SysfsTag,
    sync::Completion, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    device::Device,
    error::to_result,
    fmt,
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

/// A device class, a directory under `/sys/class`, for devices with data `T`.
///
/// The devices of the class hold references to it. Dropping the last reference unregisters the
/// class, which sleeps.
///
/// # Invariants
///
/// `class` is registered, and its `dev_groups` are attributes of `ClassDevice<T>`.
#[pin_data(PinnedDrop)]
pub struct Class<T> {
    #[pin]
    class: Opaque<bindings::class>,
    _devices: PhantomData<fn(T)>,
}

// SAFETY: A `struct class` is not bound to a thread.
unsafe impl<T> Send for Class<T> {}
// SAFETY: The functions on a `struct class` do their own locking.
unsafe impl<T> Sync for Class<T> {}

impl<T: Send + Sync + 'static> Class<T> {
    /// Registers the class `name`, for devices with `attributes`. Sleeps.
    ///
    /// # Errors
    ///
    /// [`EEXIST`] if there is a class of that name, [`ENOMEM`].
    pub fn new(
        name: &'static CStr,
        attributes: &'static AttributeGroup<ClassDevice<T>>,
    ) -> Result<Arc<Self>> {
        Self::register(name, attributes, None)
    }

    /// As [`new`](Self::new), with each device in a network namespace. Other namespaces do not show
    /// the device, and may have one of the same name.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn in_namespaces(
        name: &'static CStr,
        attributes: &'static AttributeGroup<ClassDevice<T>>,
    ) -> Result<Arc<Self>>
    where
        T: Namespaced,
    {
        Self::register(name, attributes, Some(namespace::<T>))
    }

    fn register(
        name: &'static CStr,
        attributes: &'static AttributeGroup<ClassDevice<T>>,
        namespace: Option<
            unsafe extern "C" fn(*const bindings::device) -> *const compat::NamespaceTag,
        >,
    ) -> Result<Arc<Self>> {
        let init = try_pin_init!(Self {
            // INVARIANT: The class is registered here, at its final address, with these attributes.
            class <- Opaque::try_ffi_init(|slot: *mut bindings::class| {
                let mut class: bindings::class = pin_init::zeroed();
                class.name = name.as_char_ptr();
                class.dev_groups = attributes.as_raw().cast_mut();
                if namespace.is_some() {
                    class.ns_type = &raw const bindings::net_ns_type_operations;
                    class.namespace = namespace;
                }
                // SAFETY: `slot` is valid for writes.
                unsafe { slot.write(class) };
                // SAFETY: The class has been initialised, and stays in place until it is
                // unregistered.
                to_result(unsafe { bindings::class_register(slot) })
            }),
            _devices: PhantomData,
        }? Error);
        Arc::pin_init(init, GFP_KERNEL)
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Class<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant, the class is registered. Its devices are gone, because
        // each holds a reference until it is released.
        unsafe { bindings::class_unregister(self.class.get()) };
    }
}

/// The data of devices of a class [in namespaces](Class::in_namespaces).
pub trait Namespaced {
    /// Returns the network namespace of the device, which never changes. Any context.
    fn namespace(&self) -> SysfsTag<'_>;
}

/// The memory of a [`ClassDevice`].
#[pin_data]
struct Inner<T> {
    #[pin]
    dev: Opaque<bindings::device>,
    /// Completed when the last reference to `dev` is gone.
    #[pin]
    released: Completion,
    /// Held while the name changes.
    #[pin]
    naming: Mutex<()>,
    #[pin]
    data: T,
}

/// A device of a [`Class`], an owned `struct device` with `T` as the data of its attributes.
///
/// Dropping it is the barrier: it removes the device (`device_del`), which waits for running `show`
/// and `store` functions and prevents new ones; then waits until the last reference to the `struct
/// device` is put; then drops `T`. It sleeps, and must not happen in a `show` or `store` of this
/// device.
///
/// # Invariants
///
/// - `inner` is valid, owned, pinned, and `inner.dev` is initialised by `device_initialize`, with
///   one reference that belongs to this object, and `release` as its release function.
/// - `inner.dev` is added if and only if `added`.
pub struct ClassDevice<T: Send + Sync + 'static> {
    inner: NonNull<Inner<T>>,
    added: bool,
    _class: Arc<Class<T>>,
}

// SAFETY: A `struct device` is not bound to a thread, and `T` is `Send`.
unsafe impl<T: Send + Sync + 'static> Send for ClassDevice<T> {}
// SAFETY: The functions on a `struct device` do their own locking, and `T` is `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for ClassDevice<T> {}

impl<T: Send + Sync + 'static> ClassDevice<T> {
    /// Creates the device `name` and adds it under `parent` and to the class. Sleeps.
    ///
    /// The attributes may be accessed before this returns.
    ///
    /// # Errors
    ///
    /// [`EEXIST`] if `parent` or the class has a device of that name, [`EINVAL`] if a `Display`
    /// implementation in `name` fails, [`ENOMEM`], and the errors of `data`.
    pub fn new<E>(
        class: &Arc<Class<T>>,
        parent: Option<&Device>,
        name: fmt::Arguments<'_>,
        data: impl PinInit<T, E>,
    ) -> Result<Self>
    where
        Error: From<E>,
    {
        let name = CString::try_from_fmt(name)?;
        let init = try_pin_init!(Inner {
            dev: Opaque::zeroed(),
            released <- Completion::new(),
            naming <- new_mutex!((), "ClassDevice::naming"),
            data <- data,
        }? Error);
        let inner = KBox::pin_init::<Error>(init, GFP_KERNEL)?;
        // SAFETY: The value is not moved until it is dropped, in `drop`.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // SAFETY: `inner` points at a valid value.
        let dev = unsafe { (*inner).dev.get() };
        // SAFETY: `dev` is zeroed, as `device_initialize` expects.
        unsafe { bindings::device_initialize(dev) };
        // SAFETY: The device has no other user yet.
        unsafe { (*dev).release = Some(release::<T>) };
        // SAFETY: The device has no other user yet. `_class` below keeps the class until the device
        // has been released.
        unsafe { (*dev).class = class.class.get() };
        if let Some(parent) = parent {
            // CAST: `Device` is a transparent wrapper of `struct device`.
            let parent = core::ptr::from_ref(parent).cast_mut().cast();
            // SAFETY: The device has no other user yet. `device_add` takes a reference to the
            // parent, which the caller keeps until then.
            unsafe { (*dev).parent = parent };
        }
        // INVARIANT: The device was initialised above, and is not added yet.
        let mut this = Self {
            // SAFETY: `inner` comes from a `KBox`.
            inner: unsafe { NonNull::new_unchecked(inner) },
            added: false,
            _class: class.clone(),
        };
        // SAFETY: The device is initialised, and both strings are C strings that the call copies.
        to_result(unsafe { bindings::dev_set_name(dev, c"%s".as_char_ptr(), name.as_char_ptr()) })?;
        // SAFETY: The device is initialised and has its name. The data for its attributes is in
        // place: `T` is initialised, and the attributes are those of `ClassDevice<T>`, by the type
        // invariant of `Class`.
        to_result(unsafe { bindings::device_add(dev) })?;
        // INVARIANT: The device has just been added.
        this.added = true;
        Ok(this)
    }

    /// Renames the device. Sleeps. Calls are serialised.
    ///
    /// # Errors
    ///
    /// [`EEXIST`] if there is a device of that name, [`ENOMEM`].
    pub fn rename(&self, name: fmt::Arguments<'_>) -> Result {
        let name = CString::try_from_fmt(name)?;
        // SAFETY: By the type invariant `inner` is valid.
        let _naming = unsafe { self.inner.as_ref() }.naming.lock();
        // SAFETY: By the type invariants the device is added, because `new` returns only added
        // devices, and the name is a C string that the call copies. The lock serialises the calls.
        to_result(unsafe { bindings::device_rename(self.dev(), name.as_char_ptr()) })
    }

    fn dev(&self) -> *mut bindings::device {
        // SAFETY: By the type invariant `inner` is valid.
        unsafe { self.inner.as_ref() }.dev.get()
    }
}

impl<T: Send + Sync + 'static> core::ops::Deref for ClassDevice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariant `inner` is valid.
        &unsafe { self.inner.as_ref() }.data
    }
}

impl<T: Send + Sync + 'static> Drop for ClassDevice<T> {
    fn drop(&mut self) {
        let dev = self.dev();
        if self.added {
            // SAFETY: By the type invariant, the device is added. It is removed only once.
            unsafe { bindings::device_del(dev) };
        }
        // SAFETY: By the type invariant this object has a reference, which is not used again.
        unsafe { bindings::put_device(dev) };
        // SAFETY: `inner` is valid until the end of this function. Without this wait the module
        // could be unloaded before `release` runs.
        unsafe { self.inner.as_ref() }.released.wait();
        // SAFETY: `inner` came from a `KBox`, the device in it has been released, and `release` was
        // the last to access it.
        drop(unsafe { Pin::new_unchecked(KBox::from_raw(self.inner.as_ptr())) });
    }
}

impl<T: Send + Sync + 'static> Container for ClassDevice<T> {
    type Data = T;

    unsafe fn data<'a>(dev: *mut bindings::device) -> &'a T {
        // SAFETY: By the safety requirements, `dev` is the device of a `ClassDevice<T>`. An access
        // to an attribute ends before `device_del` returns, and so before the data is dropped.
        &unsafe { &*inner_of::<T>(dev) }.data
    }
}

/// Returns the [`Inner`] that contains the device.
///
/// # Safety
///
/// `dev` is the device of a `ClassDevice<T>`.
unsafe fn inner_of<T>(dev: *mut bindings::device) -> *const Inner<T> {
    let dev: *const Opaque<bindings::device> = Opaque::cast_from(dev);
    // SAFETY: By the safety requirements, `dev` is the device of a `ClassDevice<T>`, which is in an
    // `Inner<T>`.
    unsafe { container_of!(dev.cast_mut(), Inner<T>, dev) }
}

/// Returns the namespace of the device in an [`Inner`].
///
/// # Safety
///
/// `dev` is the device of a `ClassDevice<T>`, and its data has not been dropped.
unsafe extern "C" fn namespace<T: Namespaced>(
    dev: *const bindings::device,
) -> *const compat::NamespaceTag {
    // SAFETY: By the safety requirements, `dev` is in an `Inner<T>` that has its data.
    let inner = unsafe { &*inner_of::<T>(dev.cast_mut()) };
    inner.data.namespace().as_raw()
}

/// The release function of the device in an [`Inner`].
///
/// # Safety
///
/// `dev` is the device of a `ClassDevice<T>`, and its last reference is gone.
unsafe extern "C" fn release<T>(dev: *mut bindings::device) {
    // SAFETY: By the safety requirements, `dev` is in an `Inner<T>`, which is only freed after this
    // call.
    unsafe { &*inner_of::<T>(dev) }.released.complete_all();
}

#[cfg(SRP_KUNIT)]
#[kernel::prelude::kunit_tests(srp_class)]
mod tests {
    use super::*;
    use crate::{
        sync::race::race,
        sysfs::{
            attribute_group,
            Page, //
        }, //
    };
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    /// Number of renames that failed.
    struct Failed(Atomic<u32>);

    impl Failed {
        fn show(&self, page: &mut Page<'_>) -> Result {
            page.emit(fmt!("{}\n", self.0.load(Relaxed)))
        }
    }

    attribute_group! {
        static ATTRIBUTES: ClassDevice<Failed> {
            failed: 0o444, show = Failed::show;
        }
    }

    fn rename(device: &ClassDevice<Failed>, whose: &str) {
        for round in 0..100 {
            let renamed = device.rename(fmt!("srp_test_{}_{}", whose, round % 2));
            if renamed.is_err() {
                device.0.add(1, Relaxed);
            }
        }
    }

    fn one(device: &ClassDevice<Failed>) {
        rename(device, "one");
    }

    fn other(device: &ClassDevice<Failed>) {
        rename(device, "other");
    }

    #[test]
    fn a_device_is_renamed_by_one_at_a_time() -> Result {
        let class = Class::new(c"srp_test_class", &ATTRIBUTES)?;
        let failed = Failed(Atomic::new(0));
        let device = ClassDevice::new(&class, None, fmt!("srp_test"), failed)?;
        let device = Arc::new(device, GFP_KERNEL)?;
        race(&device, &[one, other])?;
        assert_eq!(device.0.load(Relaxed), 0);
        Ok(())
    }
}
