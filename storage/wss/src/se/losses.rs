// SPDX-License-Identifier: GPL-2.0

//! Writes that are not flushed, and those that a power loss of an RS or a failed flush has taken.
//!
//! After such a loss the next command of each initiator on a unit concerned gets UNIT ATTENTION,
//! and its flushes of the unit fail until one of these answers has arrived: a flush that succeeds
//! promises all writes before it. The completion of an answer shows that it has arrived. An SE does
//! not know the writes that earlier SEs have answered. It assumes that each initiator has some in
//! each object, until it has flushed the object.

use std::collections::{BTreeMap, BTreeSet};

use srp_target::{
    sense::Sense,
    target::{Buffer, Outcome, TaskId},
};

use super::{commands::unflushed, Engine, Job, Need, Stage};
use crate::map::Map;

/// An object: RS and number.
type Object = (u32, u32);

/// Maximum number of initiators without a session that are remembered. The memory for receive
/// buffers limits those with a session.
const INITIATORS: usize = 1024;

#[derive(Default)]
struct Initiator {
    /// Number of the end of its last session. `None`: it has a session.
    gone: Option<u64>,
    /// Units with lost writes of which the initiator has not been told.
    untold: BTreeSet<usize>,
    /// Number of the first request after it was told, by unit. Earlier flushes fail, too.
    told: BTreeMap<usize, u64>,
}

/// An answer that tells an initiator of the loss of writes of a unit.
struct Telling {
    initiator: [u8; 16],
    unit: usize,
    /// Number of the first request after it.
    next: u64,
    /// Whether there is another loss since.
    stale: bool,
}

/// The writes and losses of all objects.
pub(super) struct Losses {
    /// Counts writes.
    time: u64,
    /// Time of the last write of each object that is not flushed.
    written: BTreeMap<Object, u64>,
    /// Objects without a flush by this SE: they may have writes that an earlier SE has answered, of
    /// any initiator.
    inherited: BTreeSet<Object>,
    /// Boot of each RS.
    boots: BTreeMap<u32, u64>,
    initiators: BTreeMap<[u8; 16], Initiator>,
    /// The answers that are not completed, by task.
    telling: BTreeMap<TaskId, Telling>,
    /// Counts ends of sessions.
    ends: u64,
    /// Whether an initiator was forgotten.
    forgotten: bool,
    /// Units with lost writes that may be of initiators which are not remembered.
    strangers: BTreeSet<usize>,
}

impl Losses {
    /// Creates the losses of an SE with these objects.
    pub(super) fn new(objects: impl Iterator<Item = Object>) -> Self {
        Self {
            time: 0,
            written: BTreeMap::new(),
            inherited: objects.collect(),
            boots: BTreeMap::new(),
            initiators: BTreeMap::new(),
            telling: BTreeMap::new(),
            ends: 0,
            forgotten: false,
            strangers: BTreeSet::new(),
        }
    }

    /// Number of the last write.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    /// Records a write of an object, which may be done.
    pub(super) fn wrote(&mut self, object: Object) {
        self.time += 1;
        self.written.insert(object, self.time);
    }

    /// Records a flush that was requested at time `begun`.
    pub(super) fn flushed(&mut self, object: Object, begun: u64) {
        self.inherited.remove(&object);
        self.written.retain(|o, time| *o != object || *time > begun);
    }

    /// Records a new session of an initiator.
    pub(super) fn known(&mut self, initiator: &[u8; 16]) {
        let new = || Initiator {
            untold: self.strangers.clone(),
            ..Initiator::default()
        };
        let this = self.initiators.entry(*initiator).or_insert_with(new);
        this.gone = None;
    }

    /// Records the end of the session of an initiator. If too many have no session, one is
    /// forgotten, preferably one that would be told the same as an unknown initiator.
    pub(super) fn gone(&mut self, initiator: &[u8; 16]) {
        self.ends += 1;
        if let Some(this) = self.initiators.get_mut(initiator) {
            this.gone = Some(self.ends);
        }
        let all = self.initiators.iter();
        let gone = all.filter_map(|(id, i)| Some((i.untold != self.strangers, i.gone?, *id)));
        if gone.clone().count() <= INITIATORS {
            return;
        }
        if let Some((_, _, first)) = gone.min() {
            let untold = self.initiators.remove(&first).map(|i| i.untold);
            self.strangers.extend(untold.into_iter().flatten());
            self.forgotten = true;
        }
    }

    /// Records a loss of writes of a unit. `any`: also of initiators that are not remembered.
    fn lost(&mut self, unit: usize, any: bool) {
        for answer in self.telling.values_mut().filter(|t| t.unit == unit) {
            answer.stale = true;
        }
        for initiator in self.initiators.values_mut() {
            initiator.untold.insert(unit);
        }
        if any || self.forgotten {
            self.strangers.insert(unit);
        }
    }

