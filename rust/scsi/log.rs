// SPDX-License-Identifier: GPL-2.0

//! Lines of the kernel's log about a SCSI host.
//!
//! C header: [`include/scsi/scsi_device.h`](srctree/include/scsi/scsi_device.h) (`shost_printk`)

use crate::bindings;
use core::fmt;
use kernel::prelude::*;

/// How loud a line is.
#[derive(Clone, Copy)]
pub enum Level {
    /// Something is lost.
    Err,
    /// Something is wrong.
    Warning,
    /// What happens.
    Info,
}

/// Says `text`, which ends with a newline, as the C driver does with `shost_printk()`: after the name of the
/// host, or without one if `host` is `u32::MAX`. Any context but NMI.
pub fn shost_printk(level: Level, host: u32, text: fmt::Arguments<'_>) {
    let (named, plain) = match level {
        Level::Err => (
            c"\x013scsi host%u: ib_srp: %pA".as_char_ptr(),
            c"\x013ib_srp: %pA".as_char_ptr(),
        ),
        Level::Warning => (
            c"\x014scsi host%u: ib_srp: %pA".as_char_ptr(),
            c"\x014ib_srp: %pA".as_char_ptr(),
        ),
        Level::Info => (
            c"\x016scsi host%u: ib_srp: %pA".as_char_ptr(),
            c"\x016ib_srp: %pA".as_char_ptr(),
        ),
    };
    let text = core::ptr::from_ref(&text).cast::<kernel::ffi::c_void>();
    if host == u32::MAX {
        // SAFETY: The format wants one pointer to `fmt::Arguments`, which live until the end of this function.
        unsafe { bindings::_printk(plain, text) };
    } else {
        // SAFETY: The format wants a number and a pointer to `fmt::Arguments`, which live until the end of this
        // function.
        unsafe { bindings::_printk(named, host, text) };
    }
}
