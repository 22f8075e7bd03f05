// SPDX-License-Identifier: GPL-2.0

//! SCSI commands.
//!
//! # Ownership of a command
//!
//! A `struct scsi_cmnd` is part of its block layer request, from the set-up of the tag set until
//! `scsi_remove_host()`. It is reused many times, and each use passes through these owners:
//!
//! ```text
//!             queuecommand                 done(), drop
//!  midlayer ---------------> driver (held) ----------------> scsi_done(): midlayer
//!                               |                                            ^
//!                               | timeout                                    |
//!                               v              release(), done()             |
//!                 error handler, driver (held) ----------> error handler ----+
//! ```
//!
//! - [`Command`] is the driver's ownership: at most one exists per `struct scsi_cmnd`, and the
//!   driver can give the command up only by consuming the [`Command`].
//! - On a timeout, `scsi_timeout()` sets `SCMD_STATE_COMPLETE`. From then on the error handler
//!   decides about the command. The driver keeps its [`Command`] and with it the data buffers, so a
//!   late response does no harm. It gives the command up in [`Driver::abort`](super::Driver::abort)
//!   or in a reset, once nothing can access the data, with [`Command::done`] or
//!   [`Command::release`]; neither touches the `struct scsi_cmnd` then.
//! - A [`Command::done`] that began before the timeout may still be about to call `scsi_done()`,
//!   which would end a later use of the command. So `done` is an RCU read-side critical section.
//!   `scsi_eh_scmd_add()` hands a command to the error handler after a grace period. An abort, and
//!   the error handler's cleanup of its own command, come without a grace period: there the
//!   callback waits for one if the command ended by `scsi_done()`.
//! - The error handler may send a command of its own in the same `struct scsi_cmnd`, with the same
//!   tag and another CDB and buffer (`scsi_send_eh_cmnd()`). If it succeeds, `scsi_error.c` may end
//!   all failed commands of the unit. So a command of the error handler is refused, without calling
//!   the driver, while the driver holds any [`Command`] of the unit.
//! - `SG_SCSI_RESET` calls the resets with a `struct scsi_cmnd` that is in no tag set:
//!   [`CommandRef::is_reset_ioctl`].
//!
//! The midlayer trusts the driver's result of an abort or a reset; this abstraction verifies it
//! with the `CmdPriv` behind each `struct scsi_cmnd`. While a command is held, an abort or a unit
//! reset fails; a host reset, after which the midlayer ends all commands in any case, does not
//! return.
//!
//! The module [`ends`] lists what else ends or reuses a command.
//!
//! C header: [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h)

use super::{
    Busy,
    Device,
    ScsiResult, //
};
use crate::{
    bindings,
    compat::{
        self,
        data_direction, //
    },
    dma::{
        DataDirection,
        DeviceBytes,
        DeviceBytesMut,
        ScatterList, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    sync::rcu, //
};

mod cmd_priv;
pub mod ends;

pub(super) use self::cmd_priv::{
    Call,
    CmdPriv, //
};

/// Identifies a command among those in flight on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Index of the hardware queue, below [`Limits::nr_hw_queues`](super::Limits::nr_hw_queues).
    pub hw_queue: u16,
    /// Index in the queue, below [`Limits::queue_depth`](super::Limits::queue_depth).
    pub index: u16,
}

/// A command that the driver owns.
///
/// Dropping a [`Command`] completes it with [`ScsiResult::DID_ERROR`].
///
/// # Invariants
///
/// The pointer is to a `struct scsi_cmnd` of a tag set that was passed to `queuecommand` and that
/// the driver has not completed since. Its [`CmdPriv`] holds the name of a [`Call`], and this is
/// the only [`Command`] for it. The tag set is not freed while this object exists: `exit_cmd_priv`
/// waits.
pub struct Command(NonNull<bindings::scsi_cmnd>);

// SAFETY: A command may be completed on another CPU and in another context than those it was queued
// in.
unsafe impl Send for Command {}

