// SPDX-License-Identifier: GPL-2.0

//! The error codes that `kernel::error::code` lacks in some kernels.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)

use crate::bindings;
use core::mem::transmute;
use kernel::prelude::*;

/// Creates an [`Error`] at compile time; the kernel crate's constructor is private.
const fn error(code: u32) -> Error {
    assert!(code > 0 && code <= bindings::MAX_ERRNO);
    // CAST: `MAX_ERRNO` is 4095.
    let errno = -(code as i32);
    // SAFETY: An `Error` is a `NonZeroI32` and nothing else, as the assertions below show: it has
    // the same size and holds the negative error number. The number was checked above.
    unsafe { transmute::<i32, Error>(errno) }
}

const _: () = {
    // SAFETY: `transmute` compiles only if the sizes are equal, and every `i32` is valid.
    assert!(unsafe { transmute::<Error, i32>(EPERM) } == -1);
    // SAFETY: The sizes are equal, and every `i32` is valid.
    assert!(unsafe { transmute::<Error, i32>(ENOGRACE) } == -531);
};

macro_rules! declare_err {
    ($($name:ident $doc:literal,)*) => {$(
        #[doc = $doc]
        pub const $name: Error = error(bindings::$name);
    )*};
}

declare_err! {
    EPROTO "Protocol error.",
    EBADMSG "Not a data message.",
    EPROTONOSUPPORT "Protocol not supported.",
    EOPNOTSUPP "Operation not supported on transport endpoint.",
    EADDRINUSE "Address already in use.",
    EADDRNOTAVAIL "Cannot assign requested address.",
    ENETUNREACH "Network is unreachable.",
    ECONNABORTED "Software caused connection abort.",
    ECONNRESET "Connection reset by peer.",
    EISCONN "Transport endpoint is already connected.",
    ENOTCONN "Transport endpoint is not connected.",
    ESHUTDOWN "Cannot send after transport endpoint shutdown.",
    ECONNREFUSED "Connection refused.",
    EHOSTUNREACH "No route to host.",
    EALREADY "Operation already in progress.",
    EINPROGRESS "Operation now in progress.",
    ESTALE "Stale handle.",
    EREMOTEIO "Remote I/O error.",
    ECANCELED "Operation canceled.",
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_errno)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(EPROTO, Error::from_errno(-71));
        assert_eq!(ECONNRESET, Error::from_errno(-104));
        assert_eq!(ECANCELED.to_errno(), -125);
    }
}
