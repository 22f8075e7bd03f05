// SPDX-License-Identifier: GPL-2.0

//! What differs between the kernels that the module is built for.
//!
//! `Kbuild` asks the tree of the kernel what it has (`srp_has`), and says it as `SRP_HAS_...`. Only this file looks
//! at that; whatever the kernel is, it has the same names.

use kernel::{
    sync::barrier,
    ThisModule, //
};

/// The module, for what is registered in its name.
#[cfg(SRP_HAS_MODULE_METADATA)]
pub const THIS_MODULE: &ThisModule = kernel::module::this_module::<crate::Module>();
/// The module, for what is registered in its name.
#[cfg(not(SRP_HAS_MODULE_METADATA))]
pub const THIS_MODULE: &ThisModule = &crate::THIS_MODULE;

/// A count that C keeps in an `int` in one kernel and in a `u32` in another; 0 if it is below that.
pub fn count(n: impl TryInto<u32>) -> u32 {
    n.try_into().unwrap_or(0)
}

/// The ports of the kernel's own driver are in the network namespace of their RDMA device: `/sys/class/infiniband_srp`
/// has those of the reader's namespace only.
pub const PORTS_IN_NAMESPACES: bool = cfg!(SRP_HAS_PORTS_IN_NAMESPACES);

/// Loads before this come before those after it, for other CPUs. Any context.
///
/// C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h)
#[inline(always)]
pub fn smp_rmb() {
    #[cfg(SRP_HAS_BARRIER_KINDS)]
    barrier::smp_mb(barrier::Read);
    #[cfg(not(SRP_HAS_BARRIER_KINDS))]
    barrier::smp_rmb();
}

/// Stores before this come before those after it, for other CPUs. Any context.
///
/// C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h)
#[inline(always)]
pub fn smp_wmb() {
    #[cfg(SRP_HAS_BARRIER_KINDS)]
    barrier::smp_mb(barrier::Write);
    #[cfg(not(SRP_HAS_BARRIER_KINDS))]
    barrier::smp_wmb();
}

/// The values of C's `enum dma_data_direction`: integers, or a type of their own.
pub mod dma_direction {
    #[cfg(SRP_HAS_DMA_DIRECTION_TYPE)]
    mod values {
        use crate::bindings::dma_data_direction as Direction;

        /// The device reads and writes.
        pub const BIDIRECTIONAL: Direction = Direction::DMA_BIDIRECTIONAL;
        /// The device writes.
        pub const FROM_DEVICE: Direction = Direction::DMA_FROM_DEVICE;
        /// The device reads.
        pub const TO_DEVICE: Direction = Direction::DMA_TO_DEVICE;
    }
    #[cfg(not(SRP_HAS_DMA_DIRECTION_TYPE))]
    use crate::bindings as values;

    #[cfg(not(SRP_HAS_DMA_DIRECTION_TYPE))]
    pub use values::{
        dma_data_direction_DMA_BIDIRECTIONAL as BIDIRECTIONAL,
        dma_data_direction_DMA_FROM_DEVICE as FROM_DEVICE,
        dma_data_direction_DMA_TO_DEVICE as TO_DEVICE, //
    };
    #[cfg(SRP_HAS_DMA_DIRECTION_TYPE)]
    pub use values::{
        BIDIRECTIONAL,
        FROM_DEVICE,
        TO_DEVICE, //
    };
}