impl Command {
    /// Takes ownership of a command, which the error handler has sent if `of_error_handler`.
    /// Returns [`None`] if the driver still holds the command from an earlier use.
    ///
    /// Context: as `queuecommand`.
    ///
    /// # Safety
    ///
    /// - Only `queuecommand` may call this, with its argument, once per `call`.
    /// - The `CmdPriv` behind the command was set up by `init_cmd_priv`.
    #[inline(always)]
    pub(super) unsafe fn claim(
        cmd: *mut bindings::scsi_cmnd,
        call: &Call,
        of_error_handler: bool,
    ) -> Option<Self> {
        // SAFETY: By the safety requirements, `init_cmd_priv` set up the `CmdPriv` behind `cmd`.
        let state = unsafe { CmdPriv::of(cmd) };

        if !state.take(call, of_error_handler) {
            return None;
        }
        // INVARIANT: The state is now the name of `call`, and was FREE or DONE: no other `Command`
        // exists.
        NonNull::new(cmd).map(Self)
    }

    /// Returns whether `call` has taken this command; false for a later use of the same command.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.state().is_of(call)
    }

    /// Returns the `struct scsi_cmnd`, for mapping its data.
    pub(crate) fn as_raw(&self) -> *mut bindings::scsi_cmnd {
        self.0.as_ptr()
    }

    fn state(&self) -> &CmdPriv {
        // SAFETY: By the type invariant, the command is alive and has a `CmdPriv` behind it.
        unsafe { CmdPriv::of(self.as_raw()) }
    }

    /// Returns the tag, which the command keeps until it is consumed.
    pub fn tag(&self) -> Tag {
        // SAFETY: By the type invariant the command is part of a request with a tag.
        unsafe { tag_of(self.as_raw()) }
    }

    /// Returns the request that contains the command. The fields read from it do not change while
    /// the driver owns the command.
    #[inline(always)]
    fn request(&self) -> *const bindings::request {
        // SAFETY: By the type invariant the command is part of a request, which precedes it.
        unsafe { self.as_raw().cast::<bindings::request>().sub(1) }
    }

    #[inline(always)]
    fn cmd_flags(&self) -> u32 {
        // SAFETY: The request lives as long as its command.
        unsafe { (*self.request()).cmd_flags }
    }

    /// Returns whether the submitter wants transport failures reported instead of retried, as
    /// multipath software does.
    pub fn is_failfast(&self) -> bool {
        const MASK: u32 = 1 << bindings::req_flag_bits___REQ_FAILFAST_DEV
            | 1 << bindings::req_flag_bits___REQ_FAILFAST_TRANSPORT
            | 1 << bindings::req_flag_bits___REQ_FAILFAST_DRIVER;
        self.cmd_flags() & MASK != 0
    }

    /// Returns whether this is a read that the block layer has sent, for a file or for direct I/O.
    /// False for passthrough commands, the midlayer's own commands, and those that the error
    /// handler sends in the request of another command.
    #[inline(always)]
    pub fn is_block_read(&self) -> bool {
        const SUBMITTED: bindings::scsi_cmnd_submitter =
            bindings::scsi_cmnd_submitter_SUBMITTED_BY_BLOCK_LAYER;
        const OPERATION: u32 = (1 << bindings::REQ_OP_BITS) - 1;
        // SAFETY: By the type invariant the command is alive.
        let submitter = unsafe { (*self.as_raw()).submitter };
        self.cmd_flags() & OPERATION == bindings::req_op_REQ_OP_READ && submitter == SUBMITTED
    }

    /// Returns whether the command has retries and has used none of them. If it ends with
    /// [`ScsiResult::DID_SOFT_ERROR`] and is not [`is_failfast_driver`](Self::is_failfast_driver),
    /// the midlayer retries it, and this function returns false for the retry.
    #[inline(always)]
    pub fn is_first_try(&self) -> bool {
        let cmd = self.as_raw();
        // SAFETY: By the type invariant the command is alive; the midlayer changes `retries` only
        // after it has the command back.
        let retries = unsafe { (*cmd).retries };
        // SAFETY: By the type invariant the command is alive; `allowed` was set before it was
        // queued.
        let allowed = unsafe { (*cmd).allowed };
        // With no limit (-1) the midlayer does not count the retries.
        retries == 0 && allowed > 0
    }

    /// Returns whether the request must not be retried after a driver error, such as the block
    /// layer's readahead.
    pub fn is_failfast_driver(&self) -> bool {
        self.cmd_flags() & 1 << bindings::req_flag_bits___REQ_FAILFAST_DRIVER != 0
    }

    /// Returns the number of data bytes of a block layer command before logical block `block` of
    /// the device. Returns 0 if `block` is the command's first block or not one of its blocks.
    pub fn len_up_to(&self, block: u64) -> u32 {
        // SAFETY: The request lives as long as its command.
        let sector = unsafe { (*self.request()).__sector };
        let size = u64::from(self.device().block_size());

        let Some(first) = sector.checked_mul(512).and_then(|at| at.checked_div(size)) else {
            return 0;
        };
        let len = block.saturating_sub(first).saturating_mul(size);
        u32::try_from(len)
            .ok()
            .filter(|len| *len < self.data_len())
            .unwrap_or(0)
    }

    /// Returns whether `other` is this command.
    pub fn is(&self, other: &CommandRef<'_>) -> bool {
        self.0 == other.0
    }

    /// Returns the command descriptor block, at most
    /// [`Limits::max_cmd_len`](super::Limits::max_cmd_len) and 32 bytes.
    pub fn cdb(&self) -> &[u8] {
        let cmd = self.as_raw();
        // SAFETY: By the type invariant the command is alive, and its CDB is not modified while the
        // driver owns the command.
        let cdb = unsafe { &(*cmd).cmnd };
        // SAFETY: By the type invariant the command is alive.
        let len = unsafe { (*cmd).cmd_len };

        cdb.get(..usize::from(len)).unwrap_or(cdb)
    }

    /// Returns [`Device::lun`] of the command's device.
    pub fn lun(&self) -> u64 {
        self.device().lun()
    }

    /// Returns the command's device.
    pub fn device(&self) -> &Device {
        // SAFETY: By the type invariant the command is alive.
        let device = unsafe { (*self.as_raw()).device };

        // SAFETY: The device and its request queue stay until the command has been completed.
        unsafe { Device::from_raw(device) }
    }

    /// Returns the direction of the data transfer.
    pub fn direction(&self) -> DataDirection {
        // SAFETY: By the type invariant the command is alive.
        data_direction(unsafe { (*self.as_raw()).sc_data_direction })
    }

    /// Returns whether the command has data in both directions. The driver never gets such a
    /// command.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.direction() == DataDirection::Bidirectional
    }

    /// Returns the length of the data in bytes.
    pub fn data_len(&self) -> u32 {
        // SAFETY: By the type invariant the command is alive.
        unsafe { (*self.as_raw()).sdb.length }
    }

    /// Returns the number of entries of the scatter-gather list.
    pub fn segments(&self) -> u32 {
        // SAFETY: By the type invariant the command is alive.
        unsafe { (*self.as_raw()).sdb.table.nents }
    }

    /// Copies the start of a write's data to `dst` and zeroes the rest of `dst`. If the command is
    /// not a write, zeroes all of `dst`.
    ///
    /// Context: any except hard interrupts.
    #[inline(always)]
    pub fn copy_from_buffer(&self, mut dst: DeviceBytesMut<'_>) {
        let len = dst.len();
        match self.contiguous(len) {
            Some(data) if self.is_write_of(len) => {
                let to = dst.as_mut_ptr().cast();
                // SAFETY: `data` is valid for reads of `len` bytes, and `to` for writes. A process
                // may modify the data concurrently, which C's `memcpy` tolerates.
                unsafe { bindings::memcpy(to, data.as_ptr(), len) };
            }
            _ => self.copy_segments(dst),
        }
    }

    /// Returns whether the command is a write of at least `len` bytes.
    #[inline(always)]
    fn is_write_of(&self, len: usize) -> bool {
        self.direction() == DataDirection::ToDevice && self.bounded(len) == len
    }

    /// Does what [`Self::copy_from_buffer`] does, for any segments and any direction.
    #[inline(never)]
    fn copy_segments(&self, mut dst: DeviceBytesMut<'_>) {
        let len = match self.direction() {
            DataDirection::ToDevice => self.bounded(dst.len()),
            _ => 0,
        };
        let to = dst.as_mut_ptr().cast();
        // SAFETY: The list and its memory are alive, see `ScatterList`. `to` has `len` bytes.
        let copied = unsafe { bindings::sg_copy_to_buffer(self.list(), self.count(), to, len) };
        if copied < dst.len() {
            dst.clear_from(copied);
        }
    }

    /// Copies `src` to the start of a read's data and returns the number of bytes copied.
    ///
    /// Less than `src.len()` if the data is shorter, 0 if the command is not a read.
    ///
    /// Context: any except hard interrupts.
    #[inline(always)]
    pub fn copy_to_buffer(&self, src: DeviceBytes<'_>) -> usize {
        if self.direction() != DataDirection::FromDevice {
            return 0;
        }

        let len = self.bounded(src.len());
        let from = src.as_ptr().cast();
        if let Some(data) = self.contiguous(len) {
            // SAFETY: `from` is valid for reads of `len` bytes, and `data` for writes. A process
            // may access the data concurrently, which C's `memcpy` tolerates.
            unsafe { bindings::memcpy(data.as_ptr(), from, len) };
            return len;
        }

        // SAFETY: The list and its memory are alive, see `ScatterList`. `from` is valid for reads
        // of `len` bytes.
        unsafe { bindings::sg_copy_from_buffer(self.list(), self.count(), from, len) }
    }

    /// Returns the address of the data if it is a single segment in lowmem with at least `len`
    /// bytes. This avoids the overhead of `sg_copy_buffer()`, 250 instructions.
    #[inline]
    fn contiguous(&self, len: usize) -> Option<NonNull<ffi::c_void>> {
        if self.count() != 1 {
            return None;
        }
        let segment = self.list();
        // SAFETY: The list is alive and has an entry.
        // CAST: `u32` to `usize` loses nothing.
        if (unsafe { (*segment).length } as usize) < len {
            return None;
        }
        // SAFETY: The list is alive and has an entry.
        NonNull::new(unsafe { bindings::srp_helper_sg_lowmem(segment) })
    }

    fn bounded(&self, len: usize) -> usize {
        // CAST: `u32` to `usize` loses nothing on 32 and 64 bit systems.
        len.min(self.data_len() as usize)
    }

    /// Sets the number of bytes that were not transferred, capped at the length of the data.
    pub fn set_resid(&self, resid: u32) {
        let resid = resid.min(self.data_len());

        // SAFETY: By the type invariant the command is alive and owned by the driver.
        unsafe { (*self.as_raw()).resid_len = resid };
    }

    /// Stores the sense data, truncated to `SCSI_SENSE_BUFFERSIZE` (96) bytes, and returns the
    /// result to complete the command with: [`ScsiResult::status`] with sense data.
    ///
    /// The sense data becomes valid for the midlayer only by [`done`](Self::done) with that result:
    /// the error handler may reuse a failed command that has valid sense data for commands of its
    /// own.
    pub fn with_sense(&self, status: u8, sense: &[u8]) -> ScsiResult {
        let Some((&code, rest)) = sense.split_first() else {
            return ScsiResult::status(status);
        };
        // CAST: The constant is 96.
        let len = rest.len().min(bindings::SCSI_SENSE_BUFFERSIZE as usize - 1);

        // SAFETY: By the type invariant the command is alive, and it has a sense buffer of
        // `SCSI_SENSE_BUFFERSIZE` bytes of its own, see `scsi_mq_init_request()`.
        let buffer = unsafe { (*self.as_raw()).sense_buffer.add(1) };
        // SAFETY: The buffer has `len` bytes left.
        unsafe { core::ptr::copy_nonoverlapping(rest.as_ptr(), buffer, len) };
        ScsiResult::status(status).with_response_code(code)
    }

    /// Completes the command, or only gives it up if it has timed out.
    ///
    /// Context: any except NMI. The midlayer may queue another command before this returns.
    #[inline(always)]
    pub fn done(self, result: ScsiResult) {
        ManuallyDrop::new(self).finish(result);
    }

    /// Completes `self`, which must not be used or dropped afterwards.
    #[inline(always)]
    fn finish(&mut self, result: ScsiResult) {
        let cmd = self.as_raw();
        let state = self.state();

        // The error handler waits for a grace period after the timeout. By then, a critical section
        // that began before the timeout has ended; a later one sees that the command has timed out.
        let _section = rcu::read_lock();
        if self.has_timed_out() {
            state.set_free();
            return;
        }
        // SAFETY: By the type invariant the command is alive and owned by the driver.
        unsafe { (*cmd).result = result.as_raw() };
        if result.response_code() != 0 {
            // SAFETY: By the type invariant the command is alive, with its own sense buffer.
            let buffer = unsafe { (*cmd).sense_buffer };
            // SAFETY: The buffer has `SCSI_SENSE_BUFFERSIZE` bytes.
            unsafe { buffer.write(result.response_code()) };
        }
        state.set_done();
        // SAFETY: By the type invariant the command was queued and not completed since. If it has
        // timed out by now, this call has no effect, and the midlayer does not use the command
        // again before the end of this critical section.
        unsafe { bindings::scsi_done(cmd) };
    }

    /// Returns whether the command has timed out and belongs to the error handler; false for a
    /// command that the error handler has sent.
    #[inline(always)]
    fn has_timed_out(&self) -> bool {
        const COMPLETE: ffi::c_ulong = 1 << bindings::SCMD_STATE_COMPLETE;
        // SAFETY: By the type invariant the command is alive.
        let state = unsafe { &raw const (*self.as_raw()).state };
        // SAFETY: The command is alive. The bits may change concurrently, in a single store.
        let complete = unsafe { state.read_volatile() } & COMPLETE != 0;
        complete && !self.state().is_of_error_handler()
    }

    /// Gives the command up without completing it, because the error handler completes it.
    ///
    /// Only for commands that have timed out: any other command stays incomplete until its timeout.
    pub fn release(self) {
        ManuallyDrop::new(self).state().set_free();
    }
}

