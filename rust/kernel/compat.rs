// SPDX-License-Identifier: GPL-2.0

//! Differences between the kernels that the module is built for.
//!
//! `Kbuild` probes the kernel tree (`srp_has`) and passes the results as `SRP_HAS_...`. Other
//! differences follow from the kernel's configuration. Only this file tests either; it defines the
//! same names for every kernel.

use crate::bindings;
#[cfg(not(SRP_HAS_NAMESPACE_TAG_TYPE))]
use kernel::ffi;
use kernel::{
    dma::DataDirection,
    sync::barrier,
    ThisModule, //
};

/// The module, as the owner of its registrations.
#[cfg(SRP_HAS_MODULE_METADATA)]
pub const THIS_MODULE: &ThisModule = kernel::module::this_module::<crate::Module>();
/// The module, as the owner of its registrations.
#[cfg(not(SRP_HAS_MODULE_METADATA))]
pub const THIS_MODULE: &ThisModule = &crate::THIS_MODULE;

/// Converts a count that is an `int` in one kernel and a `u32` in another. Returns 0 if it is
/// negative.
pub fn count(n: impl TryInto<u32>) -> u32 {
    n.try_into().unwrap_or(0)
}

/// Whether the ports of the kernel's own driver belong to the network namespace of their RDMA
/// device. If so, `/sys/class/infiniband_srp` shows only the ports of the reader's namespace.
pub const PORTS_IN_NAMESPACES: bool = cfg!(SRP_HAS_PORTS_IN_NAMESPACES);

/// Whether the softirqs of a CPU are serialised. Otherwise, which is possible with PREEMPT_RT, two
/// tasks of one CPU may be in softirqs at the same time.
pub const SERIAL_SOFTIRQS: bool =
    cfg!(any(not(CONFIG_PREEMPT_RT), CONFIG_PREEMPT_RT_NEEDS_BH_LOCK));

/// Whether the owner of a spinlock can be preempted, and inherits the priority of waiting tasks.
pub const PREEMPTIBLE_SPINLOCKS: bool = cfg!(CONFIG_PREEMPT_RT);

/// Orders all accesses before this against all after it, as seen by other CPUs. Any context.
///
/// C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h)
#[inline(always)]
pub fn smp_mb() {
    #[cfg(SRP_HAS_BARRIER_KINDS)]
    barrier::smp_mb(barrier::Full);
    #[cfg(not(SRP_HAS_BARRIER_KINDS))]
    barrier::smp_mb();
}

/// Orders loads before this against loads after it, as seen by other CPUs. Any context.
///
/// C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h)
#[inline(always)]
pub fn smp_rmb() {
    #[cfg(SRP_HAS_BARRIER_KINDS)]
    barrier::smp_mb(barrier::Read);
    #[cfg(not(SRP_HAS_BARRIER_KINDS))]
    barrier::smp_rmb();
}

/// Orders stores before this against stores after it, as seen by other CPUs. Any context.
///
/// C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h)
#[inline(always)]
pub fn smp_wmb() {
    #[cfg(SRP_HAS_BARRIER_KINDS)]
    barrier::smp_mb(barrier::Write);
    #[cfg(not(SRP_HAS_BARRIER_KINDS))]
    barrier::smp_wmb();
}

/// Waits until every RCU read-side critical section that is running has ended; sleeps.
#[cfg(SRP_HAS_SYNCHRONIZE_RCU)]
pub use kernel::sync::rcu::synchronize_rcu;
/// Waits until every RCU read-side critical section that is running has ended; sleeps.
#[cfg(not(SRP_HAS_SYNCHRONIZE_RCU))]
#[inline]
pub fn synchronize_rcu() {
    // SAFETY: The function has no precondition except that it may sleep, which lockdep checks.
    unsafe { bindings::synchronize_rcu() }
}

/// The error codes.
#[cfg(SRP_HAS_ERROR_CODES)]
pub use kernel::error::code as errno;
#[cfg(not(SRP_HAS_ERROR_CODES))]
#[path = "compat/errno.rs"]
pub mod errno;

