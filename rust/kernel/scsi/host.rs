// SPDX-License-Identifier: GPL-2.0

//! SCSI hosts.
//!
//! # Lifetime of the driver's object
//!
//! A [`Host`] owns a reference to the driver's object. Callbacks reach the object in two ways:
//!
//! - `queuecommand` and the sysfs attributes of the host borrow it. They cannot run after
//!   `scsi_remove_host()` has returned. Each device has a reference to the tag set, which
//!   `__scsi_remove_device()` gives back after `blk_mq_destroy_queue()` has waited for the last
//!   request, and `scsi_remove_host()` waits for the last reference. Then it unregisters
//!   `shost_dev`, which waits for running attribute accesses.
//! - The error handler, scans and device set-up look the object up under `rcu_read_lock()` and take
//!   a reference. `SG_SCSI_RESET` needs no request and works on a removed device, so a reset can
//!   arrive at any time before the last file is closed. [`Host::remove`] clears the pointer and
//!   waits for an RCU grace period before it drops its reference.
//!
//! The template outlives all of this: an open device has a reference to the module.
//!
//! C header: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h)

pub mod driver;
pub(super) mod template;
pub mod transport;

use super::limits::Limits;
use driver::Driver;
use template::Template;
use transport::Transport;

use crate::{
    bindings,
    sync::synchronize_rcu,
    sysfs::Container, //
};
use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    device,
    error::to_result,
    ffi,
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Full,
                Release, //
            },
            Atomic, //
        },
        rcu,
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// Maximum number of data segments of a command, for [`Limits::sg_tablesize`].
pub const SG_MAX_SEGMENTS: u32 = bindings::SG_MAX_SEGMENTS;

/// Size of the host's identification text, including its NUL.
const INFO_SIZE: usize = 64;

impl Limits {
    /// Checks the limits that the midlayer does not check.
    fn validate(&self) -> Result {
        let at_least_one = [
            u64::from(self.nr_hw_queues),
            u64::from(self.queue_depth),
            u64::from(self.cmd_per_lun),
            u64::from(self.max_id),
            self.max_lun,
            u64::from(self.sg_tablesize),
        ];

        if at_least_one.contains(&0)
            || u32::from(self.queue_depth) > bindings::BLK_MQ_MAX_DEPTH
            || self.polled_queues >= self.nr_hw_queues
            || !(12..=32).contains(&self.max_cmd_len)
            || u32::from(self.sg_tablesize) > SG_MAX_SEGMENTS
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Returns the total depth of all hardware queues, capped at the block layer's maximum for one
    /// queue.
    fn can_queue(&self) -> u32 {
        let all = u32::from(self.queue_depth) * u32::from(self.nr_hw_queues);
        all.min(bindings::BLK_MQ_MAX_DEPTH)
    }

    /// Writes the limits to a host.
    ///
    /// # Safety
    ///
    /// `shost` was allocated and not added.
    unsafe fn apply(&self, shost: *mut bindings::Scsi_Host) {
        macro_rules! set {
            ($field:ident, $value:expr) => {{
                let value = $value;
                // SAFETY: By the requirements of this function the host is not added. Its only
                // other user is its error handler thread, which waits and reads no limit.
                unsafe { (*shost).$field = value };
            }};
        }

        set!(nr_hw_queues, self.nr_hw_queues.into());
        if self.polled_queues > 0 {
            set!(nr_maps, bindings::hctx_type_HCTX_MAX_TYPES);
        }
        // The upper limit for a device. The midlayer would also make each hardware queue as deep;
        // `map_queues` prevents that.
        // CAST: At most 10240.
        set!(can_queue, self.can_queue() as i32);
        set!(
            cmd_per_lun,
            i16::try_from(self.cmd_per_lun).unwrap_or(i16::MAX)
        );
        set!(max_channel, 0);
        set!(max_id, self.max_id);
        set!(max_lun, self.max_lun);
        set!(max_cmd_len, self.max_cmd_len);
        set!(sg_tablesize, self.sg_tablesize);
        set!(virt_boundary_mask, self.virt_boundary_mask);
        if self.max_sectors != 0 {
            set!(max_sectors, self.max_sectors);
        }
        if self.max_segment_size != 0 {
            set!(max_segment_size, self.max_segment_size);
        } else if self.virt_boundary_mask != 0 {
            set!(max_segment_size, u32::MAX);
        }
        if self.dma_boundary != 0 {
            set!(dma_boundary, self.dma_boundary);
        }
    }
}

/// The `hostdata` of a host.
///
/// # Invariants
///
/// `driver` is null or was returned by [`Arc::into_raw`]. The reference behind it is dropped a
/// grace period after the pointer was cleared and, if the host was added, not before
/// `scsi_remove_host()` has returned.
pub(super) struct HostData<T> {
    driver: Atomic<*mut T>,
    info: [u8; INFO_SIZE],
    polled_queues: u16,
    queue_depth: u16,
}

impl<T> HostData<T> {
    fn ptr(shost: *mut bindings::Scsi_Host) -> *mut Self {
        const {
            assert!(align_of::<Self>() <= align_of::<ffi::c_ulong>());
        }
        // The array has length 0 in Rust, but its address is right.
        // SAFETY: Only the address of the field is computed, inside of the host's allocation.
        unsafe { &raw mut (*shost).hostdata }.cast()
    }

