// SPDX-License-Identifier: GPL-2.0

//! The `struct scsi_host_template` of a driver: the C side of [`Driver`].
//!
//! C header: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h)

use super::{
    transport::Transport,
    Driver,
    HostData, //
};
use crate::{
    bindings,
    compat,
    scsi::{
        command::{
            is_of_error_handler,
            Call,
            CmdPriv, //
        },
        Busy,
        Command,
        CommandRef,
        Device,
        Disposition,
        ScsiResult, //
    },
    sync::synchronize_rcu, //
};
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    ffi,
    prelude::*,
    str::as_char_ptr_in_const_context,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Number of checks whether the driver has given up a command, 1 ms apart.
const RELEASE_TRIES: u32 = 2000;

/// The template for the hosts of a driver.
pub(in crate::scsi) struct Template<T: Driver>(PhantomData<T>);

impl<T: Driver> Template<T> {
    const TEMPLATE: bindings::scsi_host_template = bindings::scsi_host_template {
        module: T::MODULE.as_ptr(),
        name: as_char_ptr_in_const_context(T::NAME),
        proc_name: as_char_ptr_in_const_context(T::PROC_NAME),
        info: Some(Self::info_callback),
        // The midlayer puts a scatter-gather list behind the `CmdPriv` without aligning it.
        // CAST: A few bytes.
        cmd_size: size_of::<CmdPriv>().next_multiple_of(align_of::<bindings::scatterlist>())
            as ffi::c_uint,
        init_cmd_priv: Some(Self::init_cmd_priv_callback),
        exit_cmd_priv: Some(Self::exit_cmd_priv_callback),
        queuecommand: Some(Self::queue_command_callback),
        map_queues: Some(Self::map_queues_callback),
        mq_poll: if T::HAS_POLL {
            Some(Self::poll_callback)
        } else {
            None
        },
        eh_timed_out: <T::Transport as Transport>::TIMED_OUT,
        eh_abort_handler: Some(Self::abort_callback),
        eh_device_reset_handler: Some(Self::device_reset_callback),
        eh_host_reset_handler: Some(Self::host_reset_callback),
        target_alloc: Some(Self::target_alloc_callback),
        change_queue_depth: Some(Self::change_queue_depth_callback),
        // CAST: The array of arrays is only read.
        shost_groups: match T::HOST_ATTRIBUTES {
            Some(group) => group.as_raw().cast_mut(),
            None => core::ptr::null_mut(),
        },
        this_id: -1,
        // Each host sets these later, but they must not be 0 here.
        can_queue: 1,
        cmd_per_lun: 1,
        sg_tablesize: 1,
        _bitfield_1: bindings::__BindgenBitfieldUnit::new({
            let mut flags = [0; compat::template::FLAG_BYTES];
            flags[0] = flag(TRACK_QUEUE_DEPTH) | flag(SKIP_SETTLE_DELAY);
            flags
        }),
        ..compat::template::configuring(Self::sdev_configure_callback)
    };

    /// Returns the template.
    pub(in crate::scsi) const fn get() -> &'static bindings::scsi_host_template {
        &Self::TEMPLATE
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T`.
    unsafe extern "C" fn info_callback(shost: *mut bindings::Scsi_Host) -> *const ffi::c_char {
        // SAFETY: By the safety requirements, `shost` is a host of type `T`.
        unsafe { HostData::<T>::of(shost) }.info()
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T` and a command of it that
    /// is not in use.
    unsafe extern "C" fn init_cmd_priv_callback(
        _shost: *mut bindings::Scsi_Host,
        cmd: *mut bindings::scsi_cmnd,
    ) -> ffi::c_int {
        // SAFETY: There are `cmd_size` bytes for the driver behind each command.
        let state = unsafe { cmd.add(1) }.cast::<CmdPriv>();

        // SAFETY: The bytes are not in use. The size of `struct scsi_cmnd` is a multiple of its
        // alignment, which is at least that of `CmdPriv`.
        unsafe { state.write(CmdPriv::new()) };
        0
    }

