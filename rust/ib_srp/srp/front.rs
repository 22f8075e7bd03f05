// SPDX-License-Identifier: GPL-2.0

//! What the rest of the system sees: SCSI hosts and sysfs.

pub mod host;
pub mod sysfs;
