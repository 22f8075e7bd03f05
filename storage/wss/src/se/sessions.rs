// SPDX-License-Identifier: GPL-2.0

//! The sessions, and the CEs and RSs that can answer their commands. A command asks for these CEs,
//! so their number, and not that of the sessions, bounds the work.

use std::collections::{BTreeMap, BTreeSet};

/// Initiator port identifier.
type Initiator = [u8; 16];

#[derive(Default)]
pub(super) struct Session {
    pub(super) epoch: u64,
    /// CEs with an answer channel, and their logins. A CE may request a second channel before it
    /// reports the end of the first.
    reach: BTreeMap<u32, BTreeSet<u64>>,
    /// RSs with an answer channel, and their logins.
    stores: BTreeMap<u32, BTreeSet<u64>>,
}

impl Session {
    /// Returns whether a CE has an answer channel.
    pub(super) fn reaches(&self, member: u32) -> bool {
        self.reach.contains_key(&member)
    }

    /// Returns whether an RS has an answer channel.
    pub(super) fn direct(&self, store: u32) -> bool {
        self.stores.contains_key(&store)
    }
}

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    all: BTreeMap<Initiator, Session>,
    /// Number of sessions with an answer channel.
    reaching: usize,
    /// Number of sessions that each CE has an answer channel to.
    reached: BTreeMap<u32, usize>,
}

impl Sessions {
    pub(super) fn get(&self, initiator: &Initiator) -> Option<&Session> {
        self.all.get(initiator)
    }

    /// Adds a session with this epoch.
    pub(super) fn add(&mut self, initiator: Initiator, epoch: u64) {
        let session = Session {
            epoch,
            ..Session::default()
        };
        self.all.insert(initiator, session);
    }

    /// Removes a session. Returns its epoch.
    pub(super) fn remove(&mut self, initiator: &Initiator) -> Option<u64> {
        let members: Vec<_> = self.all.get(initiator)?.reach.keys().copied().collect();
        for member in members {
            self.drop_reach(initiator, member);
        }
        self.all.remove(initiator).map(|s| s.epoch)
    }

    /// Adds a login of an answer channel.
    pub(super) fn join(&mut self, initiator: &Initiator, member: u32, login: u64) {
        let Some(session) = self.all.get_mut(initiator) else {
            return;
        };
        if session.reach.is_empty() {
            self.reaching += 1;
        }
        let logins = session.reach.entry(member).or_default();
        if logins.is_empty() {
            *self.reached.entry(member).or_default() += 1;
        }
        logins.insert(login);
    }

    /// Removes a login of an answer channel. Returns the initiator if the login existed.
    pub(super) fn left(&mut self, member: u32, login: u64, epoch: u64) -> Option<Initiator> {
        let found = self.all.iter_mut().find(|(_, s)| s.epoch == epoch);
        let (initiator, session) = found?;
        let initiator = *initiator;
        let logins = session.reach.get_mut(&member)?;
        if !logins.remove(&login) {
            return None;
        }
        if logins.is_empty() {
            self.drop_reach(&initiator, member);
        }
        Some(initiator)
    }

    /// Adds a login of an answer channel of an RS.
    pub(super) fn join_store(&mut self, initiator: &Initiator, store: u32, login: u64) {
        if let Some(session) = self.all.get_mut(initiator) {
            session.stores.entry(store).or_default().insert(login);
        }
    }

    /// Removes a login of an answer channel of an RS. Returns the initiator if the login existed.
    pub(super) fn left_store(&mut self, store: u32, login: u64, epoch: u64) -> Option<Initiator> {
        let found = self.all.iter_mut().find(|(_, s)| s.epoch == epoch);
        let (initiator, session) = found?;
        let logins = session.stores.get_mut(&store)?;
        if !logins.remove(&login) {
            return None;
        }
        if logins.is_empty() {
            session.stores.remove(&store);
        }
        Some(*initiator)
    }

    /// Removes all answer channels of an RS.
    pub(super) fn drop_store(&mut self, store: u32) {
        for session in self.all.values_mut() {
            session.stores.remove(&store);
        }
    }

    /// Number of sessions that an RS has an answer channel to.
    pub(super) fn stored(&self, store: u32) -> usize {
        self.all.values().filter(|s| s.direct(store)).count()
    }

