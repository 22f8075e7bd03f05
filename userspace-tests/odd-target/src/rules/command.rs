// SPDX-License-Identifier: GPL-2.0

//! The treatment of commands, and responses to those that the engine does not get.

use srp_target::{
    scsi::status,
    sense::Sense,
    target::{Buffer, ChannelId},
    wire::{self, field, Residual},
};

use super::{first, Rules, Step};
use crate::orders::Treatment;

/// SCSI operation codes of MODE SENSE.
const MODE_SENSE: [u8; 2] = [0x1a, 0x5a];

/// The treatment of the next commands with an operation code.
pub(super) struct Rule {
    pub(super) opcode: u8,
    pub(super) left: u32,
    pub(super) treatment: Treatment,
}

/// A command that the engine executes.
pub(super) struct Pending {
    pub(super) cdb: [u8; 16],
    pub(super) with_data: bool,
    pub(super) treatment: Option<Treatment>,
}

/// A message that the engine does not have yet.
pub(super) struct Held<B> {
    pub(super) channel: ChannelId,
    pub(super) buffer: B,
    pub(super) len: usize,
}

/// The fields of a command that rules use.
pub(super) struct Header {
    pub(super) tag: u64,
    pub(super) lun: u16,
    cdb: [u8; 16],
    with_data: bool,
}

impl Header {
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let [formats] = field(message, 5).ok()?;
        Some(Self {
            tag: u64::from_be_bytes(field(message, 8).ok()?),
            lun: u16::from_be_bytes(field(message, 20).ok()?) & 0x3fff,
            cdb: field(message, 32).ok()?,
            with_data: formats != 0,
        })
    }
}

impl<B: Buffer> Rules<B> {
    /// The treatment of a command with this operation code.
    fn treatment(&mut self, opcode: u8) -> Option<Treatment> {
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|r| r.opcode == opcode && r.left > 0)?;
        rule.left -= 1;
        Some(rule.treatment.clone())
    }

    pub(super) fn command(
        &mut self,
        id: ChannelId,
        number: usize,
        header: Header,
        buffer: B,
        len: usize,
    ) {
        let treatment = self.treatment(header.cdb[0]);
        let held = treatment == Some(Treatment::Hold);
        self.say(format!(
            "command channel={number} opcode={:02x} lun={} tag={:016x}{}",
            header.cdb[0],
            header.lun,
            header.tag,
            if held { " held" } else { "" }
        ));
        match treatment {
            Some(Treatment::Hold) => {
                self.held.push(Held {
                    channel: id,
                    buffer,
                    len,
                });
                return;
            }
            Some(Treatment::Busy) => self.respond(id, &header, status::BUSY, &[]),
            Some(Treatment::Short(data)) => self.short(id, &header, &buffer[..len], data),
            // There are no mode pages, so the disk has no write cache, and nothing is to be
            // flushed.
            None if MODE_SENSE.contains(&header.cdb[0]) => {
                self.respond(id, &header, status::CHECK_CONDITION, &Sense::OPCODE.fixed());
            }
            other => return self.execute(id, &header, other, buffer, len),
        }
        self.receive(id, buffer);
    }

    /// Gives a command to the engine.
    pub(super) fn execute(
        &mut self,
        id: ChannelId,
        header: &Header,
        treatment: Option<Treatment>,
        buffer: B,
        len: usize,
    ) {
        let pending = Pending {
            cdb: header.cdb,
            with_data: header.with_data,
            treatment,
        };
        self.pending.insert((id, header.tag), pending);
        self.target.received(id, buffer, len);
        self.filter();
    }

    /// Builds a response without a residual.
    pub(super) fn response(&self, id: ChannelId, tag: u64, status: u8, sense: &[u8]) -> Vec<u8> {
        let none = Residual::None;
        wire::cmd_rsp(self.grant(id), tag, status, none, none, sense)
    }

    /// Responds to a command that the engine does not get.
    pub(super) fn respond(&mut self, id: ChannelId, header: &Header, status: u8, sense: &[u8]) {
        let id = self.answering(id, header.with_data);
        let message = self.response(id, header.tag, status, sense);
        self.send(id, message);
    }

    fn short(&mut self, id: ChannelId, header: &Header, message: &[u8], data: Vec<u8>) {
        let Ok(cmd) = wire::Cmd::parse(message, None) else {
            return self.say("FAILED: a command that cannot be answered".into());
        };
        let channel = self.answering(id, header.with_data);
        let message = self.response(channel, header.tag, status::GOOD, &[]);
        let descriptors = first(&cmd.data.into.entries, data.len() as u32);
        if descriptors.is_empty() {
            return self.send(channel, message);
        }
        self.steps.push(Step::Answer {
            channel,
            data,
            descriptors,
            message,
        });
    }
}
