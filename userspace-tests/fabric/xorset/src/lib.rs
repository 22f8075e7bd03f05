// SPDX-License-Identifier: GPL-2.0

//! The redundant writes of the paper "A proposal of low overhead redundant writes for distributed storage": five nodes
//! have the blocks of a unit with parities in two directions, any two of them may be lost, and whoever writes sends each
//! byte once, as nodes pass on among themselves what parities need. docs/fabric.md says what it promises.
//!
//! [`layout`] is the code, [`message`] what they say to each other, [`map`] who has a part in it, [`journal`] what a node
//! keeps. [`node`] and [`client`] are what they do, without RDMA: whatever happens is told by a call, and what is to be
//! done then is left in a list. [`coordinator`] is what they need of etcd, and [`mod@etcd`] asks it. [`fabric`] does it all.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

pub mod client;
pub mod coordinator;
pub mod etcd;
pub mod fabric;
pub mod journal;
pub mod layout;
mod link;
pub mod map;
pub mod message;
pub mod node;
pub mod options;
