// SPDX-License-Identifier: GPL-2.0

//! Memory of ours that small data goes through, instead of being registered for each transfer.
//!
//! A [`Bounce`] is a pool with a [`Piece`] for each command. The CPU fills a piece with what is sent
//! with a message; and a part of each piece may be one static registration, made once for each
//! connection: what the peer writes there is copied, which costs less than to register and invalidate
//! (Gfarm paper, figure 5). A peer that writes when it should not changes what the next user of that
//! piece reads or sends to this peer, and nothing else.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::{
    device::Limits,
    dma::{
        Chunk,
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
    pd::Pd,
    qp::Live, //
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        DeviceBytes,
        DeviceBytesMut, //
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

/// Memory in pieces of one size, of which a peer may write a part. It goes into one queue pair, which has it alone:
/// the region is made anew for each of its connections.
pub struct Bounce(Arc<Memory>);

/// What a [`Bounce`] and its [`Piece`]s share.
struct Memory {
    region: Option<Static>,
    pool: Arc<Pool>,
    pd: Arc<Pd>,
}

/// What the peer may write: the beginning of each piece.
///
/// # Invariants
///
/// `mr` is a valid region. It is changed by `renew` only, with no queue pair, and none that a [`Live`] could name. `list` has the DMA
/// addresses of memory that is freed after the region.
struct Static {
    mr: Atomic<*mut bindings::ib_mr>,
    /// A queue pair may have been told to register the region.
    posted: Atomic<bool>,
    /// What the region is called now, for [`Piece`]s.
    key: Atomic<u32>,
    base: Atomic<u64>,
    /// An entry for each piece.
    list: KVVec<bindings::scatterlist>,
    /// Bytes of each.
    size: u32,
    pages: u32,
    page_size: u32,
    iova_mask: u64,
}

// SAFETY: Regions and mappings have no thread affinity; what changes is atomic, or changed by the one
// caller of `renew`.
unsafe impl Send for Static {}
// SAFETY: As above.
unsafe impl Sync for Static {}

impl Bounce {
    /// Allocates `count` pieces of `size` bytes, of which the peer may write the first `reach`. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is 0 or above 64 KiB, if `reach` or, unless that is 0, `size` is no multiple
    /// of the device's page size, or if `reach` is above `size` or one region does not cover all;
    /// otherwise `ENOMEM` or what the device driver says.
    pub fn new(
        pd: &Arc<Pd>,
        limits: &Limits,
        count: usize,
        size: usize,
        reach: usize,
    ) -> Result<(Self, KVVec<Piece>)> {
        let page_size = limits.mr_page_size as usize;
        let reached = count.checked_mul(reach).ok_or(EINVAL)?;
        let pages = reached.checked_div(page_size).ok_or(EINVAL)?;
        let pages = u32::try_from(pages).map_err(|_| EINVAL)?;
        // It is a power of two.
        let uneven = reach > 0 && (size | reach) & (page_size - 1) != 0;
        if count == 0 || reach > size || uneven || pages > limits.max_pages_per_mr {
            return Err(EINVAL);
        }
        let direction = match reach {
            0 => DataDirection::ToDevice,
            _ => DataDirection::Bidirectional,
        };
        let (pool, chunks) = Pool::new(pd, count, size, direction)?;
        let region = match reach {
            0 => None,
            _ => Some(Static::new(pd, &chunks, reach as u32, pages, limits)?),
        };
        let pd = pd.clone();
        let memory = Arc::new(Memory { region, pool, pd }, GFP_KERNEL)?;
        let mut pieces = KVVec::with_capacity(count, GFP_KERNEL)?;
        for (index, chunk) in chunks.into_iter().enumerate() {
            // INVARIANT: The list has the chunks in their order.
            let piece = Piece {
                chunk,
                offset: (index * reach) as u64,
                memory: memory.clone(),
            };
            pieces.push(piece, GFP_KERNEL)?;
        }
        Ok((Self(memory), pieces))
    }

    /// Prepares the registration for a new queue pair. A region of which nobody knows whether the
    /// device has it registered is made anew. May sleep.
    ///
    /// # Errors
    ///
    /// What the device driver says.
    pub(super) fn renew(&self) -> Result {
        let memory = &*self.0;
        let region = memory.region.as_ref();
        region.map_or(Ok(()), |region| region.renew(&memory.pd))
    }

    /// The registration to post, if there is one: region, key and access. From now on it counts as
    /// done.
    pub(super) fn registration(
        &self,
        _live: &Live<'_>,
    ) -> Option<(*mut bindings::ib_mr, u32, i32)> {
        let region = self.0.region.as_ref()?;
        region.posted.store(true, Relaxed);
        // The standard wants local write with remote write.
        let access = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        let mr = region.mr.load(Relaxed);
        Some((mr, region.key.load(Relaxed), access as i32))
    }

    /// The memory belongs to this domain.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.0.pd, pd)
    }

    /// The bytes that it occupies.
    pub fn bytes(&self) -> usize {
        self.0.pool.bytes()
    }
}