/// A spinlock that is held with the interrupts of this CPU disabled. Guards must be dropped in
/// reverse order, because not every kernel counts nested guards.
#[cfg(SRP_HAS_SPIN_LOCK_IRQ)]
pub use kernel::sync::{
    new_spinlock_irq,
    SpinLockIrq, //
};
#[cfg(not(SRP_HAS_SPIN_LOCK_IRQ))]
#[path = "compat/spin_lock_irq.rs"]
mod spin_lock_irq;
#[cfg(not(SRP_HAS_SPIN_LOCK_IRQ))]
pub use spin_lock_irq::{
    new_spinlock_irq,
    SpinLockIrq, //
};

/// Converts C's direction of a transfer. [`DataDirection`] has only the opposite conversion.
#[inline]
pub fn data_direction(raw: bindings::dma_data_direction) -> DataDirection {
    // CAST: The type has the representation `u32`.
    const BIDIRECTIONAL: u32 = DataDirection::Bidirectional as u32;
    const TO_DEVICE: u32 = DataDirection::ToDevice as u32;
    const FROM_DEVICE: u32 = DataDirection::FromDevice as u32;

    #[cfg(SRP_HAS_DMA_DIRECTION_TYPE)]
    let raw = raw.0;
    // CAST: The values are those of `DataDirection`.
    match raw as u32 {
        BIDIRECTIONAL => DataDirection::Bidirectional,
        TO_DEVICE => DataDirection::ToDevice,
        FROM_DEVICE => DataDirection::FromDevice,
        _ => DataDirection::None,
    }
}

/// The return value of a timer function that does not restart the timer: a type of its own, or an
/// integer.
#[cfg(all(SRP_VFAB, SRP_HAS_HRTIMER_RESTART_TYPE))]
pub const NO_RESTART: bindings::hrtimer_restart = bindings::hrtimer_restart::HRTIMER_NORESTART;
/// The return value of a timer function that does not restart the timer: a type of its own, or an
/// integer.
#[cfg(all(SRP_VFAB, not(SRP_HAS_HRTIMER_RESTART_TYPE)))]
pub const NO_RESTART: bindings::hrtimer_restart = bindings::hrtimer_restart_HRTIMER_NORESTART;

/// The tag by which sysfs distinguishes the namespaces of a class's devices.
#[cfg(SRP_HAS_NAMESPACE_TAG_TYPE)]
pub type NamespaceTag = bindings::ns_common;
/// The tag by which sysfs distinguishes the namespaces of a class's devices.
#[cfg(not(SRP_HAS_NAMESPACE_TAG_TYPE))]
pub type NamespaceTag = ffi::c_void;

/// The ID of the driver `ionic`, or an ID without a driver in a kernel that lacks `ionic`.
#[cfg(SRP_HAS_RDMA_DRIVER_IONIC)]
pub const RDMA_DRIVER_IONIC: bindings::rdma_driver_id = bindings::rdma_driver_id_RDMA_DRIVER_IONIC;
/// The ID of the driver `ionic`, or an ID without a driver in a kernel that lacks `ionic`.
#[cfg(not(SRP_HAS_RDMA_DRIVER_IONIC))]
pub const RDMA_DRIVER_IONIC: bindings::rdma_driver_id = bindings::rdma_driver_id::MAX;

/// `reg_user_mr` of `struct ib_device_ops`: some kernels pass it one more argument.
#[cfg(SRP_VFAB)]
pub mod user_mr {
    use crate::bindings;
    use kernel::ffi;

    /// Registers memory of a process.
    pub trait Register {
        /// # Safety
        ///
        /// Only `ib_core` may call this, in the process that owns the memory.
        unsafe fn register(
            pd: *mut bindings::ib_pd,
            start: u64,
            len: u64,
            iova: u64,
            access: ffi::c_int,
        ) -> *mut bindings::ib_mr;
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this, in the process that owns the memory.
    pub unsafe extern "C" fn reg_user_mr<R: Register>(
        pd: *mut bindings::ib_pd,
        start: u64,
        len: u64,
        iova: u64,
        access: ffi::c_int,
        #[cfg(SRP_HAS_USER_MR_DMAH)] _dmah: *mut bindings::ib_dmah,
        _udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        // SAFETY: By this function's requirements.
        unsafe { R::register(pd, start, len, iova, access) }
    }
}

/// The return value of `queuecommand`: a type of its own, or an integer.
pub mod queue_status {
    #[cfg(SRP_HAS_QUEUE_STATUS_TYPE)]
    mod values {
        pub use crate::bindings::{
            scsi_qc_status as Status,
            scsi_qc_status_SCSI_MLQUEUE_DEVICE_BUSY as DEVICE_BUSY,
            scsi_qc_status_SCSI_MLQUEUE_HOST_BUSY as HOST_BUSY, //
        };
    }
    #[cfg(not(SRP_HAS_QUEUE_STATUS_TYPE))]
    mod values {
        use crate::bindings;

