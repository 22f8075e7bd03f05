// SPDX-License-Identifier: GPL-2.0

//! The parameters of the module.

use super::personality::{
    Personality,
    DEFAULT, //
};
use crate::provider::params;
use kernel::prelude::*;

/// Maximum number of adapters.
const MAX_DEVICES: u32 = 8;
/// Maximum number of ports per adapter.
const MAX_PORTS: u32 = 2;

/// Values of the module parameters.
#[derive(Clone, Copy)]
pub struct Params {
    /// Number of adapters.
    pub devices: u8,
    /// Number of ports per adapter.
    pub ports: u8,
    /// Width of a DMA address, in bits.
    pub dma_bits: u32,
    /// Number of adapters, from the first one on, that reach all memory without bounce buffers.
    pub direct: u32,
    /// A bit for each adapter that supports regions of pieces.
    pub gaps: u32,
    /// Whether the ports are active from the start.
    pub static_lids: bool,
    /// The personality of each adapter.
    pub personalities: [&'static Personality; MAX_DEVICES as usize],
}

impl Params {
    /// Reads the parameters.
    ///
    /// # Errors
    ///
    /// `EINVAL`, with a message in the log, if a parameter is out of range or unknown.
    pub fn get() -> Result<Self> {
        let (devices, ports, dma_bits, direct, gaps, static_lids) = params::get();
        if !(1..=MAX_DEVICES).contains(&devices) {
            pr_err!("devices is {devices}, not 1 to {MAX_DEVICES}\n");
            return Err(EINVAL);
        }
        if !(1..=MAX_PORTS).contains(&ports) {
            pr_err!("ports is {ports}, not 1 to {MAX_PORTS}\n");
            return Err(EINVAL);
        }
        if !(32..=64).contains(&dma_bits) {
            pr_err!("dma_bits is {dma_bits}, not 32 to 64\n");
            return Err(EINVAL);
        }
        let mut personalities = [&DEFAULT; MAX_DEVICES as usize];
        for (n, place) in personalities.iter_mut().enumerate() {
            if let Some(name) = params::personality(n) {
                *place = name
                    .to_str()
                    .map_err(|_| EINVAL)
                    .and_then(Personality::named)
                    .inspect_err(|_| pr_err!("personality of vfab{n} is unknown\n"))?;
            }
        }
        Ok(Self {
            // CAST: It is at most [`MAX_DEVICES`], 8.
            devices: devices as u8,
            // CAST: It is at most [`MAX_PORTS`], 2.
            ports: ports as u8,
            dma_bits,
            direct,
            gaps,
            static_lids,
            personalities,
        })
    }
}