    /// Removes all answer channels of a CE. Returns their initiators.
    pub(super) fn drop_member(&mut self, member: u32) -> Vec<Initiator> {
        let all = self.all.iter().filter(|(_, s)| s.reaches(member));
        let over: Vec<_> = all.map(|(initiator, _)| *initiator).collect();
        for initiator in &over {
            self.drop_reach(initiator, member);
        }
        over
    }

    fn drop_reach(&mut self, initiator: &Initiator, member: u32) {
        let Some(session) = self.all.get_mut(initiator) else {
            return;
        };
        if session.reach.remove(&member).is_none() {
            return;
        }
        if session.reach.is_empty() {
            self.reaching -= 1;
        }
        if let Some(n) = self.reached.get_mut(&member) {
            *n -= 1;
        }
    }

    /// Number of sessions that a CE has an answer channel to.
    pub(super) fn reached(&self, member: u32) -> usize {
        self.reached.get(&member).copied().unwrap_or(0)
    }

    /// Returns the CEs that can own an extent for a session: those with channels to all sessions,
    /// else those with a channel to this one. CEs for which `up` is false are left out.
    pub(super) fn candidates(&self, session: &Session, up: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut mine: Vec<_> = session.reach.keys().copied().filter(|m| up(*m)).collect();
        let all = |m: &u32| self.reached(*m) == self.reaching;
        if mine.iter().any(all) {
            mine.retain(all);
        }
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ce_that_reaches_all_sessions_comes_first() {
        let mut sessions = Sessions::default();
        let id = |n| [n; 16];
        for n in 1..=3 {
            sessions.add(id(n), n.into());
        }
        let can = |sessions: &Sessions, n: u8, down: u32| {
            let session = sessions.get(&id(n)).unwrap();
            sessions.candidates(session, |m| m != down)
        };
        assert!(can(&sessions, 1, 0).is_empty());
        sessions.join(&id(1), 7, 1);
        sessions.join(&id(1), 7, 2);
        sessions.join(&id(1), 8, 3);
        sessions.join(&id(2), 8, 4);
        // The third session has no channel, so it is no session that a CE has to reach.
        assert_eq!(can(&sessions, 1, 0), [8]);
        assert_eq!(can(&sessions, 1, 8), [7]);
        assert!(can(&sessions, 3, 0).is_empty());
        sessions.join(&id(3), 9, 5);
        assert_eq!(can(&sessions, 1, 0), [7, 8]);
        assert_eq!(sessions.drop_member(9), [id(3)]);
        // The CE has another login of the first session.
        assert_eq!(sessions.left(7, 1, 1), Some(id(1)));
        assert_eq!(sessions.left(7, 1, 1), None);
        assert_eq!(sessions.reached(7), 1);
        assert_eq!(sessions.remove(&id(2)), Some(2));
        assert_eq!(can(&sessions, 1, 0), [7, 8]);
        assert_eq!(sessions.left(7, 2, 1), Some(id(1)));
        assert_eq!((sessions.reached(7), sessions.reached(8)), (0, 1));
        assert_eq!(can(&sessions, 1, 0), [8]);
        assert_eq!(sessions.remove(&id(1)), Some(1));
        assert_eq!((sessions.reached(8), sessions.reaching), (0, 0));
    }

    #[test]
    fn an_rs_that_has_left_reaches_no_session() {
        let (mut sessions, id) = (Sessions::default(), [1; 16]);
        sessions.add(id, 5);
        let direct = |sessions: &Sessions| sessions.get(&id).unwrap().direct(9);
        sessions.join_store(&id, 9, 1);
        sessions.join_store(&id, 9, 2);
        assert_eq!((sessions.stored(9), sessions.reaching), (1, 0));
        assert_eq!(sessions.left_store(9, 1, 6), None);
        assert_eq!(sessions.left_store(9, 1, 5), Some(id));
        assert_eq!(sessions.left_store(9, 1, 5), None);
        assert!(direct(&sessions));
        assert_eq!(sessions.left_store(9, 2, 5), Some(id));
        assert!(!direct(&sessions));
        sessions.join_store(&id, 9, 3);
        sessions.drop_store(9);
        assert!(!direct(&sessions));
    }
}