    /// Returns whether the flush with request `id` must tell the initiator that writes of a unit
    /// are lost.
    pub(super) fn tells(&self, initiator: &[u8; 16], unit: usize, id: u64) -> bool {
        self.initiators.get(initiator).is_some_and(|this| {
            this.untold.contains(&unit) || this.told.get(&unit).is_some_and(|told| id < *told)
        })
    }

    /// Returns whether an answer is on its way that tells the initiator of all lost writes of a
    /// unit.
    fn telling(&self, initiator: &[u8; 16], unit: usize) -> bool {
        let of_it = |t: &Telling| t.initiator == *initiator && t.unit == unit && !t.stale;
        self.telling.values().any(of_it)
    }

    /// Records the completion of an answer. Returns whether it told of a loss.
    fn completed(&mut self, task: TaskId) -> bool {
        let Some(answer) = self.telling.remove(&task) else {
            return false;
        };
        let this = self.initiators.get_mut(&answer.initiator);
        if let Some(this) = this.filter(|_| !answer.stale) {
            this.untold.remove(&answer.unit);
            this.told.insert(answer.unit, answer.next);
            self.telling
                .retain(|_, t| t.initiator != answer.initiator || t.unit != answer.unit);
        }
        true
    }
}

impl<B: Buffer> Engine<B> {
    /// Returns whether a flush must wait: whether the initiator knows of all lost writes of the
    /// unit depends on the completion of an answer.
    pub(super) fn uncertain(&self, task: TaskId) -> bool {
        let remote = self.jobs.get(&task).map(|job| &job.remote);
        remote.is_some_and(|r| self.losses.telling(&r.initiator, r.unit))
    }

    /// Ends a flush that tells the initiator of a loss.
    pub(super) fn tell(&mut self, task: TaskId, initiator: [u8; 16], unit: usize) {
        self.over(task, Outcome::Failed(Sense::LOST));
        // The target has no answer for an aborted command or an ending session.
        if self.target.channel(task).is_some() {
            let answer = Telling {
                initiator,
                unit,
                next: self.next,
                stale: false,
            };
            self.losses.telling.insert(task, answer);
        }
    }

    /// Handles the completion of an answer.
    pub(super) fn answered(&mut self, task: TaskId) {
        if self.losses.completed(task) {
            self.go_on(Need::Told);
        }
    }

    /// Drops the answers of an ended channel, which have perhaps not arrived.
    pub(super) fn unanswered(&mut self) {
        let before = self.losses.telling.len();
        let target = &self.target;
        let open = |task: &TaskId| target.channel(*task).is_some();
        self.losses.telling.retain(|task, _| open(task));
        if self.losses.telling.len() < before {
            self.go_on(Need::Told);
        }
    }

    /// Handles the boot number of an RS that is attached again.
    pub(super) fn booted(&mut self, store: u32, boot: u64) {
        let before = self.losses.boots.insert(store, boot);
        if before.is_none_or(|before| before == boot) {
            return;
        }
        let why = format!("RS {store} has lost its power");
        self.lose(|(s, _)| *s == store, &why);
    }

    /// Handles an object that an RS cannot flush: the kernel reports lost writes once, and a later
    /// flush may succeed.
    pub(super) fn unflushable(&mut self, object: Object) {
        let why = format!("RS {}: a flush has failed", object.0);
        self.lose(|o| *o == object, &why);
    }

    /// Handles the loss of all writes of these objects that are not flushed.
    fn lose(&mut self, which: impl Fn(&Object) -> bool, why: &str) {
        let extents = self.maps.iter_mut().flat_map(Map::extents);
        for extent in extents.filter(|e| which(&(e.store, e.object))) {
            extent.stale = true;
        }
        // A write in flight may have been done before the loss.
        let writes = |(_, j): &(&TaskId, &Job)| unflushed(&j.remote.command);
        let mut lost = BTreeSet::new();
        for (_, job) in self.jobs.iter().filter(writes) {
            let Stage::Parts(parts) = &job.stage else {
                continue;
            };
            for extent in parts.iter().flat_map(|p| &p.extents) {
                let extent = &self.maps[job.remote.unit].extents()[*extent];
                lost.insert((extent.store, extent.object));
            }
        }
        lost.extend(self.losses.written.keys().chain(&self.losses.inherited));
        lost.retain(which);
        self.losses.written.retain(|o, _| !lost.contains(o));
        let inherited: BTreeSet<_> = lost.intersection(&self.losses.inherited).copied().collect();
        self.losses.inherited.retain(|o| !lost.contains(o));
        for unit in 0..self.settings.units.len() {
            let objects = &self.settings.units[unit];
            if !objects.iter().any(|o| lost.contains(o)) {
                continue;
            }
            let any = objects.iter().any(|o| inherited.contains(o));
            self.losses.lost(unit, any);
            self.say(format!(
                "{why}, and unit {unit} has perhaps lost writes that were not flushed"
            ));
            self.target.attention(unit, Sense::POWER_ON);
        }
    }
}