// SAFETY: The scatter-gather list and its memory belong to the command and stay until it is
// completed, which consumes the `Command`. The midlayer builds the list for exactly `sdb.length`
// bytes.
unsafe impl ScatterList for Command {
    fn list(&self) -> *mut bindings::scatterlist {
        // SAFETY: By the type invariant the command is alive.
        unsafe { (*self.as_raw()).sdb.table.sgl }
    }

    fn count(&self) -> u32 {
        self.segments()
    }

    fn len(&self) -> u32 {
        self.data_len()
    }
}

impl Drop for Command {
    /// Not inlined, to avoid a copy in each function that may drop a command.
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.finish(ScsiResult::DID_ERROR);
    }
}

/// A command that the driver did not take, returned by
/// [`Driver::queue_command`](super::Driver::queue_command).
pub struct Rejected {
    /// The command.
    pub cmd: Command,
    /// Whether the host or only the device is busy.
    pub why: Busy,
}

impl Rejected {
    /// Returns whether this is `cmd` as taken by `call`. Only then may it be returned to the
    /// midlayer.
    pub(super) fn is_of(&self, cmd: *mut bindings::scsi_cmnd, call: &Call) -> bool {
        self.cmd.as_raw() == cmd && self.cmd.is_of(call)
    }

    /// Returns the command to the midlayer.
    pub(super) fn into_raw(self) -> compat::queue_status::Status {
        self.cmd.release();
        self.why.as_raw()
    }
}

