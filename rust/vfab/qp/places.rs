// SPDX-License-Identifier: GPL-2.0

//! Places for the requests of a queue.

use kernel::{
    alloc::KVVec,
    prelude::*, //
};

/// Places for `size` requests, and as many more as it takes for a power of two: so the place of a count is known when the
/// count has been through 2^32, too.
pub(super) struct Places<T> {
    all: KVVec<T>,
    size: u32,
}

impl<T: Copy> Places<T> {
    /// Places with `empty` in each.
    pub(super) fn new(size: u32, empty: T) -> Result<Self> {
        let mut all = KVVec::new();
        all.resize(size.next_power_of_two() as usize, empty, GFP_KERNEL)?;
        Ok(Self { all, size })
    }

    /// No place.
    pub(super) fn none() -> Self {
        Self {
            all: KVVec::new(),
            size: 0,
        }
    }

    /// How many requests there may be at once.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// How many places there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the place of request `count`.
    #[inline]
    pub(super) fn at(&self, count: u32) -> usize {
        count as usize & self.all.len().wrapping_sub(1)
    }

    /// What is in the place of request `count`.
    #[inline]
    pub(super) fn get(&self, count: u32) -> &T {
        &self.all[self.at(count)]
    }

    /// The place of request `count`.
    #[inline]
    pub(super) fn place(&mut self, count: u32) -> &mut T {
        let at = self.at(count);
        &mut self.all[at]
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(vfab_places)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_when_the_count_wraps() -> Result {
        for size in [1, 2, 3, 62, 63, 64, 65] {
            let places = Places::new(size, 0u8)?;
            assert_eq!(places.size(), size);
            assert_eq!(places.at(0), (places.at(u32::MAX) + 1) % places.count());
        }
        Ok(())
    }
}
