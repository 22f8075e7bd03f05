// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices.

use crate::{
    bindings,
    compat, //
};
use core::{
    fmt::Write,
    marker::PhantomData, //
};
use kernel::{
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    str::as_char_ptr_in_const_context,
    types::Opaque, //
};

/// A type of objects with a `struct device`, so that attributes of the device are functions on
/// [`Container::Data`].
///
/// Registering the device of a container takes an [`AttributeGroup`] of the same container, which
/// ties the two together.
pub trait Container: 'static {
    /// The argument of the attribute functions.
    type Data: Sync + 'static;

    /// Returns the data of the container of `dev`.
    ///
    /// # Safety
    ///
    /// `dev` is the device of a container of this type and an attribute of it is being accessed;
    /// the access lasts at least for `'a`.
    unsafe fn data<'a>(dev: *mut bindings::device) -> &'a Self::Data;
}

/// The text that an attribute shows. It is truncated to one byte less than a page, as in
/// `sysfs_emit`.
///
/// Writing with `write!` never fails.
pub struct Page<'a> {
    free: &'a mut [u8],
    len: usize,
}

impl<'a> Page<'a> {
    fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            free: buffer,
            len: 0,
        }
    }

    /// Returns how many bytes can be appended before the text is truncated.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Appends a formatted text, as in `page.emit(fmt!("{}\n", value))`.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if a `Display` implementation in `args` fails.
    pub fn emit(&mut self, args: fmt::Arguments<'_>) -> Result {
        Ok(self.write_fmt(args)?)
    }
}

impl Write for Page<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = text.len().min(self.free.len());
        let (to, free) = core::mem::take(&mut self.free).split_at_mut(len);
        for (to, from) in to.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        self.free = free;
        self.len += len;
        Ok(())
    }
}

/// Describes an attribute; implemented by [`attribute_group!`] only.
#[doc(hidden)]
pub trait Operations {
    /// The container that the attribute belongs to.
    type Container: Container;

    /// The name of the file.
    const NAME: &'static CStr;
    /// The permissions of the file.
    const MODE: u16;
    /// Whether `show` is implemented.
    const HAS_SHOW: bool = false;
    /// Whether `store` is implemented.
    const HAS_STORE: bool = false;

    /// Writes the value of the attribute to the page.
    fn show(_data: &<Self::Container as Container>::Data, _page: &mut Page<'_>) -> Result {
        Err(EIO)
    }

    /// Sets a new value.
    fn store(_data: &<Self::Container as Container>::Data, _text: &[u8]) -> Result {
        Err(EIO)
    }
}

/// A `struct device_attribute`.
///
/// # Invariants
///
/// The callbacks are those of an [`Operations`] with the container `C`.
#[doc(hidden)]
#[repr(transparent)]
pub struct Attribute<C>(Opaque<bindings::device_attribute>, PhantomData<fn(C)>);

// SAFETY: The only possible operation is taking its address.
unsafe impl<C> Sync for Attribute<C> {}

impl<C: Container> Attribute<C> {
    /// Creates the attribute that `O` describes.
    pub const fn new<O: Operations<Container = C>>() -> Self {
        const {
            assert!(O::MODE & !0o644 == 0, "only 0o644 and less");
            assert!(
                (O::MODE & 0o444 != 0) == O::HAS_SHOW,
                "readable if and only if it has show"
            );
            assert!(
                (O::MODE & 0o200 != 0) == O::HAS_STORE,
                "writable if and only if it has store"
            );
        }
        let mut attribute: bindings::device_attribute = pin_init::zeroed();
        attribute.attr.name = as_char_ptr_in_const_context(O::NAME);
        attribute.attr.mode = O::MODE;
        if O::HAS_SHOW {
            compat::attribute::set_show(&mut attribute, show::<O>);
        }
        if O::HAS_STORE {
            compat::attribute::set_store(&mut attribute, store::<O>);
        }
        // INVARIANT: `O::Container` is `C`.
        Self(Opaque::new(attribute), PhantomData)
    }
}

