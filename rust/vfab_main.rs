// SPDX-License-Identifier: GPL-2.0

//! A host channel adapter without hardware, for tests.
//!
//! [`vfab`] is the device, without unsafe code; [`rdma::provider`] is what it needs of `ib_core`.

#![crate_name = "ib_vfab"]

pub mod bindings;
pub mod compat;
pub mod errno;
/// RDMA, of which only the device's side is here.
pub mod rdma {
    pub mod provider;
}
/// Locks.
pub mod sync {
    pub mod irq_lock;
}
pub mod vfab;

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use rdma::provider::{
    dma::DmaDevice,
    Registration, //
};
use vfab::{
    fabric::Fabric,
    hca::Hca,
    manager,
    params::Params,
    qp::net::Net, //
};

module! {
    type: Module,
    name: "ib_vfab",
    authors: ["The srp-rs authors"],
    description: "Software InfiniBand host channel adapter, for tests",
    license: "GPL",
}

/// Ends what runs by itself when it goes.
struct Running(Arc<Net>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// An adapter, known to `ib_core`.
struct Device {
    registration: Registration<Hca>,
}

impl Drop for Device {
    fn drop(&mut self) {
        self.registration.provider().leave();
    }
}

/// The module. Its fields go in their order.
pub struct Module {
    _devices: KVec<Device>,
    _running: Running,
}

impl kernel::Module for Module {
    fn init(_: &'static ThisModule) -> Result<Self> {
        let params = Params::get()?;
        let net = Net::new(Fabric::new(params.devices, params.ports)?)?;
        let running = Running(net.clone());
        if params.static_lids {
            manager::activate(&net.fabric)?;
        }
        let mut devices = KVec::with_capacity(params.devices.into(), GFP_KERNEL)?;
        for n in 0..params.devices {
            let dma = DmaDevice::new(c"ib_vfab", n.into(), params.dma_bits)?;
            let hca = Hca::new(n, params.ports, dma, net.clone())?;
            let name = CString::try_from_fmt(fmt!("vfab{n}"))?;
            let registration = Registration::new(
                hca.clone(),
                &name,
                Fabric::guid(n),
                params.ports.into(),
                hca.dma(),
            )?;
            devices.push(Device { registration }, GFP_KERNEL)?;
        }
        Ok(Self {
            _devices: devices,
            _running: running,
        })
    }
}
