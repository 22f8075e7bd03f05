// SPDX-License-Identifier: GPL-2.0

//! The trace events of `include/srp_trace.h`.
//!
//! A disabled event is a no-op instruction. `trace!` evaluates its arguments only for an enabled
//! event. They are numbers, except in `lost`, so that no local variable must be in memory for an
//! event. Any context.
//!
//! C headers: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h),
//! [`include/linux/jump_label.h`](srctree/include/linux/jump_label.h)

use crate::bindings;
use core::fmt::{
    self,
    Write, //
};

/// `trace!(event(argument, ...))` logs an event of this module if it is enabled.
macro_rules! trace {
    ($event:ident($($argument:expr),* $(,)?)) => {
        if $crate::trace::$event::is_on() {
            $crate::trace::$event::log($($argument),*);
        }
    };
}
pub(crate) use trace;

macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $event:ident = $key:ident, $function:ident($($argument:ident: $type:ty),*);
    )*) => {$(
        $(#[$doc])*
        pub mod $event {
            #[allow(unused_imports)]
            use super::*;

            /// Returns whether the event is enabled.
            #[inline(always)]
            pub fn is_on() -> bool {
                #[cfg(not(CONFIG_TRACEPOINTS))]
                return false;
                #[cfg(all(CONFIG_TRACEPOINTS, not(CONFIG_JUMP_LABEL)))]
                // SAFETY: The key is that of a trace event of this module, which outlives its code.
                return unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        bindings::$key,
                        kernel::bindings::tracepoint,
                        key
                    )
                };
                // The kernel crate's macro does not declare that this touches no memory, so the
                // compiler would reload everything after each event.
                #[cfg(all(CONFIG_TRACEPOINTS, CONFIG_JUMP_LABEL))]
                return 'branch: {
                    // SAFETY: The code is a no-op, or a jump to the label; the key is that of a
                    // trace event of this module, which outlives its code.
                    unsafe {
                        kernel::asm!(
                            include!(concat!(
                                env!("OBJTREE"),
                                "/rust/kernel/generated_arch_static_branch_asm.rs"
                            ));
                            l_yes = label { break 'branch true },
                            symb = sym bindings::$key,
                            off = const core::mem::offset_of!(kernel::bindings::tracepoint, key),
                            branch = const 0,
                            options(nomem, nostack, preserves_flags)
                        )
                    };
                    false
                };
            }

            /// Logs the event.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            pub fn log($($argument: $type),*) {
                #[cfg(CONFIG_TRACEPOINTS)]
                // SAFETY: The function takes any numbers; by its type invariant a [`Text`] is a C
                // string.
                unsafe {
                    bindings::$function($($argument.into()),*)
                };
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = ($($argument,)*);
            }
        }
    )*};
}

events! {
    /// A command is being posted.
    send = __tracepoint_srp_send, rust_do_trace_srp_send(
        host: u32, channel: u16, tag: u64, lun: u64, hw_queue: u16, hw_tag: u16, cdb_high: u64,
        cdb_low: u64, len: u32, direction: u8, way: u8, segments: u16);
    /// The target has responded, or its response is not needed.
    response = __tracepoint_srp_response, rust_do_trace_srp_response(
        host: u32, channel: u16, tag: u64, result: u32);
    /// The invalidation of the command's memory is being posted.
    invalidate = __tracepoint_srp_invalidate, rust_do_trace_srp_invalidate(
        host: u32, channel: u16, tag: u64);
    /// The midlayer gets the command back.
    done = __tracepoint_srp_done, rust_do_trace_srp_done(
        host: u32, channel: u16, tag: u64, result: u32);
    /// A task management request is posted.
    task = __tracepoint_srp_task, rust_do_trace_srp_task(
        host: u32, channel: u16, tag: u64, function: u8, lun: u64, task_tag: u64);
    /// A task management request has ended: with the target's status, or a negative error number.
    task_done = __tracepoint_srp_task_done, rust_do_trace_srp_task_done(
        host: u32, channel: u16, tag: u64, status: i32);
    /// A channel has opened or closed.
    channel = __tracepoint_srp_channel, rust_do_trace_srp_channel(
        host: u32, channel: u16, open: bool, credits: i32);
    /// A session has changed its state.
    session = __tracepoint_srp_session, rust_do_trace_srp_session(
        host: u32, id_ext: u64, ioc_guid: u64, from: u8, to: u8);
    /// A session has lost its connection.
    lost = __tracepoint_srp_lost, rust_do_trace_srp_lost(host: u32, why: &Text);
}

/// The text of an event, truncated after 127 bytes.
///
/// # Invariants
///
/// The last byte is 0.
pub struct Text([u8; 128]);

impl Text {
    /// Formats `what`.
    pub fn new(what: impl fmt::Display) -> Self {
        let mut bytes = [0; 128];
        // INVARIANT: The writer never gets the last byte.
        if let Some((_, room)) = bytes.split_last_mut() {
            // Only `what` can fail; the text written so far is enough then.
            let _ = write!(Room(room), "{what}");
        }
        Self(bytes)
    }
}

impl From<&Text> for *const kernel::ffi::c_char {
    fn from(text: &Text) -> Self {
        text.0.as_ptr().cast()
    }
}

/// The free part of a [`Text`].
struct Room<'a>(&'a mut [u8]);

impl fmt::Write for Room<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let len = s.len().min(self.0.len());
        let (now, left) = core::mem::take(&mut self.0).split_at_mut(len);
        for (place, byte) in now.iter_mut().zip(s.bytes()) {
            *place = byte;
        }
        self.0 = left;
        Ok(())
    }
}
