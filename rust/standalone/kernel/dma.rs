// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `dma`: the direction of a transfer, and the name that `uaccess`
//! uses. The rest of that module needs device drivers.

use crate::bindings::dma_data_direction;
use core::{
    convert::Infallible,
    marker::PhantomData, //
};

/// The direction of a DMA transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// CAST: The values are 0 to 3.
#[repr(u32)]
pub enum DataDirection {
    /// The CPU and the device write.
    Bidirectional = dma_data_direction::DMA_BIDIRECTIONAL.0 as u32,
    /// The CPU writes, the device reads.
    ToDevice = dma_data_direction::DMA_TO_DEVICE.0 as u32,
    /// The device writes, the CPU reads.
    FromDevice = dma_data_direction::DMA_FROM_DEVICE.0 as u32,
    /// No transfer.
    None = dma_data_direction::DMA_NONE.0 as u32,
}

impl From<DataDirection> for dma_data_direction {
    #[inline]
    fn from(direction: DataDirection) -> Self {
        // CAST: The values are those of C.
        Self(direction as _)
    }
}

/// Never instantiated.
pub struct Coherent<T: ?Sized>(Infallible, PhantomData<T>);

impl<T: ?Sized> Coherent<T> {
    /// Never called.
    pub fn size(&self) -> usize {
        match self.0 {}
    }

    /// Never called.
    pub fn as_ptr(&self) -> *const T {
        match self.0 {}
    }
}
