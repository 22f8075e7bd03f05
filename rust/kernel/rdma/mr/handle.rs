// SPDX-License-Identifier: GPL-2.0

//! The memory handle of one command.

use super::{
    raw::update_fast_reg_key,
    regions::{
        Group,
        Region, //
    },
    Bound,
    Exposed,
    Regions,
    Register,
    Segment, //
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        ScatterList, //
    }, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// A mapped scatter list.
struct Mapped {
    direction: DataDirection,
    /// Number of regions that describe the list, 1 to [`MAX_PER_HANDLE`](super::MAX_PER_HANDLE).
    used: u16,
    /// The invalidation of the last registration was requested.
    invalidated: bool,
    /// The segment of the first region, for the peer.
    first: Segment,
}

/// What a region holds of a scatter list.
struct Filled {
    /// Number of entries that the device driver counts: none may be whole.
    entries: u32,
    /// Number of bytes.
    bytes: u64,
}

/// The part of a mapped list that no region holds yet.
///
/// # Invariants
///
/// `sg` is the first of `count` mapped entries, unless `count` is 0.
struct Rest {
    sg: *mut bindings::scatterlist,
    count: u32,
    /// Number of bytes of the first entry that earlier regions hold, less than it has.
    held: u32,
}

impl Rest {
    /// Address and length of what is left of the first entry.
    fn first(&self) -> (u64, u32) {
        // SAFETY: `sg` is a mapped entry by the type invariant.
        let addr = unsafe { bindings::srp_helper_sg_dma_address(self.sg) };
        // SAFETY: `sg` is a mapped entry by the type invariant.
        let len = unsafe { bindings::srp_helper_sg_dma_len(self.sg) };
        (addr + u64::from(self.held), len - self.held)
    }

    /// Lets the first entry be this part of it. Returns what [`Self::give_back`] takes.
    fn lend(&self, (addr, len): (u64, u32)) -> (u64, u32) {
        // SAFETY: `sg` is a mapped entry by the type invariant.
        let whole = unsafe { bindings::srp_helper_sg_dma_len(self.sg) };
        // SAFETY: `sg` is a mapped entry by the type invariant.
        unsafe { bindings::srp_helper_sg_set_dma(self.sg, addr, len) };
        (addr - u64::from(self.held), whole)
    }

    /// Reverts [`Self::lend`].
    fn give_back(&self, (addr, len): (u64, u32)) {
        // SAFETY: `sg` is a mapped entry by the type invariant.
        unsafe { bindings::srp_helper_sg_set_dma(self.sg, addr, len) };
    }

