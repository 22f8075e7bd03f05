// SPDX-License-Identifier: GPL-2.0

//! The memory that a device may access: checks of the SGEs of requests, and copies between them.

use super::mr::{
    Mr,
    Place, //
};
use crate::provider::{
    attr::PdName,
    dma::{
        DmaDevice,
        Span, //
    },
    table::{
        Table,
        Use, //
    },
    wr::Sge, //
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

/// The key of all memory, for local requests of the kernel. No region has this key.
pub const LOCAL_DMA_LKEY: u32 = 0xffff_ff00;

/// The memory of a device.
pub struct Memory {
    /// The device for which memory is mapped.
    pub dma: Arc<DmaDevice>,
    /// The memory regions, by number; number 0 is unused.
    pub mrs: Table<Mr>,
    /// Number of registrations, and total number of pages or pieces in them.
    registered: [Atomic<u64>; 2],
}

/// The access is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied;

/// The failed side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The destination.
    To,
    /// The source.
    From,
}

/// A sequence of pieces of memory.
pub struct Pieces<'a> {
    memory: &'a Memory,
    pd: PdName,
    access: u32,
    /// Whether the peer named the piece.
    remote: bool,
    rest: &'a [Sge],
    /// The region of the current piece, and the rest of the piece.
    region: Option<(Use<'a, Mr>, Sge)>,
    span: Span<'a>,
}

impl<'a> Pieces<'a> {
    /// The SGEs of a local request.
    #[inline]
    pub fn local(memory: &'a Memory, pd: PdName, access: u32, list: &'a [Sge]) -> Self {
        Self {
            memory,
            pd,
            access,
            remote: false,
            rest: list,
            region: None,
            span: Span::EMPTY,
        }
    }

    /// A piece that the peer named.
    #[inline]
    pub fn remote(memory: &'a Memory, pd: PdName, access: u32, piece: &'a [Sge; 1]) -> Self {
        Self {
            remote: true,
            ..Self::local(memory, pd, access, piece)
        }
    }

    /// Sets `span` to the next part of the current piece. Returns `false` if there is none.
    fn next_of_region(&mut self) -> Result<bool, Denied> {
        let Some((mr, piece)) = self.region.take() else {
            return Ok(false);
        };
        let len = u64::from(piece.bytes());
        let place = mr
            .admits(self.pd, piece.key(), self.access, piece.addr(), len)
            .map_err(|_| Denied)?;
        let (addr, n) = match place {
            Place::Memory(addr) => (addr, len),
            Place::Region(list, at) => {
                let (addr, n) = list.find(at).ok_or(Denied)?;
                (addr, n.min(len))
            }
        };
        // CAST: `n` is at most `piece.bytes()`.
        let n = n as u32;
        self.span = self.memory.span(addr, n as usize).ok_or(Denied)?;
        if n < piece.bytes() {
            let next = piece.addr().wrapping_add(u64::from(n));
            self.region = Some((mr, Sge::new(next, piece.key(), piece.bytes() - n)));
        } else {
            // Keep the region in use while it is accessed.
            self.region = Some((mr, Sge::new(0, piece.key(), 0)));
        }
        Ok(true)
    }

    /// Sets `span` to the next part that is not empty; returns `false` if there is none. Inlines
    /// the common case, kernel memory named by its address.
    #[inline]
    fn next(&mut self) -> Result<bool, Denied> {
        if let (None, Some((first, rest))) = (&self.region, self.rest.split_first()) {
            if first.bytes() > 0 && self.is_all_memory(first) {
                self.rest = rest;
                return self.next_of_all(first);
            }
        }
        self.next_of_any()
    }

    fn is_all_memory(&self, piece: &Sge) -> bool {
        piece.key() == LOCAL_DMA_LKEY && !self.remote && self.pd.has_all_memory()
    }

    #[inline]
    fn next_of_all(&mut self, piece: &Sge) -> Result<bool, Denied> {
        let span = self.memory.span(piece.addr(), piece.bytes() as usize);
        self.span = span.ok_or(Denied)?;
        Ok(true)
    }

