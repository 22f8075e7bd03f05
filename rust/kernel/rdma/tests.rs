// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the RDMA abstractions, on a soft device of each kind.
//!
//! Each suite exists once for each kind of device; without such a device its tests are skipped. The
//! other end of a connection is [`peer::Peer`], a passive side on bare verbs.

// The benchmarks use only part of this module.
#![cfg_attr(not(SRP_KUNIT), allow(dead_code, unused_imports, unused_macros))]

#[cfg(SRP_KUNIT)]
mod calls;
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
#[cfg(SRP_KUNIT)]
mod refusals;
pub(crate) mod soft;
#[cfg(SRP_KUNIT)]
mod transfer;

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
    crate::check::{
        check,
        check_eq, //
    },
    suite, //
};