        /// The outcome; 0 if the command was accepted.
        pub type Status = kernel::ffi::c_int;
        /// The device accepts no command now.
        // CAST: The value is below 0x2000.
        pub const DEVICE_BUSY: Status = bindings::SCSI_MLQUEUE_DEVICE_BUSY as Status;
        /// The host accepts no command now.
        // CAST: The value is below 0x2000.
        pub const HOST_BUSY: Status = bindings::SCSI_MLQUEUE_HOST_BUSY as Status;
    }

    pub use values::{
        Status,
        DEVICE_BUSY,
        HOST_BUSY, //
    };
}

/// `struct scsi_host_template`.
pub mod template {
    use crate::bindings;
    use kernel::ffi;

    /// Size of the template's bit fields in bytes.
    pub const FLAG_BYTES: usize = if cfg!(SRP_HAS_TAG_ALLOC_POLICY_BIT) {
        2
    } else {
        1
    };
    /// The position of `track_queue_depth` in the first byte of the bit fields.
    pub const TRACK_QUEUE_DEPTH: u32 = if cfg!(SRP_HAS_TAG_ALLOC_POLICY_BIT) {
        1
    } else {
        0
    };

    /// The callback for a device that has answered INQUIRY.
    pub type Configure =
        unsafe extern "C" fn(*mut bindings::scsi_device, *mut bindings::queue_limits) -> ffi::c_int;

    /// Returns a template that is empty except for this callback.
    #[inline]
    pub const fn configuring(configure: Configure) -> bindings::scsi_host_template {
        let mut template: bindings::scsi_host_template = pin_init::zeroed();
        #[cfg(SRP_HAS_SDEV_CONFIGURE)]
        {
            template.sdev_configure = Some(configure);
        }
        #[cfg(not(SRP_HAS_SDEV_CONFIGURE))]
        {
            template.device_configure = Some(configure);
        }
        template
    }
}

/// `struct device_attribute` and `struct attribute_group`: the types of their functions and lists
/// depend on the kernel.
pub mod attribute {
    use crate::bindings;
    use kernel::ffi;

    /// The function for reading.
    pub type Show = unsafe extern "C" fn(
        *mut bindings::device,
        *mut bindings::device_attribute,
        *mut ffi::c_char,
    ) -> isize;
    /// The function for writing.
    pub type Store = unsafe extern "C" fn(
        *mut bindings::device,
        *mut bindings::device_attribute,
        *const ffi::c_char,
        usize,
    ) -> isize;

    /// Sets the function for reading.
    #[inline]
    pub const fn set_show(attribute: &mut bindings::device_attribute, show: Show) {
        #[cfg(SRP_HAS_CONST_ATTRIBUTES)]
        {
            attribute.__bindgen_anon_1.show = Some(show);
        }
        #[cfg(not(SRP_HAS_CONST_ATTRIBUTES))]
        {
            attribute.show = Some(show);
        }
    }

    /// Sets the function for writing.
    #[inline]
    pub const fn set_store(attribute: &mut bindings::device_attribute, store: Store) {
        #[cfg(SRP_HAS_CONST_ATTRIBUTES)]
        {
            attribute.__bindgen_anon_2.store = Some(store);
        }
        #[cfg(not(SRP_HAS_CONST_ATTRIBUTES))]
        {
            attribute.store = Some(store);
        }
    }

    /// Sets the attributes of a group. sysfs only reads the list.
    #[inline]
    pub const fn set_list(
        group: &mut bindings::attribute_group,
        list: *const *const bindings::attribute,
    ) {
        #[cfg(SRP_HAS_CONST_ATTRIBUTES)]
        {
            group.__bindgen_anon_2.attrs_const = list;
        }
        #[cfg(not(SRP_HAS_CONST_ATTRIBUTES))]
        {
            group.attrs = list.cast_mut().cast();
        }
    }
}
