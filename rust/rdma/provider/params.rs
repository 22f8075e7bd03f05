// SPDX-License-Identifier: GPL-2.0

//! The variables of `vfab_params.c`.

use crate::bindings;
use kernel::prelude::*;

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

/// The name of the personality of adapter `n`, if one is given. While the module is initialised.
pub fn personality(n: usize) -> Option<&'static CStr> {
    let names = &raw const bindings::srp_vfab_personality;
    // SAFETY: The variable is initialised before the module is, and constant then.
    let name = *unsafe { &*names }.get(n)?;
    if name.is_null() {
        return None;
    }
    // SAFETY: It is a string, which is there as long as the module is.
    Some(unsafe { CStr::from_char_ptr(name) })
}
