// SPDX-License-Identifier: GPL-2.0

//! Task management. The response is sent when all affected tasks have ended, so that none of them
//! can touch data or the file afterwards.

use std::collections::BTreeSet;

use super::{task::State, Action, Buffer, ChannelId, Target, TaskId};
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
    tag: u64,
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
        let Some(unit) = self.unit_of(&initiator, req.lun) else {
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
        let mut tasks = BTreeSet::new();
        let mut others = BTreeSet::new();
        for (id, task) in &mut self.tasks {
            let own = task.initiator == initiator;
            let meant = task.unit == Some(unit)
                && match function {
                    Function::AbortTask => own && task.tag == req.task_tag,
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
        let told = match function {
            Function::LunReset => {
                self.units[unit].reset();
                others.extend(self.nexuses.keys());
                Sense::RESET
            }
            _ => Sense::CLEARED,
        };
        for other in others {
            let all = self.nexuses.get_mut(&other);
            if let Some(place) = all.and_then(|all| all.get_mut(unit)) {
                *place = Some(told);
            }
        }
        self.say(
            &initiator,
            &format!(
                "task management {:#04x} on unit {unit}, {} tasks",
                req.function,
                tasks.len()
            ),
        );
        self.waiters.push(Waiter {
            channel: id,
            tag: req.tag,
            tasks,
        });
        self.answer_waiters();
        Ok(())
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
        for waiter in &mut self.waiters {
            waiter.tasks.remove(&id);
        }
        self.answer_waiters();
    }

    fn answer_waiters(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.tasks.is_empty() {
                self.respond(waiter.channel, waiter.tag, code::COMPLETE);
            } else {
                self.waiters.push(waiter);
            }
        }
    }
}
