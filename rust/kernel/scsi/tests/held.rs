// SPDX-License-Identifier: GPL-2.0

//! KUnit tests: commands that the driver holds while the midlayer, or the driver itself, mistakes
//! them for others.

use super::{
    count,
    hold_first,
    host,
    within,
    Fake,
    IoctlCommand, //
};
use crate::{
    bindings,
    scsi::{
        command::CmdPriv,
        host::template::Template,
        ScsiResult, //
    },
};
use core::ptr::null_mut;
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// A host with one command, the first of its scan, which the driver holds.
struct Held {
    fake: Arc<Fake>,
    raw: *mut bindings::scsi_cmnd,
    device: *mut bindings::scsi_device,
    shost: *mut bindings::Scsi_Host,
    host: Arc<crate::scsi::Host<Fake>>,
}

impl Held {
    fn new() -> Result<Self> {
        let fake = Fake::new(&count()?)?;
        let host = host(&fake)?;
        let raw = hold_first(&fake, &host)?;
        // SAFETY: The command is held, so it has no other owner.
        let device = unsafe { (*raw).device };
        // SAFETY: A device outlives its commands.
        let shost = unsafe { (*device).host };
        Ok(Self {
            fake,
            raw,
            device,
            shost,
            host,
        })
    }

    /// Calls `queuecommand` as the midlayer does, for a command with its `CmdPriv` behind it.
    fn queue(&self, cmd: *mut bindings::scsi_cmnd) -> Result<u32> {
        let queue = Template::<Fake>::get().queuecommand.ok_or(EINVAL)?;
        // SAFETY: The commands of these tests have their `CmdPriv` behind them, and belong to this
        // host.
        Ok(unsafe { queue(self.shost, cmd) } as u32)
    }

    fn is_free(cmd: *mut bindings::scsi_cmnd) -> bool {
        // SAFETY: The commands of these tests have their `CmdPriv` behind them.
        !unsafe { CmdPriv::of(cmd) }.is_held()
    }

    fn set_submitter(&self, submitter: bindings::scsi_cmnd_submitter) {
        // SAFETY: The command has no other owner.
        unsafe { (*self.raw).submitter = submitter };
    }

    fn result(cmd: *mut bindings::scsi_cmnd) -> i32 {
        // SAFETY: The commands of these tests stay alive.
        unsafe { (*cmd).result }
    }

    fn set_result(cmd: *mut bindings::scsi_cmnd, result: i32) {
        // SAFETY: The commands of these tests stay alive.
        unsafe { (*cmd).result = result };
    }

    /// Retries the first command, as the midlayer does, so that the scan continues.
    fn end(self) -> Result {
        self.fake.hold.store(false, Relaxed);
        if self.queue(self.raw)? != 0 {
            return Err(EIO);
        }
        within(|| self.fake.scanned.load(Relaxed))?;
        self.host.remove();
        Ok(())
    }
}

const NOT_SET: i32 = 0x55;

/// Returns the outcome of a command of the error handler while the driver holds another command of
/// the unit, and while it holds none: the return value of `queuecommand`, the result, and whether
/// the driver got the command.
fn of_the_error_handler() -> Result<[(u32, i32, bool); 2]> {
    const SUBMITTER: bindings::scsi_cmnd_submitter =
        bindings::scsi_cmnd_submitter_SUBMITTED_BY_SCSI_ERROR_HANDLER;
    let held = Held::new()?;

    let mut second = IoctlCommand::new(held.device)?;
    second.cmd.submitter = SUBMITTER;
    second.cmd.result = NOT_SET;
    let second = &raw mut second.cmd;
    held.fake.keep.store(true, Relaxed);
    let told = held.queue(second)?;
    held.fake.keep.store(false, Relaxed);
    let seen = held.fake.swapped.lock().take().is_some();
    let beside = (told, Held::result(second), seen);

    if let Some(cmd) = held.fake.held.lock().take() {
        cmd.release();
    }
    held.set_submitter(SUBMITTER);
    Held::set_result(held.raw, NOT_SET);
    let told = held.queue(held.raw)?;
    let cmd = held.fake.held.lock().take();
    let seen = cmd.is_some();
    if let Some(cmd) = cmd {
        cmd.done(ScsiResult::status(0x08));
    }
    let alone = (told, Held::result(held.raw), seen);
    held.set_submitter(bindings::scsi_cmnd_submitter_SUBMITTED_BY_BLOCK_LAYER);
    held.end()?;
    Ok([beside, alone])
}

