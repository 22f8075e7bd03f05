// SPDX-License-Identifier: GPL-2.0

//! Commands, from EXEC to DONE.

use srp_target::proto::cmd::DirectBuf;

use super::{Action, Engine, Flight, Job, JobId, Part, Segment, Stage};
use crate::{
    cache::Key,
    message::{Exec, Message, Scope, Status, Transfer},
    order::Span,
};

impl Engine {
    pub(super) fn of(&self, session: u64) -> Vec<JobId> {
        let all = self.jobs.iter().filter(|(_, j)| j.exec.session == session);
        all.map(|(id, _)| *id).collect()
    }

    pub(super) fn fence(&mut self, session: u64) {
        self.answers.fence(session);
        self.pass();
        for id in self.of(session) {
            self.kill(id);
        }
        self.fences.push(session);
    }

    pub(super) fn cancel(&mut self, exec: u64) {
        let found = self.jobs.iter().find(|(_, j)| j.exec.id == exec);
        // If the command is unknown, its DONE is already in flight.
        if let Some(id) = found.map(|(id, _)| *id) {
            self.kill(id);
        }
    }

    /// Splits extents at line boundaries.
    pub(super) fn parts(&self, exec: &Exec) -> Vec<Part> {
        let per_line = u64::from(self.settings.line / 512);
        let mut parts = Vec::new();
        for e in &exec.extents {
            let (mut at, mut left) = (e.at, u64::from(e.blocks));
            while left > 0 {
                let line = at / per_line;
                let blocks = left.min((line + 1) * per_line - at);
                let key = Key {
                    store: e.store,
                    object: e.object,
                    line,
                    epoch: e.epoch,
                };
                parts.push(Part {
                    store: e.store,
                    object: e.object,
                    at,
                    blocks: blocks as u32,
                    key: (e.epoch != 0).then_some(key),
                    line: 0,
                    offset: (at - line * per_line) * 512,
                });
                at += blocks;
                left -= blocks;
            }
        }
        parts
    }

    pub(super) fn exec(&mut self, exec: Exec) {
        let refused = |status| Message::Done {
            status,
            id: exec.id,
            value: 0,
        };
        let Some(channel) = self.answers.channel(exec.session) else {
            return self.tell_se(refused(Status::Stale));
        };
        // Reject offsets that would overflow in bytes. No file is that large.
        let there = exec.extents.iter().all(|e| e.at < 1 << 55);
        let arena = u64::from(self.settings.line) * self.cache.len() as u64;
        let parts = if there && exec.len() <= arena {
            self.parts(&exec)
        } else {
            Vec::new()
        };
        if parts.is_empty() || parts.len() > self.cache.len() || !exec.sound() {
            return self.tell_se(refused(Status::Invalid));
        }
        let id = self.next_job;
        self.next_job += 1;
        let per_line = u64::from(self.settings.line / 512);
        let spans = parts.iter().map(|p| {
            let line = p.at / per_line * per_line;
            let whole = !exec.write && p.key.is_some();
            Span {
                store: p.store,
                object: p.object,
                from: if whole { line } else { p.at },
                to: if whole {
                    line + per_line
                } else {
                    p.at + u64::from(p.blocks)
                },
            }
        });
        self.order.add(id, exec.write, spans.collect());
        self.jobs.insert(
            id,
            Job {
                link: self.se.peer,
                channel,
                parts,
                stage: Stage::Queued,
                flying: 0,
                killed: false,
                status: Status::Good,
                exec,
            },
        );
    }

    /// Starts the jobs that can start, and acknowledges fences.
    pub(super) fn settle(&mut self) {
        while let Some(id) = self.order.first() {
            let give = self.jobs.get(&id).is_some_and(|job| self.gives(job));
            let lines = self.jobs.get(&id).map_or(0, Job::lines);
            // Do not overtake a job that waits for lines, or it may never get them.
            if !give && lines > self.cache.free() {
                break;
            }
            self.order.start(id);
            match give {
                true => self.give(id),
                false => self.begin(id),
            }
        }
        for session in std::mem::take(&mut self.fences) {
            if self.of(session).is_empty() {
                self.tell_se(Message::Fenced {
                    scope: Scope::Session,
                    member: 0,
                    epoch: session,
                });
            } else {
                self.fences.push(session);
            }
        }
    }

