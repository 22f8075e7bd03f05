// SPDX-License-Identifier: GPL-2.0

//! Log messages of a SCSI host.
//!
//! The kernel crate's `dev_err!` needs a device. A session also logs without a host, and does not
//! keep its host alive.
//!
//! C header: [`include/scsi/scsi_device.h`](srctree/include/scsi/scsi_device.h) (`shost_printk`)

use crate::bindings;
use core::fmt;
use kernel::prelude::*;

/// The log level of a message.
#[derive(Clone, Copy)]
pub enum Level {
    /// Something is lost, such as a connection.
    Err,
    /// Something is wrong.
    Warning,
    /// A normal event.
    Info,
}

/// Logs `text`, which must end with a newline, prefixed with the name of the host if `host` is its
/// number. Any context except NMI.
pub fn shost_printk(level: Level, host: Option<u32>, text: fmt::Arguments<'_>) {
    let (named, plain) = match level {
        Level::Err => (
            c"\x013scsi host%u: %pA".as_char_ptr(),
            c"\x013%pA".as_char_ptr(),
        ),
        Level::Warning => (
            c"\x014scsi host%u: %pA".as_char_ptr(),
            c"\x014%pA".as_char_ptr(),
        ),
        Level::Info => (
            c"\x016scsi host%u: %pA".as_char_ptr(),
            c"\x016%pA".as_char_ptr(),
        ),
    };
    let text = core::ptr::from_ref(&text).cast::<kernel::ffi::c_void>();
    match host {
        // SAFETY: The format takes a number and a pointer to `fmt::Arguments`, which live until the
        // end of this function.
        Some(number) => unsafe { bindings::_printk(named, number, text) },
        // SAFETY: The format takes one pointer to `fmt::Arguments`, which live until the end of
        // this function.
        None => unsafe { bindings::_printk(plain, text) },
    };
}
