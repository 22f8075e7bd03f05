// SPDX-License-Identifier: GPL-2.0

//! The memory regions of a queue pair.

use super::{
    exposure::Exposure,
    raw::{
        alloc,
        free,
        say_left, //
    },
    Bound,
    Handle, //
};
use crate::{
    bindings,
    dma::ScatterList,
    rdma::pd::Pd, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// The maximum number of regions per handle.
pub const MAX_PER_HANDLE: usize = 16;

/// One memory region.
///
/// # Invariants
///
/// The pointer is valid or null. It is null only while its [`Group`] is reachable and no [`Bound`]
/// exists, or while no user is left. It is replaced only as the invariant of [`Group`] permits.
pub(in crate::rdma) struct Region(Atomic<*mut bindings::ib_mr>);

impl Region {
    fn new(pd: &Pd, kind: bindings::ib_mr_type, pages: u32) -> Result<Self> {
        // INVARIANT: The region was just allocated.
        Ok(Self(Atomic::new(alloc(pd, kind, pages)?)))
    }

    /// Deregisters the region, if there is one. May sleep.
    ///
    /// # Errors
    ///
    /// The error of the device driver; the region is unchanged.
    ///
    /// # Safety
    ///
    /// Either the region has no user left, or its group is reachable and stays so until the region
    /// is replaced, and no [`Bound`] exists.
    unsafe fn give_back(&self) -> Result {
        let mr = self.as_raw();
        if !mr.is_null() {
            // SAFETY: By the type invariant it is valid. No user is left, or only the handle, which
            // does not touch a reachable region: all others need a `Bound`.
            unsafe { free(mr) }?;
            // INVARIANT: The group is reachable and no `Bound` exists, or no user is left.
            self.0.store(null_mut(), Relaxed);
        }
        Ok(())
    }

    /// The raw region, for the handle that owns it.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.0.load(Relaxed)
    }

    /// The raw region, for a work request. It stays valid as long as `bound`.
    #[inline]
    pub(in crate::rdma) fn mr(&self, _bound: Bound<'_>) -> *mut bindings::ib_mr {
        self.as_raw()
    }

    /// The key of a region, which must not be replaced during the call.
    #[cfg(SRP_KUNIT)]
    pub(in crate::rdma) fn key_now(&self) -> u32 {
        // SAFETY: By the type invariant the region is valid while it is not replaced.
        unsafe { (*self.as_raw()).rkey }
    }

    /// The key of a region that a peer may reach.
    #[inline]
    pub(in crate::rdma) fn key(&self, bound: Bound<'_>) -> u32 {
        // SAFETY: By the invariant of `Bound` the region is valid. Its key changes only in
        // `Handle::map`, which does not touch a reachable region.
        unsafe { (*self.mr(bound)).rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: No user is left. The queue pair of the region, if any, held the `Regions` until
        // it was destroyed, a grace period after the last `Bound`.
        let _ = unsafe { self.give_back() };
    }
}

/// The regions of one handle.
///
/// # Invariants
///
/// A region is deregistered or replaced only while `reachable` is not none and no [`Bound`] exists,
/// or while no user is left. It is replaced only while no queue pair exists and `mapped` is clear.
/// Only the [`Handle`] that owns the group changes the fields of its regions, while `reachable` is
/// none.
#[repr(align(64))]
pub(in crate::rdma) struct Group {
    /// The first region, usually the only one in use.
    pub(super) first: Region,
    pub(super) others: KVec<Region>,
    /// The regions that the peer may reach. Set before the registration is posted, cleared when the
    /// invalidation has completed. If regions are still reachable when the queue pair is gone, the
    /// device may or may not have them registered.
    pub(super) reachable: Exposure,
    /// The number of the handle.
    handle: u32,
    /// The handle has mapped a scatter list with these regions.
    pub(super) mapped: Atomic<bool>,
}

impl Group {
    fn new(
        pd: &Pd,
        kind: bindings::ib_mr_type,
        pages: u32,
        count: usize,
        handle: u32,
    ) -> Result<Self> {
        let mut others = KVec::with_capacity(count - 1, GFP_KERNEL)?;
        for _ in 1..count {
            others.push(Region::new(pd, kind, pages)?, GFP_KERNEL)?;
        }
        Ok(Self {
            first: Region::new(pd, kind, pages)?,
            others,
            reachable: Exposure::none(),
            handle,
            mapped: Atomic::new(false),
        })
    }

    /// The first `count` regions.
    pub(super) fn all(&self, count: u32) -> impl Iterator<Item = &Region> + '_ {
        Iterator::chain(core::iter::once(&self.first), self.others.iter()).take(count as usize)
    }
}

