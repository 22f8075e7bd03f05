// SPDX-License-Identifier: GPL-2.0

//! SCSI commands.
//!
//! # Who owns a command
//!
//! A `struct scsi_cmnd` lives in its block layer request, from the set-up of the tag set until
//! `scsi_remove_host()`. It is used again and again, and each use goes through these hands:
//!
//! ```text
//!             queuecommand                 done(), drop
//!  midlayer ---------------> driver (HELD) ------------> DONE_CALL: scsi_done() ---> midlayer
//!                               |                                                       ^
//!                               | timeout                                               |
//!                               v              release(), done()                        |
//!                 error handler, driver HELD --------------------> error handler -------+
//! ```
//!
//! - [`Command`] is the driver's ownership: there is at most one per `struct scsi_cmnd`, and
//!   consuming it is the only way to end it.
//! - On a timeout, `scsi_timeout()` sets `SCMD_STATE_COMPLETE`. From then on the error handler
//!   decides about the command, and `scsi_done()` for it has no effect. The driver keeps its
//!   [`Command`] and with it the data buffers, so a late response does no harm; it gives it up
//!   in [`Driver::abort`](super::Driver::abort) or in a reset, when nothing can reach the data
//!   any more. [`Command::done`] and [`Command::release`] both do.
//! - The error handler may send a command of its own in the same `struct scsi_cmnd`, with the same
//!   tag and another CDB and buffer (`scsi_send_eh_cmnd()`). While the driver still holds the
//!   [`Command`] of the earlier use, it is refused before the driver sees it.
//! - `SG_SCSI_RESET` calls the resets with a `struct scsi_cmnd` that is in no tag set:
//!   [`CommandRef::is_reset_ioctl`].
//!
//! The midlayer trusts the driver's word about an abort or a reset; here it is checked, by the
//! `CmdPriv` behind each `struct scsi_cmnd`. An abort or a reset of a unit fails while a command is held;
//! a reset of the host, after which the midlayer ends all commands in any case, does not return.
//!
//! C header: [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h)

use super::{
    Busy,
    Device,
    ScsiResult, //
};
use crate::{
    bindings,
    compat,
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
    processor::cpu_relax,
    sync::atomic::{
        ordering::{
            Acquire,
            Relaxed,
            Release, //
        },
        Atomic, //
    },
};

/// The name of a command among those that are under way on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Index of the hardware queue, below [`Limits::nr_hw_queues`](super::Limits::nr_hw_queues).
    pub hw_queue: u16,
    /// Index in the queue, below [`Limits::queue_depth`](super::Limits::queue_depth).
    pub index: u16,
}

/// What the abstraction keeps behind each `struct scsi_cmnd`, in the place that the midlayer has
/// for the driver (`scsi_cmd_priv()`).
pub(super) struct CmdPriv(Atomic<i32>);

/// No [`Command`] exists. Zero: the fake command of `SG_SCSI_RESET` is allocated zeroed.
const FREE: i32 = 0;
/// A [`Command`] exists.
const HELD: i32 = 1;
/// The [`Command`] was consumed and `scsi_done()` may still be running for it.
const DONE_CALL: i32 = 2;

/// How often `queuecommand` looks whether a DONE_CALL is over, some 50 microseconds.
const MAX_SPINS: u32 = 1000;

impl CmdPriv {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(FREE))
    }

    /// Returns the state of a command.
    ///
    /// # Safety
    ///
    /// `cmd` points to a live `struct scsi_cmnd` with a [`CmdPriv`] behind it that is initialised or
    /// all zeroes, and lives for `'a`.
    pub(super) unsafe fn of<'a>(cmd: *mut bindings::scsi_cmnd) -> &'a Self {
        // SAFETY: By the requirements of this function the state begins where the command ends.
        let state = unsafe { cmd.add(1) }.cast::<Self>();
        // SAFETY: By the requirements of this function; zeroes are a valid `CmdPriv`.
        unsafe { &*state }
    }

    /// Says whether the driver has given the command up and is not about to call `scsi_done()`.
    pub(super) fn is_free(&self) -> bool {
        self.0.load(Acquire) == FREE
    }
}

/// A command that the driver owns.
///
/// Dropping it completes it with [`ScsiResult::DID_ERROR`].
///
/// # Invariants
///
/// The pointer is that of a `struct scsi_cmnd` of a tag set that was passed to `queuecommand` and
/// has not been completed by the driver since. Its [`CmdPriv`] is `HELD`, and this is the only
/// [`Command`] for it. The tag set is not freed while it exists: `exit_cmd_priv` waits.
pub struct Command(NonNull<bindings::scsi_cmnd>);

