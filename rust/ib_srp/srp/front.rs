// SPDX-License-Identifier: GPL-2.0

//! The driver's interfaces to the rest of the system: SCSI hosts and sysfs.

pub mod host;
pub mod sysfs;
