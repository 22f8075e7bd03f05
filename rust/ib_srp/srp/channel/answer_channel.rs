// SPDX-License-Identifier: GPL-2.0

//! Answer channels: a node other than the one that received a command responds to it.
//!
//! A region is accessible on every connection of its protection domain, and a tag names the channel
//! of its command. So a node other than the target can move the data and send the response on a
//! connection of its own. The driver sends nothing on that connection.
//!
//! The callbacks of an answer channel run concurrently with those of the channel that sent the
//! command. Both change the slot of the command, the credits of the sending channel, and atomic
//! counters. Everything else that a callback changes belongs to the connection that it is called
//! for.

use super::{
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
    proto::rsp::Rsp,
    status::Owner, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// The identity of an answer channel, and the channels it answers for. As the owner of the answer
/// channel, it passes events on to the session, with the number of the channel.
pub(super) struct AnswerChannel {
    number: usize,
    session: Arc<dyn Owner>,
    /// All channels of the session, by index.
    channels: KVec<Arc<Connection>>,
}

impl AnswerChannel {
    pub(super) fn new(
        number: usize,
        session: Arc<dyn Owner>,
        answered: &[Arc<Connection>],
    ) -> Result<Arc<Self>> {
        let mut channels = KVec::new();
        channels.extend_from_slice(answered, GFP_KERNEL)?;
        let this = Self {
            number,
            session,
            channels,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Handles a response on `connection`, the answer channel. The response may give credits to the
    /// channel that sent the command. A response to task management or to a probe is a violation,
    /// because it belongs on another channel.
    pub(super) fn response(&self, connection: &Connection, rsp: &Rsp<'_>) -> Result<(), Violation> {
        let tag = Tag::from_wire(rsp.tag);
        let channel = self.channels.get(usize::from(tag.channel()));
        match (tag.kind(), channel) {
            (Kind::Command(index), Some(channel)) if channel.is_open() => {
                // Give the credit first: a CPU that finds the slot free may need it.
                channel.counts.give_credits(rsp.req_lim_delta)?;
                channel.ended_by(rsp, tag, index, Some(&connection.counts))
            }
            // The channel is closed: its commands end, and its credits start anew.
            (Kind::Command(_), Some(_)) if connection.status.state().is_lost() => Ok(()),
            _ => Err(Violation::Tag(rsp.tag)),
        }
    }
}

impl Owner for AnswerChannel {
    fn fail(self: ArcBorrow<'_, Self>, why: Lost) {
        // The target is not at fault, so this is no strike: the session reconnects.
        let why = match why {
            Lost::Violation(violation) => Lost::AnswerChannel(violation),
            why => why,
        };
        self.session.answer_channel_lost(self.number, None);
        self.session.as_arc_borrow().fail(why);
    }

    fn strike(&self, why: &Lost) {
        self.session.answer_channel_lost(self.number, Some(why));
    }
}

impl Channel {
    /// Returns the number and the owner of an answer channel, `None` for any other.
    pub fn as_answer_channel(&self) -> Option<(usize, &Arc<dyn Owner>)> {
        let answers = self.answer_channel.as_ref()?;
        Some((answers.number, &self.owner))
    }
}
