// SPDX-License-Identifier: GPL-2.0

//! Message memory that an RDMA device reads or writes.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), the `ib_dma_*` calls.

use super::pd::Pd;
use crate::{
    bindings,
    dma::{
        DataDirection,
        DeviceBytes,
        DeviceBytesMut, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Size of a block in bytes, unless a chunk or a page is larger. Such blocks are easy to allocate.
const BLOCK: usize = 32 << 10;
/// Maximum size of a chunk, in bytes.
pub(super) const MAX_CHUNK: usize = 64 << 10;
/// Minimum alignment of chunks, in bytes: a cache line. Non-coherent DMA may need more.
const ALIGN: usize = 64;

/// The division of blocks into chunks of `stride` bytes: the number of chunks per block, and the
/// size of a block of `n` chunks.
///
/// A chunk of a shared pool may be part of a memory region, so a chunk of whole pages needs a
/// page-aligned DMA address. swiotlb ensures that for blocks of a page or more.
#[derive(Clone, Copy)]
struct Cut {
    stride: usize,
    page: usize,
    shared: bool,
}

impl Cut {
    fn chunks(self) -> usize {
        let block = match self.shared {
            true => BLOCK.max(self.page),
            false => BLOCK,
        };
        (block / self.stride).max(1)
    }

    fn len(self, n: usize) -> usize {
        match self.shared {
            true => (n * self.stride).max(self.page),
            false => n * self.stride,
        }
    }
}

/// A physically contiguous allocation, mapped for the device until it is freed.
///
/// # Invariants
///
/// `memory`, `len` and `capacity` came from `KVec::into_raw_parts`, and the memory is mapped at
/// `addr` for the device of `pd`.
struct Block {
    memory: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// Number of chunks in the block.
    chunks: usize,
    addr: u64,
    direction: DataDirection,
    pd: Arc<Pd>,
}

impl Block {
    fn new(pd: &Arc<Pd>, len: usize, chunks: usize, direction: DataDirection) -> Result<Self> {
        let mut memory = KVec::<u8>::with_capacity(len, GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: The capacity is at least `len`, and all of it is zeroed.
        unsafe { memory.inc_len(len) };
        // SAFETY: The device is registered, and `memory` is contiguous and `len` bytes long.
        let addr = unsafe {
            bindings::srp_helper_ib_dma_map_single(
                pd.device().as_raw(),
                memory.as_mut_ptr().cast(),
                len,
                direction.into(),
            )
        };
        // SAFETY: The device is registered.
        if unsafe { bindings::srp_helper_ib_dma_mapping_error(pd.device().as_raw(), addr) } != 0 {
            return Err(ENOMEM);
        }
        let (memory, len, capacity) = memory.into_raw_parts();
        // INVARIANT: The parts are those of `memory`, which was just mapped.
        Ok(Self {
            // SAFETY: A vector's pointer is never null.
            memory: unsafe { NonNull::new_unchecked(memory) },
            len,
            capacity,
            chunks,
            addr,
            direction,
            pd: pd.clone(),
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the block is mapped with these values.
        unsafe {
            bindings::srp_helper_ib_dma_unmap_single(
                self.pd.device().as_raw(),
                self.addr,
                self.len,
                self.direction.into(),
            )
        };
        // SAFETY: By the type invariant these are the parts of a vector. No chunk uses it, as each
        // chunk keeps the pool alive.
        drop(unsafe { KVec::from_raw_parts(self.memory.as_ptr(), self.len, self.capacity) });
    }
}

/// Memory for messages of one size, cut into [`Chunk`]s. Dropping the pool or its last chunk may
/// sleep.
pub struct Pool {
    blocks: KVVec<Block>,
    direction: DataDirection,
    pd: Arc<Pd>,
}

// SAFETY: The pool only owns memory and mappings, which have no thread affinity.
unsafe impl Send for Pool {}
// SAFETY: A shared pool gives no access to its memory; chunks are exclusive.
unsafe impl Sync for Pool {}

impl Pool {
    /// Allocates and maps `count` chunks of `size` bytes, zeroed. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` if `size` is 0 or above 64 KiB, or if `direction` is none.
    pub fn new(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        direction: DataDirection,
    ) -> Result<(Arc<Self>, KVVec<Chunk>)> {
        Self::cut(pd, count, size, direction, false, |chunk| chunk)
    }

    /// Like [`Self::new`], for memory that the device may change at any time.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn shared(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        direction: DataDirection,
    ) -> Result<(Arc<Self>, KVVec<SharedChunk>)> {
        Self::cut(pd, count, size, direction, true, SharedChunk)
    }

    fn cut<T>(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        direction: DataDirection,
        shared: bool,
        give: fn(Chunk) -> T,
    ) -> Result<(Arc<Self>, KVVec<T>)> {
        if size == 0 || size > MAX_CHUNK || direction == DataDirection::None {
            return Err(EINVAL);
        }
        // SAFETY: No precondition.
        let line = unsafe { bindings::srp_helper_dma_get_cache_alignment() } as usize;
        let stride = size.next_multiple_of(ALIGN.max(line));
        let cut = Cut {
            stride,
            page: PAGE_SIZE,
            shared,
        };
        let mut blocks = KVVec::new();
        let mut left = count;
        while left > 0 {
            let n = left.min(cut.chunks());
            blocks.push(Block::new(pd, cut.len(n), n, direction)?, GFP_KERNEL)?;
            left -= n;
        }
        let pool = Arc::new(
            Self {
                blocks,
                direction,
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?;
        let mut chunks = KVVec::with_capacity(count, GFP_KERNEL)?;
        for block in &pool.blocks {
            for offset in (0..block.chunks).map(|n| n * stride) {
                // INVARIANT: Each part of a block goes into exactly one chunk.
                let chunk = Chunk {
                    // SAFETY: All chunks lie within the block.
                    memory: unsafe { block.memory.add(offset) },
                    addr: block.addr + offset as u64,
                    size,
                    direction: direction.into(),
                    pd: pd.clone(),
                    pool: pool.clone(),
                };
                chunks.push(give(chunk), GFP_KERNEL)?;
            }
        }
        Ok((pool, chunks))
    }

    /// Returns whether the pool is of `pd`, and mapped for `direction` or for both directions.
    pub(super) fn is_for(&self, pd: &Arc<Pd>, direction: DataDirection) -> bool {
        Arc::ptr_eq(&self.pd, pd)
            && (self.direction == direction || self.direction == DataDirection::Bidirectional)
    }
}

/// A piece of a [`Pool`], with exclusive ownership.
///
/// # Invariants
///
/// `memory` points to `size` bytes of `pool` that no other chunk has, mapped at `addr`.
pub struct Chunk {
    memory: NonNull<u8>,
    addr: u64,
    size: usize,
    direction: bindings::dma_data_direction,
    pd: Arc<Pd>,
    pool: Arc<Pool>,
}

// SAFETY: A chunk owns its bytes.
unsafe impl Send for Chunk {}
// SAFETY: A shared chunk only gives shared access to its bytes.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The bytes, for the caller to fill in.
    ///
    /// A device that still reads the bytes for an earlier message sends garbage, but reaches no
    /// other memory.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariant no other chunk has these bytes.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr(), self.size) }
    }

    /// Syncs the first `len` bytes for the device, for a message. Returns address and length.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the chunk is shorter than `len`.
    #[inline(always)]
    pub(super) fn part(&mut self, len: usize) -> Result<(u64, u32)> {
        if len > self.size {
            return Err(EMSGSIZE);
        }
        self.sync_for_device(len);
        // CAST: A chunk is at most 64 KiB.
        Ok((self.addr, len as u32))
    }

    /// Syncs the first `len` bytes, or all if there are fewer, for the device to read or write.
    #[inline(always)]
    pub(super) fn sync_for_device(&self, len: usize) {
        // SAFETY: By the type invariant the bytes are mapped.
        unsafe {
            bindings::srp_helper_ib_dma_sync_single_for_device(
                self.pd.device().as_raw(),
                self.addr,
                len.min(self.size),
                self.direction,
            )
        }
    }

    /// Syncs the first `len` bytes, or all if there are fewer, for the CPU. The device may still
    /// write.
    #[inline(always)]
    fn sync_for_cpu(&self, len: usize) -> DeviceBytes<'_> {
        let len = len.min(self.size);
        // SAFETY: By the type invariant the bytes are mapped.
        unsafe {
            bindings::srp_helper_ib_dma_sync_single_for_cpu(
                self.pd.device().as_raw(),
                self.addr,
                len,
                self.direction,
            )
        };
        // SAFETY: By the type invariant no other chunk has these bytes, and `self` is borrowed.
        unsafe { DeviceBytes::new(self.memory, len) }
    }

    /// The first `len` bytes, or all if there are fewer, from a device that has finished writing.
    #[inline(always)]
    pub(super) fn received(&self, len: usize) -> &[u8] {
        let bytes = self.sync_for_cpu(len);
        // SAFETY: By the type invariant no other chunk has these bytes, and the device has
        // finished.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }

    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns whether the chunk is from `pool`.
    #[inline(always)]
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }
}

/// A piece of a [`Pool`] that a device may change at any time, so there is never a reference to its
/// bytes. It cannot become a [`Chunk`].
pub struct SharedChunk(Chunk);

impl SharedChunk {
    /// The first `len` bytes, or all if there are fewer, for the caller to fill in. The device may
    /// use them meanwhile.
    #[inline(always)]
    pub fn place(&mut self, len: usize) -> DeviceBytesMut<'_> {
        // SAFETY: By the invariant of `Chunk` no other chunk has these bytes, and `self` is
        // borrowed.
        unsafe { DeviceBytesMut::new(self.0.memory, len.min(self.0.size)) }
    }

    /// Syncs the first `len` bytes, or all if there are fewer, for the device to read or write.
    #[inline(always)]
    pub fn sync_for_device(&self, len: usize) {
        self.0.sync_for_device(len);
    }

    /// Syncs the first `len` bytes, or all if there are fewer, for the CPU. The device may still
    /// write.
    #[inline(always)]
    pub fn sync_for_cpu(&self, len: usize) -> DeviceBytes<'_> {
        self.0.sync_for_cpu(len)
    }

    /// The chunk as a part of a message, which needs no reference to its bytes.
    #[inline(always)]
    pub(super) fn as_chunk(&mut self) -> &mut Chunk {
        &mut self.0
    }

    pub(super) fn addr(&self) -> u64 {
        self.0.addr()
    }

    /// Returns whether the chunk is from `pool`.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        self.0.is_of(pool)
    }

    pub(super) fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_rdma_dma)]
mod tests {
    use super::*;

    /// Returns the number of chunks per block, and the size of a block of one chunk.
    fn cut(stride: usize, page: usize, shared: bool) -> (usize, usize) {
        let cut = Cut {
            stride,
            page,
            shared,
        };
        (cut.chunks(), cut.len(1))
    }

    #[test]
    fn blocks_of_shared_memory_are_pages() {
        for page in [4096, 16 << 10, 64 << 10] {
            assert_eq!(
                cut(8192, page, true),
                (page.max(BLOCK) / 8192, page.max(8192))
            );
            assert_eq!(cut(64, page, true).1, page);
            assert_eq!(cut(8192, page, false), (4, 8192));
            assert_eq!(cut(MAX_CHUNK, page, true), (1, MAX_CHUNK));
        }
    }
}
