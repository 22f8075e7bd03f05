// SPDX-License-Identifier: GPL-2.0

//! The storage system of the Kernel PM2 paper in user space. A StorageEngine (SE) receives commands
//! and knows the location of blocks. CacheEngines (CE) cache blocks and move them directly from and
//! to the initiator's memory. RealStorage (RS) stores the files. See docs/fabric.md for the
//! guarantees.
//!
//! [`message`] defines the messages between roles. [`se`], [`ce`] and [`rs`] are the state
//! machines, without RDMA: methods report events and collect the resulting work in a list, which
//! [`fabric`] carries out. [`mod@etcd`] is the client for the election of the SE.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

pub mod answers;
pub mod cache;
pub mod ce;
pub mod etcd;
pub mod fabric;
pub mod flow;
pub mod map;
pub mod message;
pub mod options;
pub mod order;
pub mod peer;
pub mod rs;
pub mod se;
