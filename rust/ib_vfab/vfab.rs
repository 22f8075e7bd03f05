// SPDX-License-Identifier: GPL-2.0

//! A software host channel adapter, and the subnet of its ports. See `docs/vfab.md`.
#![deny(unsafe_code)]

pub mod agent;
pub mod ca;
pub mod changes;
pub mod control;
pub mod cq;
pub mod devices;
pub mod fabric;
pub mod fault;
pub mod forwarding;
pub mod gmp;
pub mod hca;
pub mod link;
pub mod mad;
pub mod manager;
pub mod memory;
pub mod mkey;
pub mod mr;
pub mod node;
pub mod params;
pub mod personality;
pub mod port;
pub mod qp;
pub mod switch;
#[cfg(SRP_KUNIT)]
mod tests;
pub mod traps;