    fn next_of_any(&mut self) -> Result<bool, Denied> {
        loop {
            if self.region.as_ref().is_some_and(|(_, p)| p.bytes() > 0) && self.next_of_region()? {
                return Ok(true);
            }
            self.region = None;
            let Some((first, rest)) = self.rest.split_first() else {
                return Ok(false);
            };
            self.rest = rest;
            if first.bytes() == 0 {
                continue;
            }
            if self.is_all_memory(first) {
                return self.next_of_all(first);
            }
            let mr = self
                .memory
                .mrs
                .get(Mr::index_of(first.key()))
                .ok_or(Denied)?;
            // Check the whole piece before any access.
            mr.admits(
                self.pd,
                first.key(),
                self.access,
                first.addr(),
                first.bytes().into(),
            )
            .map_err(|_| Denied)?;
            self.region = Some((mr, *first));
        }
    }

    /// Copies `len` bytes from `from` to these pieces.
    ///
    /// # Errors
    ///
    /// The side that failed. Some bytes may have been copied.
    #[inline]
    pub fn fill(&mut self, from: &mut Pieces<'_>, mut len: usize) -> Result<(), Side> {
        while len > 0 {
            if self.span.left() == 0 && !self.next().map_err(|_| Side::To)? {
                return Err(Side::To);
            }
            if from.span.left() == 0 && !from.next().map_err(|_| Side::From)? {
                return Err(Side::From);
            }
            len -= self.span.take(&mut from.span, len);
        }
        Ok(())
    }

    /// Copies `bytes` to the pieces.
    ///
    /// # Errors
    ///
    /// [`Denied`] if access is refused.
    pub fn write(&mut self, bytes: &mut [u8]) -> Result<(), Denied> {
        let mut from = Span::of(bytes);
        while from.left() > 0 {
            if self.span.left() == 0 && !self.next()? {
                return Err(Denied);
            }
            self.span.take(&mut from, usize::MAX);
        }
        Ok(())
    }

    /// Copies the pieces to `bytes`.
    ///
    /// # Errors
    ///
    /// [`Denied`] if access is refused.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<(), Denied> {
        let mut to = Span::of(bytes);
        while to.left() > 0 {
            if self.span.left() == 0 && !self.next()? {
                return Err(Denied);
            }
            to.take(&mut self.span, usize::MAX);
        }
        Ok(())
    }

    /// Checks that the peer may access its piece, which must not be empty.
    ///
    /// # Errors
    ///
    /// [`Denied`] if access is refused.
    pub fn check(&mut self) -> Result<(), Denied> {
        self.next().map(|_| ())
    }
}

impl Memory {
    /// Memory of device `dma`, with these regions.
    pub fn new(dma: Arc<DmaDevice>, mrs: Table<Mr>) -> Self {
        Self {
            dma,
            mrs,
            registered: [const { Atomic::new(0) }; 2],
        }
    }

    /// The memory at an address that a request or a region in use contains.
    #[allow(unsafe_code)]
    #[inline]
    fn span(&self, addr: u64, len: usize) -> Option<Span<'_>> {
        // SAFETY: Only `Pieces` calls this, with an address in a request that has not completed or
        // in a region that it uses.
        unsafe { self.dma.span(addr, len) }
    }

    /// The number of registrations, and the total number of pages or pieces in them.
    pub fn registered(&self) -> (u64, u64) {
        let [count, parts] = &self.registered;
        (count.load(Relaxed), parts.load(Relaxed))
    }

    /// Invalidates the region that `key` names, and waits until accesses to it have ended.
    ///
    /// # Errors
    ///
    /// [`Denied`] if there is no valid region with this key in this domain.
    pub fn invalidate(&self, pd: PdName, key: u32) -> Result<(), Denied> {
        let index = Mr::index_of(key);
        let mr = self.mrs.get(index).ok_or(Denied)?;
        mr.invalidate(pd, key).map_err(|_| Denied)?;
        drop(mr);
        self.mrs.quiesce(index);
        Ok(())
    }

    /// If `key` names a free region of this domain that requests can register, returns whether all
    /// bits of `key` match.
    pub fn is_free(&self, pd: PdName, key: u32) -> Option<bool> {
        self.mrs.get(Mr::index_of(key))?.is_free(pd, key)
    }

    /// Makes a free region valid.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the region is not of this domain or not free, or no memory was mapped to it.
    pub fn register(
        &self,
        pd: PdName,
        index: u32,
        key: u32,
        access: u32,
        iova: u64,
    ) -> Result<(), Denied> {
        let mr = self.mrs.get(index as usize).ok_or(Denied)?;
        let parts = mr.register(pd, key, access, iova).map_err(|_| Denied)?;
        let [count, all] = &self.registered;
        count.add(1, Relaxed);
        // CAST: There are fewer than 2^32 parts.
        all.add(parts as u64, Relaxed);
        Ok(())
    }
}
