// SPDX-License-Identifier: GPL-2.0

//! Memory regions: a key, rights, and the memory behind it.
//!
//! A region of all memory, or of a process, is valid as long as it exists. Every other region is
//! valid or free: REG_MR makes a free region valid and sets eight bits of its key; LOCAL_INV, or a
//! SEND_WITH_INV from the peer, makes a valid region free and waits until accesses to its memory
//! have ended.

use super::personality::{
    Iova,
    Regions, //
};
use crate::provider::{
    attr::PdName,
    pages::{
        List,
        Pages,
        Shape, //
    },
    umem::Umem,
    verbs::Region, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    }, //
};

/// Set in the state of a valid region.
const VALID: u64 = 1 << 63;
/// The eight bits of the key that a registration sets.
const VARIANT: u32 = 0xff;

/// The memory behind a region.
enum Behind {
    All,
    Pages(Pages),
    /// Like `Pages`, but registration requires an address within the first page.
    Offset(Pages),
    Process(Umem),
}

/// A region.
pub struct Mr {
    index: u32,
    pd: PdName,
    behind: Behind,
    /// The low eight bits of the first key.
    first: u8,
    /// [`VALID`], the access rights, and the low eight bits of the key.
    state: Atomic<u64>,
}

/// The region does not fit the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad;

impl Mr {
    /// Creates region `index`. `variant` contains the low eight bits of its first key; `regions`
    /// determines the addresses that the region may have, and the offsets that it takes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(
        index: u32,
        variant: u8,
        pd: PdName,
        region: Region,
        access: u32,
        regions: &Regions,
    ) -> Result<Self> {
        let pages = |shape, most: u32| Pages::new(shape, most as usize, regions.offsets);
        let (behind, valid) = match region {
            Region::All => (Behind::All, VALID),
            Region::Pages(most) => {
                let pages = pages(Shape::Pages, most)?;
                let behind = match regions.iova {
                    Iova::Any => Behind::Pages(pages),
                    Iova::FirstPage => Behind::Offset(pages),
                };
                (behind, 0)
            }
            Region::Pieces(most) => (Behind::Pages(pages(Shape::Pieces, most)?), 0),
            Region::Process(memory) => (Behind::Process(memory), VALID),
        };
        Ok(Self {
            index,
            pd,
            behind,
            first: variant,
            state: Atomic::new(valid | u64::from(access) << 8 | u64::from(variant)),
        })
    }

    /// The table index of the region that `key` names.
    #[inline]
    pub fn index_of(key: u32) -> usize {
        (key >> 8) as usize
    }

    /// The region's number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The key until a registration sets another one.
    pub fn first_key(&self) -> u32 {
        self.index << 8 | u32::from(self.first)
    }

    /// The pages or pieces, if requests can register the region.
    pub fn pages(&self) -> Option<&Pages> {
        match &self.behind {
            Behind::Pages(pages) | Behind::Offset(pages) => Some(pages),
            _ => None,
        }
    }

    /// Makes the region valid at address `iova`, with this key and these rights. Returns the number
    /// of its pages or pieces.
    ///
    /// # Errors
    ///
    /// [`Bad`] if the region is valid, of another domain or cannot be registered, the key is of
    /// another region, or the mapped memory is empty or does not allow `iova`.
    #[allow(unsafe_code)]
    pub fn register(&self, pd: PdName, key: u32, access: u32, iova: u64) -> Result<usize, Bad> {
        let pages = self.pages().ok_or(Bad)?;
        let free = self.state.load(Acquire) & VALID == 0;
        if !free || pd != self.pd || key >> 8 != self.index {
            return Err(Bad);
        }
        // SAFETY: The region is not valid, so its list is not in use. As with any adapter, the user
        // does not map memory to the region or register it again concurrently.
        unsafe { pages.turn(iova) };
        // SAFETY: The region is being registered; no memory is mapped to it now.
        let list = unsafe { pages.current() };
        if list.len == 0 || matches!(self.behind, Behind::Offset(_)) && !list.is_offset() {
            return Err(Bad);
        }
        let state = VALID | u64::from(access) << 8 | u64::from(key & VARIANT);
        self.state.store(state, Release);
        Ok(list.count())
    }

    /// Returns whether `key` is the last key of the region, or `None` if the region is in use,
    /// belongs to another domain or is not registered by requests.
    pub fn is_free(&self, pd: PdName, key: u32) -> Option<bool> {
        let state = self.state.load(Acquire);
        let free = pd == self.pd && self.pages().is_some() && state & VALID == 0;
        free.then_some(state as u32 & VARIANT == key & VARIANT)
    }

    /// Makes the region free. Accesses in flight may continue.
    ///
    /// # Errors
    ///
    /// [`Bad`] if `key` is not the region's key, or the region is not valid, of another domain or
    /// not registered by a request.
    pub fn invalidate(&self, pd: PdName, key: u32) -> Result<(), Bad> {
        let state = self.state.load(Relaxed);
        let ours = state & VALID != 0 && state as u32 & VARIANT == key & VARIANT;
        if !ours || pd != self.pd || self.pages().is_none() {
            return Err(Bad);
        }
        self.state.store(state & !VALID, Relaxed);
        // Full order: the caller then reads the count of accesses in flight and waits for them.
        self.state.xchg(state & !VALID, Full);
        Ok(())
    }

    /// Checks an access to `len` bytes at `addr` with this key. Returns the position in the
    /// region's list, or, for a region of all memory, the address itself.
    ///
    /// # Errors
    ///
    /// [`Bad`] if the access is not allowed.
    #[allow(unsafe_code)]
    #[inline]
    pub fn admits(
        &self,
        pd: PdName,
        key: u32,
        access: u32,
        addr: u64,
        len: u64,
    ) -> Result<Place<'_>, Bad> {
        let state = self.state.load(Acquire);
        let rights = (state >> 8) as u32;
        if state & VALID == 0
            || state as u32 & VARIANT != key & VARIANT
            || pd != self.pd
            || rights & access != access
        {
            return Err(Bad);
        }
        let list = match &self.behind {
            Behind::All => return Ok(Place::Memory(addr)),
            // SAFETY: The region is valid, and the caller, which got it from the table, holds a use
            // of it. An invalidation waits until that use has ended.
            Behind::Pages(pages) | Behind::Offset(pages) => unsafe { pages.current() },
            Behind::Process(memory) => memory.list(),
        };
        let at = addr.checked_sub(list.iova).ok_or(Bad)?;
        if at.checked_add(len).is_none_or(|end| end > list.len) {
            return Err(Bad);
        }
        Ok(Place::Region(list, at))
    }
}

/// A location in memory.
pub enum Place<'a> {
    /// A DMA address.
    Memory(u64),
    /// An offset in a list of pages or pieces.
    Region(&'a List, u64),
}
