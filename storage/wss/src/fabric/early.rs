// SPDX-License-Identifier: GPL-2.0

//! Actions on connections that are accepted and not established yet: a command may come from
//! another role before the receive buffers of the initiator's channel are registered.

use std::collections::BTreeMap;

use srp_target::reactor::LinkId;

/// The actions that wait, by connection, in order.
pub(super) struct Early<A>(BTreeMap<LinkId, Vec<A>>);

impl<A> Default for Early<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A> Early<A> {
    /// Adds a connection that is accepted.
    pub(super) fn accept(&mut self, id: LinkId) {
        self.0.insert(id, Vec::new());
    }

    /// Returns an action if its connection is established. Otherwise it waits.
    pub(super) fn pass(&mut self, id: LinkId, action: A) -> Option<A> {
        match self.0.get_mut(&id) {
            Some(waiting) => waiting.push(action),
            None => return Some(action),
        }
        None
    }

    /// Handles a connection that is established, or has ended. Returns the actions that waited.
    pub(super) fn over(&mut self, id: LinkId) -> Vec<A> {
        self.0.remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_wait_for_their_connection_in_order() {
        let mut early = Early::default();
        assert_eq!(early.pass(1, 'a'), Some('a'));
        early.accept(1);
        assert_eq!((early.pass(1, 'b'), early.pass(1, 'c')), (None, None));
        assert_eq!(early.pass(2, 'd'), Some('d'));
        assert_eq!(early.over(1), ['b', 'c']);
        assert_eq!(early.pass(1, 'e'), Some('e'));
        assert!(early.over(1).is_empty());
    }
}
