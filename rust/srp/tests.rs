// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the driver: sessions on a soft device, and a target that is the test's.

pub(super) mod messages;
pub(super) mod stand;
