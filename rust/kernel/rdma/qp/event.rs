// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a queue pair.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use crate::bindings;
use kernel::str::{
    CStr,
    CStrExt, //
};

/// An asynchronous event of a queue pair, `enum ib_event_type`.
#[derive(Clone, Copy, Debug)]
pub struct QpEvent(pub(super) bindings::ib_event_type);

impl core::fmt::Display for QpEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // SAFETY: The function takes any number and returns a static string.
        let text = unsafe { CStr::from_char_ptr(bindings::ib_event_msg(self.0)) };
        write!(f, "{} ({})", text.to_str().unwrap_or("?"), self.0)
    }
}
