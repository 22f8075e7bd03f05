// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the driver: sessions on a soft device, with a target implemented by the test.

pub(super) mod messages;
pub(super) mod stand;
