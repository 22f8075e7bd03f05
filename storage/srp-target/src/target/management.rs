// SPDX-License-Identifier: GPL-2.0

//! Task management. The response is sent when all affected tasks have ended, so that none of them
//! can touch data or the file afterwards. Each thread of the target has some of them.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    task::{self, State},
    Action, Buffer, ChannelId, Target, TaskId,
};
use crate::{
    proto::tmf::Function,
    sense::Sense,
    wire::{self, Broken, TskMgmt},
};

/// Response codes.
mod code {
    pub(super) const COMPLETE: u8 = 0;
    pub(super) const INVALID_FIELDS: u8 = 2;
    pub(super) const NOT_SUPPORTED: u8 = 4;
}

/// A request that waits for the end of tasks.
pub(super) struct Waiter {
    pub(super) channel: ChannelId,
    number: u64,
    tag: u64,
    /// Number of threads that have such tasks, or are not known to have none.
    threads: usize,
}

/// The tasks that a request affects.
pub(super) struct Abort {
    /// The thread with the request.
    pub(super) thread: usize,
    /// Number of the request in this thread.
    pub(super) number: u64,
    function: Function,
    initiator: [u8; 16],
    unit: usize,
    task_tag: u64,
}

/// A request, and the tasks of this thread that it waits for.
pub(super) struct Aborting {
    abort: Arc<Abort>,
    tasks: BTreeSet<TaskId>,
}

impl<B: Buffer> Target<B> {
    pub(super) fn management(&mut self, id: ChannelId, bytes: &[u8]) -> Result<(), Broken> {
        let req = TskMgmt::parse(bytes)?;
        let Some(channel) = self.channels.get_mut(&id) else {
            return Ok(());
        };
        let initiator = channel.initiator;
        channel.credits -= 1;
        let Some(unit) = task::unit_of(&channel.nexus, &self.units, req.lun) else {
            self.respond(id, req.tag, code::INVALID_FIELDS);
            return Ok(());
        };
        let function = [
            Function::AbortTask,
            Function::AbortTaskSet,
            Function::ClearTaskSet,
            Function::LunReset,
        ]
        .into_iter()
        .find(|f| *f as u8 == req.function);
        let Some(function) = function else {
            self.respond(id, req.tag, code::NOT_SUPPORTED);
            return Ok(());
        };
        if function == Function::LunReset {
            self.units[unit].reset();
            self.sessions.attention(None, unit, Sense::RESET);
        }
        let abort = Abort {
            thread: self.thread,
            number: self.requests,
            function,
            initiator,
            unit,
            task_tag: req.task_tag,
        };
        self.requests += 1;
        self.waiters.push(Waiter {
            channel: id,
            number: abort.number,
            tag: req.tag,
            threads: self.sessions.threads(),
        });
        self.sessions.abort(self.thread, abort);
        self.obey();
        Ok(())
    }

    /// Aborts the tasks of this thread that a request affects.
    pub(super) fn abort(&mut self, abort: Arc<Abort>) {
        let (unit, function) = (abort.unit, abort.function);
        let mut tasks = BTreeSet::new();
        let mut others = BTreeSet::new();
        for (id, task) in &mut self.tasks {
            let own = task.initiator == abort.initiator;
            let meant = task.unit == Some(unit)
                && match function {
                    Function::AbortTask => own && task.tag == abort.task_tag,
                    Function::AbortTaskSet => own,
                    _ => true,
                };
            if !meant {
                continue;
            }
            tasks.insert(*id);
            // A task that is already sending its response counts as completed.
            if task.state != State::Answering {
                if task.state == State::Dispatched && !task.aborted {
                    self.actions.push(Action::Cancel { task: *id });
                }
                task.aborted = true;
                if !own {
                    others.insert(task.initiator);
                }
            }
        }
        if function != Function::LunReset {
            for other in others {
                self.sessions.attention(Some(&other), unit, Sense::CLEARED);
            }
        }
        if abort.thread == self.thread || !tasks.is_empty() {
            let (code, count) = (function as u8, tasks.len());
            let what = format!("task management {code:#04x} on unit {unit}, {count} tasks");
            self.say(&abort.initiator, &what);
        }
        self.aborting.push(Aborting { abort, tasks });
        self.report_aborts();
    }

    fn respond(&mut self, channel: ChannelId, tag: u64, code: u8) {
        if let Some(grant) = self.grant(channel) {
            self.actions.push(Action::Answer {
                channel,
                task: None,
                data: None,
                message: wire::tmf_rsp(grant, tag, code),
            });
        }
    }

    pub(super) fn task_ended(&mut self, id: TaskId) {
        if self.aborting.is_empty() {
            return;
        }
        for aborting in &mut self.aborting {
            aborting.tasks.remove(&id);
        }
        self.report_aborts();
        self.obey();
    }

    /// Tells the threads of requests that the tasks of this thread have ended.
    fn report_aborts(&mut self) {
        let (thread, sessions) = (self.thread, &self.sessions);
        self.aborting.retain(|aborting| {
            let left = !aborting.tasks.is_empty();
            if !left {
                sessions.aborted(thread, &aborting.abort);
            }
            left
        });
    }

    /// Handles the end of the tasks of a request in one thread.
    pub(super) fn aborted_by(&mut self, number: u64) {
        let Some(at) = self.waiters.iter().position(|w| w.number == number) else {
            return;
        };
        self.waiters[at].threads -= 1;
        if self.waiters[at].threads == 0 {
            let waiter = self.waiters.remove(at);
            self.respond(waiter.channel, waiter.tag, code::COMPLETE);
        }
    }
}
