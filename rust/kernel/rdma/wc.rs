// SPDX-License-Identifier: GPL-2.0

//! Work completions: the outcomes of requests.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use crate::bindings;
use kernel::str::{
    CStr,
    CStrExt, //
};

/// The status of a work completion, `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub(crate) bindings::ib_wc_status);

impl Status {
    /// Whether the request succeeded.
    pub fn is_success(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_SUCCESS
    }

    /// Whether the request was flushed because the queue pair was already in error.
    pub fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// The status as a number, as C code logs it.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // SAFETY: The function takes any number and returns a static string.
        let text = unsafe { CStr::from_char_ptr(bindings::ib_wc_status_msg(self.0)) };
        f.write_str(text.to_str().unwrap_or("?"))
    }
}

/// Flags of a receive completion, `enum ib_wc_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub(crate) i32);

impl Flags {
    /// Whether the peer sent immediate data.
    pub fn with_imm(self) -> bool {
        self.has(bindings::ib_wc_flags_IB_WC_WITH_IMM)
    }

    /// Whether the peer asked to invalidate a key.
    pub fn with_invalidate(self) -> bool {
        self.has(bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE)
    }

    fn has(self, flag: bindings::ib_wc_flags) -> bool {
        // CAST: A single bit.
        self.0 & flag as i32 != 0
    }
}
