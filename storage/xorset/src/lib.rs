// SPDX-License-Identifier: GPL-2.0

//! The redundant writes of the paper "A proposal of low overhead redundant writes for distributed
//! storage". Five nodes store the blocks of a unit with parities in two directions, and any two
//! nodes may be lost. The writer sends each byte once; the nodes exchange the deltas for the
//! parities. See docs/fabric.md for the guarantees.
//!
//! [`layout`] is the code, [`message`] the protocol, [`map`] the membership, [`journal`] the
//! storage of a node, [`link`] a connection to a node. [`node`] and [`client`] are the state
//! machines, without RDMA: methods report events and collect the resulting work in a list, which
//! [`fabric`] carries out. [`coordinator`] is the interface to etcd, [`mod@etcd`] its
//! implementation.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

pub mod client;
pub mod coordinator;
pub mod etcd;
pub mod fabric;
pub mod journal;
pub mod layout;
pub mod link;
pub mod map;
pub mod message;
pub mod node;
pub mod options;
