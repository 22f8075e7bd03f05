// SPDX-License-Identifier: GPL-2.0

//! Slots for the requests of a queue.

use kernel::{
    alloc::KVVec,
    prelude::*, //
};

/// Slots for `size` requests, rounded up to a power of two, so that a count maps to the right slot
/// after it has wrapped at 2^32, too.
pub(super) struct Places<T> {
    all: KVVec<T>,
    size: u32,
}

impl<T: Copy> Places<T> {
    /// Slots with `empty` in each.
    pub(super) fn new(size: u32, empty: T) -> Result<Self> {
        let mut all = KVVec::new();
        all.resize(size.next_power_of_two() as usize, empty, GFP_KERNEL)?;
        Ok(Self { all, size })
    }

    /// No slots.
    pub(super) fn none() -> Self {
        Self {
            all: KVVec::new(),
            size: 0,
        }
    }

    /// Maximum number of requests.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Number of slots.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Index of the slot of request `count`.
    #[inline]
    pub(super) fn at(&self, count: u32) -> usize {
        count as usize & self.all.len().wrapping_sub(1)
    }

    /// The content of the slot of request `count`.
    #[inline]
    pub(super) fn get(&self, count: u32) -> &T {
        &self.all[self.at(count)]
    }

    /// The slot of request `count`.
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
