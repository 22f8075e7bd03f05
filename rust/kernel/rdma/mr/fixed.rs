// SPDX-License-Identifier: GPL-2.0

//! A region that stays registered for the life of a connection.
//!
//! The peer may write to the region at any time. For small transfers, copying the data costs less
//! than a registration and an invalidation per transfer (Gfarm paper, figure 5).
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::{
    raw::{
        alloc,
        free,
        say_left,
        update_fast_reg_key, //
    },
    Bound,
    Segment, //
};
use crate::{
    bindings,
    dma::DataDirection,
    rdma::{
        dma::{
            Pool,
            SharedChunk, //
        },
        kept::{
            insist,
            REGION, //
        },
        pd::Pd, //
    }, //
};
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

/// One region over the first bytes of each chunk of a pool, which a peer may write while a
/// connection lasts. It belongs to one queue pair, which renews it for each connection. Dropping it
/// or its parts may sleep.
pub struct FixedMr(Arc<Inner>);

/// The state that a [`FixedMr`] and its [`FixedPart`]s share.
///
/// # Invariants
///
/// `mr` is a valid region, or null after a `renew` that failed. Only `renew` and the drop change
/// `mr`, while there is no queue pair and no [`Bound`]. No queue pair exists before `renew` has
/// succeeded. `list` has the DMA addresses of memory of `_pool`.
struct Inner {
    mr: Atomic<*mut bindings::ib_mr>,
    /// The registration may have been posted.
    posted: Atomic<bool>,
    /// The current key and address of the region, for [`FixedPart`]s.
    key: Atomic<u32>,
    base: Atomic<u64>,
    /// An entry for each chunk.
    list: KVVec<bindings::scatterlist>,
    /// Length of each entry, in bytes.
    size: u32,
    pages: u32,
    page_size: u32,
    iova_mask: u64,
    pd: Arc<Pd>,
    // Dropped after the region.
    _pool: Arc<Pool>,
}

// SAFETY: Regions and mappings have no thread affinity; mutable fields are atomic, or changed by
// the one caller of `renew`.
unsafe impl Send for Inner {}
// SAFETY: Mutable fields are atomic, or changed by the one caller of `renew`.
unsafe impl Sync for Inner {}

impl FixedMr {
    /// Allocates a region over the first `size` bytes of each of these chunks of `pool`. Also
    /// returns the parts of the region, in the order of the chunks. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no chunk, or a chunk of another pool, if the device only reads the
    /// pool, if `size` or the size of the chunks is not a multiple of the device's page size, if
    /// `size` is 0 or exceeds a chunk, or if one region cannot cover all chunks; otherwise `ENOMEM`
    /// or the error of the device driver.
    pub fn new(
        pd: &Arc<Pd>,
        pool: &Arc<Pool>,
        chunks: &[SharedChunk],
        size: usize,
    ) -> Result<(Self, KVVec<FixedPart>)> {
        // The limits come from the device, not from the caller: they decide where a peer writes.
        let limits = pd.device().limits();
        // The page size is a power of two.
        let page_mask = limits.mr_page_size as usize - 1;
        let wrong = |chunk: &SharedChunk| {
            !chunk.is_of(pool) || chunk.size() < size || (chunk.size() | size) & page_mask != 0
        };
        let all = chunks.len().checked_mul(size).ok_or(EINVAL)?;
        let pages = u32::try_from(all / (page_mask + 1)).map_err(|_| EINVAL)?;
        if !pool.is_for(pd, DataDirection::FromDevice)
            || pages == 0
            || pages > limits.max_pages_per_mr
            || chunks.iter().any(wrong)
        {
            return Err(EINVAL);
        }
        let size = u32::try_from(size).map_err(|_| EINVAL)?;
        let mut list = KVVec::new();
        list.extend_with(chunks.len(), bindings::scatterlist::default(), GFP_KERNEL)?;
        // SAFETY: The table has this many entries.
        unsafe { bindings::sg_init_table(list.as_mut_ptr(), list.len() as u32) };
        for (entry, chunk) in list.iter_mut().zip(chunks) {
            // SAFETY: The entry is valid.
            unsafe { bindings::srp_helper_sg_set_dma(entry, chunk.addr(), size) };
        }
        // INVARIANT: The region was just allocated, and the chunks are of the pool.
        let inner = Inner {
            mr: Atomic::new(alloc(pd, bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)?),
            posted: Atomic::new(false),
            key: Atomic::new(0),
            base: Atomic::new(0),
            list,
            size,
            pages,
            page_size: limits.mr_page_size,
            iova_mask: limits.iova_mask,
            pd: pd.clone(),
            _pool: pool.clone(),
        };
        inner.renew()?;
        let mr = Arc::new(inner, GFP_KERNEL)?;
        let mut parts = KVVec::with_capacity(chunks.len(), GFP_KERNEL)?;
        for index in 0..chunks.len() as u64 {
            let part = FixedPart {
                mr: mr.clone(),
                offset: index * u64::from(size),
            };
            parts.push(part, GFP_KERNEL)?;
        }
        Ok((Self(mr), parts))
    }

