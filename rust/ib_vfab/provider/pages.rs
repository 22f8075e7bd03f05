// SPDX-License-Identifier: GPL-2.0

//! The memory of a region: the current list of pages or pieces, and a second one for writing.
//!
//! An adapter copies the list when it executes the registration. This code switches lists instead,
//! so that a caller that describes new memory does not change a registered region.

use crate::bindings;
use core::{
    cell::UnsafeCell,
    ffi::c_uint,
    ptr::NonNull, //
};
use kernel::{
    alloc::KVVec,
    page::PAGE_SHIFT,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};

/// The first fields of a region, common to all devices.
///
/// # Invariants
///
/// `pages` is `None`, or valid as long as `ib_core` uses the region.
#[repr(C)]
pub(super) struct MrHead {
    raw: bindings::ib_mr,
    pages: Option<NonNull<Pages>>,
}

impl MrHead {
    /// Creates the head of a region with this key; the caller keeps the pages alive.
    pub(super) fn new(key: u32, pages: Option<&Pages>) -> Self {
        Self {
            raw: bindings::ib_mr {
                lkey: key,
                rkey: key,
                ..Default::default()
            },
            pages: pages.map(NonNull::from),
        }
    }
}

/// # Safety
///
/// `mr` is the first field of a [`MrHead`], which lives for `'a`.
pub(super) unsafe fn pages_of<'a>(mr: *const bindings::ib_mr) -> Option<&'a Pages> {
    // SAFETY: `mr` is the first field of a `MrHead`.
    let head = unsafe { &*mr.cast::<MrHead>() };
    // SAFETY: The pages are valid.
    head.pages.map(|p| unsafe { p.as_ref() })
}

/// The elements of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Pages of one size; the memory begins in the first page and ends in the last one.
    Pages,
    /// Pieces of any size, at any address.
    Pieces,
}

/// A list of pages or pieces.
pub struct List {
    /// The DMA addresses of the pages or pieces.
    parts: KVVec<u64>,
    /// The offset of each piece in the region. Empty for pages.
    starts: KVVec<u64>,
    /// The address of the region's first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    shift: u32,
}

impl List {
    fn new(shape: Shape, most: usize) -> Result<Self> {
        Ok(Self {
            parts: KVVec::with_capacity(most, GFP_KERNEL)?,
            starts: match shape {
                Shape::Pages => KVVec::new(),
                Shape::Pieces => KVVec::with_capacity(most, GFP_KERNEL)?,
            },
            iova: 0,
            len: 0,
            shift: 12,
        })
    }

    /// Creates a list of pages of [`PAGE_SIZE`](kernel::page::PAGE_SIZE) bytes from their DMA
    /// addresses. The `len` bytes of the region begin in the pages at `iova`.
    pub(super) fn of(pages: KVVec<u64>, iova: u64, len: u64) -> Self {
        Self {
            parts: pages,
            starts: KVVec::new(),
            iova,
            len,
            // CAST: A small number.
            shift: PAGE_SHIFT as u32,
        }
    }

    /// The DMA address of byte `at` of the region, and the number of contiguous bytes there.
    #[inline]
    pub fn find(&self, at: u64) -> Option<(u64, u64)> {
        if !self.starts.is_empty() {
            return self.find_piece(at);
        }
        let size = 1u64 << self.shift;
        let from_page = (self.iova & (size - 1)) + at;
        let page = usize::try_from(from_page >> self.shift).ok()?;
        let within = from_page & (size - 1);
        Some((self.parts.get(page)? + within, size - within))
    }

    fn find_piece(&self, at: u64) -> Option<(u64, u64)> {
        // The last piece that begins at or before `at`: empty pieces are skipped.
        let n = self
            .starts
            .partition_point(|start| *start <= at)
            .checked_sub(1)?;
        let end = self.starts.get(n + 1).copied().unwrap_or(self.len);
        let within = at - self.starts.get(n)?;
        let left = end.checked_sub(at).filter(|left| *left > 0)?;
        Some((self.parts.get(n)? + within, left))
    }

    /// Whether `iova` is the DMA address of a byte in the first page.
    pub fn is_offset(&self) -> bool {
        let first = self.parts.first().copied().unwrap_or(0);
        self.iova.wrapping_sub(first) >> self.shift == 0
    }

    /// Number of pages or pieces.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.starts.clear();
    }
}

/// Two lists, one of which is current.
///
/// # Invariants
///
/// Only one context at a time describes memory, and only that context uses the other list.
pub struct Pages {
    lists: [UnsafeCell<List>; 2],
    counts: Atomic<u32>,
    described: Atomic<bool>,
    shape: Shape,
    most: usize,
    /// The memory may begin at offsets into an entry that are multiples of this.
    offsets: u32,
}

// SAFETY: The lists are plain data.
unsafe impl Send for Pages {}
// SAFETY: By the type invariant only one context writes, to the list that is not current.
unsafe impl Sync for Pages {}

