// SPDX-License-Identifier: GPL-2.0

//! The kernel log, as an administrator reads it.

use kernel::prelude::*;

/// `struct kmsg_dump_iter` of `include/linux/kmsg_dump.h`.
#[repr(C)]
struct Position {
    current: u64,
    end: u64,
}

extern "C" {
    fn kmsg_dump_rewind(position: *mut Position);
    fn kmsg_dump_get_line(
        position: *mut Position,
        syslog: bool,
        line: *mut c_char,
        size: usize,
        len: *mut usize,
    ) -> bool;
}

/// A position in the log.
pub(crate) struct Log {
    since: u64,
}

impl Log {
    /// Starts at the current end of the log.
    pub(crate) fn from_now() -> Self {
        let mut position = Position { current: 0, end: 0 };
        // SAFETY: `position` is valid for writing.
        unsafe { kmsg_dump_rewind(&mut position) };
        Self {
            since: position.end,
        }
    }

    /// Returns the number of lines with this text since this position of the log.
    pub(crate) fn count(&self, text: impl AsRef<[u8]>) -> usize {
        let text = text.as_ref();
        let mut position = Position {
            current: self.since,
            end: 0,
        };
        let mut count = 0;
        loop {
            let mut line = [0u8; 512];
            let mut len = 0;
            // SAFETY: All pointers are valid for writing, `line` for its length.
            let more = unsafe {
                kmsg_dump_get_line(
                    &mut position,
                    false,
                    line.as_mut_ptr().cast(),
                    line.len(),
                    &mut len,
                )
            };
            if !more {
                return count;
            }
            let line = line.get(..len).unwrap_or(&[]);
            if line.windows(text.len()).any(|part| part == text) {
                count += 1;
            }
        }
    }
}
