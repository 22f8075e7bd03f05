// SPDX-License-Identifier: GPL-2.0

//! Memory of a channel for small data, which saves the registration for each command.
//!
//! Each slot has a [`Piece`]. The driver copies immediate data to it and sends it after the
//! message. The first bytes of all pieces are one region, registered once for each connection. The
//! target writes the data of small reads there, and the driver copies it out. A target that writes
//! at the wrong time only changes the data of the next command in that slot, which is for the same
//! target.

use crate::{
    dma::{
        DataDirection,
        DeviceBytes,
        DeviceBytesMut, //
    },
    rdma::{
        dma::{
            Pool,
            SharedChunk, //
        },
        mr::{
            FixedMr,
            FixedPart,
            Segment, //
        },
        pd::Pd, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The memory of one slot.
pub struct Piece {
    /// The whole piece, to be sent with a message.
    pub chunk: SharedChunk,
    part: Option<FixedPart>,
}

impl Piece {
    /// Allocates a pool of `count` pieces of `size` bytes. The first `reach` bytes of each piece
    /// are a region that the target may write, unless `reach` is 0. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::shared`] and [`FixedMr::new`].
    pub fn pool(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        reach: usize,
    ) -> Result<(Arc<Pool>, Option<FixedMr>, KVVec<Self>)> {
        let direction = match reach {
            0 => DataDirection::ToDevice,
            _ => DataDirection::Bidirectional,
        };
        let (pool, chunks) = Pool::shared(pd, count, size, direction)?;
        let (fixed, parts) = match reach {
            0 => (None, KVVec::new()),
            _ => {
                let (mr, parts) = FixedMr::new(pd, &pool, &chunks, reach)?;
                (Some(mr), parts)
            }
        };
        let mut parts = parts.into_iter();
        let mut pieces = KVVec::with_capacity(count, GFP_KERNEL)?;
        for chunk in chunks {
            let part = parts.next();
            pieces.push(Self { chunk, part }, GFP_KERNEL)?;
        }
        Ok((pool, fixed, pieces))
    }

    /// Clears the first `len` bytes of earlier data. Precedes [`Piece::expose`].
    #[cold]
    #[inline(never)]
    pub fn clear(&mut self, len: u32) {
        self.place(len).clear_from(0);
    }

    /// Hands the first `len` bytes to the device. Returns the address, key and length for a write
    /// by the target.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the target may not write that many bytes.
    #[inline(always)]
    pub fn expose(&mut self, len: u32) -> Result<Segment> {
        let segment = self.part.as_ref().ok_or(EMSGSIZE)?.segment(len)?;
        self.chunk.sync_for_device(len as usize);
        Ok(segment)
    }

    /// Returns the first `len` bytes, which the target has written.
    #[inline]
    pub fn read(&self, len: u32) -> DeviceBytes<'_> {
        self.chunk.sync_for_cpu(len as usize)
    }

    /// Returns the first `len` bytes, or fewer if the piece is shorter, for the caller to fill in.
    #[inline(always)]
    pub fn place(&mut self, len: u32) -> DeviceBytesMut<'_> {
        self.chunk.place(len as usize)
    }
}
