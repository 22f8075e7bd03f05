// SPDX-License-Identifier: GPL-2.0

//! Writes that are not flushed, and those that a power loss of an RS has taken.
//!
//! After such a loss the next command of each initiator on a unit concerned gets UNIT ATTENTION,
//! and its next flush of the unit fails, once: a flush that succeeds promises all writes before it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use srp_target::{
    sense::Sense,
    target::{Buffer, TaskId},
};

use super::{commands::unflushed, Engine, Job, Stage};
use crate::map::Map;

/// An object: RS and number.
type Object = (u32, u32);

/// Maximum number of initiators that are remembered. Those without a session go first.
const INITIATORS: usize = 1024;

#[derive(Default)]
struct Initiator {
    /// The last session.
    session: u64,
    /// Units with lost writes of which the initiator has not been told.
    untold: BTreeSet<usize>,
    /// Number of the first request after it was told, by unit. Earlier flushes fail, too.
    told: BTreeMap<usize, u64>,
}

/// The writes and losses of all objects.
#[derive(Default)]
pub(super) struct Losses {
    /// Counts writes.
    time: u64,
    /// Time of the last write of each object that is not flushed.
    written: BTreeMap<Object, u64>,
    /// Boot of each RS.
    boots: BTreeMap<u32, u64>,
    initiators: HashMap<[u8; 16], Initiator>,
}

impl Losses {
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
        self.written.retain(|o, time| *o != object || *time > begun);
    }

    /// Remembers an initiator.
    pub(super) fn known(&mut self, initiator: &[u8; 16], session: u64) {
        self.initiators.entry(*initiator).or_default().session = session;
        if self.initiators.len() > INITIATORS {
            let oldest = self.initiators.iter().min_by_key(|(_, i)| i.session);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.initiators.remove(&oldest);
            }
        }
    }

    /// Returns whether the flush with request `id` must tell the initiator that writes of a unit
    /// are lost. `next` is the number of the next request.
    pub(super) fn tell(
        &mut self,
        initiator: &[u8; 16],
        unit: usize,
        (id, next): (u64, u64),
    ) -> bool {
        let Some(this) = self.initiators.get_mut(initiator) else {
            return false;
        };
        if this.untold.remove(&unit) {
            this.told.insert(unit, next);
        }
        this.told.get(&unit).is_some_and(|told| id < *told)
    }
}

impl<B: Buffer> Engine<B> {
    /// Handles the boot number of an RS that is attached again.
    pub(super) fn booted(&mut self, store: u32, boot: u64) {
        let before = self.losses.boots.insert(store, boot);
        if before.is_none_or(|before| before == boot) {
            return;
        }
        let extents = self.maps.iter_mut().flat_map(Map::extents);
        for extent in extents.filter(|e| e.store == store) {
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
        lost.extend(self.losses.written.keys());
        lost.retain(|(s, _)| *s == store);
        self.losses.written.retain(|o, _| !lost.contains(o));
        let units = self.settings.units.iter().enumerate();
        let units = units.filter(|(_, objects)| objects.iter().any(|o| lost.contains(o)));
        for unit in units.map(|(unit, _)| unit).collect::<Vec<_>>() {
            self.say(format!(
                "RS {store} has lost its power, and unit {unit} writes that were not flushed"
            ));
            for initiator in self.losses.initiators.values_mut() {
                initiator.untold.insert(unit);
            }
            self.target.attention(unit, Sense::POWER_ON);
        }
    }
}
