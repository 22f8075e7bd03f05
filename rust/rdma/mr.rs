// SPDX-License-Identifier: GPL-2.0

//! One handle for a whole scatter list: fast registration.
//!
//! A [`Handle`] owns the object whose memory it describes from the moment it is attached until the
//! peer can reach that memory no more. The peer's access begins when the queue pair posts the
//! registration and ends when the invalidation has completed, or when the queue pair is in error
//! and drained; [`Handle::detach`] refuses in between.
//!
//! The idea of one handle for many scattered pages is `kpmMLockV` of Kernel PM2.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

pub(super) mod raw;

use super::{
    device::Limits,
    dma::Direction,
    pd::Pd, //
};
use crate::bindings;
use core::{
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};
use raw::{
    alloc,
    free,
    name_anew, //
};

/// The last [`Regions::binding`].
static LAST_BINDING: Atomic<u64> = Atomic::new(0);

/// The most regions that one handle may have.
pub const MAX_PER_HANDLE: usize = 16;

/// An object with a scatter list.
///
/// # Safety
///
/// `list()` must be the head of a list of `count()` entries that cover `len()` bytes; list and
/// memory must stay valid and in place until the object is dropped or given away.
pub unsafe trait ScatterList {
    /// The first entry.
    fn list(&self) -> *mut bindings::scatterlist;
    /// The number of entries, as mapped by nobody.
    fn count(&self) -> u32;
    /// The number of bytes.
    fn len(&self) -> u32;
    /// There are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a peer needs to reach one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address to use with the key. Its upper half is random, so it tells nothing.
    pub addr: u64,
    /// The remote key.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}

/// One memory region.
///
/// # Invariants
///
/// `mr` is valid. It changes only while `reachable` is set and `mapped` is not, with no queue pair
/// bound; its fields are changed only by the one [`Handle`] that has it, while `reachable` is not.
struct Region {
    mr: Atomic<*mut bindings::ib_mr>,
    /// The peer may reach the region: set when its registration is made, before it is posted, and
    /// cleared when its invalidation has completed. Still set when the queue pair is gone, it says
    /// that nobody knows whether the device has the region registered.
    reachable: Atomic<bool>,
    /// The handle describes a list with it.
    mapped: Atomic<bool>,
}

impl Region {
    fn new(pd: &Pd, kind: bindings::ib_mr_type, pages: u32) -> Result<Self> {
        Ok(Self {
            mr: Atomic::new(alloc(pd, kind, pages)?),
            reachable: Atomic::new(false),
            mapped: Atomic::new(false),
        })
    }

    #[inline]
    fn mr(&self) -> *mut bindings::ib_mr {
        self.mr.load(Relaxed)
    }
}

/// The memory regions of one queue pair, a fixed number for each of its handles.
///
/// # Invariants
///
/// Every region was allocated from `pd`.
pub struct Regions {
    regions: KVec<Region>,
    kind: bindings::ib_mr_type,
    per_handle: usize,
    /// Bytes of a region's page.
    page_size: u32,
    /// Entries of a scatter list that one region takes.
    pages: u32,
    /// A queue pair has these regions.
    bound: Atomic<bool>,
    /// Names the regions and the queue pair that they are bound to; no other ever has the same.
    binding: Atomic<u64>,
    /// That queue pair is in error and drained: no access is possible.
    dead: Atomic<bool>,
    pd: Arc<Pd>,
}

// SAFETY: Regions are changed only through the one `Handle` that has them.
unsafe impl Send for Regions {}
// SAFETY: As above; what is shared is atomic.
unsafe impl Sync for Regions {}

impl Drop for Regions {
    fn drop(&mut self) {
        for region in &self.regions {
            // SAFETY: By the type invariant the region is valid. The queue pair that used it, if
            // any, held this object until it was drained and destroyed.
            unsafe { free(region.mr()) };
        }
    }
}

impl Regions {
    /// Allocates `per_handle` regions for each of `handles` handles. May sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no fast registration, `EINVAL` if `per_handle` is above
    /// [`MAX_PER_HANDLE`], otherwise what the device driver says.
    pub fn new<T: ScatterList>(
        pd: &Arc<Pd>,
        limits: &Limits,
        handles: usize,
        per_handle: usize,
    ) -> Result<(Arc<Self>, KVec<Handle<T>>)> {
        if limits.max_pages_per_mr == 0 {
            return Err(crate::errno::EOPNOTSUPP);
        }
        if per_handle > MAX_PER_HANDLE {
            return Err(EINVAL);
        }
        let kind = if limits.sg_gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        let total = handles.checked_mul(per_handle).ok_or(EINVAL)?;
        let mut this = Self {
            regions: KVec::with_capacity(total, GFP_KERNEL)?,
            kind,
            per_handle,
            page_size: limits.mr_page_size,
            pages: limits.max_pages_per_mr,
            bound: Atomic::new(false),
            binding: Atomic::new(0),
            dead: Atomic::new(true),
            pd: pd.clone(),
        };
        for _ in 0..total {
            // INVARIANT: It is allocated from `pd`.
            let region = Region::new(pd, kind, limits.max_pages_per_mr)?;
            this.regions.push(region, GFP_KERNEL)?;
        }
        let this = Arc::new(this, GFP_KERNEL)?;
        let mut list = KVec::with_capacity(handles, GFP_KERNEL)?;
        for index in 0..handles {
            let first = index * per_handle;
            let own = this.regions.get(first..first + per_handle).ok_or(EINVAL)?;
            // INVARIANT: No two handles have the same range of regions.
            list.push(
                Handle {
                    regions: this.clone(),
                    own: NonNull::from(own),
                    first,
                    object: None,
                    mapped: None,
                },
                GFP_KERNEL,
            )?;
        }
        Ok((this, list))
    }