    /// # Safety
    ///
    /// `shost` is a host of a [`Host<T>`] that lives for `'a`.
    pub(super) unsafe fn of<'a>(shost: *mut bindings::Scsi_Host) -> &'a Self {
        // SAFETY: By the safety requirements, `shost` is a host of a `Host<T>`: `Host::new()` has
        // initialised its `HostData`.
        unsafe { &*Self::ptr(shost) }
    }

    /// Returns the identification text of the host, valid as long as the host.
    pub(super) fn info(&self) -> *const ffi::c_char {
        self.info.as_ptr().cast()
    }

    /// Returns the number of hardware queues for polled requests.
    pub(super) fn polled_queues(&self) -> u16 {
        self.polled_queues
    }

    /// Returns the maximum number of commands in each hardware queue.
    pub(super) fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// Returns the driver; [`None`] if the host was not added or was removed.
    ///
    /// # Safety
    ///
    /// `scsi_remove_host()` for this host does not return while the reference is in use.
    pub(super) unsafe fn borrow(&self) -> Option<&T> {
        // SAFETY: By the type invariant, and the requirements of this function, there is a
        // reference to the driver if the pointer is not null.
        unsafe { self.driver.load(Acquire).as_ref() }
    }

    /// Returns a reference to the driver; [`None`] if the host was not added or was removed.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        let _guard = rcu::read_lock();
        let driver = NonNull::new(self.driver.load(Acquire))?;

        // SAFETY: By the type invariant the pointer comes from `Arc::into_raw()`, and its reference
        // lasts to the end of this RCU read-side critical section. `ManuallyDrop` does not drop it.
        let driver = ManuallyDrop::new(unsafe { Arc::from_raw(driver.as_ptr()) });
        Some(Arc::clone(&driver))
    }
}

/// Lifecycle stage of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Allocated,
    Added,
    Removed,
}

/// A SCSI host of a driver.
///
/// Dropping the object removes the host.
///
/// # Invariants
///
/// - `shost` was allocated with the template of `T` and a [`HostData<T>`], and this object has a
///   reference to it. If the host was added, it has the template of `transport`, unless that is
///   null.
/// - `stage` is [`Stage::Added`] from the successful call of `scsi_add_host()` to that of
///   `scsi_remove_host()`.
pub struct Host<T: Driver> {
    shost: NonNull<bindings::Scsi_Host>,
    /// Held while the host is added or removed. Taken before `scan_mutex`, never under it.
    stage: Pin<KBox<Mutex<Stage>>>,
    driver: Arc<T>,
    /// Dropped after [`Drop`] has removed `shost`: the class devices of the host belong to the
    /// transport class.
    transport: Arc<T::Transport>,
}

// SAFETY: A host may be used and removed by any thread; `T` and its transport are `Send` and
// `Sync`.
unsafe impl<T: Driver> Send for Host<T> {}
// SAFETY: The midlayer does its own locking, and `stage` orders adding and removing.
unsafe impl<T: Driver> Sync for Host<T> {}