    /// Leaves out the next `bytes`.
    ///
    /// # Errors
    ///
    /// `EIO` if there are fewer.
    fn skip(&mut self, mut bytes: u64) -> Result {
        while bytes != 0 {
            if self.count == 0 {
                return Err(EIO);
            }
            let (_, len) = self.first();
            if let Some(left) = bytes.checked_sub(len.into()) {
                bytes = left;
                self.held = 0;
                self.count -= 1;
                // SAFETY: `sg` is a mapped entry by the type invariant.
                // INVARIANT: The entry follows; after the last one `count` is 0.
                self.sg = unsafe { bindings::sg_next(self.sg) };
            } else {
                // CAST: Less than `len`.
                self.held += bytes as u32;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The memory handle of one slot, and the object that owns the memory while it is attached.
///
/// # Invariants
///
/// `own` is a group of `regions` that belongs to this handle alone. While `mapped` is set, `object`
/// is set and its scatter list is mapped for the device.
pub struct Handle<T: ScatterList> {
    regions: Arc<Regions>,
    own: NonNull<Group>,
    object: Option<T>,
    mapped: Option<Mapped>,
    /// The segments of the other regions in use, for the peer.
    others: KVec<Segment>,
}

// SAFETY: The regions may be used from any thread, and the object is `Send`.
unsafe impl<T: ScatterList + Send> Send for Handle<T> {}
// SAFETY: All data that a shared handle gives access to is atomic or `Sync`.
unsafe impl<T: ScatterList + Sync> Sync for Handle<T> {}

impl<T: ScatterList> Handle<T> {
    /// Creates the handle of `own`, a group of `regions` that belongs to no other handle. The group
    /// has `others` regions in addition to the first.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        regions: Arc<Regions>,
        own: NonNull<Group>,
        others: usize,
    ) -> Result<Self, AllocError> {
        // INVARIANT: The caller guarantees that no other handle has `own`; nothing is mapped.
        Ok(Self {
            regions,
            own,
            object: None,
            mapped: None,
            others: KVec::from_elem(Segment::NONE, others, GFP_KERNEL)?,
        })
    }

    /// Attaches `object` to the handle.
    ///
    /// # Errors
    ///
    /// Returns the object if the handle already has one.
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

    /// Maps the whole scatter list of the attached object and describes it with the regions.
    ///
    /// Nothing is reachable before the registration is posted. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` without an object or a direction, or with an empty list; `EBUSY` if the handle is
    /// mapped or its memory counts as reachable; `ENOMEM` if the device cannot map the list or
    /// describe any of it; `E2BIG` if the list needs more regions than the handle has.
    ///
    /// `random` provides keys and addresses that a peer cannot guess.
    #[inline(always)]
    pub fn map(&mut self, direction: DataDirection, random: u64) -> Result {
        let object = self.object.as_ref().ok_or(EINVAL)?;
        // This holds without a queue pair, too: the next connection first replaces a reachable
        // region.
        if self.mapped.is_some() || !self.own().reachable.is_none() {
            return Err(EBUSY);
        }
        let count = i32::try_from(object.count()).map_err(|_| E2BIG)?;
        let (list, len) = (object.list(), object.len());
        if count == 0 || len == 0 || direction == DataDirection::None {
            return Err(EINVAL);
        }
        let device = self.regions.pd.device().as_raw();
        // SAFETY: By the contract of `ScatterList` the list has `count` entries.
        let mapped =
            unsafe { bindings::srp_helper_ib_dma_map_sg(device, list, count, direction.into()) };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        match self.describe(list, mapped as u32, len, random) {
            Ok((used, first)) => {
                // INVARIANT: The list is mapped, and `object` is set.
                self.mapped = Some(Mapped {
                    direction,
                    // CAST: At most `MAX_PER_HANDLE`.
                    used: used as u16,
                    invalidated: false,
                    first,
                });
                self.own().mapped.store(true, Relaxed);
                Ok(())
            }
            Err(e) => {
                // SAFETY: The list was just mapped with these values.
                unsafe {
                    bindings::srp_helper_ib_dma_unmap_sg(device, list, count, direction.into())
                };
                Err(e)
            }
        }
    }

    /// Describes the mapped list with regions and gives each a new key and address. Returns their
    /// number and the segment of the first.
    #[inline(always)]
    fn describe(
        &mut self,
        list: *mut bindings::scatterlist,
        count: u32,
        len: u32,
        random: u64,
    ) -> Result<(u32, Segment)> {
        let mut begun = None;
        if u64::from(len) <= self.regions.bytes {
            let (filled, first) = self.fill(&self.own().first, list, count, random)?;
            if (filled.entries, filled.bytes) == (count, u64::from(len)) {
                return Ok((1, first));
            }
            begun = Some((filled, first));
        }
        self.describe_more(list, (count, len), random, begun)
    }

    /// Describes a list that needs several regions; `begun` describes the first one. Returns the
    /// number of regions and the segment of the first.
    #[cold]
    #[inline(never)]
    fn describe_more(
        &mut self,
        list: *mut bindings::scatterlist,
        (count, len): (u32, u32),
        random: u64,
        begun: Option<(Filled, Segment)>,
    ) -> Result<(u32, Segment)> {
        // INVARIANT: The list has `count` mapped entries.
        let mut rest = Rest {
            sg: list,
            count,
            held: 0,
        };
        // Device drivers differ in what they do if not even the first entry fits: hns keeps the
        // pages of an earlier command.
        let (mut filled, first) = match begun.filter(|(filled, _)| filled.entries != 0) {
            Some(begun) => begun,
            None => self.fill_part(&self.own().first, &rest, random)?,
        };
        let (mut bytes, mut used) = (0, 1);
        loop {
            if filled.bytes == 0 {
                return Err(EIO);
            }
            rest.skip(filled.bytes)?;
            bytes += filled.bytes;
            if rest.count == 0 {
                return match bytes == u64::from(len) {
                    true => Ok((used, first)),
                    false => Err(EIO),
                };
            }
            let other = used as usize - 1;
            let region = self.own().others.get(other).ok_or(E2BIG)?;
            let segment;
            (filled, segment) = self.fill_part(region, &rest, random.rotate_left(8 * used))?;
            *self.others.get_mut(other).ok_or(E2BIG)? = segment;
            used += 1;
        }
    }

    /// Fills one region from `rest` on. The first entry begins later and ends earlier meanwhile, so
    /// that it begins at no offset, which hns and qedr do not take, and fits.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the device driver takes nothing, as hns without memory, otherwise its error.
    fn fill_part(&self, region: &Region, rest: &Rest, random: u64) -> Result<(Filled, Segment)> {
        let (addr, len) = rest.first();
        let page = u64::from(self.regions.page_size);
        let room = self.regions.bytes - (addr & (page - 1));
        // CAST: At most `len`.
        let part = u64::from(len).min(room) as u32;
        let whole = rest.lend((addr, part));
        let count = if part < len { 1 } else { rest.count };
        let result = self.fill(region, rest.sg, count, random);
        rest.give_back(whole);
        match result {
            Ok((Filled { entries: 0, .. }, _)) => Err(ENOMEM),
            result => result,
        }
    }

    /// Fills one region with as many of the `left` entries from `sg` on as fit, and gives it a new
    /// key and address. Also returns the segment.
    #[inline(always)]
    fn fill(
        &self,
        region: &Region,
        sg: *mut bindings::scatterlist,
        left: u32,
        random: u64,
    ) -> Result<(Filled, Segment)> {
        let mr = region.as_raw();
        let most = left.min(self.regions.pages) as i32;
        // SAFETY: The region is valid, of this handle, and unreachable, as `map` has checked; `sg`
        // has `left` mapped entries.
        let n = unsafe { bindings::ib_map_mr_sg(mr, sg, most, null_mut(), self.regions.page_size) };
        let entries = u32::try_from(n).map_err(|_| Error::from_errno(n))?;
        // SAFETY: The region is valid, unreachable, and only this handle changes it.
        let (key, addr) = unsafe { update_fast_reg_key(mr, self.regions.iova_mask, random) };
        // SAFETY: The region is valid.
        let bytes = unsafe { (*mr).length };
        let segment = Segment {
            addr,
            key,
            // CAST: A region is at most as long as the list, which has a `u32` length.
            len: bytes as u32,
        };
        Ok((Filled { entries, bytes }, segment))
    }

    #[inline(always)]
    fn own(&self) -> &Group {
        // SAFETY: By the type invariant `own` is a group of `regions`, which does not move its
        // groups.
        unsafe { self.own.as_ref() }
    }

    /// Returns the segment for the peer, or `None` if there is not exactly one.
    #[inline(always)]
    pub fn segment(&self) -> Option<Segment> {
        match self.mapped {
            Some(Mapped { used: 1, first, .. }) => Some(first),
            _ => None,
        }
    }

    /// Returns the segments for the peer, one per region; none if nothing is mapped.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let used = self.mapped.as_ref().map_or(0, |m| m.used.into());
        let first = self.mapped.as_ref().map(|m| m.first);
        Iterator::chain(first.into_iter(), self.others.iter().copied()).take(used)
    }

    /// Returns the registration to post on the queue pair of `bound`, with exactly the access that
    /// the direction needs, or `None` if nothing is mapped.
    ///
    /// From now on the memory counts as reachable, until the invalidation has completed or all
    /// queue pairs of the domain are in error and drained.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair has other regions, `EBUSY` if the memory counts as reachable.
    #[inline(always)]
    pub(in crate::rdma) fn register<'a>(
        &mut self,
        bound: Bound<'a>,
    ) -> Result<Option<Register<'a>>> {
        let group = self.group(bound)?;
        // A second registration could be posted after the invalidation of the first.
        if !group.reachable.is_none() {
            return Err(EBUSY);
        }
        let Some((used, access)) = self.expose() else {
            return Ok(None);
        };
        Ok(Some(Register {
            regions: Exposed::new(group, used).ok_or(EINVAL)?,
            access,
        }))
    }