// SAFETY: A command may be completed on another CPU and in another context than it was queued in.
unsafe impl Send for Command {}

impl Command {
    /// Takes ownership of a command; [`None`] if the driver still holds it from an earlier use.
    ///
    /// Context: as `queuecommand`.
    ///
    /// # Safety
    ///
    /// - To be called by `queuecommand` only, with its argument.
    /// - The `CmdPriv` behind the command was set up by `init_cmd_priv`.
    pub(super) unsafe fn claim(cmd: *mut bindings::scsi_cmnd) -> Option<Self> {
        // SAFETY: By the requirements of this function.
        let state = unsafe { CmdPriv::of(cmd) };

        let mut spins = 0;
        loop {
            match state.0.load(Acquire) {
                FREE => break,
                // The block layer has issued the command again before another CPU is out of the
                // `scsi_done()` that gave it back.
                DONE_CALL if spins < MAX_SPINS => spins += 1,
                _ => return None,
            }
            cpu_relax();
        }

        // Nobody else changes FREE, since the midlayer issues a command once at a time.
        state.0.store(HELD, Relaxed);
        // INVARIANT: The state is HELD, and was not: no other `Command` exists.
        NonNull::new(cmd).map(Self)
    }

    /// Returns the `struct scsi_cmnd`, for mapping its data.
    pub(crate) fn as_raw(&self) -> *mut bindings::scsi_cmnd {
        self.0.as_ptr()
    }

    fn state(&self) -> &CmdPriv {
        // SAFETY: By the type invariant.
        unsafe { CmdPriv::of(self.as_raw()) }
    }

    /// Returns the name of the command, which it keeps until it is consumed.
    pub fn tag(&self) -> Tag {
        // SAFETY: By the type invariant the command is part of a request with a tag.
        unsafe { tag_of(self.as_raw()) }
    }

    /// The request that the command is a part of. What is read of it does not change while the driver owns the command.
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

    /// Says whether whoever made the request wants to hear of a failed transport instead of having the
    /// command tried again, as multipath software does.
    pub fn is_failfast(&self) -> bool {
        const MASK: u32 = 1 << bindings::req_flag_bits___REQ_FAILFAST_DEV
            | 1 << bindings::req_flag_bits___REQ_FAILFAST_TRANSPORT
            | 1 << bindings::req_flag_bits___REQ_FAILFAST_DRIVER;
        self.cmd_flags() & MASK != 0
    }

    /// Says whether the block layer reads blocks with this command, for a file or for direct I/O. What a user sends
    /// himself, what the midlayer wants to know, and what the error handler sends with the request of another command, is
    /// none.
    #[inline(always)]
    pub fn is_block_read(&self) -> bool {
        const SUBMITTED: bindings::scsi_cmnd_submitter =
            bindings::scsi_cmnd_submitter_SUBMITTED_BY_BLOCK_LAYER;
        const OPERATION: u32 = (1 << bindings::REQ_OP_BITS) - 1;
        // SAFETY: By the type invariant the command is alive.
        let submitter = unsafe { (*self.as_raw()).submitter };
        self.cmd_flags() & OPERATION == bindings::req_op_REQ_OP_READ && submitter == SUBMITTED
    }

    /// Says whether the command has used up none of its retries, and has some. If it ends with
    /// [`ScsiResult::DID_SOFT_ERROR`] and is none of [`is_failfast_driver`](Self::is_failfast_driver), it comes again, and this
    /// is false.
    #[inline(always)]
    pub fn is_first_try(&self) -> bool {
        let cmd = self.as_raw();
        // SAFETY: By the type invariant the command is alive; the midlayer counts when it has the command back.
        let retries = unsafe { (*cmd).retries };
        // SAFETY: By the type invariant the command is alive; this was set before it was queued.
        let allowed = unsafe { (*cmd).allowed };
        // Without a limit, which is -1, the midlayer does not count.
        retries == 0 && allowed > 0
    }

    /// Says whether the request is not to be tried again for an error of the driver; the block layer's readahead is such.
    pub fn is_failfast_driver(&self) -> bool {
        self.cmd_flags() & 1 << bindings::req_flag_bits___REQ_FAILFAST_DRIVER != 0
    }

    /// Returns how many bytes of the data of a block layer's command come before a logical block of the device: 0 if the
    /// block is the first, or is none of the command's.
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