    /// Returns whether the RS does a command: no line of it is in the arena, and for a read none
    /// has been missed lately.
    fn gives(&self, job: &Job) -> bool {
        let exec = &job.exec;
        let known =
            |key: &Key| self.cache.find(key).is_some() || !exec.write && self.recent.has(key);
        let mut keys = job.parts.iter().filter_map(|p| p.key.as_ref());
        exec.direct && exec.extents.len() == 1 && exec.moved() > 0 && !keys.any(known)
    }

    /// Passes a command on to the RS.
    fn give(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.stage = Stage::Given;
        for key in job
            .parts
            .iter()
            .filter_map(|p| p.key)
            .filter(|_| !job.exec.write)
        {
            self.recent.add(key);
        }
        self.given += 1;
        self.fly(id, 0, true);
    }

    pub(super) fn begin(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (write, stable, channel) = (job.exec.write, job.exec.stable, job.channel);
        if job.exec.zero.is_some() {
            // Zeroing needs no lines.
            job.stage = Stage::Storing;
            for n in 0..job.parts.len() {
                self.fly(id, n, true);
            }
            return;
        }
        let mut missing = Vec::new();
        for (n, part) in job.parts.iter_mut().enumerate() {
            let here = match part.key {
                Some(key) if !write && !stable => self.cache.find(&key),
                _ => None,
            };
            match here {
                Some(line) => {
                    self.cache.pin(line);
                    part.line = line;
                }
                None => {
                    // `settle` has checked that there are enough free lines.
                    let Some(line) = self.cache.take() else {
                        continue;
                    };
                    part.line = line;
                    missing.push(n);
                }
            }
        }
        if write {
            job.stage = Stage::Fetching;
            let segments = segments(self.settings.line, job);
            return self.actions.push(Action::Fetch {
                channel,
                job: id,
                segments,
            });
        }
        job.stage = Stage::Filling;
        self.hits[usize::from(!missing.is_empty())] += 1;
        for n in missing {
            self.fly(id, n, false);
        }
        self.advance(id);
    }

    /// Queues the transfer of a part between the arena and an RS, or a command for the RS. A cached
    /// read transfers the whole line.
    pub(super) fn fly(&mut self, job_id: JobId, n: usize, put: bool) {
        let Some(job) = self.jobs.get_mut(&job_id) else {
            return;
        };
        job.flying += 1;
        let part = job.parts[n];
        let line = u64::from(self.settings.line);
        let whole = !put && part.key.is_some();
        let id = self.next_flight;
        self.next_flight += 1;
        let transfer = Transfer {
            id,
            object: part.object,
            at: if whole {
                part.at - part.offset / 512
            } else {
                part.at
            },
            blocks: if whole {
                (line / 512) as u32
            } else {
                part.blocks
            },
            stable: job.exec.stable,
            va: part.line as u64 * line + if whole { 0 } else { part.offset },
            key: 0,
        };
        let flight = Flight {
            job: job_id,
            part: n,
            store: part.store,
            put,
            given: job.stage == Stage::Given,
            zero: job.exec.zero,
            transfer,
            peer: None,
            uncertain: false,
        };
        self.flights.insert(id, flight);
        self.grounded.insert((part.store, id));
        self.take_off(part.store);
    }

    /// Handles a completed GET, PUT or ZERO.
    pub(super) fn landed(&mut self, id: u64, status: Status) {
        let Some(flight) = self.flights.remove(&id) else {
            return;
        };
        self.grounded.remove(&(flight.store, id));
        let Some(job) = self.jobs.get_mut(&flight.job) else {
            return;
        };
        job.flying -= 1;
        if flight.given {
            let status = match status {
                // The RS has no answer channel of the session.
                Status::Good | Status::Stale => Status::Lost,
                other => other,
            };
            return self.finish(flight.job, status);
        }
        if status != Status::Good && job.status == Status::Good {
            job.status = status;
        }
        let (part, line) = (job.parts[flight.part], u64::from(self.settings.line));
        if let (Some(key), true) = (part.key, flight.zero.is_some()) {
            // Forget the line even on failure: the next read must read the file.
            if let Some(old) = self.cache.find(&key) {
                self.cache.forget(old);
            }
        } else if let Some(key) = part.key {
            let whole = u64::from(part.blocks) * 512 == line;
            match (flight.put, status) {
                (false, Status::Good) => self.cache.install(part.line, key),
                (true, Status::Good) if whole => self.cache.install(part.line, key),
                (true, Status::Good) => {
                    if let Some(old) = self.cache.find(&key) {
                        self.actions.push(Action::Copy {
                            from: part.line as u64 * line + part.offset,
                            to: old as u64 * line + part.offset,
                            len: u64::from(part.blocks) * 512,
                        });
                    }
                }
                (false, _) => {}
                // After a failed write the content of the file is unknown.
                (true, _) => {
                    if let Some(old) = self.cache.find(&key) {
                        self.cache.forget(old);
                    }
                }
            }
        }
        self.advance(flight.job);
    }

