// SPDX-License-Identifier: GPL-2.0

//! The tests of the crate, in one program: what they share is compiled once.

mod clients;
mod cluster;
mod command;
mod faults;
mod hang;
mod journal;
mod random;
mod rebuild;
mod rolling;
mod spoilt;
mod strangers;
mod world;
