// SPDX-License-Identifier: GPL-2.0

//! A device for which the module maps memory, and access to memory by its DMA addresses.
//!
//! The device is a platform device without an IOMMU, so that a DMA address is a physical address:
//! that of the memory, or of its bounce buffer in swiotlb. With `swiotlb=force`, a missing mapping
//! or synchronisation has the same effect as on hardware.
//!
//! C header: [`include/linux/dma-direct.h`](srctree/include/linux/dma-direct.h)

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::{
        copy,
        NonNull, //
    }, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

/// Maximum length of a segment of a mapping, in bytes.
const SEGMENT: u32 = 1 << 31;

/// A platform device.
///
/// # Invariants
///
/// The device is registered.
pub struct DmaDevice(NonNull<bindings::platform_device>);

// SAFETY: A device has no thread affinity.
unsafe impl Send for DmaDevice {}
// SAFETY: A shared reference only reads constants.
unsafe impl Sync for DmaDevice {}

impl DmaDevice {
    /// Registers a device with DMA addresses of `bits` bits, 32 to 64. May sleep.
    ///
    /// # Errors
    ///
    /// The errors of the driver core.
    pub fn new(name: &'static CStr, number: u32, bits: u32) -> Result<Self> {
        let bits = bits.clamp(32, 64);
        let info = bindings::platform_device_info {
            name: name.as_char_ptr(),
            // CAST: A number below 256.
            id: number as i32,
            dma_mask: u64::MAX >> (64 - bits),
            ..Default::default()
        };
        // SAFETY: The description is valid for the call, and the name forever.
        let device = from_err_ptr(unsafe { bindings::platform_device_register_full(&info) })?;
        let device = NonNull::new(device).ok_or(ENOMEM)?;
        // INVARIANT: The device was just registered.
        let this = Self(device);
        // Drivers of adapters set the mask, too. Without this call, the kernel does not skip
        // synchronisation that is unnecessary.
        // SAFETY: The device is registered; no memory is mapped for it yet.
        to_result(unsafe { bindings::srp_vfab_dma_set_mask(this.as_raw(), bits) })?;
        // SAFETY: The device is registered; only the mapping of memory reads the parameters, and
        // none is mapped yet.
        unsafe { bindings::srp_vfab_dma_set_max_seg_size(this.as_raw(), SEGMENT) };
        Ok(this)
    }

    /// Registers a device that reaches all memory, even with `swiotlb=force`. May sleep.
    ///
    /// # Errors
    ///
    /// The errors of the driver core.
    pub fn direct(name: &'static CStr, number: u32) -> Result<Self> {
        let this = Self::new(name, number, 64)?;
        // SAFETY: The device is registered; no memory is mapped for it yet.
        unsafe { bindings::srp_vfab_dma_never_bounce(this.as_raw()) };
        Ok(this)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::device {
        // SAFETY: The device is valid.
        unsafe { &raw mut (*self.0.as_ptr()).dev }
    }

    /// The memory behind `len` bytes at a DMA address, or `None` if there is no memory.
    ///
    /// # Safety
    ///
    /// The address is posted or registered for all of `'a`, and its poster keeps it mapped for that
    /// time.
    #[inline]
    pub unsafe fn span<'a>(&'a self, addr: u64, len: usize) -> Option<Span<'a>> {
        if len == 0 {
            return Some(Span::EMPTY);
        }
        addr.checked_add(len as u64)?;
        // SAFETY: The device is registered; the function refuses an address that is no memory.
        let at = unsafe { bindings::srp_vfab_dma_to_virt(self.as_raw(), addr, len) };
        // INVARIANT: `at` is memory that the poster of `addr` keeps mapped.
        NonNull::new(at.cast()).map(|at| Span {
            at,
            len,
            _device: PhantomData,
        })
    }
}

impl Drop for DmaDevice {
    fn drop(&mut self) {
        // SAFETY: The device is registered; nothing uses it after this.
        unsafe { bindings::platform_device_unregister(self.0.as_ptr()) };
    }
}

/// Memory that the device may access now.
///
/// # Invariants
///
/// `at` is valid for reads and writes of `len` bytes, which other code may access concurrently, as
/// with any DMA.
pub struct Span<'a> {
    at: NonNull<u8>,
    len: usize,
    _device: PhantomData<&'a DmaDevice>,
}

impl Span<'_> {
    /// An empty range.
    pub const EMPTY: Self = Self {
        at: NonNull::dangling(),
        len: 0,
        _device: PhantomData,
    };

    /// Memory of the device itself, for a message that it creates.
    #[inline]
    pub fn of(bytes: &mut [u8]) -> Span<'_> {
        // INVARIANT: The bytes are borrowed for the lifetime of the `Span`.
        Span {
            len: bytes.len(),
            at: NonNull::from(bytes).cast(),
            _device: PhantomData,
        }
    }

    /// Number of remaining bytes.
    #[inline]
    pub fn left(&self) -> usize {
        self.len
    }

    fn skip(&mut self, n: usize) {
        // INVARIANT: The rest is a part of the same memory; `n` is at most `len`.
        // SAFETY: `at + n` is at most the end of the memory.
        self.at = unsafe { self.at.add(n) };
        self.len -= n;
    }

    /// Copies the beginning of `from` to the beginning of `self`: as many bytes as both have, at
    /// most `most`. Removes them from both, and returns their number.
    #[inline]
    pub fn take(&mut self, from: &mut Span<'_>, most: usize) -> usize {
        let n = self.len.min(from.len).min(most);
        // SAFETY: Both are valid for `n` bytes. They may overlap.
        unsafe { copy(from.at.as_ptr(), self.at.as_ptr(), n) };
        self.skip(n);
        from.skip(n);
        n
    }
}
