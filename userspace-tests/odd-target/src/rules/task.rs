// SPDX-License-Identifier: GPL-2.0

//! The treatment of task management requests, and the held commands that they end.

use srp_target::{
    target::{Buffer, ChannelId},
    wire,
};

use super::{command::Header, Rules};

impl<B: Buffer> Rules<B> {
    /// Drops held commands to a LUN, with a tag or all of them.
    fn forget(&mut self, lun: u16, tag: Option<u64>) {
        for held in std::mem::take(&mut self.held) {
            let header = Header::parse(&held.buffer[..held.len]);
            let of_it = |h: &Header| h.lun == lun && tag.is_none_or(|tag| tag == h.tag);
            if header.is_some_and(|h| of_it(&h)) {
                self.receive(held.channel, held.buffer);
            } else {
                self.held.push(held);
            }
        }
    }

    pub(super) fn task(
        &mut self,
        id: ChannelId,
        number: usize,
        header: &Header,
        buffer: B,
        len: usize,
    ) {
        let Ok(req) = wire::TskMgmt::parse(&buffer[..len]) else {
            return;
        };
        let (function, lun, of) = (req.function, header.lun, req.task_tag);
        self.say(format!(
            "task channel={number} function={function:02x} lun={lun} of={of:016x}"
        ));
        let abort = function == 1;
        let code = self.code.map(|code| match self.abort_code {
            Some(other) if abort => other,
            _ => code,
        });
        match code {
            Some(0) => {
                if !self.keep {
                    self.forget(lun, abort.then_some(of));
                }
                self.target.received(id, buffer, len);
                return self.filter();
            }
            Some(code) => {
                let message = wire::tmf_rsp(self.grant(id), req.tag, code);
                self.send(id, message);
            }
            None => {}
        }
        self.receive(id, buffer);
    }
}