impl Pages {
    /// Creates lists with room for `most` pages or pieces each. Nothing is described if the offset
    /// into the first entry is not a multiple of `offsets`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(shape: Shape, most: usize, offsets: u32) -> Result<Self> {
        Ok(Self {
            lists: [
                UnsafeCell::new(List::new(shape, most)?),
                UnsafeCell::new(List::new(shape, most)?),
            ],
            counts: Atomic::new(0),
            described: Atomic::new(false),
            shape,
            most,
            offsets,
        })
    }

    /// The current list.
    ///
    /// # Safety
    ///
    /// While the list is borrowed, no memory is described after a [`turn`](Self::turn), as the
    /// description would overwrite the list: the region is in use or being registered.
    #[inline]
    pub unsafe fn current(&self) -> &List {
        let n = self.counts.load(Acquire) as usize & 1;
        // SAFETY: By the type invariant and this function's contract the list has no writer.
        unsafe { &*self.lists[n].get() }
    }

    /// Makes the last described list current, with its first byte at `iova`. Does nothing if no
    /// memory was described since the last call.
    ///
    /// # Safety
    ///
    /// No other thread describes memory for the region, reads its list or calls this concurrently:
    /// the region is not valid, and is being registered.
    pub unsafe fn turn(&self, iova: u64) {
        if self.described.xchg(false, Relaxed) {
            let n = self.counts.load(Relaxed) ^ 1;
            let list = self.lists[n as usize & 1].get();
            // SAFETY: By the invariant and the contract nothing else uses the list.
            unsafe { (*list).iova = iova };
            self.counts.store(n, Release);
        }
    }

    /// The list that is not current.
    fn other(&self) -> *mut List {
        let n = (self.counts.load(Relaxed) as usize & 1) ^ 1;
        self.lists[n].get()
    }

    /// Fills the list that is not current. Returns the number of table entries used, or a negative
    /// errno.
    ///
    /// # Safety
    ///
    /// The arguments are those of `map_mr_sg`. No other caller describes memory for this region or
    /// registers it.
    pub(super) unsafe fn describe(
        &self,
        mr: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        count: i32,
        offset: *mut c_uint,
    ) -> i32 {
        // SAFETY: `offset` is null or valid.
        let begin = unsafe { offset.as_ref() }.map_or(0, |offset| *offset);
        if begin % self.offsets != 0 {
            return 0;
        }
        let list = self.other();
        // SAFETY: By the invariant and the contract nothing else uses the list.
        unsafe { (*list).clear() };
        let taken = match self.shape {
            // SAFETY: The arguments are those of `map_mr_sg`.
            Shape::Pages => unsafe {
                bindings::ib_sg_to_pages(mr, sg, count, offset, Some(page_of))
            },
            // SAFETY: The caller is `describe`.
            Shape::Pieces => unsafe { self.take_pieces(mr, sg, count, offset) },
        };
        // SAFETY: The region is valid, and nothing changes it.
        let raw = unsafe { &*mr };
        // SAFETY: By the invariant and the contract nothing else uses the list.
        let list = unsafe { &mut *list };
        list.iova = raw.iova;
        list.len = raw.length;
        list.shift = raw.page_size.trailing_zeros();
        self.described.store(true, Relaxed);
        taken
    }

    /// Like `ib_sg_to_pages()`, but stores each entry as one piece, until the list is full.
    ///
    /// # Safety
    ///
    /// Only [`Pages::describe`] calls this.
    unsafe fn take_pieces(
        &self,
        mr: *mut bindings::ib_mr,
        mut sg: *mut bindings::scatterlist,
        count: i32,
        offset: *mut c_uint,
    ) -> i32 {
        // SAFETY: `offset` is null, or valid and not used elsewhere.
        let offset = unsafe { offset.as_mut() };
        let mut skip = offset.as_ref().map_or(0, |offset| **offset);
        // SAFETY: Only this context uses the list; `describe` has no reference to it now.
        let list = unsafe { &mut *self.other() };
        let (mut first, mut len) = (None, 0);
        while list.count() < self.most && !sg.is_null() && (list.count() as i32) < count {
            // SAFETY: `sg` is a mapped entry.
            let at = unsafe { bindings::srp_vfab_sg_dma_address(sg) } + u64::from(skip);
            // SAFETY: `sg` is a mapped entry.
            let bytes = unsafe { bindings::srp_vfab_sg_dma_len(sg) };
            let Some(bytes) = bytes.checked_sub(skip) else {
                return EINVAL.to_errno();
            };
            if list.parts.push_within_capacity(at).is_err()
                || list.starts.push_within_capacity(len).is_err()
            {
                return ENOMEM.to_errno();
            }
            first.get_or_insert(at);
            len += u64::from(bytes);
            skip = 0;
            // SAFETY: `sg` is an entry of a terminated table.
            sg = unsafe { bindings::sg_next(sg) };
        }
        let Some(first) = first else {
            return EINVAL.to_errno();
        };
        // SAFETY: The region is valid and the caller's; `ib_core` may read its fields.
        unsafe { (*mr).iova = first };
        // SAFETY: The region is valid and the caller's.
        unsafe { (*mr).length = len };
        if let Some(offset) = offset {
            *offset = 0;
        }
        // CAST: The number is at most `count`.
        list.count() as i32
    }

    /// # Safety
    ///
    /// Only [`Pages::describe`] calls this.
    pub(super) unsafe fn push(&self, page: u64) -> i32 {
        // SAFETY: Only `describe`, the caller, uses the list; it has no reference to it now.
        let list = unsafe { &mut *self.other() };
        if list.count() >= self.most || list.parts.push_within_capacity(page).is_err() {
            return ENOMEM.to_errno();
        }
        0
    }
}

/// # Safety
///
/// Only `ib_sg_to_pages()` calls this, for a region with [`Pages`].
unsafe extern "C" fn page_of(mr: *mut bindings::ib_mr, page: u64) -> i32 {
    // SAFETY: `mr` is a region with [`Pages`].
    let pages = unsafe { pages_of(mr) };
    match pages {
        // SAFETY: `describe` is the caller of `ib_sg_to_pages()`.
        Some(pages) => unsafe { pages.push(page) },
        None => EINVAL.to_errno(),
    }
}
