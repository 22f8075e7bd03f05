// SPDX-License-Identifier: GPL-2.0

//! Memory for messages. Two unordered accesses to a chunk fail the test.

use super::pd::Pd;
use crate::dma::{DataDirection, DeviceBytes, DeviceBytesMut};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{prelude::*, sync::Arc};

pub struct Pool;

pub struct Chunk {
    bytes: UnsafeCell<Vec<u8>>,
}

pub struct SharedChunk(Chunk);

// SAFETY: Loom checks the accesses.
unsafe impl Sync for Chunk {}

impl Pool {
    pub fn new(
        _: &Arc<Pd>,
        count: usize,
        size: usize,
        _: DataDirection,
    ) -> Result<(Arc<Self>, KVVec<Chunk>)> {
        let mut chunks = KVVec::new();
        for _ in 0..count {
            chunks.push(Chunk::new(size), GFP_KERNEL)?;
        }
        Ok((Arc::new(Self, GFP_KERNEL)?, chunks))
    }

    pub fn shared(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        direction: DataDirection,
    ) -> Result<(Arc<Self>, KVVec<SharedChunk>)> {
        let (pool, chunks) = Self::new(pd, count, size, direction)?;
        let mut shared = KVVec::new();
        for chunk in chunks {
            shared.push(SharedChunk(chunk), GFP_KERNEL)?;
        }
        Ok((pool, shared))
    }

    pub fn is_for(&self, _: &Arc<Pd>, _: DataDirection) -> bool {
        true
    }
}

impl Chunk {
    pub fn new(size: usize) -> Self {
        Self {
            bytes: UnsafeCell::new(vec![0; size]),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: The chunk is borrowed mutably, and loom checks the accesses.
        unsafe { &mut *self.bytes.get() }
    }
}

impl SharedChunk {
    pub fn place(&mut self, len: usize) -> DeviceBytesMut<'_> {
        let bytes = &mut self.0.bytes_mut()[..len];
        // SAFETY: The bytes are borrowed mutably.
        unsafe { DeviceBytesMut::new(NonNull::from(&mut bytes[0]), len) }
    }

    pub fn sync_for_device(&self, _: usize) {}

    pub fn sync_for_cpu(&self, len: usize) -> DeviceBytes<'_> {
        // SAFETY: Loom checks the accesses.
        let bytes: &[u8] = unsafe { &*self.0.bytes.get() };
        DeviceBytes::from(&bytes[..len])
    }

    pub fn addr(&self) -> u64 {
        0
    }

    pub fn is_of(&self, _: &Arc<Pool>) -> bool {
        true
    }

    pub fn size(&self) -> usize {
        4096
    }
}