    /// How many regions a peer may reach now. An idle connection has 0.
    pub fn reachable(&self) -> usize {
        if self.dead.load(Acquire) {
            return 0;
        }
        let open = |r: &&Region| r.reachable.load(Relaxed);
        self.regions.iter().filter(open).count()
    }

    /// Makes the regions those of a new queue pair, and those anew of which nobody knows whether
    /// they are registered. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if they have a queue pair, or if such a region is still mapped; otherwise what the
    /// device driver says.
    pub(super) fn bind(&self) -> Result {
        self.bound
            .cmpxchg(false, true, Acquire)
            .map_err(|_| EBUSY)?;
        if let Err(e) = self.renew() {
            self.bound.store(false, Release);
            return Err(e);
        }
        let binding = LAST_BINDING.fetch_add(1, Relaxed) + 1;
        self.binding.store(binding, Relaxed);
        self.dead.store(false, Release);
        Ok(())
    }

    /// The queue pair is in error and drained; nothing will reach the regions any more.
    pub(super) fn set_dead(&self) {
        self.dead.store(true, Release);
    }

    /// A device takes a new registration only of a region that it has not registered. Those whose
    /// invalidation was not seen may be or not, and the old key may have been used or not.
    fn renew(&self) -> Result {
        for region in &self.regions {
            if !region.reachable.load(Acquire) {
                continue;
            }
            if region.mapped.load(Acquire) {
                return Err(EBUSY);
            }
            let new = alloc(&self.pd, self.kind, self.pages)?;
            // INVARIANT: `reachable` is set and `mapped` is not; both stay so, as a handle does not
            // map a region that is reachable. The caller has set `bound`.
            let old = region.mr.xchg(new, Relaxed);
            // SAFETY: By the type invariant it was valid, and no queue pair is left.
            unsafe { free(old) };
            region.reachable.store(false, Release);
        }
        Ok(())
    }

    /// The queue pair is destroyed.
    pub(super) fn unbind(&self) {
        self.set_dead();
        self.bound.store(false, Release);
    }

    #[inline(always)]
    fn of(&self, handle: usize) -> Range<usize> {
        let first = handle * self.per_handle;
        first..first + self.per_handle
    }

    /// The invalidations of `handle` have completed.
    #[inline(always)]
    pub(super) fn invalidated(&self, handle: usize) {
        for region in self.regions.get(self.of(handle)).unwrap_or_default() {
            region.reachable.store(false, Release);
        }
    }

    /// The regions of this domain serve queue pairs of this domain.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    /// The regions that a registration names.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not one of these regions and their present queue pair.
    #[inline(always)]
    pub(super) fn of_register(
        &self,
        register: &Register,
    ) -> Result<impl Iterator<Item = *mut bindings::ib_mr> + '_> {
        if register.binding != self.binding.load(Relaxed) {
            return Err(EINVAL);
        }
        let range = register.first..register.first + register.used;
        let regions = self.regions.get(range).ok_or(EINVAL)?;
        Ok(regions.iter().map(Region::mr))
    }

