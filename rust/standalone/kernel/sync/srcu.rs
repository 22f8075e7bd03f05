// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `sync::srcu`: the name that `sync` uses.

/// Never instantiated.
pub enum Srcu {}