/// A command that the error handler is handling.
///
/// # Invariants
///
/// The pointer is to a live `struct scsi_cmnd` of a [`Host`](super::Host), or to that of the
/// `SG_SCSI_RESET` ioctl for such a host. The midlayer does not modify it for `'a`.
pub struct CommandRef<'a>(
    NonNull<bindings::scsi_cmnd>,
    PhantomData<&'a bindings::scsi_cmnd>,
);

impl CommandRef<'_> {
    /// # Safety
    ///
    /// Only a callback of the error handler may call this, with its argument. The result is not
    /// used after the callback returns.
    pub(super) unsafe fn from_raw(cmd: *mut bindings::scsi_cmnd) -> Option<Self> {
        // INVARIANT: By the requirements of this function: the error handler owns the command and
        // waits for the callback.
        NonNull::new(cmd).map(|cmd| Self(cmd, PhantomData))
    }

    /// Returns whether this is the fake command of the `SG_SCSI_RESET` ioctl, which the driver has
    /// never owned.
    pub fn is_reset_ioctl(&self) -> bool {
        // SAFETY: By the type invariant the command is alive.
        unsafe { (*self.0.as_ptr()).submitter == SUBMITTED_BY_SCSI_RESET_IOCTL }
    }

    /// Returns the tag of the command; [`None`] for the fake one of `SG_SCSI_RESET`.
    pub fn tag(&self) -> Option<Tag> {
        if self.is_reset_ioctl() {
            return None;
        }

        // SAFETY: By the type invariant the command is alive; not being the fake one, it is part of
        // a request with a tag.
        Some(unsafe { tag_of(self.0.as_ptr()) })
    }

    /// Returns the command's device.
    pub fn device(&self) -> &Device {
        // SAFETY: By the type invariant the command is alive.
        let device = unsafe { (*self.0.as_ptr()).device };
        // SAFETY: The device stays, because the ioctl has it open or the request is not completed.
        unsafe { Device::from_raw(device) }
    }

    pub(super) fn state(&self) -> &CmdPriv {
        // SAFETY: By the type invariant the command is alive. A command of the host has a `CmdPriv`
        // behind it. The ioctl's command has zeroes there: it is allocated with `cmd_size` extra
        // bytes.
        unsafe { CmdPriv::of(self.0.as_ptr()) }
    }
}

