// SPDX-License-Identifier: GPL-2.0

//! An SRP target that misbehaves on orders, for tests of the driver.
//!
//! [`rules`] is a filter around the engine of `srp-target`: it sees each message before the engine,
//! and each action of the engine before it is carried out. [`requests`] is the target's side of the
//! InfiniBand CM, which follows scripts. Neither depends on RDMA. [`orders`] has their language.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

pub mod orders;
pub mod requests;
pub mod rules;
