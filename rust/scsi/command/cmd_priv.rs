// SPDX-License-Identifier: GPL-2.0

//! What the abstraction keeps behind each `struct scsi_cmnd`: the owner of the command.
//!
//! C header: [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h), `scsi_cmd_priv()`.

use crate::bindings;
use core::mem::MaybeUninit;
use kernel::{
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

/// The owner of a command, in the place that the midlayer has for the driver.
///
/// While a [`Command`](super::Command) exists, it is the name of the [`Call`] that made it.
pub(in crate::scsi) struct CmdPriv(Atomic<usize>);

/// No [`Command`](super::Command) exists. Zero: the fake command of `SG_SCSI_RESET` is allocated
/// zeroed.
const FREE: usize = 0;
/// The [`Command`](super::Command) was consumed and `scsi_done()` may still be running for it.
const DONE_CALL: usize = 1;
/// Beside the name of a [`Call`]: the command is one of the error handler.
const OF_ERROR_HANDLER: usize = 2;

/// How often a CPU looks whether a DONE_CALL is over, some 50 microseconds.
const MAX_SPINS: u32 = 1000;

/// A call of `queuecommand`, in the stack frame of which it is. Its address is its name, which no
/// other call has before this one returns. A command keeps the name longer, and a later call may
/// have the same.
#[repr(align(8))]
pub(in crate::scsi) struct Call {
    _place: MaybeUninit<u8>,
}

impl Call {
    pub(in crate::scsi) fn new() -> Self {
        Self {
            _place: MaybeUninit::uninit(),
        }
    }

    /// Neither FREE nor DONE_CALL, and without OF_ERROR_HANDLER.
    #[inline(always)]
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

impl CmdPriv {
    pub(in crate::scsi) const fn new() -> Self {
        Self(Atomic::new(FREE))
    }

    /// Returns the state of a command.
    ///
    /// # Safety
    ///
    /// `cmd` points to a live `struct scsi_cmnd` with a [`CmdPriv`] behind it that is initialised
    /// or all zeroes, and lives for `'a`.
    pub(in crate::scsi) unsafe fn of<'a>(cmd: *mut bindings::scsi_cmnd) -> &'a Self {
        // SAFETY: By the requirements of this function the state begins where the command ends.
        let state = unsafe { cmd.add(1) }.cast::<Self>();
        // SAFETY: By the requirements of this function; zeroes are a valid `CmdPriv`.
        unsafe { &*state }
    }

    /// Says whether the driver has given the command up and is not about to call `scsi_done()`.
    pub(in crate::scsi) fn is_free(&self) -> bool {
        self.0.load(Acquire) == FREE
    }

    /// Says whether the driver has the command: not if it has given it up by calling `scsi_done()`.
    pub(in crate::scsi) fn is_held(&self) -> bool {
        !matches!(self.0.load(Acquire), FREE | DONE_CALL)
    }

    /// Says that the driver has the command from now on, by `call`; `false` if it has it from an
    /// earlier use.
    #[inline(always)]
    pub(super) fn take(&self, call: &Call, of_error_handler: bool) -> bool {
        if self.0.load(Acquire) != FREE && !self.wait_for_done_call() {
            return false;
        }
        let flag = match of_error_handler {
            true => OF_ERROR_HANDLER,
            false => 0,
        };
        // No other CPU changes FREE, since the midlayer issues a command once at a time.
        self.0.store(call.name() | flag, Relaxed);
        true
    }

    /// Waits for the end of a DONE_CALL: the block layer has issued the command again before
    /// another CPU is out of the `scsi_done()` that gave it back. Says whether the command is free.
    #[cold]
    #[inline(never)]
    fn wait_for_done_call(&self) -> bool {
        for _ in 0..MAX_SPINS {
            match self.0.load(Acquire) {
                FREE => return true,
                DONE_CALL => cpu_relax(),
                _ => return false,
            }
        }
        self.is_free()
    }

    /// Says whether the driver has the command by `call`.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.0.load(Relaxed) & !OF_ERROR_HANDLER == call.name()
    }

    /// Says whether the error handler has sent the command that the driver has.
    pub(super) fn is_of_error_handler(&self) -> bool {
        self.0.load(Relaxed) & OF_ERROR_HANDLER != 0
    }

    /// `scsi_done()` is going to be called.
    #[inline(always)]
    pub(super) fn set_done_call(&self) {
        self.0.store(DONE_CALL, Release);
    }

    /// The driver has given the command up.
    #[inline(always)]
    pub(super) fn set_free(&self) {
        self.0.store(FREE, Release);
    }
}
