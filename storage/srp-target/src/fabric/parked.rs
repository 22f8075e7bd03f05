// SPDX-License-Identifier: GPL-2.0

//! Actions that wait for memory to be registered.

use std::collections::{HashMap, VecDeque};

use verbs::Buffer;

use super::Front;
use crate::{
    reactor::{LinkId, Reactor},
    target::Action,
};

/// The actions that wait, by connection, in order. A buffer is being registered for each first one.
#[derive(Default)]
pub struct Parked(HashMap<LinkId, VecDeque<Action<Buffer>>>);

/// The connection and the length of the memory that an action needs.
fn needs(front: &impl Front, action: &Action<Buffer>) -> Option<(LinkId, usize)> {
    match action {
        Action::Execute { task, work } if work.into > 0 => {
            front.channel(*task).map(|id| (id, work.into))
        }
        Action::Fetch { channel, from, .. } => {
            Some((*channel, from.iter().map(|d| d.len() as usize).sum()))
        }
        Action::Dispatch { task, remote } if remote.moves() > 0 => {
            front.channel(*task).map(|id| (id, remote.moves()))
        }
        _ => None,
    }
}

impl Parked {
    /// Returns an action that has its memory, or needs none. Otherwise it waits.
    pub fn pass<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        front: &impl Front,
        action: Action<Buffer>,
    ) -> Option<Action<Buffer>> {
        let Some((id, len)) = needs(front, &action) else {
            return Some(action);
        };
        if !self.0.contains_key(&id) && reactor.prepare(id, len) {
            return Some(action);
        }
        self.0.entry(id).or_default().push_back(action);
        None
    }

    /// Takes the first action of a connection if it has its memory.
    pub fn next<T>(
        &mut self,
        reactor: &mut Reactor<T>,
        front: &impl Front,
        id: LinkId,
    ) -> Option<Action<Buffer>> {
        let first = self.0.get(&id)?.front()?;
        if needs(front, first).is_some_and(|(id, len)| !reactor.prepare(id, len)) {
            return None;
        }
        self.first(id)
    }

    fn first(&mut self, id: LinkId) -> Option<Action<Buffer>> {
        let waiting = self.0.get_mut(&id)?;
        let action = waiting.pop_front();
        if waiting.is_empty() {
            self.0.remove(&id);
        }
        action
    }

    /// There is no memory for the first action of a connection.
    pub fn refuse(&mut self, front: &mut impl Front, id: LinkId) {
        match self.first(id) {
            Some(Action::Execute { task, work }) => front.no_memory(task, Some(work)),
            Some(Action::Fetch { task, .. } | Action::Dispatch { task, .. }) => {
                front.no_memory(task, None);
            }
            _ => {}
        }
    }

    /// The connections with waiting actions that have ended.
    pub fn ended<T>(&self, reactor: &Reactor<T>) -> Vec<LinkId> {
        let ids = self.0.keys().copied();
        ids.filter(|id| !reactor.has(*id)).collect()
    }
}
