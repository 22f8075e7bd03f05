// SPDX-License-Identifier: GPL-2.0

//! A port of an RDMA device.

use crate::rdma::device::{
    Device,
    Fabric,
    Health,
    Registered, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// One port of an RDMA device. The device exists as long as this value.
pub struct Port {
    device: Registered,
    number: u32,
    health: Arc<Health>,
}

impl Port {
    /// Creates the port with this number of `device`; `health` is that of the device.
    ///
    /// # Errors
    ///
    /// Those of [`Device::hold`], `ENOMEM`.
    pub fn new(device: &Device, number: u32, health: Arc<Health>) -> Result<Arc<Self>> {
        let device = device.hold()?;
        let this = Self {
            device,
            number,
            health,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The health of the device.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The number of the port on its device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether a subnet manager assigns the port's address, and may change it.
    pub fn has_lids(&self) -> bool {
        let fabric = self.device.fabric(self.number);
        matches!(fabric, Fabric::InfiniBand | Fabric::Opa)
    }
}
