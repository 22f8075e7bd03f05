// SPDX-License-Identifier: GPL-2.0

//! KUnit tests: a host with a driver that is also the target.

mod held;
pub(crate) mod no_disks;
pub(crate) mod unit;

use super::{
    command::CmdPriv,
    host::template::Template,
    transport::NoTransport,
    *, //
};
use crate::{
    bindings,
    dma::DataDirection,
    sysfs::{
        attribute_group,
        AttributeGroup,
        Page, //
    },
};
use core::ptr::null_mut;
use kernel::{
    new_spinlock,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue, //
};

/// Standard INQUIRY data of a processor device.
const INQUIRY_DATA: [u8; 36] = *b"\x03\x00\x05\x02\x1f\x00\x00\x00SRP-RS  FAKE TARGET     0001";
/// ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
const SENSE: [u8; 14] = [0x70, 0, 5, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x20, 0];

pub(super) const LIMITS: Limits = Limits {
    nr_hw_queues: 1,
    polled_queues: 0,
    queue_depth: 8,
    cmd_per_lun: 8,
    max_id: 1,
    max_lun: u64::MAX,
    max_cmd_len: 16,
    sg_tablesize: 16,
    max_sectors: 0,
    max_segment_size: 0,
    virt_boundary_mask: 0xfff,
    dma_boundary: 0,
};

/// Time until the driver gives a command up, in milliseconds: enough for a reset to log a message.
const RELEASED_AFTER_MS: i64 = 3_000;

/// Counts the live objects of a test.
pub(super) struct Alive(Arc<Atomic<i32>>);