    /// Says whether `other` is this command.
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

    /// Returns [`Device::lun`] of the device that the command is for.
    pub fn lun(&self) -> u64 {
        self.device().lun()
    }

    /// Returns the device that the command is for.
    pub fn device(&self) -> &Device {
        // SAFETY: By the type invariant the command is alive.
        let device = unsafe { (*self.as_raw()).device };

        // SAFETY: The device stays until the command has been completed: its request queue does.
        unsafe { Device::from_raw(device) }
    }

    /// Returns where the data goes.
    pub fn direction(&self) -> DataDirection {
        // SAFETY: By the type invariant the command is alive.
        DataDirection::from_raw(unsafe { (*self.as_raw()).sc_data_direction })
    }

    /// Says whether the command has data in both directions, which no driver gets to see.
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

    /// Copies the first bytes of a write's data to `dst`. What the data does not have becomes 0, all
    /// of it if the command is not a write.
    ///
    /// Context: any but hard interrupts.
    pub fn copy_from_buffer(&self, mut dst: DeviceBytesMut<'_>) {
        let len = match self.direction() {
            DataDirection::ToDevice => self.bounded(dst.len()),
            _ => 0,
        };
        let to = dst.as_mut_ptr().cast();
        let copied = match self.contiguous(len) {
            Some(data) => {
                // SAFETY: `data` is valid for `len` bytes, and so is `to`, which is memory of ours. That
                // a process may write to the data meanwhile is nothing to C.
                unsafe { bindings::memcpy(to, data.as_ptr(), len) };
                len
            }
            // SAFETY: The list and its memory are alive, see `ScatterList`. `to` is valid for writes of
            // `len` bytes.
            None => unsafe { bindings::sg_copy_to_buffer(self.list(), self.count(), to, len) },
        };
        if copied < dst.len() {
            dst.clear_from(copied);
        }
    }

    /// Copies `src` to the beginning of a read's data and returns how many bytes fitted.
    ///
    /// Less than `src.len()` if the data is shorter, 0 if the command is not a read.
    ///
    /// Context: any but hard interrupts.
    #[inline(always)]
    pub fn copy_to_buffer(&self, src: DeviceBytes<'_>) -> usize {
        if self.direction() != DataDirection::FromDevice {
            return 0;
        }

        let len = self.bounded(src.len());
        let from = src.as_ptr().cast();
        if let Some(data) = self.contiguous(len) {
            // SAFETY: As in `copy_from_buffer`, the other way.
            unsafe { bindings::memcpy(data.as_ptr(), from, len) };
            return len;
        }

        // SAFETY: The list and its memory are alive, see `ScatterList`. `from` is valid for reads
        // of `len` bytes.
        unsafe { bindings::sg_copy_from_buffer(self.list(), self.count(), from, len) }
    }

    /// The first `len` bytes of the data, if they are one piece of memory that is always mapped: what
    /// `sg_copy_buffer()` does besides copying takes 250 instructions.
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
        // CAST: `u32` to `usize` loses nothing on the 32 and 64 bit systems that there are.
        len.min(self.data_len() as usize)
    }

    /// Sets how many bytes of the data were not transferred; at most all of them.
    pub fn set_resid(&self, resid: u32) {
        let resid = resid.min(self.data_len());

        // SAFETY: By the type invariant the command is alive and owned by the driver.
        unsafe { (*self.as_raw()).resid_len = resid };
    }

    /// Stores the sense data, the first `SCSI_SENSE_BUFFERSIZE` (96) bytes of it.
    pub fn set_sense(&self, sense: &[u8]) {
        // CAST: 96.
        let len = sense.len().min(bindings::SCSI_SENSE_BUFFERSIZE as usize);
        // SAFETY: By the type invariant the command is alive.
        let buffer = unsafe { (*self.as_raw()).sense_buffer };

        // SAFETY: A command of a tag set has a sense buffer of `SCSI_SENSE_BUFFERSIZE` bytes of its
        // own, see `scsi_mq_init_request()`.
        unsafe { core::ptr::copy_nonoverlapping(sense.as_ptr(), buffer, len) };
    }

    /// Completes the command. If it has timed out this has no effect but giving it up.
    ///
    /// Context: any. The midlayer may queue another command before this returns.
    pub fn done(self, result: ScsiResult) {
        ManuallyDrop::new(self).finish(result);
    }

    /// The end of `self`, which must not be used or dropped afterwards.
    fn finish(&mut self, result: ScsiResult) {
        let cmd = self.as_raw();
        let state = self.state();

        // SAFETY: By the type invariant the command is alive and owned by the driver.
        unsafe { (*cmd).result = result.as_raw() };
        state.0.store(DONE_CALL, Release);
        // SAFETY: By the type invariant the command was queued and not completed since. Before the
        // state is FREE, none of `queuecommand`, the error handler and `exit_cmd_priv` goes on
        // with the command, so this call cannot complete a later use of it.
        unsafe { bindings::scsi_done(cmd) };
        state.0.store(FREE, Release);
    }

    /// Gives the command up without completing it, because the error handler does.
    ///
    /// For commands that have timed out only: another one would stay unfinished until it does.
    pub fn release(self) {
        ManuallyDrop::new(self).state().0.store(FREE, Release);
    }
}

