// SPDX-License-Identifier: GPL-2.0

//! Descriptions of memory that a device accesses, for use between the abstractions.
//!
//! The kernel crate's `SGTable` is a list after DMA mapping, and its `Coherent` is memory that it
//! has allocated. This module describes memory that others own, before DMA mapping.
//!
//! C headers: [`include/linux/dma-direction.h`](srctree/include/linux/dma-direction.h),
//! [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h).
//!
//! # Examples
//!
//! ```
//! use ib_srp::dma::{DataDirection, ScatterList};
//!
//! /// The number of bytes that the CPU must read when the device is done.
//! fn to_read(list: &impl ScatterList, direction: DataDirection) -> u32 {
//!     match direction {
//!         DataDirection::FromDevice | DataDirection::Bidirectional => list.len(),
//!         DataDirection::ToDevice | DataDirection::None => 0,
//!     }
//! }
//! ```

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

pub use kernel::dma::DataDirection;

/// An object with a scatter-gather list.
///
/// # Safety
///
/// `list()` must return the head of a list of `count()` entries that cover `len()` bytes, the same
/// on each call. The list and its memory must stay valid and in place until the object is dropped
/// or consumed, or forever if it is forgotten. No reference to the memory may exist, not even
/// through a shared reference to the object, because a device may change the memory at any time.
///
/// So the object must own its memory. If a mapping of it is forgotten, the memory stays with the
/// device:
///
/// ```compile_fail,E0478
/// # use ib_srp::dma::ScatterList;
/// struct Borrowed<'a>(&'a [u8]);
///
/// // SAFETY: Not met: the object borrows its memory.
/// unsafe impl<'a> ScatterList for Borrowed<'a> {
/// #   fn list(&self) -> *mut ib_srp::bindings::scatterlist { core::ptr::null_mut() }
/// #   fn count(&self) -> u32 { 0 }
/// #   fn len(&self) -> u32 { 0 }
///     // ...
/// }
/// ```
pub unsafe trait ScatterList: 'static {
    /// Returns the first entry of the list.
    fn list(&self) -> *mut bindings::scatterlist;
    /// Returns the number of entries of the list before DMA mapping, which may merge entries.
    fn count(&self) -> u32;
    /// Returns the total length of the memory, in bytes.
    fn len(&self) -> u32;
    /// Returns whether the list covers no memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A byte range that a device may change at any time. It is accessed through a pointer, not a
/// reference.
///
/// # Invariants
///
/// `ptr` is valid for reads of `len` bytes for `'a`.
#[derive(Clone, Copy)]
pub struct DeviceBytes<'a> {
    ptr: NonNull<u8>,
    len: usize,
    owner: PhantomData<&'a ()>,
}

impl DeviceBytes<'_> {
    /// # Safety
    ///
    /// `ptr` is valid for reads of `len` bytes for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: By the safety requirements, `ptr` is valid for reads of `len` bytes for `'a`.
        Self {
            ptr,
            len,
            owner: PhantomData,
        }
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// Returns the number of bytes in the range.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<&'a [u8]> for DeviceBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // INVARIANT: The slice is borrowed for `'a`.
        Self {
            ptr: NonNull::from(bytes).cast(),
            len: bytes.len(),
            owner: PhantomData,
        }
    }
}

/// A byte range for the CPU to fill, which a device may read or change at any time.
///
/// # Invariants
///
/// The range is also valid for writes, and no reference to it exists.
pub struct DeviceBytesMut<'a>(DeviceBytes<'a>);

impl DeviceBytesMut<'_> {
    /// # Safety
    ///
    /// For `'a`, `ptr` is valid for reads and writes of `len` bytes, and no reference to these
    /// bytes exists.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: By the safety requirements, the bytes are valid for writes, without a
        // reference.
        // SAFETY: By the safety requirements, `ptr` is valid for reads of `len` bytes for `'a`.
        Self(unsafe { DeviceBytes::new(ptr, len) })
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.ptr.as_ptr()
    }

    /// Zeroes the bytes from index `first` to the end.
    pub fn clear_from(&mut self, first: usize) {
        let first = first.min(self.len());
        // SAFETY: `first` is at most the length of the range.
        let from = unsafe { self.as_mut_ptr().add(first) };
        // SAFETY: By the type invariant, the remaining bytes are valid for writes.
        unsafe { from.write_bytes(0, self.len() - first) };
    }
}

impl<'a> core::ops::Deref for DeviceBytesMut<'a> {
    type Target = DeviceBytes<'a>;

    #[inline]
    fn deref(&self) -> &DeviceBytes<'a> {
        &self.0
    }
}
