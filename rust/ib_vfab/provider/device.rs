// SPDX-License-Identifier: GPL-2.0

//! Registration of devices with `ib_core`.

use super::{
    dma::DmaDevice,
    object::DeviceObject,
    ops::Ops,
    verbs::Provider, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Commands that a process needs because no memory of the device is mapped into it.
const COMMANDS: u64 = 1 << bindings::srp_vfab_command_SRP_VFAB_COMMAND_POLL_CQ
    | 1 << bindings::srp_vfab_command_SRP_VFAB_COMMAND_REQ_NOTIFY_CQ
    | 1 << bindings::srp_vfab_command_SRP_VFAB_COMMAND_POST_SEND
    | 1 << bindings::srp_vfab_command_SRP_VFAB_COMMAND_POST_RECV;

/// A device registered with `ib_core`. The drop unregisters the device, and waits for its users.
///
/// # Invariants
///
/// The device is registered.
pub struct Registration<P: Provider> {
    pub(super) device: NonNull<bindings::ib_device>,
    provider: Arc<P>,
    // Outlives the registration.
    _dma: Arc<DmaDevice>,
}

// SAFETY: A device has no thread affinity.
unsafe impl<P: Provider> Send for Registration<P> {}
// SAFETY: A shared reference gives out only the provider, which is `Sync`.
unsafe impl<P: Provider> Sync for Registration<P> {}

impl<P: Provider> Registration<P> {
    /// Registers a device with `ports` ports and a completion vector per CPU, up to the device's
    /// maximum. Its users map memory for `dma`. May sleep.
    ///
    /// # Errors
    ///
    /// The errors of `ib_core`.
    pub fn new(
        provider: Arc<P>,
        name: &CStr,
        node_guid: u64,
        ports: u32,
        dma: &Arc<DmaDevice>,
    ) -> Result<Self> {
        let size = size_of::<DeviceObject<P>>();
        // SAFETY: The size is that of a structure that begins with a `struct ib_device`.
        let raw = unsafe { bindings::srp_vfab_alloc_device(size) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let object = raw.cast::<DeviceObject<P>>().as_ptr();
        // SAFETY: `object` was just allocated with this size and zeroed, so `provider` is a valid
        // `None`.
        unsafe { (*object).provider = Some(provider.clone()) };
        // SAFETY: The device was just allocated, and nothing else has its address.
        let device = unsafe { &mut *raw.as_ptr() };
        // CAST: A small number.
        device.node_type = bindings::srp_vfab_node_SRP_VFAB_NODE_IB_CA as u8;
        device.node_guid = node_guid.to_be();
        device.phys_port_cnt = ports;
        // SAFETY: No precondition.
        let vectors = unsafe { bindings::srp_helper_num_online_cpus() };
        let attr = provider.device_attr();
        // CAST: At most the number of CPUs.
        device.num_comp_vectors = vectors.min(attr.max_vectors) as i32;
        device.local_dma_lkey = P::LOCAL_DMA_LKEY;
        device.uverbs_cmd_mask |= COMMANDS;
        // SAFETY: The functions fit the objects; `OPS` has their sizes.
        unsafe { bindings::ib_set_device_ops(raw.as_ptr(), Ops::<P>::OPS) };
        if attr.drains {
            // SAFETY: The functions fit the objects.
            unsafe { bindings::ib_set_device_ops(raw.as_ptr(), Ops::<P>::DRAIN) };
        }
        if attr.moderates {
            // SAFETY: The function fits the objects.
            unsafe { bindings::ib_set_device_ops(raw.as_ptr(), Ops::<P>::MODERATE) };
            // SAFETY: The device is valid, and nothing else has its address yet.
            unsafe { (*raw.as_ptr()).set_use_cq_dim(1) };
        }
        // SAFETY: The device is valid, and nothing else has its address yet.
        unsafe { (*raw.as_ptr()).ops.driver_id = attr.driver.0 };
        // The parent is the device that memory is mapped for, as with hardware.
        // SAFETY: The device is valid, and nothing else has its address yet.
        unsafe { bindings::srp_vfab_set_parent(raw.as_ptr(), dma.as_raw()) };
        // SAFETY: The device is set up, the name is a string, and `Registration` keeps the device
        // for DMA.
        let registered = to_result(unsafe {
            bindings::ib_register_device(raw.as_ptr(), name.as_char_ptr(), dma.as_raw())
        });
        if let Err(e) = registered {
            // SAFETY: The device was allocated above, and was not registered.
            unsafe { release::<P>(raw) };
            return Err(e);
        }
        // SAFETY: The device is registered until `drop`, which first calls `forget`.
        unsafe { provider.target().set(raw) };
        // INVARIANT: The device was just registered.
        Ok(Self {
            device: raw,
            provider,
            _dma: dma.clone(),
        })
    }

    /// The device.
    pub fn provider(&self) -> &Arc<P> {
        &self.provider
    }
}

impl<P: Provider> Drop for Registration<P> {
    fn drop(&mut self) {
        self.provider.target().forget();
        // SAFETY: The device is registered.
        unsafe { bindings::ib_unregister_device(self.device.as_ptr()) };
        // SAFETY: `new` allocated the device, which is not registered now.
        unsafe { release::<P>(self.device) };
    }
}

/// Frees a device.
///
/// # Safety
///
/// [`Registration::new`] allocated the device, which is not registered, and not used after this.
unsafe fn release<P>(device: NonNull<bindings::ib_device>) {
    let object = device.cast::<DeviceObject<P>>().as_ptr();
    // SAFETY: `device` is the first field of a `DeviceObject`.
    drop(unsafe { (*object).provider.take() });
    // SAFETY: The device is not registered, and not used after this.
    unsafe { bindings::ib_dealloc_device(device.as_ptr()) };
}
