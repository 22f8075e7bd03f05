// SPDX-License-Identifier: GPL-2.0

//! The variables of `vfab_params.c`.

use crate::bindings;

macro_rules! read {
    ($name:ident) => {{
        let parameter = &raw const bindings::$name;
        // SAFETY: It is a variable that is initialised before the module is, and constant then.
        unsafe { *parameter }
    }};
}

/// Adapters, ports of each, bits of a DMA address, adapters that reach all memory, those with [`Region::Pieces`](super::verbs::Region::Pieces), and whether
/// ports are active from the start.
pub fn get() -> (u32, u32, u32, u32, u32, bool) {
    (
        read!(srp_vfab_devices),
        read!(srp_vfab_ports),
        read!(srp_vfab_dma_bits),
        read!(srp_vfab_direct),
        read!(srp_vfab_gaps),
        read!(srp_vfab_static_lids),
    )
}