impl<T: Driver> Host<T> {
    /// Allocates a host. `info` identifies it in the log and in `/proc/scsi`; it is truncated to 63
    /// bytes. `transport` is the host's transport class.
    ///
    /// Errors: `EINVAL` for limits out of range, or polled queues without [`Driver::poll`];
    /// `ENOMEM`.
    ///
    /// Context: process, may sleep.
    pub fn new(
        limits: &Limits,
        info: &CStr,
        transport: Arc<T::Transport>,
        driver: Arc<T>,
    ) -> Result<Self> {
        let template = Template::<T>::get();

        limits.validate()?;
        if limits.polled_queues > 0 && !T::HAS_POLL {
            return Err(EINVAL);
        }
        if template.track_queue_depth() != 1 || template.skip_settle_delay() != 1 {
            return Err(EINVAL);
        }

        let stage = KBox::pin_init(
            new_mutex!(Stage::Allocated, "scsi::Host::stage"),
            GFP_KERNEL,
        )?;
        // CAST: Less than a hundred bytes.
        let size = size_of::<HostData<T>>() as ffi::c_int;
        // SAFETY: The template is a constant, and complete.
        let shost = unsafe { bindings::scsi_host_alloc(template, size) };
        let shost = NonNull::new(shost).ok_or(ENOMEM)?;

        let mut text = [0; INFO_SIZE];
        for (to, from) in text.iter_mut().take(INFO_SIZE - 1).zip(info.to_bytes()) {
            *to = *from;
        }
        // INVARIANT: `driver` is null.
        let data = HostData::<T> {
            driver: Atomic::new(core::ptr::null_mut()),
            info: text,
            polled_queues: limits.polled_queues,
            queue_depth: limits.queue_depth,
        };
        // SAFETY: There are `size` bytes at this address, which have no other user yet.
        unsafe { HostData::<T>::ptr(shost.as_ptr()).write(data) };

        // SAFETY: The host was allocated just now.
        unsafe { limits.apply(shost.as_ptr()) };
        let class = transport.template();
        if !class.is_null() {
            // SAFETY: The host is not added yet. The template stays until this object is dropped,
            // after the removal.
            unsafe { (*shost.as_ptr()).transportt = class };
        }

        // INVARIANT: `shost` was allocated with the template of `T`, has its `HostData<T>`, and
        // came with a reference.
        Ok(Self {
            shost,
            stage,
            driver,
            transport,
        })
    }

    /// Adds the host below `parent`.
    ///
    /// Commands, and thus callbacks, arrive after [`Host::scan`] or a scan requested in sysfs; such
    /// a scan may begin before this function returns. On failure the host is removed.
    ///
    /// DMA limits are taken from `parent`. Without it, the host is added below the platform bus;
    /// software RDMA devices have no parent.
    ///
    /// Errors: `EBUSY` if it was already added; those of `scsi_add_host()`.
    ///
    /// Context: process, may sleep.
    pub fn add(&self, parent: Option<&device::Device>) -> Result {
        let added = {
            let mut stage = self.stage.lock();

            if *stage != Stage::Allocated {
                return Err(EBUSY);
            }

            let driver = Arc::into_raw(self.driver.clone());
            // INVARIANT: The pointer comes from `Arc::into_raw()`. `remove()` drops its reference.
            self.data().driver.store(driver.cast_mut(), Release);

            // CAST: `Device` is a transparent wrapper of `bindings::device`.
            let parent = parent.map_or(core::ptr::null_mut(), |dev| {
                (&raw const *dev).cast_mut().cast::<bindings::device>()
            });
            // SAFETY: The host is complete, and not added yet. If `parent` is not null it is alive,
            // and the midlayer takes a reference.
            let added = to_result(unsafe {
                bindings::scsi_add_host_with_dma(self.shost.as_ptr(), parent, parent)
            });
            if added.is_ok() {
                // INVARIANT: `scsi_add_host()` succeeded just now.
                *stage = Stage::Added;
            }
            added
        };

        if added.is_err() {
            self.remove();
        }
        added
    }

    /// Calls `f` with the host, which stays added during the call. `f` must not remove it.
    ///
    /// Errors: `ENODEV` if the host was not added or was removed, and those of `f`.
    pub(super) fn while_added<R>(
        &self,
        f: impl FnOnce(*mut bindings::Scsi_Host) -> Result<R>,
    ) -> Result<R> {
        let stage = self.stage.lock();

        match *stage {
            Stage::Added => f(self.shost.as_ptr()),
            Stage::Allocated | Stage::Removed => Err(ENODEV),
        }
    }

    fn data(&self) -> &HostData<T> {
        // SAFETY: By the type invariant, `shost` is alive and has a `HostData<T>`.
        unsafe { HostData::of(self.shost.as_ptr()) }
    }

    /// Returns the number of the host, as in `host0`.
    pub fn number(&self) -> u32 {
        // SAFETY: By the type invariant the host is alive; its number is fixed.
        unsafe { (*self.shost.as_ptr()).host_no }
    }