    /// The keys of the regions of `handle` that a peer may reach.
    pub(super) fn keys(&self, handle: usize) -> impl Iterator<Item = u32> + '_ {
        self.regions
            .get(self.of(handle))
            .unwrap_or_default()
            .iter()
            .filter(|region| region.reachable.load(Relaxed))
            // SAFETY: By the type invariant the region is valid. Its key changes only in
            // `Handle::map`, which a reachable region is never given to.
            .map(|region| unsafe { (*region.mr()).rkey })
    }
}

/// A registration to be posted, once: which regions, and what the peer may do.
pub struct Register {
    binding: u64,
    first: usize,
    used: usize,
    pub(super) access: i32,
}

/// What is mapped.
struct Mapped {
    direction: Direction,
    /// Regions that describe the list.
    used: usize,
}

/// The memory handle of one slot, and the object that owns the memory while it is attached.
///
/// # Invariants
///
/// `own` are the `per_handle` regions of `regions` from `first` on, which belong to this handle alone.
/// While `mapped` is set, `object` is, and its scatter list is mapped for the device.
pub struct Handle<T: ScatterList> {
    regions: Arc<Regions>,
    own: NonNull<[Region]>,
    first: usize,
    object: Option<T>,
    mapped: Option<Mapped>,
}

// SAFETY: The regions may be used from any thread, and the object is `Send`.
unsafe impl<T: ScatterList + Send> Send for Handle<T> {}
// SAFETY: What a shared handle gives access to is atomic, or shared as well.
unsafe impl<T: ScatterList + Sync> Sync for Handle<T> {}

impl<T: ScatterList> Handle<T> {
    /// Takes `object` into the handle.
    ///
    /// # Errors
    ///
    /// Gives the object back if the handle has one.
    pub fn attach(&mut self, object: T) -> Result<(), T> {
        if self.object.is_some() {
            return Err(object);
        }
        self.object = Some(object);
        Ok(())
    }

    /// The attached object.
    pub fn get(&self) -> Option<&T> {
        self.object.as_ref()
    }

    /// Describes the whole scatter list of the attached object by this handle's regions.
    ///
    /// Nothing is reachable before the registration is posted. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` without an object or with an empty list, `EBUSY` if the handle is mapped, `ENOMEM`
    /// if the device cannot map the list, `E2BIG` if it needs more regions than the handle has.
    ///
    /// `random` makes keys and addresses that a peer cannot guess.
    #[inline(always)]
    pub fn map(&mut self, direction: Direction, random: u64) -> Result {
        let object = self.object.as_ref().ok_or(EINVAL)?;
        // Also without a queue pair: such a region is made anew before the next one.
        if self.mapped.is_some() || self.own().iter().any(|r| r.reachable.load(Acquire)) {
            return Err(EBUSY);
        }
        let count = i32::try_from(object.count()).map_err(|_| E2BIG)?;
        let (list, len) = (object.list(), object.len());
        if count == 0 {
            return Err(EINVAL);
        }
        // SAFETY: By the contract of `ScatterList` the list has `count` entries.
        let mapped = unsafe {
            bindings::srp_helper_ib_dma_map_sg(
                self.regions.pd.device().as_raw(),
                list,
                count,
                direction.as_raw(),
            )
        };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: The list is mapped, and `object` is set.
        self.mapped = Some(Mapped { direction, used: 0 });
        for region in self.own() {
            region.mapped.store(true, Relaxed);
        }
        match self.describe(list, mapped as u32, len, random) {
            Ok(used) => {
                self.mapped = Some(Mapped { direction, used });
                Ok(())
            }
            Err(e) => {
                self.unmap();
                Err(e)
            }
        }
    }

