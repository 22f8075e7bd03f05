// SPDX-License-Identifier: GPL-2.0

//! The filter of the actions of the engine.

use srp_target::{
    proto::cmd::DirectBuf,
    scsi::status,
    target::{Action, Buffer, ChannelId, TaskId},
    wire::field,
};

use super::{first, put, Rules, Step, CREDITS};
use crate::orders::Treatment;

/// Bit that makes a tag unknown.
const ASTRAY: u64 = 1 << 40;

/// SCSI operation codes.
const INQUIRY: u8 = 0x12;
const REPORT_LUNS: u8 = 0xa0;

impl<B: Buffer> Rules<B> {
    /// Passes the actions of the engine on.
    pub(super) fn filter(&mut self) {
        for action in self.target.actions() {
            match action {
                Action::Accept {
                    channel,
                    mut response,
                    receives,
                    len,
                } => {
                    put(&mut response, 4, &CREDITS.to_be_bytes());
                    self.accept(channel, response, receives, len, false);
                }
                Action::Receive { channel, buffer } => self.receive(channel, buffer),
                Action::Fetch {
                    channel,
                    task,
                    from,
                } => self.steps.push(Step::Act(Action::Fetch {
                    channel: self.answering(channel, true),
                    task,
                    from,
                })),
                Action::Answer {
                    channel,
                    task,
                    data,
                    message,
                } => self.answer(channel, task, data, message),
                other => self.steps.push(Step::Act(other)),
            }
        }
    }

    /// Passes a response of the engine on.
    fn answer(
        &mut self,
        id: ChannelId,
        task: Option<TaskId>,
        mut data: Option<(B, Vec<DirectBuf>)>,
        mut message: Vec<u8>,
    ) {
        let tag = field(&message, 8).map_or(0, u64::from_be_bytes);
        let pending = task.and_then(|_| self.pending.remove(&(id, tag)));
        let channel = match &pending {
            Some(pending) => self.answering(id, pending.with_data),
            None => id,
        };
        let mut spare = None;
        if let (Some(pending), Some((bytes, _))) = (&pending, &mut data) {
            match (pending.cdb[0], &self.vendor, self.luns_size) {
                (INQUIRY, Some(vendor), _) if pending.cdb[1] & 1 == 0 => {
                    put(bytes, 8, format!("{vendor:8.8}").as_bytes());
                }
                (REPORT_LUNS, _, Some(size)) => put(bytes, 0, &size.to_be_bytes()),
                _ => {}
            }
        }
        let treatment = pending.and_then(|p| p.treatment);
        match &treatment {
            Some(Treatment::Check { sent, sense }) => {
                message = self.response(channel, tag, status::CHECK_CONDITION, sense);
                if let Some((_, descriptors)) = &mut data {
                    *descriptors = first(descriptors, *sent);
                    spare = data.take_if(|(_, descriptors)| descriptors.is_empty());
                }
            }
            Some(Treatment::Astray) => put(&mut message, 8, &(tag ^ ASTRAY).to_be_bytes()),
            _ => {}
        }
        put(&mut message, 4, &self.grant(channel).to_be_bytes());
        let twice = treatment == Some(Treatment::Twice);
        let second = twice.then(|| message.clone());
        self.steps.push(Step::Act(Action::Answer {
            channel,
            task,
            data,
            message,
        }));
        if let Some(message) = second {
            self.send(channel, message);
        }
        if let Some((buffer, _)) = spare {
            self.steps.push(Step::Act(Action::Free { channel, buffer }));
        }
    }
}