    /// Continues a command when none of its transfers is in flight.
    pub(super) fn advance(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.flying > 0 || !matches!(job.stage, Stage::Filling | Stage::Storing) {
            return;
        }
        if job.killed || job.status != Status::Good || !job.exec.answer {
            let status = job.status;
            return self.finish(id, status);
        }
        let message = job.exec.response();
        let segments = match job.exec.write {
            true => Vec::new(),
            false => segments(self.settings.line, job),
        };
        job.stage = Stage::Answering;
        let channel = job.channel;
        self.actions.push(Action::Answer {
            channel,
            job: id,
            segments,
            message,
        });
    }

    /// Continues a write whose data is in the arena.
    pub fn fetched(&mut self, id: JobId) {
        let Some(job) = self
            .jobs
            .get_mut(&id)
            .filter(|j| j.stage == Stage::Fetching)
        else {
            return;
        };
        if job.killed {
            self.finish(id, Status::Lost);
        } else {
            job.stage = Stage::Storing;
            for n in 0..job.parts.len() {
                self.fly(id, n, true);
            }
        }
        self.settle();
    }

    /// Handles the send completion of a response.
    pub fn sent(&mut self, id: JobId) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|j| j.stage == Stage::Answering)
        {
            self.finish(id, Status::Answered);
        }
        self.settle();
    }

    /// Aborts a command, unless its response is already in flight.
    pub(super) fn kill(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.killed = true;
        match job.stage {
            Stage::Queued => self.finish(id, Status::Lost),
            Stage::Fetching | Stage::Answering => {}
            Stage::Filling | Stage::Storing | Stage::Given => {
                let idle = |f: &Flight| f.job == id && f.peer.is_none() && !f.uncertain;
                let over: Vec<_> = self
                    .flights
                    .iter()
                    .filter(|(_, f)| idle(f))
                    .map(|(n, _)| *n)
                    .collect();
                for n in over {
                    self.landed(n, Status::Lost);
                }
            }
        }
    }

    /// Removes a command and reports it to the SE.
    pub(super) fn finish(&mut self, id: JobId, status: Status) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.order.remove(id);
        let lines = !matches!(job.stage, Stage::Queued | Stage::Given);
        if lines && job.exec.zero.is_none() {
            for part in &job.parts {
                self.cache.unpin(part.line);
            }
        }
        if !self.se.state.up() || self.se.peer != job.link {
            return;
        }
        let id = job.exec.id;
        self.tell_se(if job.killed && status != Status::Answered {
            Message::Cancelled { id }
        } else {
            let value = 0;
            Message::Done { status, id, value }
        });
    }
}

/// Maps the parts of a command to the initiator's buffers.
fn segments(line: u32, job: &Job) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut parts = job.parts.iter().map(|p| {
        let start = p.line as u64 * u64::from(line) + p.offset;
        (start, u64::from(p.blocks) * 512)
    });
    let (mut at, mut here) = parts.next().unwrap_or_default();
    for descriptor in &job.exec.descriptors {
        let (mut va, mut left) = (descriptor.va(), u64::from(descriptor.len()));
        while left > 0 {
            if here == 0 {
                match parts.next() {
                    Some(next) => (at, here) = next,
                    None => return segments,
                }
            }
            let n = left.min(here);
            segments.push(Segment {
                at,
                descriptor: DirectBuf::new(va, descriptor.key(), n as u32),
            });
            va = va.wrapping_add(n);
            at += n;
            left -= n;
            here -= n;
        }
    }
    segments
}
