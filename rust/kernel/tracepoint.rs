// SPDX-License-Identifier: GPL-2.0

//! Trace events that C defines.
//!
//! The kernel crate's `declare_trace!` evaluates the arguments of a disabled event, and declares an
//! unsafe function.
//!
//! A disabled event is a no-op instruction. Any context.
//!
//! C headers: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h),
//! [`include/linux/jump_label.h`](srctree/include/linux/jump_label.h)

use core::fmt::{
    self,
    Write, //
};

/// Defines a module for each event: `event(argument: type, ...);` has the tracepoint `srp_event`.
macro_rules! trace_events {
    ($(
        $(#[$doc:meta])*
        $event:ident($($argument:ident: $type:ty),* $(,)?);
    )*) => { ::kernel::macros::paste! {$(
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
                    ::kernel::jump_label::static_branch_unlikely!(
                        $crate::bindings::[<__tracepoint_srp_ $event>],
                        ::kernel::bindings::tracepoint,
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
                        ::kernel::asm!(
                            include!(concat!(
                                env!("OBJTREE"),
                                "/rust/kernel/generated_arch_static_branch_asm.rs"
                            ));
                            l_yes = label { break 'branch true },
                            symb = sym $crate::bindings::[<__tracepoint_srp_ $event>],
                            off = const core::mem::offset_of!(
                                ::kernel::bindings::tracepoint,
                                key
                            ),
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
                // SAFETY: The function of an event takes any numbers; by its type invariant a
                // [`Text`] is a C string.
                unsafe {
                    $crate::bindings::[<rust_do_trace_srp_ $event>]($($argument.into()),*)
                };
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = ($($argument,)*);
            }
        }
    )*}};
}
pub(crate) use trace_events;

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
            // Only `what` can fail. The text written so far is enough then.
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
