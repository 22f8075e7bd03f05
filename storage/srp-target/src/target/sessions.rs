// SPDX-License-Identifier: GPL-2.0

//! What the threads of a target share: its sessions and the logins that wait. Each thread has its
//! channels and their commands to itself. What one thread has to do for another is an [`Order`]. A
//! command takes no lock here, unless its unit has a unit attention.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
};

use super::{login::Login, management::Abort, ChannelId};
use crate::{
    acl,
    proto::reject::Reject,
    scsi::Unit,
    sense::Sense,
    wire::{LoginReq, Others, Reason},
};

/// Makes a thread call [`super::Target::obey`]. Called from other threads, which must not wait.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// What a thread has to do.
pub(super) enum Order {
    /// Accept a login of this thread.
    Accept(Login, Arc<Nexus>, Others),
    /// Refuse a login of this thread without an answer.
    Withdraw(ChannelId),
    /// End a channel of this thread.
    Leave(ChannelId, Reason),
    /// Abort tasks, and answer [`Sessions::aborted`] when they have ended.
    Abort(Arc<Abort>),
    /// A thread has ended the tasks of an [`Order::Abort`].
    Aborted(u64),
}

/// A session (an I_T nexus).
pub(super) struct Nexus {
    /// The units that the initiator sees.
    pub(super) units: acl::Units,
    /// Whether `attention` has a condition.
    pending: AtomicBool,
    /// Pending unit attentions, by unit.
    attention: Mutex<Vec<Option<Sense>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nexus {
    /// Sets the unit attention of a unit.
    fn set(&self, unit: usize, sense: Sense) {
        if let Some(place) = locked(&self.attention).get_mut(unit) {
            *place = Some(sense);
            self.pending.store(true, Ordering::Release);
        }
    }

    /// Takes the unit attention of a unit.
    pub(super) fn take(&self, unit: usize) -> Option<Sense> {
        if !self.pending.load(Ordering::Acquire) {
            return None;
        }
        let mut all = locked(&self.attention);
        let sense = all.get_mut(unit)?.take();
        let pending = all.iter().any(Option::is_some);
        self.pending.store(pending, Ordering::Release);
        sense
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Stage {
    Open,
    /// It disconnects.
    Leaving,
    /// It has ended, except for commands whose writes may be on the path to the file.
    Ended,
}

struct Member {
    initiator: [u8; 16],
    thread: usize,
    stage: Stage,
}

/// Why a login is refused.
pub(super) enum Refused {
    /// The reason for the initiator.
    Reason(Reject),
    /// The initiator is not in the list. Whether to log that.
    Unlisted(bool),
}

#[derive(Default)]
struct State {
    channels: BTreeMap<ChannelId, Member>,
    nexuses: BTreeMap<[u8; 16], Arc<Nexus>>,
    logins: Vec<Login>,
    access: acl::Access,
    /// Number of units.
    units: usize,
    /// Whether logins wait for [`super::Target::open`].
    closed: bool,
    orders: Vec<Vec<Order>>,
}

impl State {
    fn of(&self, initiator: [u8; 16]) -> impl Iterator<Item = (&ChannelId, &Member)> {
        let all = self.channels.iter();
        all.filter(move |(_, m)| m.initiator == initiator && m.stage != Stage::Ended)
    }

    fn end_all(&mut self, initiator: &[u8; 16], why: Reason) {
        for (id, member) in &mut self.channels {
            if member.initiator == *initiator && member.stage == Stage::Open {
                member.stage = Stage::Leaving;
                self.orders[member.thread].push(Order::Leave(*id, why));
            }
        }
    }

    /// Removes waiting logins.
    fn withdraw(&mut self, which: impl Fn(&Login) -> bool) {
        let orders = &mut self.orders;
        self.logins.retain(|login| {
            let out = which(login);
            if out {
                orders[login.thread].push(Order::Withdraw(login.channel));
            }
            !out
        });
    }

    /// Admits the logins that need not wait for the end of the previous session.
    fn admit(&mut self) {
        if self.closed {
            return;
        }
        for login in std::mem::take(&mut self.logins) {
            let initiator = login.req.initiator;
            let single = login.req.multichannel == 0;
            // Channels of an ending session belong to the previous session.
            let mut own = self.channels.values().filter(|m| m.initiator == initiator);
            if own.any(|m| single || m.stage != Stage::Open) {
                self.logins.push(login);
                continue;
            }
            let others = match (login.terminated, self.nexuses.contains_key(&initiator)) {
                (true, _) => Others::Terminated,
                (false, true) => Others::Maintained,
                (false, false) => Others::None,
            };
            let fresh = || {
                Arc::new(Nexus {
                    units: login.units.clone(),
                    pending: AtomicBool::new(self.units > 0),
                    attention: Mutex::new(vec![Some(Sense::NEW_SESSION); self.units]),
                })
            };
            let nexus = self.nexuses.entry(initiator).or_insert_with(fresh);
            let nexus = Arc::clone(nexus);
            let member = Member {
                initiator,
                thread: login.thread,
                stage: Stage::Open,
            };
            self.channels.insert(login.channel, member);
            self.orders[login.thread].push(Order::Accept(login, nexus, others));
        }
    }
}

/// Figures of a thread, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Figures {
    pub(super) channels: AtomicUsize,
    pub(super) commands: AtomicU64,
    pub(super) tasks: AtomicUsize,
}

/// The sessions of a target.
pub struct Sessions {
    state: Mutex<State>,
    wakes: Vec<Wake>,
    figures: Vec<Figures>,
}

impl Sessions {
    /// For a target of as many threads as there are `wakes`.
    pub fn new(wakes: Vec<Wake>) -> Arc<Self> {
        let state = State {
            orders: wakes.iter().map(|_| Vec::new()).collect(),
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            figures: wakes.iter().map(|_| Figures::default()).collect(),
            wakes,
        })
    }

    /// Changes the state for a thread, and wakes the others that have orders.
    fn change<R>(&self, thread: usize, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = locked(&self.state);
        let result = change(&mut state);
        let orders = state.orders.iter().enumerate();
        let ordered = orders.filter(|(n, all)| *n != thread && !all.is_empty());
        let ordered: Vec<_> = ordered.map(|(n, _)| n).collect();
        drop(state);
        for other in ordered {
            self.wakes[other]();
        }
        result
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.wakes.len()
    }

    /// The figures of a thread.
    pub(super) fn figures(&self, thread: usize) -> &Figures {
        &self.figures[thread]
    }

    /// Takes the orders of a thread.
    pub(super) fn orders(&self, thread: usize) -> Vec<Order> {
        std::mem::take(&mut locked(&self.state).orders[thread])
    }

    /// Sets the list of initiators that may log in. Sessions go on as before.
    pub fn allow(&self, list: acl::List) {
        locked(&self.state).access.set(list);
    }

    /// Sets the number of units, and whether logins wait.
    pub(super) fn set_units(&self, thread: usize, units: usize, closed: bool) {
        self.change(thread, |state| {
            state.units = units;
            state.closed = closed;
            state.admit();
        });
    }

    /// Handles the login of a channel, of a target with at most `most` channels per session.
    pub(super) fn login(
        &self,
        thread: usize,
        channel: ChannelId,
        req: LoginReq,
        most: usize,
    ) -> Result<(), Refused> {
        self.change(thread, |state| {
            let others = state.of(req.initiator).count();
            if req.multichannel == 1 && others >= most {
                return Err(Refused::Reason(match most {
                    1 => Reject::MULTI_CHANNEL_UNSUPPORTED,
                    _ => Reject::CHANNEL_LIMIT_REACHED,
                }));
            }
            let units = state.access.find(&req.initiator, &req.target);
            let units = units.map_err(Refused::Unlisted)?;
            let terminated = req.multichannel == 0 && others > 0;
            if req.multichannel == 0 {
                state.end_all(&req.initiator, Reason::NewLogin);
                // The initiator has given up what waits.
                state.withdraw(|l| l.req.initiator == req.initiator);
            }
            state.logins.push(Login {
                channel,
                thread,
                req,
                units,
                terminated,
            });
            state.admit();
            Ok(())
        })
    }

    /// Removes the waiting login of a channel. Returns whether there was one.
    pub(super) fn withdraw(&self, channel: ChannelId) -> bool {
        let logins = &mut locked(&self.state).logins;
        let before = logins.len();
        logins.retain(|l| l.channel != channel);
        logins.len() < before
    }

    /// Refuses the waiting logins of a thread.
    pub(super) fn withdraw_all(&self, thread: usize) {
        locked(&self.state).withdraw(|l| l.thread == thread);
    }

    /// A channel disconnects.
    pub(super) fn leaving(&self, channel: ChannelId) {
        let mut state = locked(&self.state);
        if let Some(member) = state.channels.get_mut(&channel) {
            member.stage = Stage::Leaving;
        }
    }

    /// A channel has ended; `busy`: it has commands left, after which [`Sessions::gone`] follows.
    /// Returns whether it is the last one of its initiator.
    pub(super) fn ended(&self, thread: usize, channel: ChannelId, busy: bool) -> bool {
        self.change(thread, |state| {
            let Some(member) = state.channels.get_mut(&channel) else {
                return false;
            };
            let initiator = member.initiator;
            member.stage = Stage::Ended;
            let last = state.of(initiator).next().is_none();
            if last {
                state.nexuses.remove(&initiator);
            }
            if !busy {
                state.channels.remove(&channel);
                state.admit();
            }
            last
        })
    }

    /// The last command of a channel that has ended has ended.
    pub(super) fn gone(&self, thread: usize, channel: ChannelId) {
        self.change(thread, |state| {
            state.channels.remove(&channel);
            state.admit();
        });
    }

    /// Ends all channels of an initiator.
    pub(super) fn end_all(&self, thread: usize, initiator: &[u8; 16], why: Reason) {
        self.change(thread, |state| state.end_all(initiator, why));
    }

    /// Returns whether an initiator has a session that is not ending.
    pub(super) fn has(&self, initiator: &[u8; 16]) -> bool {
        let state = locked(&self.state);
        let mut own = state.of(*initiator);
        own.any(|(_, m)| m.stage == Stage::Open)
    }

    /// Sets the unit attention of a unit for an initiator, or for all that have a session.
    pub(super) fn attention(&self, initiator: Option<&[u8; 16]>, unit: usize, sense: Sense) {
        let state = locked(&self.state);
        for (id, nexus) in &state.nexuses {
            if initiator.is_none_or(|i| i == id) {
                nexus.set(unit, sense);
            }
        }
    }

    /// Makes all threads abort tasks.
    pub(super) fn abort(&self, thread: usize, abort: Abort) {
        let abort = Arc::new(abort);
        self.change(thread, |state| {
            for orders in &mut state.orders {
                orders.push(Order::Abort(Arc::clone(&abort)));
            }
        });
    }

    /// The tasks of an [`Order::Abort`] that a thread had have ended.
    pub(super) fn aborted(&self, thread: usize, abort: &Abort) {
        self.change(thread, |state| {
            state.orders[abort.thread].push(Order::Aborted(abort.number));
        });
    }

    /// Returns the status of the target, which has these units.
    pub fn status(&self, units: &[Arc<Unit>]) -> serde_json::Value {
        let units = units.iter().enumerate();
        let units: Vec<_> = units.map(|(n, u)| u.status(&n.to_string())).collect();
        let state = locked(&self.state);
        let get = |figure: &AtomicUsize| figure.load(Ordering::Relaxed);
        let commands = |f: &Figures| f.commands.load(Ordering::Relaxed);
        let thread = |(n, f): (usize, &Figures)| {
            serde_json::json!({
                "name": n.to_string(),
                "channels": get(&f.channels),
                "commands_in_flight": get(&f.tasks),
                "counters": { "commands": commands(f) },
            })
        };
        let channels = state.channels.values();
        serde_json::json!({
            "state": if state.closed { "waiting" } else { "serving" },
            "sessions": state.nexuses.len(),
            "channels": channels.filter(|m| m.stage != Stage::Ended).count(),
            "logins_waiting": state.logins.len(),
            "commands_in_flight": self.figures.iter().map(|f| get(&f.tasks)).sum::<usize>(),
            "units": units,
            "reactors": self.figures.iter().enumerate().map(thread).collect::<Vec<_>>(),
            "counters": { "commands": self.figures.iter().map(commands).sum::<u64>() },
        })
    }
}
