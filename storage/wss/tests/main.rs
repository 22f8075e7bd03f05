// SPDX-License-Identifier: GPL-2.0

//! The tests of the crate, in one program: what they share is compiled once.

mod ce_faults;
mod command;
mod direct;
mod election;
mod faults;
mod flow;
mod hostile;
mod made;
mod message;
mod power;
mod random;
mod rolling;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod secure;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod secure_etcd;
mod strangers;
mod strategies;
mod takeover;
mod work;
mod world;
