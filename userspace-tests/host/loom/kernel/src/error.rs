// SPDX-License-Identifier: GPL-2.0

//! Error numbers.

/// An error number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Error(i32);

/// A result.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// Creates an error from a negative errno.
    pub const fn from_errno(errno: i32) -> Self {
        Self(errno)
    }

    /// The negative errno.
    pub const fn to_errno(self) -> i32 {
        self.0
    }
}

impl From<core::convert::Infallible> for Error {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

/// Converts a C pointer that may be an error pointer; here it never is one.
pub fn from_err_ptr<T>(ptr: *mut T) -> Result<*mut T> {
    Ok(ptr)
}

/// Converts a C return value: 0, or a negative errno.
pub fn to_result(errno: core::ffi::c_int) -> Result {
    match errno {
        0.. => Ok(()),
        _ => Err(Error(errno)),
    }
}

/// `kernel::error::code`.
#[allow(missing_docs)]
pub mod code {
    use super::Error;

    pub const EIO: Error = Error(-5);
    pub const ENXIO: Error = Error(-6);
    pub const E2BIG: Error = Error(-7);
    pub const ENOMEM: Error = Error(-12);
    pub const EBUSY: Error = Error(-16);
    pub const ENODEV: Error = Error(-19);
    pub const EINVAL: Error = Error(-22);
    pub const EMSGSIZE: Error = Error(-90);
    pub const ETIMEDOUT: Error = Error(-110);
    pub const ERESTARTSYS: Error = Error(-512);
}
