// SPDX-License-Identifier: GPL-2.0

//! Static registration: memory of ours that a peer may write as long as a connection lasts.
//!
//! A [`Bounce`] is one region over a whole pool, registered once for each connection. What is small
//! is written to a [`Piece`] of it and copied from there, which costs less than to register and
//! invalidate (Gfarm paper, figure 5). A peer that writes when it should not changes what the next
//! user of that piece reads, and nothing else.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::{
    device::Limits,
    dma::{
        Chunk,
        DeviceBytes,
        Direction,
        Pool, //
    },
    mr::{
        raw::{
            alloc,
            free,
            name_anew, //
        },
        Segment, //
    },
    pd::Pd, //
};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Memory that a peer may write, in pieces of one size.
///
/// # Invariants
///
/// - `mr` is a valid region of `pd` that describes all of `pool`, and is freed before the pool is. It
///   is changed by `renew` only, with no queue pair.
/// - `blocks` has the DMA addresses of the pool's blocks.
pub struct Bounce {
    mr: Atomic<*mut bindings::ib_mr>,
    /// A queue pair may have been told to register the region.
    posted: Atomic<bool>,
    /// What the region is called now, for [`Piece`]s.
    key: Atomic<u32>,
    base: Atomic<u64>,
    blocks: KVec<bindings::scatterlist>,
    bytes: usize,
    pages: u32,
    page_size: u32,
    pool: Arc<Pool>,
    pd: Arc<Pd>,
}

// SAFETY: Regions and mappings have no thread affinity; what changes is atomic, or changed by the one
// caller of `renew`.
unsafe impl Send for Bounce {}
// SAFETY: As above.
unsafe impl Sync for Bounce {}

impl Bounce {
    /// Allocates `count` pieces of `size` bytes. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is no multiple of the device's page size or above 64 KiB, or if one region
    /// does not cover all; otherwise `ENOMEM` or what the device driver says.
    pub fn new(
        pd: &Arc<Pd>,
        limits: &Limits,
        count: usize,
        size: usize,
    ) -> Result<(Arc<Self>, KVec<Piece>)> {
        let page_size = limits.mr_page_size as usize;
        let bytes = count.checked_mul(size).ok_or(EINVAL)?;
        let pages = bytes.checked_div(page_size).unwrap_or(0);
        let pages = u32::try_from(pages).map_err(|_| EINVAL)?;
        // It is a power of two.
        if pages == 0 || size & (page_size - 1) != 0 || pages > limits.max_pages_per_mr {
            return Err(EINVAL);
        }
        let (pool, chunks) = Pool::new(pd, count, size, Direction::FromDevice)?;
        let mut blocks = KVec::new();
        blocks.extend_with(
            pool.blocks().count(),
            bindings::scatterlist::default(),
            GFP_KERNEL,
        )?;
        // SAFETY: The table has this many entries.
        unsafe { bindings::sg_init_table(blocks.as_mut_ptr(), blocks.len() as u32) };
        for (entry, (addr, len)) in blocks.iter_mut().zip(pool.blocks()) {
            // SAFETY: The entry is valid.
            unsafe { bindings::srp_helper_sg_set_dma(entry, addr, len as u32) };
        }
        let kind = bindings::ib_mr_type_IB_MR_TYPE_MEM_REG;
        // INVARIANT: It was allocated from `pd`, and `renew` describes the pool with it.
        let this = Self {
            mr: Atomic::new(alloc(pd, kind, pages)?),
            posted: Atomic::new(false),
            key: Atomic::new(0),
            base: Atomic::new(0),
            blocks,
            bytes,
            pages,
            page_size: limits.mr_page_size,
            pool,
            pd: pd.clone(),
        };
        this.renew()?;
        let this = Arc::new(this, GFP_KERNEL)?;
        let mut pieces = KVec::with_capacity(count, GFP_KERNEL)?;
        for (index, chunk) in chunks.into_iter().enumerate() {
            pieces.push(
                Piece {
                    chunk,
                    offset: (index * size) as u64,
                    bounce: this.clone(),
                },
                GFP_KERNEL,
            )?;
        }
        Ok((this, pieces))
    }

    /// Prepares the registration for a new queue pair. A region of which nobody knows whether the
    /// device has it registered is made anew. May sleep.
    ///
    /// # Errors
    ///
    /// What the device driver says.
    pub(super) fn renew(&self) -> Result {
        if self.posted.load(Relaxed) {
            let kind = bindings::ib_mr_type_IB_MR_TYPE_MEM_REG;
            let new = alloc(&self.pd, kind, self.pages)?;
            // INVARIANT: It is described below; the caller has no queue pair.
            let old = self.mr.xchg(new, Relaxed);
            // SAFETY: By the type invariant it was valid, and no queue pair is left.
            unsafe { free(old) };
            self.posted.store(false, Relaxed);
        }
        let mr = self.mr.load(Relaxed);
        let mut offset = 0;
        // SAFETY: The region is valid and not posted; the table has this many entries with DMA
        // addresses. It is only read.
        let n = unsafe {
            bindings::ib_map_mr_sg(
                mr,
                self.blocks.as_ptr().cast_mut(),
                self.blocks.len() as i32,
                &mut offset,
                self.page_size,
            )
        };
        // SAFETY: The region is valid, and only `renew` changes it.
        let got = unsafe { (*mr).length };
        if n < 0 {
            return Err(Error::from_errno(n));
        }
        if n as usize != self.blocks.len() || got != self.bytes as u64 {
            return Err(EINVAL);
        }
        // SAFETY: The region is valid and ours.
        let (key, base) = unsafe { name_anew(mr, crate::sys::random_u64()) };
        self.key.store(key, Relaxed);
        self.base.store(base, Relaxed);
        Ok(())
    }

    /// The registration to post: region, key and access. From now on it counts as done.
    pub(super) fn registration(&self) -> (*mut bindings::ib_mr, u32, i32) {
        self.posted.store(true, Relaxed);
        // The standard wants local write with remote write.
        let access = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        (self.mr.load(Relaxed), self.key.load(Relaxed), access as i32)
    }

    /// The memory belongs to this domain.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    /// The bytes that it occupies.
    pub fn bytes(&self) -> usize {
        self.pool.bytes()
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the region is valid. The queue pair that was told of it, if
        // any, held this object until it was drained and destroyed.
        unsafe { free(self.mr.load(Relaxed)) };
    }
}

/// A part of a [`Bounce`], owned.
///
/// # Invariants
///
/// `chunk` is at `offset` of the pool of `bounce`.
pub struct Piece {
    chunk: Chunk,
    offset: u64,
    bounce: Arc<Bounce>,
}

impl Piece {
    /// Lets the peer write the first `len` bytes, and says what it needs for that.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the piece is smaller.
    #[inline(always)]
    pub fn give(&mut self, len: u32) -> Result<Segment> {
        if len as usize > self.chunk.size() {
            return Err(EMSGSIZE);
        }
        self.chunk.give(len as usize);
        Ok(Segment {
            addr: self.bounce.base.load(Relaxed) + self.offset,
            key: self.bounce.key.load(Relaxed),
            len,
        })
    }

    /// What the peer has written to the first `len` bytes.
    #[inline]
    pub fn take(&self, len: u32) -> DeviceBytes<'_> {
        self.chunk.take_shared(len as usize)
    }
}
