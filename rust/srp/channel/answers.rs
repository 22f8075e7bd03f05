// SPDX-License-Identifier: GPL-2.0

//! Answer channels: who answers a command is not who got it.
//!
//! A region can be reached on every connection of its protection domain, and a tag says on which channel its
//! command went. So another node than the target can move the data and send the response, on a connection of its
//! own, where the driver sends nothing.
//!
//! The callbacks of an answer channel run at the same time as those of the channel that a command went on. They meet at
//! the state of its slot, at credits, and at counts that are atomic; all else that a callback changes belongs to the
//! connection that it is called for.

use super::{
    witness::Witness,
    Channel,
    Connection, //
};
use crate::srp::{
    error::{
        Lost,
        Violation, //
    },
    logic::tag::{
        Kind,
        Tag, //
    },
    owner::Owner,
    proto::message::Message, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Of an answer channel: which one it is, and what it answers.
pub(super) struct Answers {
    number: usize,
    owner: Arc<dyn Owner>,
    /// All channels of the session, by their numbers.
    channels: KVec<Arc<Connection>>,
}

impl Answers {
    pub(super) fn new(
        number: usize,
        owner: &Arc<dyn Owner>,
        channels: &[Arc<Connection>],
    ) -> Result<Self> {
        let mut list = KVec::with_capacity(channels.len(), GFP_KERNEL)?;
        for channel in channels {
            list.push(channel.clone(), GFP_KERNEL)?;
        }
        Ok(Self {
            number,
            owner: Witness::of(number, owner)?,
            channels: list,
        })
    }

    /// Who hears of the channel.
    pub(super) fn owner(&self) -> Arc<dyn Owner> {
        self.owner.clone()
    }
}

impl Channel {
    /// Of an answer channel, its number among them, and who hears of it.
    pub fn as_answers(&self) -> Option<(usize, &Arc<dyn Owner>)> {
        self.answers.as_ref().map(|a| (a.number, &a.owner))
    }
}

impl Connection {
    /// Takes a message on an answer channel. A response to a command may give credits of the channel that the command
    /// went on. The target itself answers task management and probes, and asks: there are no answers to it here.
    pub(super) fn answer(&self, answers: &Answers, bytes: &[u8]) -> Result<(), Violation> {
        match Message::parse(bytes).map_err(Violation::Message)? {
            Message::Rsp(rsp) => {
                let tag = Tag::from_wire(rsp.tag);
                let channel = answers.channels.get(usize::from(tag.channel()));
                match (tag.kind(), channel) {
                    // What is outstanding ends with the connection, and credits begin anew.
                    (Kind::Command(_), Some(channel)) if !channel.is_open() => {
                        match self.is_lost() {
                            true => Ok(()),
                            false => Err(Violation::Tag(rsp.tag)),
                        }
                    }
                    (Kind::Command(index), Some(channel)) => {
                        // First, as whoever finds the slot free may want it.
                        channel.give_credits(rsp.req_lim_delta)?;
                        channel.ended_by(&rsp, tag, index, Some(&self.counts))
                    }
                    _ => Err(Violation::Tag(rsp.tag)),
                }
            }
            Message::TLogout(logout) => {
                self.fail(Lost::TLogout(logout.reason, logout.reason_name()));
                Ok(())
            }
            Message::CredReq(_) | Message::AerReq(_) => Err(Violation::Answers),
        }
    }
}
