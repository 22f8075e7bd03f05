// SPDX-License-Identifier: GPL-2.0

//! The ring of work queue entries of a send or receive queue.

use super::super::cq::Freed;
use crate::provider::wr::Sge;
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// Slots for `size` requests with their SGEs. The number of slots is a power of two, so that a
/// count maps to the right slot even after it has wrapped at 2^32.
pub(super) struct Wqes<T> {
    all: KVVec<T>,
    size: u32,
    sges: KVVec<Sge>,
    /// Maximum number of SGEs per request.
    per_wqe: u32,
    /// Number of requests whose slots are free again, because their completions were polled. `None`
    /// if there are no slots.
    freed: Option<Arc<Freed>>,
    /// Number of requests posted (`head`) and done (`next`), modulo 2^32.
    head: u32,
    next: u32,
}

impl<T: Copy> Wqes<T> {
    /// Creates slots that contain `empty`, with room for `per_wqe` SGEs per request.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub(super) fn new(size: u32, per_wqe: u32, empty: T) -> Result<Self> {
        let mut this = Self {
            size,
            per_wqe,
            freed: Some(Arc::new(Freed::none(), GFP_KERNEL)?),
            ..Self::none()
        };
        let count = size.next_power_of_two() as usize;
        this.all.resize(count, empty, GFP_KERNEL)?;
        let sges = count * per_wqe as usize;
        this.sges = KVVec::with_capacity(sges, GFP_KERNEL)?;
        for _ in 0..sges {
            this.sges.push(Sge::new(0, 0, 0), GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// Creates a ring without slots.
    pub(super) fn none() -> Self {
        Self {
            all: KVVec::new(),
            size: 0,
            sges: KVVec::new(),
            per_wqe: 0,
            freed: None,
            head: 0,
            next: 0,
        }
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.all.len()
    }

    /// Number of pending requests.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        self.head.wrapping_sub(self.next)
    }

    /// Checks that a request with these SGEs fits.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if no slot is free, `EINVAL` if there are too many SGEs.
    #[inline]
    pub(super) fn admit(&self, sges: &[Sge]) -> Result {
        let freed = self.freed.as_ref().map_or(0, |f| f.count());
        if self.head.wrapping_sub(freed) >= self.size {
            return Err(ENOMEM);
        }
        if sges.len() > self.per_wqe as usize {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Index of the slot that [`add`](Self::add) fills.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.at(self.head)
    }

    /// Adds a request that [`admit`](Self::admit) has accepted.
    #[inline]
    pub(super) fn add(&mut self, request: T, sges: &[Sge]) {
        let at = self.free();
        let first = at * self.per_wqe as usize;
        for (to, sge) in self.sges[first..].iter_mut().zip(sges) {
            *to = *sge;
        }
        self.all[at] = request;
        self.head = self.head.wrapping_add(1);
    }

    /// Index of the slot of the next request.
    #[inline]
    pub(super) fn at_next(&self) -> usize {
        self.at(self.next)
    }

    /// The next request, or the content of a free slot if none is pending.
    #[inline]
    pub(super) fn next(&self) -> &T {
        &self.all[self.at_next()]
    }

    /// The first `count` SGEs of the next request.
    #[inline]
    pub(super) fn sges(&self, count: u32) -> &[Sge] {
        let first = self.at_next() * self.per_wqe as usize;
        &self.sges[first..first + count as usize]
    }

    /// Ends the next request.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// The count of free slots, and its value once the completion of the last ended request is
    /// polled. `None` if there are no slots.
    #[inline]
    pub(super) fn frees(&self) -> Option<(&Arc<Freed>, u32)> {
        self.freed.as_ref().map(|freed| (freed, self.next))
    }

    /// Drops all posted requests.
    pub(super) fn reset(&mut self) {
        self.next = self.head;
        if let Some(freed) = &self.freed {
            freed.set(self.head);
        }
    }

    #[inline]
    fn at(&self, count: u32) -> usize {
        count as usize & self.all.len().wrapping_sub(1)
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(vfab_wqes)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_when_the_count_wraps() -> Result {
        for size in [1, 2, 3, 62, 63, 64, 65] {
            let wqes = Wqes::new(size, 1, 0u8)?;
            assert_eq!(wqes.size, size);
            assert_eq!(wqes.at(0), (wqes.at(u32::MAX) + 1) % wqes.slots());
        }
        Ok(())
    }
}
