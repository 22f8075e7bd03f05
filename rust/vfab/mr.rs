// SPDX-License-Identifier: GPL-2.0

//! Memory regions: a key, rights, and the memory behind it.
//!
//! A region of all memory, or of a process, is valid as long as it exists. Others are valid or free: REG_MR makes a free one valid, with eight bits of its key as the request says; LOCAL_INV, or
//! a SEND_WITH_INV of the peer, makes a valid one free, and waits until nobody accesses its memory.

use super::personality::Iova;
use crate::rdma::provider::{
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

/// It may be used.
const VALID: u64 = 1 << 63;
/// The eight bits of the key that change.
const VARIANT: u32 = 0xff;

/// The memory behind a region.
enum Behind {
    All,
    Pages(Pages),
    /// As above, with an address in the first page.
    Offset(Pages),
    Process(Umem),
}

/// A region.
pub struct Mr {
    index: u32,
    pd: PdName,
    behind: Behind,
    /// The eight bits of its first key.
    first: u8,
    /// [`VALID`], rights, and the eight bits.
    state: Atomic<u64>,
}

/// Why a region is not what a request takes it for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad;

impl Mr {
    /// A region with number `index`, and these eight bits of its first key; its address may be
    /// `iova`.
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
        iova: Iova,
    ) -> Result<Self> {
        let (behind, valid) = match region {
            Region::All => (Behind::All, VALID),
            Region::Pages(most) => {
                let pages = Pages::new(Shape::Pages, most as usize)?;
                let behind = match iova {
                    Iova::Any => Behind::Pages(pages),
                    Iova::FirstPage => Behind::Offset(pages),
                };
                (behind, 0)
            }
            Region::Pieces(most) => (Behind::Pages(Pages::new(Shape::Pieces, most as usize)?), 0),
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

    /// Where regions with this key are in the table.
    #[inline]
    pub fn index_of(key: u32) -> usize {
        (key >> 8) as usize
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its key as long as nobody gives it another one.
    pub fn first_key(&self) -> u32 {
        self.index << 8 | u32::from(self.first)
    }

    /// The pages or pieces that are described and registered, if it is such a region.
    pub fn pages(&self) -> Option<&Pages> {
        match &self.behind {
            Behind::Pages(pages) | Behind::Offset(pages) => Some(pages),
            _ => None,
        }
    }

    /// Makes it valid, with this key and these rights, as the memory that begins at `iova`. Returns how many pages or
    /// pieces it has.
    ///
    /// # Errors
    ///
    /// [`Bad`] if it is valid, of another domain, the key is that of another one, or it has no pages to describe.
    #[allow(unsafe_code)]
    pub fn register(&self, pd: PdName, key: u32, access: u32, iova: u64) -> Result<usize, Bad> {
        let pages = self.pages().ok_or(Bad)?;
        let free = self.state.load(Acquire) & VALID == 0;
        if !free || pd != self.pd || key >> 8 != self.index {
            return Err(Bad);
        }
        // SAFETY: The region is not valid, so its list is not in use. The user that registers it
        // neither describes it nor registers it twice meanwhile, as with any adapter.
        unsafe { pages.turn(iova) };
        // SAFETY: As above.
        let list = unsafe { pages.current() };
        if list.len == 0 || matches!(self.behind, Behind::Offset(_)) && !list.is_offset() {
            return Err(Bad);
        }
        let state = VALID | u64::from(access) << 8 | u64::from(key & VARIANT);
        self.state.store(state, Release);
        Ok(list.count())
    }

    /// Whether it is one of this domain that requests register, and free, and whether this was its
    /// key.
    pub fn is_free(&self, pd: PdName, key: u32) -> Option<bool> {
        let state = self.state.load(Acquire);
        let free = pd == self.pd && self.pages().is_some() && state & VALID == 0;
        free.then_some(state as u32 & VARIANT == key & VARIANT)
    }

    /// Makes it free. Accesses that have begun are not over yet.
    ///
    /// # Errors
    ///
    /// [`Bad`] if this is not its key, it is not valid, of another domain, or was not registered by a request.
    pub fn invalidate(&self, pd: PdName, key: u32) -> Result<(), Bad> {
        let state = self.state.load(Relaxed);
        let ours = state & VALID != 0 && state as u32 & VARIANT == key & VARIANT;
        if !ours || pd != self.pd || self.pages().is_none() {
            return Err(Bad);
        }
        self.state.store(state & !VALID, Relaxed);
        // The accesses that others wait for are counted by an operation that is ordered, too.
        self.state.xchg(state & !VALID, Full);
        Ok(())
    }

    /// Whether `len` bytes at `addr` may be accessed with this key, and where: at this place of the region, or, of one
    /// of all memory, at the address itself.
    ///
    /// # Errors
    ///
    /// [`Bad`] if not.
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
            // SAFETY: The region is valid and in use by the caller that has it from the table,
            // which ends that use before the region is invalidated.
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

/// Where something is.
pub enum Place<'a> {
    /// At a DMA address.
    Memory(u64),
    /// At a place of a list of pages or pieces.
    Region(&'a List, u64),
}
