// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the RDMA abstractions, on a soft device of each kind.
//!
//! Each suite exists once for each kind of device; without such a device its tests are skipped. The
//! other end of a connection is [`peer::Peer`], a passive side on bare verbs.

// What only the tests use is not used by the benchmarks.
#![cfg_attr(not(SRP_KUNIT), allow(dead_code, unused_imports, unused_macros))]

#[cfg(SRP_KUNIT)]
pub(crate) mod events;
#[cfg(SRP_KUNIT)]
mod fixed;
#[cfg(SRP_KUNIT)]
mod grace;
pub(super) mod link;
pub(super) mod list;
#[cfg(SRP_KUNIT)]
pub(crate) mod log;
#[cfg(SRP_KUNIT)]
mod mapping;
#[cfg(SRP_KUNIT)]
mod operation;
pub(crate) mod peer;
#[cfg(SRP_KUNIT)]
mod polled;
pub(crate) mod soft;
#[cfg(SRP_KUNIT)]
mod transfer;

/// Ends the test with an error, but in an orderly way: KUnit's own assertions end the thread with
/// all that it holds, and a device would wait for that for ever.
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            pr_err!(
                "{}:{}: not true: {}\n",
                file!(),
                line!(),
                stringify!($condition)
            );
            return Err(EINVAL);
        }
    };
}

/// [`check`] that two values are the same.
macro_rules! check_eq {
    ($left:expr, $right:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            pr_err!(
                "{}:{}: {} is {}, not {}\n",
                file!(),
                line!(),
                stringify!($left),
                format_args!("{:?}", left),
                format_args!("{:?}", right)
            );
            return Err(EINVAL);
        }
    };
}

/// A suite of tests for one kind of device.
macro_rules! suite {
    ($suite:ident, $module:ident, $kind:expr, [$($test:ident),* $(,)?]) => {
        #[kunit_tests($suite)]
        mod $module {
            use kernel::prelude::*;
            $(
                #[test]
                fn $test() -> Result {
                    crate::rdma::tests::soft::on($kind, super::$test)
                }
            )*
        }
    };
}

pub(crate) use {
    check,
    check_eq,
    suite, //
};