// SAFETY: The scatter-gather list and the memory that it covers belong to the command and stay
// until it is completed, which consumes the `Command`. The midlayer makes the list for exactly
// `sdb.length` bytes.
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
    fn drop(&mut self) {
        self.finish(ScsiResult::DID_ERROR);
    }
}

/// A command that could not be taken, given back by
/// [`Driver::queue_command`](super::Driver::queue_command).
pub struct Rejected {
    /// The command.
    pub cmd: Command,
    /// What the midlayer is to wait for.
    pub why: Busy,
}

impl Rejected {
    /// Hands the command back to the midlayer.
    pub(super) fn into_raw(self) -> compat::queue_status::Status {
        self.cmd.release();
        self.why.as_raw()
    }
}

/// A command that the error handler is dealing with.
///
/// # Invariants
///
/// The pointer is that of a live `struct scsi_cmnd` of a [`Host`](super::Host), or of the
/// `SG_SCSI_RESET` ioctl for one, that the midlayer does not modify for `'a`.
pub struct CommandRef<'a>(
    NonNull<bindings::scsi_cmnd>,
    PhantomData<&'a bindings::scsi_cmnd>,
);

impl CommandRef<'_> {
    /// # Safety
    ///
    /// To be called by a callback of the error handler only, with its argument, and not to be used
    /// after it has returned.
    pub(super) unsafe fn from_raw(cmd: *mut bindings::scsi_cmnd) -> Option<Self> {
        // INVARIANT: By the requirements of this function: the error handler waits for the
        // callback, and owns the command.
        NonNull::new(cmd).map(|cmd| Self(cmd, PhantomData))
    }

    /// Says whether this is the fake command of the `SG_SCSI_RESET` ioctl, which the driver has
    /// never seen.
    pub fn is_reset_ioctl(&self) -> bool {
        // SAFETY: By the type invariant the command is alive.
        unsafe { (*self.0.as_ptr()).submitter == SUBMITTED_BY_SCSI_RESET_IOCTL }
    }

    /// Returns the name of the command; [`None`] if it is the fake one of `SG_SCSI_RESET`.
    pub fn tag(&self) -> Option<Tag> {
        if self.is_reset_ioctl() {
            return None;
        }

        // SAFETY: By the type invariant the command is alive; not being the fake one, it is part of
        // a request with a tag.
        Some(unsafe { tag_of(self.0.as_ptr()) })
    }

    /// Returns the device that the command is for.
    pub fn device(&self) -> &Device {
        // SAFETY: By the type invariant the command is alive.
        let device = unsafe { (*self.0.as_ptr()).device };

        // SAFETY: The device stays, because the ioctl has it open or because the request is not
        // completed.
        unsafe { Device::from_raw(device) }
    }

    pub(super) fn state(&self) -> &CmdPriv {
        // SAFETY: By the type invariant the command is alive. Those of the host have a state, and
        // that of the ioctl has zeroes in its place: it is allocated with `cmd_size` more bytes.
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
    // SAFETY: By the requirements of this function.
    let tag = unsafe { bindings::blk_mq_unique_tag(rq) };

    Tag {
        // CAST: The two halves of the value are what `blk_mq_unique_tag_to_hwq()` and
        // `blk_mq_unique_tag_to_tag()` return.
        hw_queue: (tag >> 16) as u16,
        index: (tag & 0xffff) as u16,
    }
}

const SUBMITTED_BY_SCSI_RESET_IOCTL: bindings::scsi_cmnd_submitter =
    bindings::scsi_cmnd_submitter_SUBMITTED_BY_SCSI_RESET_IOCTL;