    /// Prepares the registration for a new queue pair. Replaces the region if the device may have
    /// it registered. May sleep.
    ///
    /// # Errors
    ///
    /// The error of the device driver.
    pub(in crate::rdma) fn renew(&self) -> Result {
        self.0.renew()
    }

    /// Returns the registration to post: region, key and access. From now on the region counts as
    /// posted.
    pub(in crate::rdma) fn registration(
        &self,
        _bound: Bound<'_>,
    ) -> (*mut bindings::ib_mr, u32, i32) {
        let inner = &*self.0;
        inner.posted.store(true, Relaxed);
        // The standard requires local write with remote write.
        let access = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        let mr = inner.mr.load(Relaxed);
        (mr, inner.key.load(Relaxed), access as i32)
    }

    /// Returns whether the region belongs to `pd`.
    pub(in crate::rdma) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.0.pd, pd)
    }
}

impl Inner {
    /// Deregisters the region, if there is one. There must be no queue pair.
    fn give_back(&self) -> Result {
        let mr = self.mr.load(Relaxed);
        if !mr.is_null() {
            // SAFETY: By the type invariant the region is valid. There is no queue pair and no
            // `Bound`.
            unsafe { free(mr) }?;
            self.mr.store(core::ptr::null_mut(), Relaxed);
        }
        Ok(())
    }

    fn renew(&self) -> Result {
        if self.posted.load(Relaxed) {
            // INVARIANT: The caller has no queue pair.
            self.give_back()?;
            let new = alloc(
                &self.pd,
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
                self.pages,
            )?;
            // INVARIANT: The new region is valid; the caller has no queue pair.
            self.mr.store(new, Relaxed);
            self.posted.store(false, Relaxed);
        }
        let mr = self.mr.load(Relaxed);
        let mut offset = 0;
        // SAFETY: The region is valid and not posted; the table has this many entries with DMA
        // addresses. The table is only read.
        let n = unsafe {
            bindings::ib_map_mr_sg(
                mr,
                self.list.as_ptr().cast_mut(),
                self.list.len() as i32,
                &mut offset,
                self.page_size,
            )
        };
        if n < 0 {
            return Err(Error::from_errno(n));
        }
        // SAFETY: The region is valid.
        let length = unsafe { (*mr).length };
        if n as usize != self.list.len() || length != self.list.len() as u64 * u64::from(self.size)
        {
            return Err(EINVAL);
        }
        let random = crate::random::random_u64();
        // SAFETY: The region is valid, not posted, and only `renew` changes it.
        let (key, base) = unsafe { update_fast_reg_key(mr, self.iova_mask, random) };
        self.key.store(key, Relaxed);
        self.base.store(base, Relaxed);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The queue pair that had the region, if any, held this object until its destruction. The
        // peer may still have the key of a posted region, which is valid on each queue pair of the
        // domain.
        insist(self.pd.device(), REGION, || match self.give_back() {
            Err(why) if self.posted.load(Relaxed) && !self.pd.health().is_going() => Err(why),
            Err(why) => {
                say_left(&self.pd, why);
                Ok(())
            }
            Ok(()) => Ok(()),
        });
    }
}

/// The part of a [`FixedMr`] in one chunk.
pub struct FixedPart {
    mr: Arc<Inner>,
    offset: u64,
}

impl FixedPart {
    /// Returns the segment with which the peer writes the first `len` bytes, on the current
    /// connection.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if `len` exceeds the part.
    #[inline(always)]
    pub fn segment(&self, len: u32) -> Result<Segment> {
        if len > self.mr.size {
            return Err(EMSGSIZE);
        }
        Ok(Segment {
            addr: self.mr.base.load(Relaxed) + self.offset,
            key: self.mr.key.load(Relaxed),
            len,
        })
    }
}
