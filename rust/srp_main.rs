// SPDX-License-Identifier: GPL-2.0

//! SRP initiator.

#![crate_name = "ib_srp"]
use kernel::prelude::*;
pub mod bindings;

module! {
    type: Srp,
    name: "ib_srp",
    authors: ["srp-rs"],
    description: "InfiniBand SCSI RDMA Protocol initiator",
    license: "Dual BSD/GPL",
}

struct Srp;
impl kernel::Module for Srp {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Srp)
    }
}
