// SPDX-License-Identifier: GPL-2.0

//! Actions that wait for memory to be registered.

use std::collections::{HashMap, VecDeque};

use super::{LinkId, Reactor};

/// The actions that wait, by connection, in order, each with the length of its memory in bytes. A
/// buffer is being registered for each first one.
pub struct Parked<A>(HashMap<LinkId, VecDeque<(usize, A)>>);

impl<A> Default for Parked<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A> Parked<A> {
    /// Returns an action that has its memory, or needs none. Otherwise it waits. `need` is the
    /// connection and the length of the memory.
    pub fn pass<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        need: Option<(LinkId, usize)>,
        action: A,
    ) -> Option<A> {
        let Some((id, len)) = need else {
            return Some(action);
        };
        if !self.0.contains_key(&id) && reactor.prepare(id, len) {
            return Some(action);
        }
        self.0.entry(id).or_default().push_back((len, action));
        None
    }

    /// Takes the first action of a connection if it has its memory.
    pub fn next<T>(&mut self, reactor: &mut Reactor<T>, id: LinkId) -> Option<A> {
        let (len, _) = self.0.get(&id)?.front()?;
        reactor.prepare(id, *len).then(|| self.first(id)).flatten()
    }

    /// Takes the first action of a connection, as if there were no memory for it.
    pub fn first(&mut self, id: LinkId) -> Option<A> {
        let waiting = self.0.get_mut(&id)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.0.remove(&id);
        }
        first.map(|(_, action)| action)
    }

    /// Takes all actions of a connection.
    pub fn all(&mut self, id: LinkId) -> impl Iterator<Item = A> {
        let all = self.0.remove(&id).into_iter().flatten();
        all.map(|(_, action)| action)
    }

    /// The connections with waiting actions that have ended.
    pub fn ended<T>(&self, reactor: &Reactor<T>) -> Vec<LinkId> {
        let ids = self.0.keys().copied();
        ids.filter(|id| !reactor.has(*id)).collect()
    }
}
