// SPDX-License-Identifier: GPL-2.0

//! Hand-made scatter lists over kernel pages.

use super::soft::Soft;
use crate::{
    bindings,
    dma::ScatterList, //
};
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    types::Opaque, //
};

/// The flag of the last entry in `page_link`.
const SG_END: usize = 2;

/// Offset and length of a piece of the memory.
pub(in crate::rdma) type Piece = (usize, usize);

/// A list of pieces of contiguous memory.
///
/// # Invariants
///
/// - `memory` is the buffer of a vector with length and capacity `size`.
/// - `entries` is a list with one entry for each of `pieces`, which are inside the memory and have
///   `len` bytes together.
pub(in crate::rdma) struct List {
    entries: KVec<Opaque<bindings::scatterlist>>,
    pieces: KVec<Piece>,
    memory: NonNull<u8>,
    size: usize,
    len: u32,
}

// SAFETY: A list owns its memory.
unsafe impl Send for List {}
// SAFETY: Shared access only reads.
unsafe impl Sync for List {}

impl Soft {
    /// Creates a list of `count` whole pages of a region that are not adjacent to each other.
    pub(in crate::rdma) fn scattered(&self, count: usize) -> Result<List> {
        let page = self.page();
        let mut pieces = KVec::with_capacity(count, GFP_KERNEL)?;
        for number in 0..count {
            pieces.push((2 * number * page, page), GFP_KERNEL)?;
        }
        List::new((2 * count).next_power_of_two() * page, &pieces)
    }
}

impl List {
    /// Creates a list of the given pieces of `size` bytes of new zeroed memory. `size` must be a
    /// power of two.
    pub(in crate::rdma) fn new(size: usize, pieces: &[Piece]) -> Result<Self> {
        let memory = KVec::from_elem(0u8, size, GFP_KERNEL)?;
        // The allocator aligns powers of two, and the tests depend on it.
        if memory.as_ptr() as usize % PAGE_SIZE.min(size) != 0 || memory.capacity() != size {
            return Err(EIO);
        }
        let mut entries = KVec::with_capacity(pieces.len(), GFP_KERNEL)?;
        let mut copy = KVec::with_capacity(pieces.len(), GFP_KERNEL)?;
        for (number, piece) in pieces.iter().enumerate() {
            let bytes = memory.get(piece.0..piece.0 + piece.1).ok_or(EINVAL)?;
            entries.push(Opaque::uninit(), GFP_KERNEL)?;
            copy.push(*piece, GFP_KERNEL)?;
            let entry = entries.last().ok_or(EINVAL)?.get();
            // SAFETY: `entry` is valid for writes, and the bytes are in the linear mapping.
            unsafe { bindings::sg_init_one(entry, bytes.as_ptr().cast(), bytes.len() as u32) };
            if number + 1 < pieces.len() {
                // SAFETY: The entry was just initialised; it is not the last one.
                unsafe { (*entry).page_link &= !SG_END };
            }
        }
        let (memory, size, _) = memory.into_raw_parts();
        // INVARIANT: The entries name the pieces; buffer and size are those of `memory`.
        Ok(Self {
            entries,
            pieces: copy,
            memory: NonNull::new(memory).ok_or(ENOMEM)?,
            size,
            len: pieces.iter().map(|piece| piece.1 as u32).sum(),
        })
    }

    /// The address of byte `at` of the list, which is its DMA address on a soft device.
    pub(in crate::rdma) fn address(&self, mut at: usize) -> Option<usize> {
        for (begin, len) in &self.pieces {
            if at < *len {
                return Some(self.memory.as_ptr() as usize + begin + at);
            }
            at -= len;
        }
        None
    }

    /// Byte `at` of the memory. Nothing may write to it now.
    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.size);
        // SAFETY: Byte `at` is inside the memory.
        let byte = unsafe { self.memory.add(at) };
        // SAFETY: The memory is valid; no device writes to it.
        unsafe { byte.read_volatile() }
    }

    /// Byte `at` of the list. Nothing may write to the memory now.
    pub(in crate::rdma) fn get(&self, at: usize) -> Option<u8> {
        Some(self.byte(self.address(at)? - self.memory.as_ptr() as usize))
    }

    /// Sets each byte of the list to what `pattern` returns for its index.
    pub(in crate::rdma) fn fill(&mut self, pattern: fn(usize) -> u8) {
        for at in 0..self.len as usize {
            if let Some(address) = self.address(at) {
                // SAFETY: The address is inside the memory, which nothing else has access to yet.
                unsafe { (address as *mut u8).write(pattern(at)) };
            }
        }
    }

    /// Number of nonzero bytes of the memory outside all pieces.
    pub(in crate::rdma) fn spoilt(&self) -> usize {
        let inside = |at: &usize| {
            self.pieces
                .iter()
                .any(|(begin, len)| (*begin..begin + len).contains(at))
        };
        (0..self.size)
            .filter(|at| !inside(at) && self.byte(*at) != 0)
            .count()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `memory` is the buffer of a vector of this size.
        drop(unsafe { KVec::from_raw_parts(self.memory.as_ptr(), self.size, self.size) });
    }
}

// SAFETY: The entries name valid memory; neither moves with the object.
unsafe impl ScatterList for List {
    fn list(&self) -> *mut bindings::scatterlist {
        self.entries
            .first()
            .map_or(core::ptr::null_mut(), |entry| entry.get())
    }

    fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    fn len(&self) -> u32 {
        self.len
    }
}