/// The memory regions of one queue pair, a fixed number for each of its handles. Each handle holds
/// a reference. Dropping the last one may sleep.
///
/// # Invariants
///
/// Every region was allocated from `pd`, which counts them as stale if and only if `stale` is set.
pub struct Regions {
    groups: KVVec<Group>,
    kind: bindings::ib_mr_type,
    /// Page size of a region, in bytes.
    pub(super) page_size: u32,
    /// Maximum number of scatter list entries per region.
    pub(super) pages: u32,
    /// Maximum number of bytes per region.
    pub(super) bytes: u64,
    /// See [`Limits::iova_mask`](crate::rdma::device::Limits::iova_mask).
    pub(super) iova_mask: u64,
    /// A queue pair has these regions.
    bound: Atomic<bool>,
    /// Nothing reaches the regions through that queue pair: it is drained or destroyed.
    pub(super) dead: Atomic<bool>,
    /// A peer may still have a key of a dead region; counted in `pd`.
    stale: Atomic<bool>,
    pub(super) pd: Arc<Pd>,
}

// SAFETY: Regions have no thread affinity.
unsafe impl Send for Regions {}
// SAFETY: Regions are changed only by the one `Handle` that has them; shared fields are atomic.
unsafe impl Sync for Regions {}

impl Regions {
    /// Allocates `per_handle` regions of maximum size for each of `handles` handles. May sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no fast registration, `EINVAL` if `per_handle` is 0 or above
    /// [`MAX_PER_HANDLE`], otherwise the error of the device driver.
    pub fn new<T: ScatterList>(
        pd: &Arc<Pd>,
        handles: usize,
        per_handle: usize,
    ) -> Result<(Arc<Self>, KVVec<Handle<T>>)> {
        Self::of_pages(pd, u32::MAX, handles, per_handle)
    }

    /// Like [`Self::new`], with at most `pages` pages per region.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`]; `EOPNOTSUPP` also if `pages` is 0.
    pub(in crate::rdma) fn of_pages<T: ScatterList>(
        pd: &Arc<Pd>,
        pages: u32,
        handles: usize,
        per_handle: usize,
    ) -> Result<(Arc<Self>, KVVec<Handle<T>>)> {
        // The limits come from the device, not from the caller: they decide where a peer writes.
        let limits = pd.device().limits();
        let pages = limits.max_pages_per_mr.min(pages);
        if pages == 0 {
            return Err(crate::errno::EOPNOTSUPP);
        }
        if per_handle == 0 || per_handle > MAX_PER_HANDLE {
            return Err(EINVAL);
        }
        let (kind, bytes) = match limits.sg_gaps {
            // Entries have any length.
            true => (bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS, 1 << 32),
            false => (
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
                u64::from(pages) * u64::from(limits.mr_page_size),
            ),
        };
        let mut this = Self {
            groups: KVVec::with_capacity(handles, GFP_KERNEL)?,
            kind,
            page_size: limits.mr_page_size,
            pages,
            bytes,
            iova_mask: limits.iova_mask,
            bound: Atomic::new(false),
            dead: Atomic::new(true),
            stale: Atomic::new(false),
            pd: pd.clone(),
        };
        for handle in 0..u32::try_from(handles).map_err(|_| EINVAL)? {
            // INVARIANT: The regions are allocated from `pd`.
            let group = Group::new(pd, kind, pages, per_handle, handle)?;
            this.groups.push(group, GFP_KERNEL)?;
        }
        let this = Arc::new(this, GFP_KERNEL)?;
        let mut list = KVVec::with_capacity(handles, GFP_KERNEL)?;
        for group in &this.groups {
            // INVARIANT: Each group goes into one handle.
            let handle = Handle::new(this.clone(), NonNull::from(group), per_handle - 1)?;
            list.push(handle, GFP_KERNEL)?;
        }
        Ok((this, list))
    }

    /// Returns the number of regions that a peer may reach now: 0 on an idle connection.
    pub fn reachable(&self) -> usize {
        if self.dead.load(Acquire) {
            return 0;
        }
        let reachable = |g: &Group| g.reachable.count() as usize;
        self.groups.iter().map(reachable).sum()
    }

    /// Returns whether a peer may reach regions of a handle.
    #[cfg(any(SRP_KUNIT, SRP_BENCH))]
    pub(in crate::rdma) fn is_exposed(&self, handle: usize) -> bool {
        let group = self.groups.get(handle);
        group.is_some_and(|group| !group.reachable.is_none())
    }

    /// Binds the regions to a new queue pair. Replaces regions that may still be registered. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the regions are bound already, or one to be replaced is still mapped; otherwise
    /// the error of the device driver.
    pub(in crate::rdma) fn bind(&self) -> Result {
        self.bound
            .cmpxchg(false, true, Acquire)
            .map_err(|_| EBUSY)?;
        if let Err(e) = self.renew() {
            self.bound.store(false, Release);
            return Err(e);
        }
        self.dead.store(false, Release);
        Ok(())
    }

    /// Notes that nothing reaches the regions through the queue pair: it is drained or destroyed.
    pub(in crate::rdma) fn set_dead(&self) {
        let exposed = |group: &Group| !group.reachable.is_none();
        if self.groups.iter().any(exposed) && !self.stale.xchg(true, Full) {
            self.pd.add_stale();
        }
        self.dead.store(true, Release);
    }

