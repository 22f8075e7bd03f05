// SPDX-License-Identifier: GPL-2.0

//! In the place of the kernel crate's `sync::srcu`: what `sync` names.

/// Nobody has one here.
pub enum Srcu {}
