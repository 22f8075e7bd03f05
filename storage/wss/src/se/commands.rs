// SPDX-License-Identifier: GPL-2.0

//! Commands, from arrival to end.

use std::collections::BTreeSet;

use srp_target::{
    proto::cmd::DirectBuf,
    scsi::Command,
    sense::Sense,
    target::{Buffer, Outcome, Remote, TaskId},
};

use super::{Action, Engine, Job, Member, Need, Part, Request, Stage, What};
use crate::{
    map::Owner,
    message::{Exec, Extent, Message, Status, Zero, DESCRIPTORS, EXTENTS},
    peer::Peer,
};

impl<B: Buffer> Engine<B> {
    pub(super) fn dispatch(&mut self, task: TaskId, remote: Remote) {
        let session = self.session(&remote.initiator);
        let job = Job {
            remote,
            session,
            stage: Stage::Waiting(Need::Member),
            since: self.now,
        };
        self.jobs.insert(task, job);
        self.go(task);
    }

    /// Retries the commands that wait for this, in the order of arrival.
    pub(super) fn go_on(&mut self, need: Need) {
        let all = self.waiting.range((need, 0)..=(need, TaskId::MAX));
        let tasks: Vec<_> = all.map(|(_, task)| *task).collect();
        self.retries += tasks.len() as u64;
        for task in tasks {
            self.go(task);
        }
    }

    /// Changes the stage of a command.
    fn enter(&mut self, task: TaskId, stage: Stage) {
        let Some(job) = self.jobs.get_mut(&task) else {
            return;
        };
        if let Stage::Waiting(need) = job.stage {
            self.waiting.remove(&(need, task));
        }
        if let Stage::Waiting(need) = stage {
            self.waiting.insert((need, task));
        }
        job.stage = stage;
    }

    pub(super) fn over(&mut self, task: TaskId, outcome: Outcome) {
        if let Some(Stage::Waiting(need)) = self.jobs.remove(&task).map(|j| j.stage) {
            self.waiting.remove(&(need, task));
        }
        self.target.dispatched(task, outcome);
    }

    pub(super) fn go(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        let (unit, command) = (job.remote.unit, job.remote.command.clone());
        let need = match command {
            Command::Read { lba, count, fua } => self.move_blocks(task, lba, count, How::Read(fua)),
            Command::Write { lba, count, fua } => {
                self.move_blocks(task, lba, count, How::Write(fua))
            }
            Command::Verify { lba, count, .. } => self.move_blocks(task, lba, count, How::Verify),
            Command::Zero { lba, count, unmap } => {
                let how = if unmap { Zero::Unmap } else { Zero::Write };
                self.move_blocks(task, lba, count, How::Zero(how))
            }
            _ => self.flush(task, unit),
        };
        if let Some(need) = need {
            self.enter(task, Stage::Waiting(need));
        }
    }

    /// Returns what the command must wait for, if it cannot start.
    fn flush(&mut self, task: TaskId, unit: usize) -> Option<Need> {
        if self.uncertain(task) {
            return Some(Need::Told);
        }
        let objects: BTreeSet<_> = self.settings.units[unit].iter().copied().collect();
        let mut ids = BTreeSet::new();
        for (store, object) in &objects {
            let (store, object) = (*store, *object);
            ids.insert(self.ask(
                store,
                |id| Message::Flush { id, object },
                What::Flush(task, (store, object)),
            ));
        }
        self.enter(task, Stage::Flushing(ids, Status::Good));
        for (store, _) in objects {
            self.ask_again(store);
        }
        None
    }

    pub(super) fn flushed(&mut self, task: TaskId, id: u64, status: Status) {
        let Some(job) = self.jobs.get_mut(&task) else {
            return;
        };
        let Stage::Flushing(ids, worst) = &mut job.stage else {
            return;
        };
        if !ids.remove(&id) {
            return;
        }
        if status != Status::Good {
            *worst = status;
        }
        if ids.is_empty() {
            let (worst, unit, initiator) = (*worst, job.remote.unit, job.remote.initiator);
            if self.losses.tells(&initiator, unit, id) {
                return self.tell(task, initiator, unit);
            }
            let outcome = match worst {
                Status::Good => Outcome::Good,
                _ => Outcome::Failed(Sense::WRITE_ERROR),
            };
            self.over(task, outcome);
        }
    }