/// # Safety
///
/// `dev` is the device of an `O::Container` and is being accessed through sysfs; `page` points at
/// `PAGE_SIZE` initialised bytes that are not accessed by others.
unsafe extern "C" fn show<O: Operations>(
    dev: *mut bindings::device,
    _attr: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: By the safety requirements, `dev` is the device of an `O::Container`, whose
    // attribute is in use until this function returns.
    let data = unsafe { O::Container::data(dev) };
    // SAFETY: By the safety requirements, `page` points at `PAGE_SIZE` bytes. sysfs treats a full
    // page as an error, so the last byte is left out.
    let buffer = unsafe { core::slice::from_raw_parts_mut(page, PAGE_SIZE - 1) };
    let mut page = Page::new(buffer);
    match O::show(data, &mut page) {
        // CAST: Less than a page.
        Ok(()) => page.len as isize,
        // CAST: `isize` is not smaller than `c_int`.
        Err(e) => e.to_errno() as isize,
    }
}

/// # Safety
///
/// `dev` is the device of an `O::Container` and is being accessed through sysfs; `text` points at
/// `len` bytes, which is at most a page.
unsafe extern "C" fn store<O: Operations>(
    dev: *mut bindings::device,
    _attr: *mut bindings::device_attribute,
    text: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: By the safety requirements, `dev` is the device of an `O::Container`, whose
    // attribute is in use until this function returns.
    let data = unsafe { O::Container::data(dev) };
    // SAFETY: By the safety requirements, `text` points at `len` bytes.
    let text = unsafe { core::slice::from_raw_parts(text, len) };
    match O::store(data, text) {
        // CAST: At most a page.
        Ok(()) => len as isize,
        // CAST: `isize` is not smaller than `c_int`.
        Err(e) => e.to_errno() as isize,
    }
}

/// The attributes of a group, terminated by a null pointer.
///
/// # Invariants
///
/// All pointers except the last are addresses of static [`Attribute`]s of one container.
#[doc(hidden)]
pub struct AttributeList<C, const N: usize>([*const bindings::attribute; N], PhantomData<fn(C)>);

// SAFETY: The pointers are never changed.
unsafe impl<C, const N: usize> Sync for AttributeList<C, N> {}

