// SPDX-License-Identifier: GPL-2.0

//! The interface to etcd: exclusive keys with a lifetime, and a map that only the client with the
//! client key changes.

use crate::layout::NODES;

/// Lifetime of a node key without renewal, in milliseconds. The lifetime of the client key is
/// configurable.
pub const TTL: u64 = 3000;

/// An exclusive key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// Held by the active client of the set.
    Client,
    /// Held by a node while it is alive.
    Node(u8),
}

/// A request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// Take or renew a key for `ttl` after the request, unless another process holds it.
    Hold {
        /// The key.
        key: Key,
        /// Identifies the holder.
        value: u64,
        /// Lifetime in milliseconds, a multiple of 1000.
        ttl: u64,
    },
    /// Take a consistent snapshot.
    Look,
    /// Replace the map, if `client` holds the client key and the map still has `revision`.
    Change {
        /// Revision of the map to replace; 0 if there is none.
        revision: u64,
        /// The client.
        client: u64,
        /// The new map.
        map: String,
    },
}

/// A snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// The map, with its revision.
    pub map: Option<(u64, String)>,
    /// Holder of the client key.
    pub client: Option<u64>,
    /// For each node, the holder of its key.
    pub nodes: [Option<u64>; NODES],
}

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Whether the key is held.
    Held(bool),
    /// The snapshot.
    Looked(View),
    /// Whether the map was replaced. If not, its revision differs, or the client key is not held.
    Changed(bool),
    /// No answer. The request may have been executed.
    Failed,
}

/// Stores keys and the map. A key expires `ttl` after the last [`Request::Hold`], not earlier.
pub trait Coordinator {
    /// Executes a request synchronously.
    fn ask(&mut self, request: &Request) -> Answer;
}