    /// Returns the regions to invalidate on the queue pair of `bound`, once per registration, or
    /// `None` if the peer can reach nothing.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair has other regions, `EBUSY` if the invalidation was returned
    /// before.
    #[inline(always)]
    pub(in crate::rdma) fn invalidation<'a>(
        &mut self,
        bound: Bound<'a>,
    ) -> Result<Option<Exposed<'a>>> {
        let group = self.group(bound)?;
        let Some(exposed) = Exposed::new(group, group.reachable.count()) else {
            return Ok(None);
        };
        match &mut self.mapped {
            Some(mapped) if !mapped.invalidated => mapped.invalidated = true,
            _ => return Err(EBUSY),
        }
        Ok(Some(exposed))
    }

    /// Returns the group, if its regions are those of the queue pair of `bound`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair has other regions.
    #[inline(always)]
    fn group<'a>(&self, bound: Bound<'a>) -> Result<&'a Group> {
        if !core::ptr::eq(&*self.regions, bound.regions) {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant `own` is a group of `regions`, which `bound` borrows for
        // `'a`.
        Ok(unsafe { self.own.as_ref() })
    }

    /// Marks the memory as reachable, if mapped. Returns the number of regions and the access.
    #[inline(always)]
    pub(in crate::rdma) fn expose(&mut self) -> Option<(u32, i32)> {
        let mapped = self.mapped.as_mut()?;
        mapped.invalidated = false;
        // The standard requires local write with remote write.
        let write = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        let read = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
        let access = match mapped.direction {
            DataDirection::FromDevice => write,
            DataDirection::ToDevice => read,
            DataDirection::Bidirectional => write | read,
            DataDirection::None => 0,
        };
        let used = mapped.used.into();
        // Set after `Group::mapped`: a reader that sees `reachable` also sees `mapped`.
        self.own().reachable.set(used);
        Some((used, access as i32))
    }

    /// Returns whether no peer can reach the memory.
    #[inline(always)]
    pub fn unreachable(&self) -> bool {
        self.own().reachable.is_none() || self.regions.is_out_of_reach()
    }

    /// Unmaps the list and returns the object; `None` if there is no object.
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
                mapped.direction.into(),
            )
        }
        self.own().mapped.store(false, Release);
    }
}

impl<T: ScatterList> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.detach().is_err() {
            // Memory that a peer may write must not be reused.
            pr_err!("memory handle dropped while registered; its memory is leaked\n");
            core::mem::forget(self.object.take());
        }
    }
}