    /// Waits until the driver has given up the command, as its memory is about to be freed.
    ///
    /// The midlayer has all commands back by now, so the wait is short.
    ///
    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T` and a command of it for
    /// which `init_cmd_priv` was called.
    unsafe extern "C" fn exit_cmd_priv_callback(
        _shost: *mut bindings::Scsi_Host,
        cmd: *mut bindings::scsi_cmnd,
    ) -> ffi::c_int {
        // SAFETY: By the safety requirements, `init_cmd_priv` was called for `cmd`.
        let state = unsafe { CmdPriv::of(cmd) };

        let mut tries = 0u32;
        while state.is_held() {
            tries = tries.saturating_add(1);
            if tries == RELEASE_TRIES {
                pr_err!("a SCSI command is still held at removal of its host\n");
            }
            fsleep(Delta::from_millis(1));
        }
        0
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T` and a command of it that
    /// the driver may own.
    unsafe extern "C" fn queue_command_callback(
        shost: *mut bindings::Scsi_Host,
        cmd: *mut bindings::scsi_cmnd,
    ) -> compat::queue_status::Status {
        // SAFETY: `cmd` is the argument of `queuecommand`.
        let of_error_handler = unsafe { is_of_error_handler(cmd) };
        // SAFETY: `shost` and `cmd` are the arguments of `queuecommand`.
        let refused = of_error_handler && unsafe { Self::is_unit_held(shost, cmd) };
        let call = Call::new();
        // SAFETY: This is `queuecommand`, which claims its argument `cmd` once. `init_cmd_priv` was
        // called for all commands when the tag set was allocated.
        let Some(owned) = (unsafe { Command::claim(cmd, &call, of_error_handler) }) else {
            return Busy::Device.as_raw();
        };
        if refused {
            // The failure makes the error handler proceed to a reset at once.
            owned.done(ScsiResult::DID_ERROR);
            return 0;
        }

        // SAFETY: By the safety requirements, `shost` is a host of type `T`.
        let data = unsafe { HostData::<T>::of(shost) };
        // SAFETY: A command is in flight, so `scsi_remove_host()` has not returned.
        let Some(driver) = (unsafe { data.borrow() }) else {
            owned.done(ScsiResult::DID_NO_CONNECT);
            return 0;
        };

        if owned.is_bidirectional() {
            owned.done(ScsiResult::DID_ERROR);
            return 0;
        }

        match driver.queue_command(owned) {
            Ok(()) => 0,
            Err(rejected) if rejected.is_of(cmd, &call) => rejected.into_raw(),
            // The driver has returned another call's command, which the midlayer considers
            // accepted; dropping it completes it. The driver holds this call's command or has
            // completed it.
            Err(_) => 0,
        }
    }