    /// Returns the device of the host, for log messages.
    pub fn device(&self) -> &device::Device {
        // SAFETY: By the type invariant the host is alive; its device was initialised with it.
        unsafe { device::Device::from_raw(&raw mut (*self.shost.as_ptr()).shost_gendev) }
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Arc<T> {
        &self.driver
    }

    /// Scans for the devices of target 0 and adds them.
    ///
    /// Does nothing if the host was not added or was removed, or if the `scan` parameter of the
    /// midlayer forbids it.
    ///
    /// Context: process, may sleep for the duration of commands.
    pub fn scan(&self) {
        self.scan_target(bindings::scsi_scan_mode_SCSI_SCAN_INITIAL);
    }

    /// As [`Host::scan`], for a target with devices that may have changed. Known devices are kept.
    pub fn rescan(&self) {
        self.scan_target(bindings::scsi_scan_mode_SCSI_SCAN_RESCAN);
    }

    /// Returns the longest request timeout of the host's devices, in milliseconds; 0 if there is no
    /// device.
    ///
    /// Context: process.
    pub fn request_timeout(&self) -> Msecs {
        // SAFETY: By the type invariant the host is alive.
        unsafe { super::device::longest_request_timeout(self.shost.as_ptr()) }
    }

    fn scan_target(&self, mode: bindings::scsi_scan_mode) {
        // SAFETY: By the type invariant the host is alive. The midlayer checks its state under
        // `scan_mutex`.
        unsafe {
            bindings::scsi_scan_target(
                &raw mut (*self.shost.as_ptr()).shost_gendev,
                0,
                0,
                // CAST: All ones, which C promotes to `u64` as well.
                bindings::SCAN_WILD_CARD as u64,
                mode,
            )
        };
    }

    /// Removes the objects that the transport class has below the host, then the devices and the
    /// host.
    ///
    /// After this returns, no callback of [`Driver`] except a reset runs. Waits for the commands in
    /// flight, which the driver must still be able to complete. May be called repeatedly and
    /// concurrently; every call waits.
    ///
    /// Context: process, may sleep. Must not be called in a callback or attribute of the host.
    pub fn remove(&self) {
        let mut stage = self.stage.lock();

        match *stage {
            Stage::Removed => return,
            Stage::Allocated => {}
            Stage::Added => {
                if let Some(group) = T::HOST_ATTRIBUTES {
                    // Userspace looks for existing logins in these files, and must not find this
                    // login from now on.
                    // SAFETY: By the type invariant the host was added with this group and not
                    // removed.
                    let folder = unsafe { &raw mut (*self.shost.as_ptr()).shost_dev.kobj };
                    // SAFETY: This is the kobject of `shost_dev`, which is removed further below.
                    // Missing files are no error.
                    unsafe { bindings::sysfs_remove_groups(folder, group.as_raw().cast_mut()) };
                }
                // SAFETY: By the type invariant the host was added with this template and not
                // removed.
                unsafe { self.transport.remove_host(self.shost.as_ptr()) };
                // SAFETY: By the type invariant the host was added and not removed.
                unsafe { bindings::scsi_remove_host(self.shost.as_ptr()) };
            }
        }
        // INVARIANT: The host was removed, or never added.
        *stage = Stage::Removed;

        let driver = self.data().driver.xchg(core::ptr::null_mut(), Full);
        if driver.is_null() {
            return;
        }

        synchronize_rcu();
        // SAFETY: By the invariant of `HostData` the pointer comes from `Arc::into_raw()`. It was
        // cleared a grace period ago and the host is removed, so its reference has no user.
        drop(unsafe { Arc::from_raw(driver) });
    }
}

impl<T: Driver> Container for Host<T> {
    type Data = T;

    unsafe fn data<'a>(dev: *mut bindings::device) -> &'a T {
        // SAFETY: By the requirements of this function `dev` is the `shost_dev` of a `Host<T>`:
        // only such hosts have the attributes of the template of `T`.
        let shost = unsafe { kernel::container_of!(dev, bindings::Scsi_Host, shost_dev) };
        // SAFETY: `shost` is that of a `Host<T>`, and alive while an attribute of it is being
        // accessed.
        let data: &'a HostData<T> = unsafe { HostData::of(shost) };

        // SAFETY: `add()` sets the pointer before the attributes exist. `scsi_remove_host()`
        // unregisters `shost_dev`, which waits for the running accesses, and so does
        // `scsi_add_host()` when it fails; the pointer is cleared after that.
        unsafe { &*data.driver.load(Acquire) }
    }
}

impl<T: Driver> Drop for Host<T> {
    fn drop(&mut self) {
        self.remove();
        // SAFETY: By the type invariant there is a reference to give back.
        unsafe { bindings::scsi_host_put(self.shost.as_ptr()) };
    }
}