impl Static {
    fn new(pd: &Pd, chunks: &[Chunk], size: u32, pages: u32, limits: &Limits) -> Result<Self> {
        let mut list = KVVec::new();
        list.extend_with(chunks.len(), bindings::scatterlist::default(), GFP_KERNEL)?;
        // SAFETY: The table has this many entries.
        unsafe { bindings::sg_init_table(list.as_mut_ptr(), list.len() as u32) };
        for (entry, chunk) in list.iter_mut().zip(chunks) {
            // SAFETY: The entry is valid.
            unsafe { bindings::srp_helper_sg_set_dma(entry, chunk.addr(), size) };
        }
        // INVARIANT: It was made just now, and the caller has the chunks' pool.
        let this = Self {
            mr: Atomic::new(alloc(pd, bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)?),
            posted: Atomic::new(false),
            key: Atomic::new(0),
            base: Atomic::new(0),
            list,
            size,
            pages,
            page_size: limits.mr_page_size,
            iova_mask: limits.iova_mask,
        };
        this.renew(pd)?;
        Ok(this)
    }

    fn renew(&self, pd: &Pd) -> Result {
        if self.posted.load(Relaxed) {
            let new = alloc(pd, bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, self.pages)?;
            // INVARIANT: It is described below; the caller has no queue pair.
            let old = self.mr.xchg(new, Relaxed);
            // SAFETY: By the type invariant it was valid, and no queue pair is left, nor anybody who has it from
            // a `Live`.
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
                self.list.as_ptr().cast_mut(),
                self.list.len() as i32,
                &mut offset,
                self.page_size,
            )
        };
        // SAFETY: The region is valid, and only `renew` changes it.
        let got = unsafe { (*mr).length };
        if n < 0 {
            return Err(Error::from_errno(n));
        }
        if n as usize != self.list.len() || got != self.list.len() as u64 * u64::from(self.size) {
            return Err(EINVAL);
        }
        // SAFETY: The region is valid and ours.
        let (key, base) = unsafe { name_anew(mr, self.iova_mask, crate::sys::random_u64()) };
        self.key.store(key, Relaxed);
        self.base.store(base, Relaxed);
        Ok(())
    }
}

impl Drop for Static {
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
/// What the peer may write of `chunk` is at `offset` of the region of `memory`.
pub struct Piece {
    chunk: Chunk,
    offset: u64,
    memory: Arc<Memory>,
}

impl Piece {
    /// Makes the first `len` bytes 0, so that what the peer does not write shows nothing. For before [`Piece::give`].
    #[cold]
    #[inline(never)]
    pub fn clear(&mut self, len: u32) {
        self.place(len).clear_from(0);
    }

    /// Lets the peer write the first `len` bytes, and says what it needs for that.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if it may not write so many.
    #[inline(always)]
    pub fn give(&mut self, len: u32) -> Result<Segment> {
        let region = match &self.memory.region {
            Some(region) if len <= region.size => region,
            _ => return Err(EMSGSIZE),
        };
        self.chunk.give(len as usize);
        Ok(Segment {
            addr: region.base.load(Relaxed) + self.offset,
            key: region.key.load(Relaxed),
            len,
        })
    }

    /// What the peer has written to the first `len` bytes.
    #[inline]
    pub fn take(&self, len: u32) -> DeviceBytes<'_> {
        self.chunk.take_shared(len as usize)
    }

    /// The first `len` bytes, or less if there are not so many, to be filled in.
    #[inline(always)]
    pub fn place(&mut self, len: u32) -> DeviceBytesMut<'_> {
        self.chunk.place(len as usize)
    }

    /// The first `len` bytes as the second part of a message: their address and length.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the piece is smaller.
    #[inline(always)]
    pub(super) fn part(&mut self, len: u32) -> Result<(u64, u32)> {
        self.chunk.part(len as usize)
    }

    /// It is a piece of this memory.
    #[inline(always)]
    pub(super) fn is_of(&self, bounce: &Bounce) -> bool {
        Arc::ptr_eq(&self.memory, &bounce.0)
    }
}
