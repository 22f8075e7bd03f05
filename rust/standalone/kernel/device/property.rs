// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `device::property`: the name that `device` uses.

use crate::{
    bindings,
    types::Opaque, //
};

/// A `struct fwnode_handle`.
#[repr(transparent)]
pub struct FwNode(Opaque<bindings::fwnode_handle>);