    /// Returns what the command must wait for, if it cannot start.
    fn move_blocks(&mut self, task: TaskId, lba: u64, count: u32, how: How) -> Option<Need> {
        let write = matches!(how, How::Write(_) | How::Zero(_));
        let job = self.jobs.get(&task)?;
        let (unit, initiator) = (job.remote.unit, job.remote.initiator);
        let Some(session) = self
            .sessions
            .get(&initiator)
            .filter(|s| s.epoch == job.session)
        else {
            // The command is about to be cancelled.
            return Some(Need::Member);
        };
        let member_up = |m| self.members.get(&m).is_some_and(Member::up);
        let candidates = self.sessions.candidates(session, member_up);
        let pieces = self.maps[unit].pieces(lba, count);
        if pieces.is_empty() {
            // There are no blocks to transfer.
            self.over(task, Outcome::Good);
            return None;
        }
        if candidates.is_empty() {
            return Some(Need::Member);
        }
        // A single CE does a read, and does not cache blocks that other CEs own.
        let needed = if write { pieces.len() } else { 1 };
        for piece in &pieces[..needed] {
            let extent = &mut self.maps[unit].extents()[piece.extent];
            let best = candidates[piece.extent % candidates.len()];
            let (owner, idle) = (extent.owner().map(|o| o.member), extent.busy == 0);
            let usable = owner.is_some_and(|m| member_up(m) && session.reaches(m));
            if !idle && (!usable || extent.wanted || extent.stale) {
                // Later commands wait, too, so that the extent becomes idle.
                extent.wanted = true;
                return Some(Need::Idle(unit, piece.extent));
            }
            extent.wanted = false;
            if !usable || extent.stale || (idle && owner != Some(best)) {
                extent.stale = false;
                self.epoch += 1;
                let owner = Owner {
                    member: best,
                    epoch: self.epoch,
                };
                self.maps[unit].own(piece.extent, owner);
            }
        }
        // One EXEC for each run of extents of the same CE.
        let mut execs: Vec<(u32, Vec<Extent>, Vec<usize>)> = Vec::new();
        for piece in &pieces {
            let extent = &self.maps[unit].extents()[piece.extent];
            let owner = extent.owner().unwrap_or(Owner {
                member: 0,
                epoch: 0,
            });
            let mut part = Extent {
                store: extent.store,
                object: extent.object,
                at: piece.at,
                blocks: piece.blocks,
                epoch: if extent.stale { 0 } else { owner.epoch },
            };
            match execs.last_mut() {
                Some((member, extents, busy)) if *member == owner.member => {
                    extents.push(part);
                    busy.push(piece.extent);
                }
                Some((_, extents, _)) if !write => {
                    part.epoch = 0;
                    extents.push(part);
                }
                _ => execs.push((owner.member, vec![part], vec![piece.extent])),
            }
        }
        let job = self.jobs.get(&task)?;
        let mut descriptors = Descriptors::new(&job.remote.descriptors);
        let (tag, room, id) = (job.remote.tag, job.remote.room, job.session);
        // The SE answers a command without a transfer.
        let answer = execs.len() == 1 && matches!(how, How::Read(_) | How::Write(_));
        let reached = self.sessions.get(&initiator);
        let direct = |extents: &[Extent]| match extents {
            [one] => answer && reached.is_some_and(|s| s.direct(one.store)),
            _ => false,
        };
        let mut made = Vec::new();
        for (member, extents, busy) in execs {
            let len = extents.iter().map(|e| u64::from(e.blocks) * 512).sum();
            let exec = Exec {
                id: self.next,
                session: id,
                write,
                answer,
                stable: matches!(how, How::Read(true) | How::Write(true) | How::Verify),
                direct: direct(&extents),
                zero: match how {
                    How::Zero(zero) => Some(zero),
                    _ => None,
                },
                tag,
                room,
                credits: 0,
                extents,
                descriptors: descriptors.take(len),
            };
            self.next += 1;
            if exec.extents.len() > EXTENTS || exec.descriptors.len() > DESCRIPTORS {
                self.over(task, Outcome::Failed(Sense::FIELD));
                return None;
            }
            made.push((member, exec, busy));
        }
        let mut parts = Vec::new();
        for (number, mut exec, extents) in made {
            if answer {
                // Without a channel the task is about to be cancelled.
                let Some(credits) = self.target.grant_for(task) else {
                    return Some(Need::Member);
                };
                exec.credits = credits;
            }
            let Some(link) = self.members.get(&number).and_then(|m| m.peer) else {
                return Some(Need::Member);
            };
            for extent in &extents {
                self.maps[unit].extents()[*extent].busy += 1;
            }
            self.execs.insert(exec.id, task);
            parts.push(Part {
                exec: exec.id,
                member: number,
                link,
                extents,
                status: None,
            });
            self.send(link, Message::Exec(exec));
        }
        self.enter(task, Stage::Parts(parts));
        None
    }

