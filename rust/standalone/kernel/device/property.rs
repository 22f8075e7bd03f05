// SPDX-License-Identifier: GPL-2.0

//! In the place of the kernel crate's `device::property`: what `device` names.

use crate::{
    bindings,
    types::Opaque, //
};

/// A `struct fwnode_handle`.
#[repr(transparent)]
pub struct FwNode(Opaque<bindings::fwnode_handle>);
