// SPDX-License-Identifier: GPL-2.0

//! The storage system of the Kernel PM2 paper in user space: a StorageEngine (SE) takes commands and knows where blocks
//! are, CacheEngines (CE) have them and move them straight into and out of the initiator's memory, RealStorage (RS) has
//! the files. docs/fabric.md says what it promises.
//!
//! [`message`] is what they say to each other. [`se`], [`ce`] and [`rs`] are what they do, without RDMA: whatever
//! happens is told by a call, and what is to be done then is left in a list. [`fabric`] does it. [`mod@etcd`] is asked which SE
//! there is.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

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
