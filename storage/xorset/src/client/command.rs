// SPDX-License-Identifier: GPL-2.0

//! Commands, split into parts, and their memory.

use std::sync::Arc;

use super::{
    part::{Kind, Part, Stage},
    Action, Client, CommandId, Memory, Outcome, HELD,
};
use crate::{
    layout::{spans, ALL, BLOCK, NODES},
    link::Payload,
    map::State,
};

/// The memory of a command.
pub(super) enum Data<B> {
    Read(B),
    /// Messages that wait to be sent share it.
    Write(Arc<B>),
}

impl<B> Data<B> {
    fn memory(self) -> Option<B> {
        match self {
            Self::Read(memory) => Some(memory),
            Self::Write(memory) => Arc::into_inner(memory),
        }
    }
}

pub(super) struct Command<B> {
    pub(super) since: u64,
    pub(super) parts: usize,
    /// `None` if the command is already answered.
    pub(super) data: Option<Data<B>>,
    /// Length of the data of the command, read or written.
    len: usize,
    pub(super) failed: bool,
    /// Whether the command is already answered or cancelled.
    pub(super) dead: bool,
    pub(super) cancelled: bool,
}

impl<B: Memory> Client<B> {
    fn answer(&mut self, command: CommandId, outcome: Outcome, memory: Option<B>) {
        self.actions.push(Action::Answer {
            command,
            outcome,
            memory,
        });
    }

    /// Starts a read or a write of `count` blocks, which must exist. Their data is at the start of
    /// `memory`, which [`Action::Answer`] returns.
    pub fn command(&mut self, id: CommandId, lba: u64, count: u32, write: bool, memory: B) {
        let Some(size) = self.size else {
            return self.answer(id, Outcome::NotReady, Some(memory));
        };
        let len = count as usize * BLOCK;
        if self.bytes > 0 && self.bytes + len > HELD {
            return self.answer(id, Outcome::Busy, Some(memory));
        }
        self.bytes += len;
        let list = spans(&size, lba, count.into());
        let (kind, data) = match write {
            true => (Kind::Write, Data::Write(Arc::new(memory))),
            false => (Kind::Read, Data::Read(memory)),
        };
        let command = Command {
            since: self.now,
            parts: list.len(),
            data: Some(data),
            len,
            failed: false,
            dead: false,
            cancelled: false,
        };
        self.commands.insert(id, command);
        let mut at = 0;
        for span in list {
            self.part(Part {
                kind,
                span,
                command: Some(id),
                at,
                stage: Stage::Waiting(self.now, None),
            });
            at += span.len();
        }
        self.command_over(id);
        self.go();
    }

    /// Cancels a command. It ends when none of its parts is in flight.
    pub fn cancel(&mut self, id: CommandId) {
        if let Some(command) = self.commands.get_mut(&id) {
            command.cancelled = true;
        }
        self.kill(id);
        self.go();
    }

    /// Drops the parts of a command that no node is executing.
    pub(super) fn kill(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        command.dead = true;
        let parts = self.parts.iter();
        let mine = parts
            .filter(|(_, p)| p.command == Some(id) && matches!(p.stage, Stage::Waiting(_, None)));
        let over: Vec<_> = mine.map(|(n, _)| *n).collect();
        for number in over {
            self.part_over(number);
        }
    }