/// Completes a command that has timed out. Returns its result, and whether it is given up.
fn timed_out() -> Result<(i32, bool)> {
    let held = Held::new()?;
    let complete = 1 << bindings::SCMD_STATE_COMPLETE;
    Held::set_result(held.raw, NOT_SET);
    // SAFETY: The first command of a scan times out after 2 s, which have not passed; this is what
    // `scsi_timeout()` does then.
    unsafe { (*held.raw).state |= complete };
    if let Some(cmd) = held.fake.held.lock().take() {
        cmd.done(ScsiResult::DID_ERROR);
    }
    let found = (Held::result(held.raw), Held::is_free(held.raw));
    // SAFETY: The timeout has still not passed; this is what `scsi_queue_rq()` does to retry the
    // command.
    unsafe { (*held.raw).state &= !complete };
    held.end()?;
    Ok(found)
}

/// Calls `queuecommand` with a driver that completes the command, gets it again by a second call
/// and returns that second use from the first call. Returns the value of the first call, the result
/// of the second use, and whether the command is free.
fn the_next_use_is_given_back() -> Result<(u32, i32, bool)> {
    let held = Held::new()?;
    let mut second = IoctlCommand::new(held.device)?;
    let second = &raw mut second.cmd;
    if let Some(cmd) = held.fake.held.lock().take() {
        cmd.release();
    }
    held.fake.again.store(second, Relaxed);
    let told = held.queue(second)?;
    held.fake.again.store(null_mut(), Relaxed);
    let found = (told, Held::result(second), Held::is_free(second));
    held.end()?;
    Ok(found)
}

/// Returns whether the error handler may start a unit that reports the vendor ATA.
fn restarts() -> Result<bool> {
    let held = Held::new()?;
    held.fake.ata.store(true, Relaxed);
    if let Some(cmd) = held.fake.held.lock().take() {
        cmd.release();
    }
    held.fake.hold.store(false, Relaxed);
    if held.queue(held.raw)? != 0 {
        return Err(EIO);
    }
    within(|| held.fake.scanned.load(Relaxed))?;
    let mut found = None;
    held.host.while_added(|shost| {
        // SAFETY: The host is added. This takes a reference to the device.
        let sdev = unsafe { bindings::__scsi_iterate_devices(shost, null_mut()) };
        if !sdev.is_null() {
            // SAFETY: There is a reference to the device.
            found = Some(unsafe { (*sdev).allow_restart() } != 0);
            // SAFETY: That reference is given back.
            unsafe { bindings::scsi_device_put(sdev) };
        }
        Ok(())
    })?;
    held.host.remove();
    found.ok_or(ENOENT)
}

#[kunit_tests(srp_scsi_held)]
mod tests {
    use super::*;

    /// `DID_ERROR`.
    const FAILED: i32 = 7 << 16;

    #[test]
    fn the_error_handler_sends_nothing_while_the_driver_has_a_command() {
        assert_eq!(
            of_the_error_handler(),
            Ok([(0, FAILED, false), (0, 0x08, true)])
        );
    }

    #[test]
    fn the_end_of_a_command_that_has_timed_out_gives_it_up() {
        assert_eq!(timed_out(), Ok((NOT_SET, true)));
    }

    #[test]
    fn the_next_use_of_a_command_is_not_this_one() {
        assert_eq!(the_next_use_is_given_back(), Ok((0, FAILED, true)));
    }

    #[test]
    fn no_unit_is_started_at_first() {
        assert_eq!(restarts(), Ok(false));
    }
}