/// # Safety
///
/// `cmd` is part of a request of a tag set, and the request has a tag.
unsafe fn tag_of(cmd: *mut bindings::scsi_cmnd) -> Tag {
    // SAFETY: By the requirements of this function: the block layer allocates a request and the
    // driver's data, here the command, as one object in this order.
    let rq = unsafe { cmd.cast::<bindings::request>().sub(1) };
    // SAFETY: By the safety requirements, the request has a tag.
    let index = unsafe { (*rq).tag };
    // SAFETY: As above; a request with a tag has a hardware queue.
    let queue = unsafe { (*rq).mq_hctx };
    // SAFETY: The hardware queue lives as long as its requests.
    let hw_queue = unsafe { (*queue).queue_num };
    // As `blk_mq_unique_tag()`, without a call.
    Tag {
        // CAST: A host has at most 65,535 hardware queues, see `Limits`.
        hw_queue: hw_queue as u16,
        // CAST: A queue has at most 10,240 tags.
        index: index as u16,
    }
}

/// Returns whether the error handler has sent this command.
///
/// # Safety
///
/// Only `queuecommand` may call this, with its argument.
#[inline(always)]
pub(super) unsafe fn is_of_error_handler(cmd: *mut bindings::scsi_cmnd) -> bool {
    // SAFETY: By the requirements of this function the command is alive.
    unsafe { (*cmd).submitter == SUBMITTED_BY_SCSI_ERROR_HANDLER }
}

const SUBMITTED_BY_SCSI_ERROR_HANDLER: bindings::scsi_cmnd_submitter =
    bindings::scsi_cmnd_submitter_SUBMITTED_BY_SCSI_ERROR_HANDLER;
const SUBMITTED_BY_SCSI_RESET_IOCTL: bindings::scsi_cmnd_submitter =
    bindings::scsi_cmnd_submitter_SUBMITTED_BY_SCSI_RESET_IOCTL;