impl Alive {
    pub(super) fn new(count: &Arc<Atomic<i32>>) -> Self {
        count.add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[pin_data]
struct Fake {
    _alive: Alive,
    configured: Atomic<i32>,
    /// Whether to keep commands instead of completing them.
    hold: Atomic<bool>,
    /// Whether to give the command up in error handling.
    honest: Atomic<bool>,
    #[pin]
    held: SpinLock<Option<Command>>,
    /// A command that the driver keeps, by `keep`, or because it returned the command in `held`
    /// instead.
    #[pin]
    swapped: SpinLock<Option<Command>>,
    /// Whether to return the command in `held`, whichever command arrives.
    swap: Atomic<bool>,
    /// Whether to keep a command without examining it.
    keep: Atomic<bool>,
    /// A command that the midlayer sends again during its `queuecommand`. The first call returns
    /// the second use.
    again: Atomic<*mut bindings::scsi_cmnd>,
    /// Whether the device reports the vendor ATA.
    ata: Atomic<bool>,
    /// Whether a scan has ended.
    scanned: Atomic<bool>,
}

attribute_group! {
    static ATTRIBUTES: Host<Fake> {
        configured: 0o444, show = Fake::configured;
    }
}

impl Fake {
    fn configured(&self, page: &mut Page<'_>) -> Result {
        page.emit(fmt!("{}\n", self.configured.load(Relaxed)))
    }

    fn new(alive: &Arc<Atomic<i32>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                _alive: Alive::new(alive),
                configured: Atomic::new(0),
                hold: Atomic::new(false),
                honest: Atomic::new(false),
                held <- new_spinlock!(None),
                swapped <- new_spinlock!(None),
                swap: Atomic::new(false),
                keep: Atomic::new(false),
                again: Atomic::new(null_mut()),
                ata: Atomic::new(false),
                scanned: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Completes the command, makes the midlayer send it again, keeps that use and then returns it.
    fn send_again(&self, cmd: Command) -> Result<(), Rejected> {
        let raw = self.again.load(Relaxed);
        cmd.done(ScsiResult::DID_OK);
        let Some(queue) = Template::<Self>::get().queuecommand else {
            return Ok(());
        };
        // SAFETY: The command is alive.
        let device = unsafe { (*raw).device };
        // SAFETY: A device outlives its commands.
        let shost = unsafe { (*device).host };
        self.keep.store(true, Relaxed);
        // SAFETY: The command has ended and has its `CmdPriv` behind it.
        unsafe { queue(shost, raw) };
        self.keep.store(false, Relaxed);
        let next = self.swapped.lock().take();
        next.map_or(Ok(()), |cmd| {
            Err(Rejected {
                cmd,
                why: Busy::Host,
            })
        })
    }

    fn give_up(&self) -> Disposition {
        if self.honest.load(Relaxed) {
            let cmd = self.held.lock().take();

            if let Some(cmd) = cmd {
                cmd.release();
            }
        }
        Disposition::Success
    }
}

#[vtable]
impl Driver for Fake {
    const MODULE: &'static ThisModule = crate::compat::THIS_MODULE;
    const NAME: &'static CStr = c"fake SRP target";
    const PROC_NAME: &'static CStr = c"srp_fake";
    type Transport = NoTransport;
    const HOST_ATTRIBUTES: Option<&'static AttributeGroup<Host<Self>>> = Some(&ATTRIBUTES);

    fn queue_command(&self, cmd: Command) -> Result<(), Rejected> {
        if self.swap.load(Relaxed) {
            let other = self.held.lock().take();

            if let Some(other) = other {
                *self.swapped.lock() = Some(cmd);
                return Err(Rejected {
                    cmd: other,
                    why: Busy::Host,
                });
            }
        }
        if self.keep.load(Relaxed) {
            *self.swapped.lock() = Some(cmd);
            return Ok(());
        }
        if !self.again.load(Relaxed).is_null() {
            return self.send_again(cmd);
        }
        if cmd.tag().hw_queue != 0 || cmd.tag().index >= LIMITS.queue_depth || cmd.lun() != 0 {
            cmd.done(ScsiResult::DID_ERROR);
            return Ok(());
        }
        if self.hold.load(Relaxed) {
            let other = self.held.lock().replace(cmd);

            drop(other);
            return Ok(());
        }

        match cmd.cdb() {
            [0x12, 0, ..] if cmd.direction() == DataDirection::FromDevice => {
                let mut data = INQUIRY_DATA;
                if self.ata.load(Relaxed) {
                    data[8..16].copy_from_slice(b"ATA     ");
                }
                let copied = cmd.copy_to_buffer(data.as_slice().into());

                // CAST: At most 36.
                cmd.set_resid(cmd.data_len() - copied as u32);
                cmd.done(ScsiResult::DID_OK);
            }
            _ => {
                let result = cmd.with_sense(0x02, &SENSE);
                cmd.done(result);
            }
        }
        Ok(())
    }

    fn abort(&self, _cmd: &CommandRef<'_>) -> Disposition {
        self.give_up()
    }

    fn device_reset(&self, _dev: &Device, _cmd: &CommandRef<'_>) -> Disposition {
        self.give_up()
    }

    fn host_reset(&self) -> HostReset {
        HostReset::Done
    }

    fn target_can_queue(&self) -> u32 {
        3
    }

    fn sdev_configure(&self, dev: &Device) -> Result {
        dev.set_request_timeout(45_000);
        if dev.device_type() == 3 && !dev.is_disk() {
            self.configured.add(1, Relaxed);
        }
        Ok(())
    }
}

pub(super) fn count() -> Result<Arc<Atomic<i32>>> {
    Ok(Arc::new(Atomic::new(0), GFP_KERNEL)?)
}

fn host(fake: &Arc<Fake>) -> Result<Arc<Host<Fake>>> {
    let transport = Arc::new(NoTransport, GFP_KERNEL)?;
    let host = Host::new(
        &LIMITS,
        c"SRP.T10:0000000000000001",
        transport,
        fake.clone(),
    )?;

    Ok(Arc::new(host, GFP_KERNEL)?)
}

/// A scan finds the device, and the removal drops all objects of the driver.
fn scan_and_remove() -> Result<[i32; 4]> {
    let alive = count()?;
    let fake = Fake::new(&alive)?;
    let host = host(&fake)?;

    host.add(None)?;
    let again = host.add(None);
    host.scan();
    host.remove();
    host.remove();
    host.scan();
    let configured = fake.configured.load(Relaxed);
    drop(fake);
    drop(host);
    Ok([
        configured,
        alive.load(Relaxed),
        again.err().map_or(0, Error::to_errno),
        0,
    ])
}

/// Returns the number of tags of each hardware queue, and the initial command limits of the host
/// and of a device.
fn depths() -> Result<(u32, i32, i16)> {
    let alive = count()?;
    let limits = Limits {
        nr_hw_queues: 3,
        cmd_per_lun: 20,
        ..LIMITS
    };
    let transport = Arc::new(NoTransport, GFP_KERNEL)?;
    let host = Host::new(
        &limits,
        c"SRP.T10:0000000000000003",
        transport,
        Fake::new(&alive)?,
    )?;

    host.add(None)?;
    host.while_added(|shost| {
        // SAFETY: The host is added, so it has its tag set, and these fields are not written.
        let set = unsafe { (*shost).tag_set.queue_depth };
        // SAFETY: The host is added, and its limits are not written.
        let (all, per_lun) = unsafe { ((*shost).can_queue, (*shost).cmd_per_lun) };
        Ok((set, all, per_lun))
    })
}

/// A host that was never added leaves nothing behind.
fn never_added() -> Result<i32> {
    let alive = count()?;
    let fake = Fake::new(&alive)?;
    let host = host(&fake)?;

    drop(fake);
    drop(host);
    Ok(alive.load(Relaxed))
}

/// The objects that `scsi_ioctl_reset()` allocates as one.
#[repr(C)]
struct IoctlCommand {
    rq: bindings::request,
    cmd: bindings::scsi_cmnd,
    state: CmdPriv,
}

impl IoctlCommand {
    fn new(device: *mut bindings::scsi_device) -> Result<KBox<Self>> {
        let this = Self {
            rq: bindings::request::default(),
            cmd: bindings::scsi_cmnd {
                device,
                submitter: bindings::scsi_cmnd_submitter_SUBMITTED_BY_SCSI_RESET_IOCTL,
                sc_data_direction: DataDirection::None.into(),
                ..Default::default()
            },
            state: CmdPriv::new(),
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }
}

/// Waits until `done` returns true, at most 5 s.
fn within(mut done: impl FnMut() -> bool) -> Result {
    for _ in 0..5000 {
        if done() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// Adds the host, begins to scan and returns the first command of the scan, which the driver keeps.
fn hold_first(fake: &Arc<Fake>, host: &Arc<Host<Fake>>) -> Result<*mut bindings::scsi_cmnd> {
    fake.hold.store(true, Relaxed);
    host.add(None)?;

    let scanned = host.clone();
    // SAFETY: The kernel's queue exists and stays.
    let queue = unsafe { workqueue::Queue::from_raw(bindings::system_dfl_wq) };
    queue.try_spawn(GFP_KERNEL, move || {
        scanned.scan();
        scanned.driver().scanned.store(true, Relaxed);
    })?;

    within(|| fake.held.lock().is_some())?;
    let held = fake.held.lock();
    held.as_ref().map(Command::as_raw).ok_or(EIO)
}

/// Returns the value that the midlayer gets when a driver returns a command other than its
/// argument, and whether that command and its scan end.
fn another_is_given_back() -> Result<(u32, bool)> {
    let alive = count()?;
    let fake = Fake::new(&alive)?;
    let host = host(&fake)?;
    let raw = hold_first(&fake, &host)?;
    // SAFETY: The command is held, so it has no other user.
    let device = unsafe { (*raw).device };
    // SAFETY: A device outlives its commands.
    let shost = unsafe { (*device).host };
    let queue = Template::<Fake>::get().queuecommand.ok_or(EINVAL)?;

    let mut second = IoctlCommand::new(device)?;
    fake.hold.store(false, Relaxed);
    fake.swap.store(true, Relaxed);
    // SAFETY: The command has its `CmdPriv` behind it.
    let told = unsafe { queue(shost, &raw mut second.cmd) };
    fake.swap.store(false, Relaxed);
    if let Some(cmd) = fake.swapped.lock().take() {
        cmd.release();
    }
    let ended = within(|| fake.scanned.load(Relaxed)).is_ok();
    Ok((told as u32, ended))
}

/// A callback of the error handler.
type EhHandler = unsafe extern "C" fn(*mut bindings::scsi_cmnd) -> kernel::ffi::c_int;

/// The results of the error handler's callbacks for a driver that claims to have given a command up
/// but has not: abort, device reset, `queuecommand`, the ioctl; then for one that has: abort,
/// `queuecommand`; then for a host reset that returns before the command is given up, and with
/// nothing held.
fn error_handling() -> Result<[u32; 10]> {
    let alive = count()?;
    let fake = Fake::new(&alive)?;
    let host = host(&fake)?;

    let raw = hold_first(&fake, &host)?;
    let template = Template::<Fake>::get();
    let (Some(abort), Some(device_reset), Some(host_reset), Some(queue)) = (
        template.eh_abort_handler,
        template.eh_device_reset_handler,
        template.eh_host_reset_handler,
        template.queuecommand,
    ) else {
        return Err(EINVAL);
    };
    let mut results = [0; 10];

    // SAFETY: The command is held, so it has no other user.
    let device = unsafe { (*raw).device };
    // SAFETY: A device outlives its commands.
    let shost = unsafe { (*device).host };
    let ask = |handler: EhHandler, cmd| {
        // SAFETY: `cmd` is a command in flight, as the error handler passes, or like that of
        // `SG_SCSI_RESET`.
        unsafe { handler(cmd) as u32 }
    };
    let requeue = || {
        // SAFETY: The error handler retries a command in the same way.
        unsafe { queue(shost, raw) }
    };
    results[0] = ask(abort, raw);
    results[1] = ask(device_reset, raw);
    results[2] = requeue();

    let mut ioctl = IoctlCommand::new(device)?;
    results[3] = ask(device_reset, &raw mut ioctl.cmd);

    fake.honest.store(true, Relaxed);
    results[4] = ask(abort, raw);
    results[5] = requeue();
    let late = fake.clone();
    // SAFETY: The kernel's queue exists and stays.
    let other = unsafe { workqueue::Queue::from_raw(bindings::system_dfl_wq) };
    other.try_spawn(GFP_KERNEL, move || {
        fsleep(Delta::from_millis(RELEASED_AFTER_MS));
        late.give_up();
    })?;
    results[6] = ask(host_reset, raw);
    if fake.held.lock().is_some() {
        return Err(EBUSY);
    }
    results[7] = ask(host_reset, raw);

    fake.hold.store(false, Relaxed);
    if requeue() != 0 {
        return Err(EIO);
    }

    host.remove();
    // A removed device that is still open.
    let mut sdev = KBox::new(bindings::scsi_device::default(), GFP_KERNEL)?;
    sdev.host = shost;
    ioctl.cmd.device = &mut *sdev;
    results[8] = ask(host_reset, &raw mut ioctl.cmd);

    drop(fake);
    drop(host);
    let _ = within(|| alive.load(Relaxed) == 0);
    // CAST: 0 or 1.
    results[9] = alive.load(Relaxed) as u32;
    Ok(results)
}

#[kunit_tests(srp_scsi_host)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_the_device() {
        assert_eq!(scan_and_remove(), Ok([1, 0, EBUSY.to_errno(), 0]));
        assert_eq!(never_added(), Ok(0));
    }

    #[test]
    fn a_device_may_have_all_queues() {
        assert_eq!(depths(), Ok((8, 24, 20)));
    }

    #[test]
    fn a_command_is_given_back_by_its_own_call() {
        assert_eq!(another_is_given_back(), Ok((0, true)));
    }

    #[test]
    fn the_error_handler_is_not_told_lies() {
        assert_eq!(
            error_handling(),
            Ok([0x2003, 0x2003, 0x1056, 0x2002, 0x2002, 0, 0x2002, 0x2002, 0x2003, 0])
        );
    }
}