    /// Fills regions with the mapped list and gives each a new key and address.
    #[inline(always)]
    fn describe(
        &self,
        list: *mut bindings::scatterlist,
        count: u32,
        len: u32,
        random: u64,
    ) -> Result<usize> {
        let (mut sg, mut left, mut offset, mut bytes) = (list, count, 0u32, 0u64);
        for (used, region) in self.own().iter().enumerate() {
            if left == 0 {
                return if bytes == u64::from(len) {
                    Ok(used)
                } else {
                    Err(EIO)
                };
            }
            let mr = region.mr();
            // SAFETY: The region is valid and ours, and unreachable as `map` has checked; `sg` has
            // `left` mapped entries.
            let n = unsafe {
                bindings::ib_map_mr_sg(
                    mr,
                    sg,
                    left.min(self.regions.pages) as i32,
                    &mut offset,
                    self.regions.page_size,
                )
            };
            let done = u32::try_from(n).map_err(|_| Error::from_errno(n))?;
            // SAFETY: The region is valid, and only its handle changes it.
            let got = unsafe { (*mr).length };
            if got == 0 || done > left {
                return Err(EIO);
            }
            bytes += got;
            left -= done;
            // The next region begins there, if there is one.
            for _ in 0..if left > 0 { done } else { 0 } {
                // SAFETY: `sg` is an entry of the list; the entry after the last is not used.
                sg = unsafe { bindings::sg_next(sg) };
            }
            // SAFETY: The region is valid and ours.
            unsafe { name_anew(mr, random.rotate_left(8 * used as u32)) };
        }
        if left == 0 && bytes == u64::from(len) {
            Ok(self.regions.per_handle)
        } else {
            Err(E2BIG)
        }
    }

    #[inline(always)]
    fn own(&self) -> &[Region] {
        // SAFETY: By the type invariant it is a part of `regions`, whose vector does not change.
        unsafe { self.own.as_ref() }
    }

    /// What the peer needs, one segment for each region; none if nothing is mapped.
    #[inline(always)]
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_ {
        let used = self.mapped.as_ref().map_or(0, |m| m.used);
        self.own()
            .get(..used)
            .unwrap_or_default()
            .iter()
            .map(|region| {
                // SAFETY: The region is valid, and only its handle changes it.
                let mr = unsafe { &*region.mr() };
                Segment {
                    addr: mr.iova,
                    key: mr.rkey,
                    // CAST: A region is at most as long as the list, whose length is a `u32`.
                    len: mr.length as u32,
                }
            })
    }

    /// The registration to post, with exactly the access that the direction needs.
    ///
    /// From now on the memory counts as reachable: until the invalidation has completed, or until
    /// the queue pair is in error and drained.
    #[inline(always)]
    pub fn register(&mut self) -> Option<Register> {
        let mapped = self.mapped.as_ref()?;
        let access = match mapped.direction {
            // The standard wants local write with remote write.
            Direction::FromDevice => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
            Direction::ToDevice => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        };
        let used = mapped.used;
        for region in self.own().get(..used).unwrap_or_default() {
            region.reachable.store(true, Release);
        }
        Some(Register {
            binding: self.regions.binding.load(Relaxed),
            first: self.first,
            used,
            access: access as i32,
        })
    }

    /// No peer can reach the memory.
    #[inline(always)]
    pub fn unreachable(&self) -> bool {
        self.regions.dead.load(Acquire) || !self.own().iter().any(|r| r.reachable.load(Acquire))
    }

    /// Gives the object back, its list unmapped; `None` if there is no object.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a peer may still reach the memory.
    #[inline(always)]
    pub fn detach(&mut self) -> Result<Option<T>> {
        if self.mapped.is_some() {
            if !self.unreachable() {
                return Err(EBUSY);
            }
            self.unmap();
        }
        Ok(self.object.take())
    }

    #[inline(always)]
    fn unmap(&mut self) {
        let (Some(mapped), Some(object)) = (self.mapped.take(), self.object.as_ref()) else {
            return;
        };
        // SAFETY: By the type invariant the list was mapped with these values.
        unsafe {
            bindings::srp_helper_ib_dma_unmap_sg(
                self.regions.pd.device().as_raw(),
                object.list(),
                // CAST: `map` has checked the range.
                object.count() as i32,
                mapped.direction.as_raw(),
            )
        }
        for region in self.own() {
            region.mapped.store(false, Release);
        }
    }
}

impl<T: ScatterList> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.detach().is_err() {
            // Memory that a peer may write must not be given to anyone else.
            pr_err!("memory handle dropped while registered; its memory stays lost\n");
            core::mem::forget(self.object.take());
        }
    }
}
