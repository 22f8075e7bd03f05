// SPDX-License-Identifier: GPL-2.0

//! A port of an RDMA device.

use crate::rdma::device::{
    Device,
    Fabric,
    Health,
    Name,
    Registered, //
};
use core::fmt;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// One port of an RDMA device, which is there as long as this.
pub struct Port {
    device: Registered,
    number: u32,
    health: Arc<Health>,
}

/// How a port is called in the log.
pub struct PortName(Name, u32);

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl Port {
    /// The port with this number of `device`, of which `health` is known.
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

    /// What is known of the device.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The number of the port on its device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A subnet manager gives it its address, and may give it another one.
    pub fn has_lids(&self) -> bool {
        matches!(
            self.device.fabric(self.number),
            Fabric::InfiniBand | Fabric::Opa
        )
    }

    /// How it is called in the log.
    pub fn name(&self) -> PortName {
        PortName(self.device.name(), self.number)
    }
}