    /// Deregisters the regions that a peer may have a key of, so that the keys are invalid. The
    /// queue pair must be destroyed. May sleep.
    ///
    /// # Errors
    ///
    /// The error of the device driver. The next call continues from there.
    ///
    /// # Safety
    ///
    /// No [`Bound`] of these regions exists, nor is one created before [`Self::unbind`].
    pub(in crate::rdma) unsafe fn revoke(&self) -> Result {
        for group in &self.groups {
            for region in group.all(group.reachable.count()) {
                // SAFETY: By this function's contract no `Bound` exists. The region stays
                // reachable: only an invalidation on the destroyed queue pair, or `renew`, which
                // replaces it, would change that.
                unsafe { region.give_back() }?;
            }
        }
        Ok(())
    }

    /// Returns whether no peer can reach even a region that was not invalidated.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.dead.load(Acquire) && self.pd.is_drained()
    }

    /// Clears the stale state: the device has none of the old keys.
    fn not_stale(&self) {
        if self.stale.xchg(false, Full) {
            self.pd.remove_stale();
        }
    }

    /// Replaces the regions without a completed invalidation. They may still be registered under
    /// their old keys, and the device accepts a registration only for a region that is not
    /// registered.
    fn renew(&self) -> Result {
        for group in &self.groups {
            let count = group.reachable.count();
            if count == 0 {
                continue;
            }
            if group.mapped.load(Acquire) {
                return Err(EBUSY);
            }
            for region in group.all(count) {
                // SAFETY: `reachable` is not none and `mapped` is not set; both stay so, as a
                // handle does not map a reachable group. The caller has set `bound`, and the last
                // queue pair was cleared a grace period before, so no `Bound` exists.
                unsafe { region.give_back() }?;
                let new = alloc(&self.pd, self.kind, self.pages)?;
                // INVARIANT: The group is reachable and not mapped, and no queue pair or `Bound`
                // exists.
                region.0.store(new, Relaxed);
            }
            group.reachable.end();
        }
        self.not_stale();
        Ok(())
    }

    /// Unbinds the regions. The queue pair must be destroyed, or not created.
    pub(in crate::rdma) fn unbind(&self) {
        self.set_dead();
        self.bound.store(false, Release);
    }

    /// Notes that the invalidations of `handle` have completed.
    #[inline(always)]
    pub(in crate::rdma) fn invalidated(&self, handle: usize) {
        if let Some(group) = self.groups.get(handle) {
            group.reachable.end();
        }
    }

    /// Returns whether the regions are of `pd`.
    pub(in crate::rdma) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        // No handle is left. Deregister first, then drop the stale count.
        let mut left = None;
        for group in &self.groups {
            for region in Iterator::chain(core::iter::once(&group.first), group.others.iter()) {
                // SAFETY: No user is left: each handle and queue pair keeps the `Regions` alive.
                if let Err(why) = unsafe { region.give_back() } {
                    left = Some(why);
                    // INVARIANT: No user is left. Null keeps the drop of the region from retrying.
                    region.0.store(null_mut(), Relaxed);
                }
            }
        }
        if let Some(why) = left {
            say_left(&self.pd, why);
        }
        self.not_stale();
    }
}

/// The regions of a handle that a peer may reach on the connection of their registration.
pub(in crate::rdma) struct Exposed<'a> {
    group: &'a Group,
    others: &'a [Region],
}

impl<'a> Exposed<'a> {
    /// Returns the first `count` regions of a group, or `None` if `count` is 0 or too large.
    #[inline(always)]
    pub(super) fn new(group: &'a Group, count: u32) -> Option<Self> {
        let others = match count {
            0 => return None,
            1 => &[],
            _ => group.others.get(..count as usize - 1)?,
        };
        Some(Self { group, others })
    }

    /// The first exposed region.
    #[inline(always)]
    pub(in crate::rdma) fn first(&self) -> &'a Region {
        &self.group.first
    }

    /// The other exposed regions.
    #[inline(always)]
    pub(in crate::rdma) fn others(&self) -> &'a [Region] {
        self.others
    }

    /// The number of the handle.
    #[inline(always)]
    pub(in crate::rdma) fn handle(&self) -> usize {
        self.group.handle as usize
    }

    /// Notes that the registration is posted; called once. Returns whether the caller must post the
    /// invalidation now.
    #[inline(always)]
    pub(in crate::rdma) fn posted(&self) -> bool {
        self.group.reachable.posted()
    }

    /// Requests the invalidation; called once. Returns whether the caller must post it; if not,
    /// [`Self::posted`] tells the poster of the registration to do so.
    #[inline(always)]
    pub(in crate::rdma) fn invalidate(&self) -> bool {
        self.group.reachable.invalidate()
    }
}

/// A registration to be posted once, on one connection: the regions and the peer's access.
pub(in crate::rdma) struct Register<'a> {
    pub(in crate::rdma) regions: Exposed<'a>,
    pub(in crate::rdma) access: i32,
}