impl<C: Container, const N: usize> AttributeList<C, N> {
    /// Creates a list of `attributes`; `N` is one more than their number.
    pub const fn new<const M: usize>(attributes: [&'static Attribute<C>; M]) -> Self {
        const { assert!(N == M + 1) };
        let mut list = [core::ptr::null(); N];
        let mut i = 0;
        while i < M {
            // `attr` is the first field of a `struct device_attribute`.
            list[i] = attributes[i].0.get().cast();
            i += 1;
        }
        // INVARIANT: `attributes` are static attributes of `C`; the last pointer stays null.
        Self(list, PhantomData)
    }
}

const _: () = assert!(core::mem::offset_of!(bindings::device_attribute, attr) == 0);

/// A `struct attribute_group`.
///
/// # Invariants
///
/// The attributes are an [`AttributeList`] of `C`.
#[doc(hidden)]
#[repr(transparent)]
pub struct RawGroup<C>(Opaque<bindings::attribute_group>, PhantomData<fn(C)>);

// SAFETY: The only possible operation is taking its address.
unsafe impl<C> Sync for RawGroup<C> {}

impl<C: Container> RawGroup<C> {
    /// Creates a group. Its files are in the device's directory, or in its subdirectory `folder`.
    pub const fn new<const N: usize>(
        folder: Option<&'static CStr>,
        list: &'static AttributeList<C, N>,
    ) -> Self {
        let mut group: bindings::attribute_group = pin_init::zeroed();
        if let Some(name) = folder {
            group.name = as_char_ptr_in_const_context(name);
        }
        compat::attribute::set_list(&mut group, list.0.as_ptr());
        // INVARIANT: `list` is an `AttributeList` of `C`.
        Self(Opaque::new(group), PhantomData)
    }
}

/// The attributes of the devices of a container, created by [`attribute_group!`].
///
/// # Invariants
///
/// The pointers are those of static [`RawGroup`]s of `C`, terminated by a null pointer.
pub struct AttributeGroup<C>([*const bindings::attribute_group; 3], PhantomData<fn(C)>);

// SAFETY: The pointers are never changed.
unsafe impl<C> Sync for AttributeGroup<C> {}

impl<C: Container> AttributeGroup<C> {
    /// Use [`attribute_group!`].
    #[doc(hidden)]
    pub const fn new<const N: usize>(groups: [&'static RawGroup<C>; N]) -> Self {
        const { assert!(N <= 2) };
        let mut all = [core::ptr::null(); 3];
        let mut i = 0;
        while i < N {
            all[i] = groups[i].0.get().cast_const();
            i += 1;
        }
        // INVARIANT: `groups` are static groups of `C`; the last pointer stays null.
        Self(all, PhantomData)
    }

    /// Returns the C form for `struct class` and `struct scsi_host_template`.
    ///
    /// The pointer must only be used for devices of containers `C`.
    pub(crate) const fn as_raw(&'static self) -> *const *const bindings::attribute_group {
        self.0.as_ptr()
    }
}

/// Declares the attributes of the devices of a [`Container`] as a static [`AttributeGroup`].
///
/// Each line has the name of the file, its permissions, and a function for each permission: `show`
/// is a `fn(&Data, &mut Page<'_>) -> Result`, `store` a `fn(&Data, &[u8]) -> Result` that takes all
/// of the text or fails. Both run in process context and may sleep; removing the device waits for
/// them. Mismatched permissions and functions do not compile. The files of a subdirectory may
/// follow, as `"statistics" { ... }`. See the example in [`sysfs`](crate::sysfs).
#[macro_export]
macro_rules! attribute_group {
    (
        $(#[$meta:meta])*
        $vis:vis static $group:ident: $container:ty {
            $($file:ident: $mode:literal $(, show = $show:expr)? $(, store = $store:expr)?;)+
            $($folder:literal {
                $($in_file:ident: $in_mode:literal
                    $(, show = $in_show:expr)? $(, store = $in_store:expr)?;)+
            })?
        }
    ) => {
        $(#[$meta])*
        $vis static $group: $crate::sysfs::AttributeGroup<$container> = {
            $crate::sysfs::AttributeGroup::new([
                $crate::sysfs::attribute_group!(
                    @raw $container, ::core::option::Option::None,
                    $($file: $mode $(, show = $show)? $(, store = $store)?;)+
                ),
                $($crate::sysfs::attribute_group!(
                    @raw $container, ::core::option::Option::Some(::kernel::c_str!($folder)),
                    $($in_file: $in_mode $(, show = $in_show)? $(, store = $in_store)?;)+
                ),)?
            ])
        };
    };
    (@raw $container:ty, $folder:expr, $(
        $name:ident: $mode:literal $(, show = $show:expr)? $(, store = $store:expr)?;
    )+) => {{
        $(
            // File names do not follow Rust's naming conventions.
            #[allow(non_camel_case_types)]
            enum $name {}

            impl $crate::sysfs::Operations for $name {
                type Container = $container;

                const NAME: &'static ::kernel::str::CStr =
                    ::kernel::c_str!(::core::stringify!($name));
                const MODE: u16 = $mode;

                $crate::sysfs::attribute_group!(@show $container $(, $show)?);
                $crate::sysfs::attribute_group!(@store $container $(, $store)?);
            }

            #[allow(non_upper_case_globals)]
            static $name: $crate::sysfs::Attribute<$container> =
                $crate::sysfs::Attribute::new::<$name>();
        )+

        const N: usize = [$(::core::stringify!($name)),+].len() + 1;
        static LIST: $crate::sysfs::AttributeList<$container, N> =
            $crate::sysfs::AttributeList::new([$(&$name),+]);
        static GROUP: $crate::sysfs::RawGroup<$container> =
            $crate::sysfs::RawGroup::new($folder, &LIST);
        &GROUP
    }};
    (@show $container:ty) => {};
    (@show $container:ty, $show:expr) => {
        const HAS_SHOW: bool = true;

        fn show(
            data: &<$container as $crate::sysfs::Container>::Data,
            page: &mut $crate::sysfs::Page<'_>,
        ) -> ::kernel::error::Result {
            $show(data, page)
        }
    };
    (@store $container:ty) => {};
    (@store $container:ty, $store:expr) => {
        const HAS_STORE: bool = true;

        fn store(
            data: &<$container as $crate::sysfs::Container>::Data,
            text: &[u8],
        ) -> ::kernel::error::Result {
            $store(data, text)
        }
    };
}
pub use attribute_group;

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_sysfs)]
mod tests {
    use super::*;

    #[test]
    fn page_cuts_off() -> Result {
        let mut buffer = [b'.'; 8];
        let mut page = Page::new(&mut buffer);
        page.emit(fmt!("{}-", 12))?;
        page.emit(fmt!("{}", "abcdefgh"))?;
        page.emit(fmt!("more"))?;
        assert_eq!(page.len, 8);
        assert!(buffer == *b"12-abcde");
        Ok(())
    }
}
