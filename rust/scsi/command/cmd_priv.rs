// SPDX-License-Identifier: GPL-2.0

//! What the abstraction keeps behind each `struct scsi_cmnd`: the owner of the command.
//!
//! C header: [`include/scsi/scsi_cmnd.h`](srctree/include/scsi/scsi_cmnd.h), `scsi_cmd_priv()`.

use crate::bindings;
use core::mem::MaybeUninit;
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Relaxed,
        Release, //
    },
    Atomic, //
};

/// The owner of a command, in the place that the midlayer has for the driver.
///
/// While a [`Command`](super::Command) exists, it is the name of the [`Call`] that made it.
pub(in crate::scsi) struct CmdPriv(Atomic<usize>);

/// No [`Command`](super::Command) exists. Zero: the fake command of `SG_SCSI_RESET` is allocated
/// zeroed.
const FREE: usize = 0;
/// No [`Command`](super::Command) exists; `scsi_done()` may still be running for the last one. It
/// stays so until the next use: the midlayer may have that before `scsi_done()` returns, and with
/// PREEMPT_RT the next user may have preempted the caller of `scsi_done()`.
const DONE: usize = 1;
/// Beside the name of a [`Call`]: the command is one of the error handler.
const OF_ERROR_HANDLER: usize = 2;

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

    /// Neither FREE nor DONE, and without OF_ERROR_HANDLER.
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

    /// Says whether a [`Command`](super::Command) exists.
    #[inline(always)]
    pub(in crate::scsi) fn is_held(&self) -> bool {
        !matches!(self.0.load(Acquire), FREE | DONE)
    }

    /// Says whether the last [`Command`](super::Command) was given up by a call of `scsi_done()`,
    /// which may still be on its way. It is over after an RCU grace period.
    pub(in crate::scsi) fn is_done(&self) -> bool {
        self.0.load(Acquire) == DONE
    }

    /// Says that the driver has the command from now on, by `call`; `false` if it has it from an
    /// earlier use.
    #[inline(always)]
    pub(super) fn take(&self, call: &Call, of_error_handler: bool) -> bool {
        if self.is_held() {
            return false;
        }
        let flag = match of_error_handler {
            true => OF_ERROR_HANDLER,
            false => 0,
        };
        // No other CPU changes FREE and DONE, since the midlayer issues a command once at a time.
        self.0.store(call.name() | flag, Relaxed);
        true
    }

    /// Says whether the driver has the command by `call`.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.0.load(Relaxed) & !OF_ERROR_HANDLER == call.name()
    }

    /// Says whether the error handler has sent the command that the driver has.
    pub(super) fn is_of_error_handler(&self) -> bool {
        self.0.load(Relaxed) & OF_ERROR_HANDLER != 0
    }

    /// The driver gives the command up by the call of `scsi_done()` that comes next.
    #[inline(always)]
    pub(super) fn set_done(&self) {
        self.0.store(DONE, Release);
    }

    /// The driver has given the command up, and does not call `scsi_done()`.
    #[inline(always)]
    pub(super) fn set_free(&self) {
        self.0.store(FREE, Release);
    }
}

#[cfg(SRP_KUNIT)]
#[kernel::prelude::kunit_tests(srp_cmd_priv)]
mod tests {
    use super::*;

    #[test]
    fn the_next_use_may_begin_before_scsi_done_returns() {
        let (first, second) = (Call::new(), Call::new());
        let state = CmdPriv::new();
        assert!(state.take(&first, false));
        assert!(!state.take(&second, false));
        state.set_done();
        assert!(state.take(&second, true));
        assert!(state.is_held() && state.is_of(&second) && state.is_of_error_handler());
    }

    #[test]
    fn only_scsi_done_needs_a_grace_period() {
        let call = Call::new();
        let state = CmdPriv::new();
        assert!(state.take(&call, false));
        state.set_free();
        assert!(!state.is_held() && !state.is_done());
        assert!(state.take(&call, false));
        state.set_done();
        assert!(!state.is_held() && state.is_done());
    }
}