    /// Aborts a command, which gets no response.
    pub(super) fn cancel(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task) else {
            return;
        };
        match &job.stage {
            Stage::Waiting(_) => self.over(task, Outcome::Over),
            Stage::Flushing(..) => {
                // Keep a flush that was sent to an RS: it may fail, which concerns all initiators.
                let mine = |r: &Request| matches!(r.what, What::Flush(t, _) if t == task);
                self.requests.retain(|_, r| r.sent.is_some() || !mine(r));
                self.over(task, Outcome::Over);
            }
            Stage::Parts(parts) => {
                let open = parts.iter().filter(|p| p.status.is_none());
                for part in open {
                    // If the connection is lost, the CE is being fenced.
                    if self.peers.contains_key(&part.link) {
                        self.actions.push(Action::Send {
                            peer: part.link,
                            message: Message::Cancel { id: part.exec },
                        });
                    }
                }
            }
        }
    }

    /// Handles an EXEC that a CE has finished.
    pub(super) fn part_over(&mut self, peer: Peer, exec: u64, status: Status) {
        let Some(task) = self.execs.get(&exec).copied() else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&task) else {
            return;
        };
        let unit = job.remote.unit;
        let Stage::Parts(parts) = &mut job.stage else {
            return;
        };
        let Some(part) = parts.iter_mut().find(|p| p.exec == exec && p.link == peer) else {
            return;
        };
        self.execs.remove(&exec);
        part.status = Some(status);
        // Whatever the status: a CE that is lost may have answered the write.
        let written = unflushed(&job.remote.command);
        let mut idle = Vec::new();
        for n in &part.extents {
            let extent = &mut self.maps[unit].extents()[*n];
            extent.busy -= 1;
            if extent.busy == 0 && extent.wanted {
                idle.push(*n);
            }
            if written {
                self.losses.wrote((extent.store, extent.object));
            }
        }
        let all: Option<Vec<_>> = parts.iter().map(|p| p.status).collect();
        // The flush of a command with FUA may have failed.
        let blocks = match job.remote.command {
            _ if status != Status::WriteError => None,
            Command::Read { lba, count, .. }
            | Command::Verify { lba, count, .. }
            | Command::Write {
                lba,
                count,
                fua: true,
            } => Some((lba, count)),
            _ => None,
        };
        if let Some(all) = all {
            let initiator = job.remote.initiator;
            let outcome = outcome(&all);
            let lost = outcome == Outcome::Over;
            if lost
                && self
                    .sessions
                    .get(&initiator)
                    .is_some_and(|s| s.epoch == job.session)
                && !self.target.aborted(task)
            {
                self.end_session(&initiator, "a CE has lost a command");
            }
            self.over(task, outcome);
        }
        let pieces = blocks.map(|(lba, count)| self.maps[unit].pieces(lba, count));
        for piece in pieces.into_iter().flatten() {
            let extent = &self.maps[unit].extents()[piece.extent];
            let object = (extent.store, extent.object);
            self.unflushable(object);
        }
        for extent in idle {
            self.go_on(Need::Idle(unit, extent));
        }
    }

    pub(super) fn parts_over(&mut self, which: impl Fn(&Job, &Part) -> bool) {
        let mut over = Vec::new();
        for job in self.jobs.values() {
            if let Stage::Parts(parts) = &job.stage {
                let open = parts.iter().filter(|p| p.status.is_none() && which(job, p));
                over.extend(open.map(|p| (p.link, p.exec)));
            }
        }
        for (link, exec) in over {
            self.part_over(link, exec, Status::Lost);
        }
    }
}

/// An operation on blocks. `true`: FUA.
#[derive(Clone, Copy)]
enum How {
    Read(bool),
    Write(bool),
    /// Read from the file, without a transfer.
    Verify,
    Zero(Zero),
}

/// Returns whether a command changes blocks and leaves them to a later flush.
pub(super) fn unflushed(command: &Command) -> bool {
    matches!(
        command,
        Command::Write { fua: false, .. } | Command::Zero { .. }
    )
}

fn outcome(parts: &[Status]) -> Outcome {
    let any = |wanted| parts.contains(&wanted);
    if any(Status::Answered) {
        Outcome::Answered
    } else if any(Status::Lost) || any(Status::Stale) {
        Outcome::Over
    } else if any(Status::WriteError) {
        Outcome::Failed(Sense::WRITE_ERROR)
    } else if any(Status::Full) {
        Outcome::Failed(Sense::FULL)
    } else if any(Status::ReadError) {
        Outcome::Failed(Sense::READ_ERROR)
    } else if any(Status::Invalid) {
        Outcome::Failed(Sense::FIELD)
    } else {
        Outcome::Good
    }
}

/// Splits the initiator's buffers among EXECs.
struct Descriptors<'a> {
    list: &'a [DirectBuf],
    /// Number of used bytes of the first buffer.
    used: u32,
}

impl<'a> Descriptors<'a> {
    pub(super) fn new(list: &'a [DirectBuf]) -> Self {
        Self { list, used: 0 }
    }

    pub(super) fn take(&mut self, mut len: u64) -> Vec<DirectBuf> {
        let mut taken = Vec::new();
        while let (1.., Some(first)) = (len, self.list.first()) {
            let left = first.len() - self.used;
            let n = u64::from(left).min(len) as u32;
            if n > 0 {
                let va = first.va().wrapping_add(self.used.into());
                taken.push(DirectBuf::new(va, first.key(), n));
            }
            len -= u64::from(n);
            self.used += n;
            if self.used == first.len() {
                self.list = &self.list[1..];
                self.used = 0;
            }
        }
        taken
    }
}
