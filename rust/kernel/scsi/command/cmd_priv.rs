// SPDX-License-Identifier: GPL-2.0

//! The abstraction's data behind each `struct scsi_cmnd`: the owner of the command.
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

/// The owner of a command, in the midlayer's per-command driver data.
///
/// While a [`Command`](super::Command) exists, the value is the name of the [`Call`] that created
/// it.
pub(in crate::scsi) struct CmdPriv(Atomic<usize>);

/// No [`Command`](super::Command) exists. Zero, because the fake command of `SG_SCSI_RESET` is
/// allocated zeroed.
const FREE: usize = 0;
/// No [`Command`](super::Command) exists; `scsi_done()` may still be running for the last one. The
/// value stays until the next use: the midlayer may reuse the command before `scsi_done()` returns,
/// and with PREEMPT_RT the next user may have preempted the caller of `scsi_done()`.
const DONE: usize = 1;
/// Flag in the name of a [`Call`]: the error handler has sent the command.
const OF_ERROR_HANDLER: usize = 2;

/// A call of `queuecommand`. It is in that call's stack frame, and its address is the name of the
/// call. No other call has that name before this one returns. A command keeps the name longer, so a
/// later call may have the same name.
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

    /// Returns the name: neither FREE nor DONE, and without OF_ERROR_HANDLER.
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

    /// Returns whether a [`Command`](super::Command) exists.
    #[inline(always)]
    pub(in crate::scsi) fn is_held(&self) -> bool {
        !matches!(self.0.load(Acquire), FREE | DONE)
    }

    /// Returns whether the last [`Command`](super::Command) was given up by a call of
    /// `scsi_done()`, which may still be running. That call is over after an RCU grace period.
    pub(in crate::scsi) fn is_done(&self) -> bool {
        self.0.load(Acquire) == DONE
    }

    /// Marks the command as held by the driver, through `call`. Returns `false` if the driver still
    /// holds it from an earlier use.
    #[inline(always)]
    pub(super) fn take(&self, call: &Call, of_error_handler: bool) -> bool {
        if self.is_held() {
            return false;
        }
        let flag = match of_error_handler {
            true => OF_ERROR_HANDLER,
            false => 0,
        };
        // No other CPU changes the state FREE or DONE: the midlayer does not issue a command twice
        // at the same time.
        self.0.store(call.name() | flag, Relaxed);
        true
    }

    /// Returns whether the driver holds the command through `call`.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.0.load(Relaxed) & !OF_ERROR_HANDLER == call.name()
    }

    /// Returns whether the error handler has sent the command that the driver holds.
    pub(super) fn is_of_error_handler(&self) -> bool {
        self.0.load(Relaxed) & OF_ERROR_HANDLER != 0
    }

    /// Marks the command as given up by the call of `scsi_done()` that follows.
    #[inline(always)]
    pub(super) fn set_done(&self) {
        self.0.store(DONE, Release);
    }

    /// Marks the command as given up without a call of `scsi_done()`.
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
