// SPDX-License-Identifier: GPL-2.0

//! A host channel adapter without hardware, for tests.
//!
//! [`vfab`] is the device. Its unsafe code only implements and calls unsafe interfaces of
//! [`provider`], the interface to `ib_core`.

#![crate_name = "ib_vfab"]

#[path = "../bindings/lib.rs"]
pub mod bindings;
#[cfg(SRP_KUNIT)]
#[path = "../kernel/check.rs"]
mod check;
#[path = "../kernel/compat.rs"]
pub mod compat;
pub mod provider;
pub mod vfab;

pub use compat::errno;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use vfab::{
    devices::{
        Devices,
        DevicesFile, //
    },
    params::Params,
    qp::net::Running, //
};

module! {
    type: Module,
    name: "ib_vfab",
    authors: ["The srp-rs authors"],
    description: "Software InfiniBand host channel adapter, for tests",
    license: "GPL",
}

/// Removes the adapters on drop.
struct All(Arc<Devices>);

impl Drop for All {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// The module. Its fields are dropped in the order of their declaration.
pub struct Module {
    _files: [DevicesFile; 2],
    _all: All,
    _running: Running,
}

impl kernel::Module for Module {
    fn init(_: &'static ThisModule) -> Result<Self> {
        let (devices, running) = Devices::new(Params::get()?)?;
        let all = All(devices);
        let files = Devices::files(&all.0)?;
        Ok(Self {
            _files: files,
            _all: all,
            _running: running,
        })
    }
}
