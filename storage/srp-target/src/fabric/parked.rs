// SPDX-License-Identifier: GPL-2.0

//! Actions that wait for memory to be registered.

use std::collections::{HashMap, VecDeque};

use verbs::Buffer;

use crate::{
    reactor::{LinkId, Reactor},
    target::{Action, Target},
};

/// The actions that wait, by connection, in order. A buffer is being registered for each first one.
#[derive(Default)]
pub(super) struct Parked(HashMap<LinkId, VecDeque<Action<Buffer>>>);

/// The connection and the length of the memory that an action needs.
fn needs(target: &Target<Buffer>, action: &Action<Buffer>) -> Option<(LinkId, usize)> {
    match action {
        Action::Execute { task, work } if work.into > 0 => {
            target.channel(*task).map(|id| (id, work.into))
        }
        Action::Fetch { channel, from, .. } => {
            Some((*channel, from.iter().map(|d| d.len() as usize).sum()))
        }
        _ => None,
    }
}

impl Parked {
    /// Returns an action that has its memory, or needs none. Otherwise it waits.
    pub(super) fn pass<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        target: &Target<Buffer>,
        action: Action<Buffer>,
    ) -> Option<Action<Buffer>> {
        let Some((id, len)) = needs(target, &action) else {
            return Some(action);
        };
        if !self.0.contains_key(&id) && reactor.prepare(id, len) {
            return Some(action);
        }
        self.0.entry(id).or_default().push_back(action);
        None
    }

    /// Takes the first action of a connection if it has its memory.
    pub(super) fn next<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        target: &Target<Buffer>,
        id: LinkId,
    ) -> Option<Action<Buffer>> {
        let first = self.0.get(&id)?.front()?;
        if needs(target, first).is_some_and(|(id, len)| !reactor.prepare(id, len)) {
            return None;
        }
        self.first(id)
    }

    /// Takes the first action of a connection.
    pub(super) fn first(&mut self, id: LinkId) -> Option<Action<Buffer>> {
        let waiting = self.0.get_mut(&id)?;
        let action = waiting.pop_front();
        if waiting.is_empty() {
            self.0.remove(&id);
        }
        action
    }

    /// The connections with waiting actions that have ended.
    pub(super) fn ended<T>(&self, reactor: &Reactor<T>) -> Vec<LinkId> {
        let ids = self.0.keys().copied();
        ids.filter(|id| !reactor.has(*id)).collect()
    }
}