    pub(super) fn command_over(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id).filter(|c| c.parts == 0) else {
            return;
        };
        let (len, dead) = (command.len, command.dead && !command.cancelled);
        let outcome = match () {
            () if command.cancelled => Outcome::Over,
            () if command.failed => Outcome::Failed,
            () => Outcome::Good,
        };
        let memory = command.data.take().and_then(Data::memory);
        self.commands.remove(&id);
        self.bytes -= len;
        // A dead command has already been answered.
        if !dead {
            self.answer(id, outcome, memory);
        }
    }

    /// Ends the commands that cannot be executed now. Their blocks are not lost, however many nodes
    /// are missing: these may return.
    pub(super) fn refuse(&mut self) {
        let (Some(map), Some(patience)) = (self.map.clone(), self.settings.patience) else {
            return;
        };
        let unable = !map.mask(State::Up) & ALL | self.lost(&map);
        let broken = !self.open && unable.count_ones() > 2;
        let old = |c: &Command<B>| broken || self.now >= c.since + patience;
        let list = self.commands.iter().filter(|(_, c)| !c.dead && old(c));
        let list: Vec<_> = list.map(|(id, c)| (*id, self.now - c.since)).collect();
        let missing = (0..NODES).filter(|n| self.partners[*n].settled != map.epoch);
        let missing: Vec<_> = missing.collect();
        for (command, ms) in list {
            self.say(format!(
                "command {command} is to be sent again: not done after {ms} ms, nodes {missing:?} \
                 are missing"
            ));
            let data = self.commands.get_mut(&command).map(|c| c.data.take());
            let memory = data.flatten().and_then(Data::memory);
            self.answer(command, Outcome::NotReady, memory);
            self.kill(command);
        }
    }

    /// The payload of the message for a part.
    pub(super) fn payload(&self, part: &Part) -> Payload {
        let command = part.command.and_then(|c| self.commands.get(&c));
        match command.and_then(|c| c.data.as_ref()) {
            Some(Data::Write(memory)) => {
                let memory = Arc::clone(memory);
                Payload::Part(memory, part.at..part.at + part.span.len())
            }
            _ => Payload::Bytes([].into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::{Cells, Settings},
        layout::{Cell, Size},
        link::LinkAction,
        map::Map,
        message::{Message, Status},
    };

    const SIZE: Size = Size {
        cell: 128,
        stripes: 1000,
    };

    fn client() -> Client<Vec<u8>> {
        let settings = Settings {
            id: 1,
            pause: 0,
            lease: 3000,
            patience: Some(12_000),
        };
        let mut client = Client::new(settings, 0);
        client.size = Some(SIZE);
        client
    }

    /// Whether a command was refused as busy.
    fn busy(client: &mut Client<Vec<u8>>, id: CommandId) -> bool {
        let told = |action: &Action<_>| match action {
            Action::Answer {
                command, outcome, ..
            } => *command == id && *outcome == Outcome::Busy,
            _ => false,
        };
        client.actions().iter().any(told)
    }

    #[test]
    fn data_over_the_bound_is_refused_as_busy() {
        let mut client = client();
        let count = 4 << 20;
        let last = (HELD / count) as u64;
        let read = |client: &mut Client<_>, id, len| {
            client.command(id, 0, (len / BLOCK) as u32, false, Vec::new());
        };
        let write = |client: &mut Client<_>, id| {
            client.command(id, 9, 1, true, vec![0; BLOCK]);
        };
        for id in 0..last {
            read(&mut client, id, count);
            assert!(!busy(&mut client, id), "{id}");
        }
        write(&mut client, last);
        assert!(busy(&mut client, last));
        assert_eq!(client.commands.len() as u64, last);
        // A command that ends gives its part back, and no more.
        client.cancel(0);
        write(&mut client, last + 1);
        assert!(!busy(&mut client, last + 1));
        read(&mut client, last + 2, count);
        assert!(busy(&mut client, last + 2));
        for id in 1..last + 2 {
            client.cancel(id);
        }
        assert_eq!((client.bytes, client.commands.len()), (0, 0));
        // A single command is accepted even if it has more data.
        read(&mut client, last + 3, HELD + BLOCK);
        assert!(!busy(&mut client, last + 3));
    }

    /// Executes a command. Returns the addresses of its payloads, of its memory when it ends, and
    /// what is there.
    fn executed(write: bool, memory: Vec<u8>) -> (Vec<usize>, usize, Vec<u8>) {
        let mut client = client();
        let mut map = Map::first(1, SIZE);
        map.new = false;
        (client.map, client.open) = (Some(map), true);
        for partner in &mut client.partners {
            (partner.settled, partner.cells) = (1, Cells::all());
        }
        // From the middle of a cell.
        client.command(7, 64, (memory.len() / BLOCK) as u32, write, memory);
        let mut payloads = Vec::new();
        for action in client.actions() {
            let Action::Link(LinkAction::Send {
                message, payload, ..
            }) = action
            else {
                panic!()
            };
            let (Message::Read { id, span, .. } | Message::Write { id, span, .. }) = message else {
                panic!()
            };
            payloads.push(payload.as_ptr() as usize);
            // It is sent.
            drop(payload);
            let data = vec![span.cell.number(); span.len()];
            let data = (!write).then_some(&data[..]);
            client.done(span.node(), id, (Status::Good, 0), data);
        }
        let [Action::Answer {
            command: 7,
            outcome: Outcome::Good,
            memory: Some(memory),
        }] = &client.actions()[..]
        else {
            panic!()
        };
        (payloads, memory.as_ptr() as usize, memory.clone())
    }

    #[test]
    fn data_stays_in_its_memory() {
        const CELL: usize = SIZE.cell as usize * BLOCK;
        let memory = vec![9; 2 * CELL];
        let at = memory.as_ptr() as usize;
        let (payloads, end, data) = executed(true, memory);
        assert_eq!(payloads, [at, at + CELL / 2, at + 3 * CELL / 2]);
        assert_eq!((end, data), (at, vec![9; 2 * CELL]));

        let memory = vec![99; 2 * CELL];
        let at = memory.as_ptr() as usize;
        let (_, end, data) = executed(false, memory);
        let cells = [0, 1, 2].map(|n| Cell::data(n).number());
        let parts = cells.into_iter().zip([CELL / 2, CELL, CELL / 2]);
        let wanted: Vec<_> = parts.flat_map(|(n, len)| vec![n; len]).collect();
        assert_eq!(end, at);
        assert!(data == wanted);
    }

    /// A part of it may still be executed.
    #[test]
    fn a_late_command_gives_its_memory_back() {
        for write in [false, true] {
            let mut client = client();
            client.map = Some(Map::first(1, SIZE));
            client.command(7, 0, 1, write, vec![0; BLOCK]);
            for part in client.parts.values_mut() {
                part.stage = Stage::Sent(1, 0);
            }
            client.now = 12_000;
            client.refuse();
            let answered = |action: &Action<_>| match action {
                Action::Answer {
                    outcome, memory, ..
                } => *outcome == Outcome::NotReady && memory.is_some(),
                _ => false,
            };
            assert!(client.actions().iter().any(answered));
            assert_eq!(client.parts.len(), 1);
        }
    }
}
