// SPDX-License-Identifier: GPL-2.0

//! What the set needs of etcd: one key that only its holder has, for a time, and one map that only this holder changes.

use crate::layout::NODES;

/// So long a key stays without a word of its holder, in milliseconds, if the client's is not told to stay longer.
pub const TTL: u64 = 3000;

/// Keys that are held.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// The one client of the set.
    Client,
    /// A node that lives.
    Node(u8),
}

/// What is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// Hold a key with this value for `ttl` from the time on at which this is asked, if nobody else holds it.
    Hold {
        /// Which.
        key: Key,
        /// Names the holder.
        value: u64,
        /// Milliseconds, whole seconds of them.
        ttl: u64,
    },
    /// What is there, all at one moment?
    Look,
    /// Put a map in the place of another one, if this client holds its key and nobody has changed the map.
    Change {
        /// That of the map that was seen, 0 if there was none.
        revision: u64,
        /// The client.
        client: u64,
        /// The new map.
        map: String,
    },
}

/// What is there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// The map, with its revision.
    pub map: Option<(u64, String)>,
    /// Who holds the key of the client.
    pub client: Option<u64>,
    /// Who holds the key of each node.
    pub nodes: [Option<u64>; NODES],
}

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The key is held.
    Held(bool),
    /// What is there.
    Looked(View),
    /// The map was put there. If not, another one is there, or the key is not held.
    Changed(bool),
    /// Nobody answers. It may have been done.
    Failed,
}

/// Whatever keeps these. Keys vanish `ttl` after they were held the last time, not earlier.
pub trait Coordinator {
    /// Asks, and waits for the answer.
    fn ask(&mut self, request: &Request) -> Answer;
}