    /// Assigns the last hardware queues to polled requests and the others to all other requests,
    /// and sets the queue depth.
    ///
    /// The midlayer uses `can_queue` of a host as two limits: of the tags of each hardware queue,
    /// and of the commands of a device in all queues. With tags per queue they differ. `can_queue`
    /// holds the second, which permanently limits a device; this function writes the first to the
    /// tag set, before its tags exist. The block layer supports a tag set with fewer tags than
    /// requested.
    ///
    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T` that is being added.
    unsafe extern "C" fn map_queues_callback(shost: *mut bindings::Scsi_Host) {
        // SAFETY: By the safety requirements, `shost` is a host of type `T`.
        let data = unsafe { HostData::<T>::of(shost) };
        let polled = u32::from(data.polled_queues());
        // SAFETY: By the requirements of this function: the block layer is setting up the tag set,
        // which has its maps, no tags yet, and no other user.
        let tag_set = unsafe { &mut (*shost).tag_set };
        tag_set.queue_depth = tag_set.queue_depth.min(data.queue_depth().into());
        let all = tag_set.nr_hw_queues;
        let [default, read, poll] = &mut tag_set.map;
        default.nr_queues = all.saturating_sub(polled);
        default.queue_offset = 0;
        // SAFETY: The map belongs to a tag set that is being set up.
        unsafe { bindings::blk_mq_map_queues(default) };
        if polled > 0 {
            // Reads use the default queues.
            read.nr_queues = 0;
            poll.nr_queues = polled;
            poll.queue_offset = default.nr_queues;
            // SAFETY: The map belongs to a tag set that is being set up.
            unsafe { bindings::blk_mq_map_queues(poll) };
        }
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a host of type `T`.
    unsafe extern "C" fn poll_callback(
        shost: *mut bindings::Scsi_Host,
        queue: ffi::c_uint,
    ) -> ffi::c_int {
        // SAFETY: By the safety requirements, `shost` is a host of type `T`.
        let data = unsafe { HostData::<T>::of(shost) };

        // SAFETY: The block layer calls this while a request queue of the host exists, so
        // `scsi_remove_host()` has not returned.
        let driver = unsafe { data.borrow() };
        let count = driver.map_or(0, |driver| {
            u16::try_from(queue).map_or(0, |q| driver.poll(q))
        });
        ffi::c_int::try_from(count).unwrap_or(ffi::c_int::MAX)
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a command that timed out.
    unsafe extern "C" fn abort_callback(cmd: *mut bindings::scsi_cmnd) -> ffi::c_int {
        // SAFETY: `cmd` is the argument of a callback of the error handler.
        let disposition = unsafe {
            Self::handle(cmd, |driver, cmd| {
                let disposition = driver.abort(cmd);

                if disposition == Disposition::Success && !wait_until(|| !cmd.state().is_held()) {
                    return Disposition::Failed;
                }
                disposition
            })
        };
        disposition.as_raw()
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a command of its error handler or the fake one
    /// of `SG_SCSI_RESET`.
    unsafe extern "C" fn device_reset_callback(cmd: *mut bindings::scsi_cmnd) -> ffi::c_int {
        // SAFETY: `cmd` is the argument of a callback of the error handler.
        let disposition = unsafe {
            Self::handle(cmd, |driver, cmd| {
                let disposition = driver.device_reset(cmd.device(), cmd);

                Self::checked(disposition, cmd)
            })
        };
        disposition.as_raw()
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a command of its error handler or the fake one
    /// of `SG_SCSI_RESET`.
    unsafe extern "C" fn host_reset_callback(cmd: *mut bindings::scsi_cmnd) -> ffi::c_int {
        // SAFETY: `cmd` is the argument of a callback of the error handler.
        let disposition = unsafe {
            Self::handle(cmd, |driver, cmd| {
                let outcome = driver.host_reset();

                Self::wait_released(cmd);
                outcome.into()
            })
        };
        disposition.as_raw()
    }

    /// Calls `f` with a counted reference to the driver, since `SG_SCSI_RESET` does not prevent the
    /// removal of the host.
    ///
    /// # Safety
    ///
    /// `cmd` is the argument of a callback of the error handler of a host of type `T`.
    unsafe fn handle(
        cmd: *mut bindings::scsi_cmnd,
        f: impl FnOnce(&T, &CommandRef<'_>) -> Disposition,
    ) -> Disposition {
        // SAFETY: By the safety requirements, `cmd` is the argument of a callback of the error
        // handler. The reference ends with this function.
        let Some(cmd) = (unsafe { CommandRef::from_raw(cmd) }) else {
            return Disposition::Failed;
        };
        // SAFETY: A device has a reference to its host.
        let shost = unsafe { (*cmd.device().as_raw()).host };

        // SAFETY: By the safety requirements, this is a host of type `T`.
        let disposition = match unsafe { HostData::<T>::of(shost) }.get() {
            Some(driver) => f(&driver, &cmd),
            // All commands of a removed host have ended.
            None => Disposition::Failed,
        };
        if cmd.state().is_done() {
            // The midlayer may reuse the command after this returns.
            synchronize_rcu();
        }
        disposition
    }

    /// Checks that the driver has given up the commands that the midlayer ends after a device
    /// reset.
    ///
    /// In the error handler, the only commands in flight are those that it is about to end. The
    /// ioctl ends none, so there is nothing to check.
    fn checked(disposition: Disposition, cmd: &CommandRef<'_>) -> Disposition {
        if disposition == Disposition::Failed || cmd.is_reset_ioctl() {
            return disposition;
        }

        let sdev = cmd.device().as_raw();
        // SAFETY: A device has a reference to its host.
        let shost = unsafe { (*sdev).host };
        // SAFETY: The command is not that of the ioctl, so it is in flight.
        if wait_until(|| !unsafe { Self::is_any_held(shost, sdev) }) {
            disposition
        } else {
            Disposition::Failed
        }
    }

    /// Waits until no command of the host is held, without a deadline: the midlayer ends all of
    /// them after a host reset, even a failed one, and then reuses their memory.
    ///
    /// Does not wait for the `SG_SCSI_RESET` ioctl, which ends no commands.
    fn wait_released(cmd: &CommandRef<'_>) {
        // SAFETY: A device has a reference to its host.
        let shost = unsafe { (*cmd.device().as_raw()).host };
        let released = || {
            // SAFETY: If `cmd` is not that of the ioctl, it is in flight.
            cmd.is_reset_ioctl() || !unsafe { Self::is_any_held(shost, core::ptr::null_mut()) }
        };

        if !wait_until(released) {
            while !released() {
                fsleep(Delta::from_millis(100));
            }
        }
    }

    /// Returns whether the driver holds a command of the device of `cmd`, a command of the error
    /// handler.
    ///
    /// `scsi_eh_stu()` and the tests after resets end all failed commands of a unit when a command
    /// of the error handler succeeds. No other commands are in flight then.
    ///
    /// # Safety
    ///
    /// The arguments are those of `queuecommand`.
    #[cold]
    unsafe fn is_unit_held(shost: *mut bindings::Scsi_Host, cmd: *mut bindings::scsi_cmnd) -> bool {
        // SAFETY: By the requirements of this function the command is alive.
        let sdev = unsafe { (*cmd).device };
        // SAFETY: By the requirements of this function a command of the host is in flight.
        unsafe { Self::is_any_held(shost, sdev) }
    }

    /// Returns whether the driver holds a command of the device `sdev`, or of any device of the
    /// host if `sdev` is null.
    ///
    /// Context: any except hard interrupts; does not sleep.
    ///
    /// # Safety
    ///
    /// The host was added, and a command of it is in flight, which keeps its tag set.
    unsafe fn is_any_held(
        shost: *mut bindings::Scsi_Host,
        sdev: *mut bindings::scsi_device,
    ) -> bool {
        let mut search = Search { sdev, held: false };

        // SAFETY: By the safety requirements, the host was added and has a command in flight.
        // `search` outlives the call and is what the callback expects.
        unsafe {
            bindings::scsi_host_busy_iter(
                shost,
                Some(find_held),
                (&raw mut search).cast::<ffi::c_void>(),
            )
        };
        search.held
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a new target of a host of type `T`.
    unsafe extern "C" fn target_alloc_callback(starget: *mut bindings::scsi_target) -> ffi::c_int {
        // SAFETY: By the requirements of this function the target is alive.
        let parent = unsafe { (*starget).dev.parent };
        // SAFETY: Targets are scanned for below `shost_gendev` only, see `Host::scan()` and
        // `scsi_scan_channel()`.
        let shost = unsafe { kernel::container_of!(parent, bindings::Scsi_Host, shost_gendev) };

        // SAFETY: By the safety requirements, `shost` is a host of type `T`.
        let data = unsafe { HostData::<T>::of(shost) };
        let Some(driver) = data.get() else {
            return ENXIO.to_errno();
        };
        let can_queue = driver.target_can_queue();

        // SAFETY: The target is not in use before this callback has returned.
        unsafe { (*starget).can_queue = can_queue };
        0
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a device of a host of type `T` that is being
    /// added.
    unsafe extern "C" fn sdev_configure_callback(
        sdev: *mut bindings::scsi_device,
        _lim: *mut bindings::queue_limits,
    ) -> ffi::c_int {
        from_result(|| {
            // `scsi_add_lun()` sets this flag for a unit with the vendor ATA. Whether the error
            // handler starts a unit is the user's choice.
            // SAFETY: By the requirements of this function the device is not in use before this
            // callback has returned.
            unsafe { (*sdev).set_allow_restart(0) };
            if !T::HAS_SDEV_CONFIGURE {
                return Ok(0);
            }
            // SAFETY: A device has a reference to its host.
            let shost = unsafe { (*sdev).host };
            // SAFETY: By the safety requirements, the device belongs to a host of type `T`.
            let driver = unsafe { HostData::<T>::of(shost) }.get().ok_or(ENXIO)?;
            // SAFETY: By the safety requirements, the device is alive. The reference ends with this
            // function.
            let device = unsafe { Device::from_raw(sdev) };

            driver.sdev_configure(device)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// May only be called by the SCSI midlayer, with a live device.
    unsafe extern "C" fn change_queue_depth_callback(
        sdev: *mut bindings::scsi_device,
        depth: ffi::c_int,
    ) -> ffi::c_int {
        // SAFETY: By the safety requirements, the device is alive.
        let tagged = unsafe { (*sdev).tagged_supported() } != 0;

        // SAFETY: By the safety requirements, the device is alive.
        unsafe { bindings::scsi_change_queue_depth(sdev, if tagged { depth } else { 1 }) }
    }
}

/// Waits until `f` returns true, for about 2 s at most, and returns whether it did.
///
/// Another CPU may just have taken a command to process its response and be about to complete it.
fn wait_until(f: impl Fn() -> bool) -> bool {
    for _ in 0..RELEASE_TRIES {
        if f() {
            return true;
        }
        fsleep(Delta::from_millis(1));
    }
    pr_err!("a SCSI command is still held after the driver's error handling\n");
    false
}

/// The argument and result of [`find_held`].
struct Search {
    sdev: *mut bindings::scsi_device,
    held: bool,
}

/// # Safety
///
/// May only be called by `scsi_host_busy_iter()` for a host of this abstraction, with `data`
/// pointing to a [`Search`] that has no other user.
unsafe extern "C" fn find_held(cmd: *mut bindings::scsi_cmnd, data: *mut ffi::c_void) -> bool {
    // SAFETY: By the safety requirements, `data` points to a `Search` that has no other user.
    let search = unsafe { &mut *data.cast::<Search>() };
    // SAFETY: By the requirements of this function the command has a request that is busy.
    let sdev = unsafe { (*cmd).device };

    // SAFETY: By the requirements of this function: `init_cmd_priv` was called for all commands.
    if (search.sdev.is_null() || search.sdev == sdev) && unsafe { CmdPriv::of(cmd) }.is_held() {
        search.held = true;
    }
    !search.held
}

/// Position of `track_queue_depth` in the first byte of the template's bit fields.
const TRACK_QUEUE_DEPTH: u32 = compat::template::TRACK_QUEUE_DEPTH;
/// Position of `skip_settle_delay` in the same byte.
const SKIP_SETTLE_DELAY: u32 = TRACK_QUEUE_DEPTH + 4;

/// Returns a byte with the bit field at `position` set. The first bit field is the byte's highest
/// bit on big-endian machines, otherwise its lowest. Bindgen's setters cannot be called in a
/// constant; `Host::new()` checks the result with the getters.
const fn flag(position: u32) -> u8 {
    if cfg!(target_endian = "big") {
        0x80 >> position
    } else {
        1 << position
    }
}
