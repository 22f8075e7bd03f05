// SPDX-License-Identifier: GPL-2.0

//! The parameters in `params.c`.

use crate::bindings;
use kernel::prelude::*;

macro_rules! read {
    ($name:ident) => {{
        let parameter = &raw const bindings::$name;
        // SAFETY: The variable is initialised before the module, and constant from then on.
        unsafe { *parameter }
    }};
}

/// Returns the numbers of adapters, ports per adapter, bits of a DMA address, and first adapters
/// that reach all memory; a mask of the adapters with
/// [`Region::Pieces`](super::verbs::Region::Pieces); and whether ports are active from the start.
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

/// Time from a completion to its interrupt, in ns.
pub(super) fn interrupt_ns() -> u32 {
    read!(srp_vfab_interrupt_ns)
}

/// The name of the personality of adapter `n`, if given. Call it while the module is initialised.
pub fn personality(n: usize) -> Option<&'static CStr> {
    let names = &raw const bindings::srp_vfab_personality;
    // SAFETY: The variable is initialised before the module, and constant from then on.
    let name = *unsafe { &*names }.get(n)?;
    if name.is_null() {
        return None;
    }
    // SAFETY: `name` is a string that lives as long as the module.
    Some(unsafe { CStr::from_char_ptr(name) })
}
