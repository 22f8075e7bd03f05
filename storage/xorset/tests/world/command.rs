// SPDX-License-Identifier: GPL-2.0

//! Commands, and the known values of each block.

use super::*;

#[derive(Clone, Debug)]
pub struct Command {
    pub seat: usize,
    pub lba: u64,
    /// The values written; empty for a read.
    pub values: Vec<u64>,
    pub count: u64,
    pub(super) start: u64,
    pub cancelled: bool,
}

/// The value of a block, if it is uniform.
pub(super) fn value(block: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(block[..8].try_into().unwrap());
    block
        .chunks(8)
        .all(|w| w == first.to_le_bytes())
        .then_some(first)
}

impl World {
    pub(super) fn ends(&mut self, command: &Command, good: bool) {
        self.events += 1;
        for (i, value) in command.values.iter().enumerate() {
            self.history
                .ends(command.lba as usize + i, *value, self.events, good);
        }
    }

    pub(super) fn over(&mut self, id: u64, outcome: Outcome, memory: Option<Vec<u8>>) {
        let Some(command) = self.commands.remove(&id) else {
            panic!("command {id} is answered, and is not outstanding")
        };
        self.note(|| {
            let what = match &outcome {
                Outcome::Good => "good",
                Outcome::Failed => "failed",
                Outcome::NotReady => "not ready",
                Outcome::Busy => "busy",
                Outcome::Over => "over",
            };
            format!("command {id} {what}")
        });
        match outcome {
            Outcome::Over => {
                assert!(command.cancelled);
                self.cancelled += 1;
                self.ends(&command, false);
            }
            Outcome::Failed | Outcome::NotReady | Outcome::Busy => {
                self.failed += 1;
                self.lost += u64::from(outcome == Outcome::Failed);
                self.ends(&command, false);
            }
            Outcome::Good if command.values.is_empty() => {
                let bytes = memory.expect("the memory of a read");
                assert_eq!(bytes.len() as u64, command.count * BLOCK as u64);
                self.answered += 1;
                self.events += 1;
                for (i, block) in bytes.chunks(BLOCK).enumerate() {
                    let value = value(block)
                        .unwrap_or_else(|| panic!("block {} is mixed", command.lba + i as u64));
                    self.history
                        .seen(command.lba as usize + i, value, command.start, self.events);
                }
            }
            Outcome::Good => {
                self.answered += 1;
                self.ends(&command, true);
            }
        }
    }

    pub fn command(&mut self, seat: usize, lba: u64, count: u64, write: bool) -> u64 {
        let id = self.number();
        self.events += 1;
        let start = self.events;
        let mut values = Vec::new();
        if write {
            for i in 0..count {
                let value = self.number() << 20 | 0xabcde;
                self.history.begins((lba + i) as usize, value, value, start);
                values.push(value);
            }
        }
        self.note(|| format!("command {id} to Client({seat}): {lba}+{count} {values:x?}"));
        let bytes = values.iter();
        let mut memory: Vec<u8> = bytes
            .flat_map(|v| v.to_le_bytes().repeat(BLOCK / 8))
            .collect();
        memory.resize(count as usize * BLOCK, 0);
        let command = Command {
            seat,
            lba,
            values,
            count,
            start,
            cancelled: false,
        };
        self.commands.insert(id, command);
        self.tick_client(seat);
        if let Some(client) = &mut self.seats[seat].client {
            client.command(id, lba, count as u32, write, memory);
        }
        self.pump_client(seat);
        id
    }

    pub fn cancel(&mut self, id: u64) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        command.cancelled = true;
        let seat = command.seat;
        if let Some(client) = &mut self.seats[seat].client {
            client.cancel(id);
        }
        self.pump_client(seat);
    }

    /// Gives a random command to any client that is ready and awake.
    pub fn command_any(&mut self, span: u64) {
        let seats =
            (0..self.seats.len()).filter(|c| self.seats[*c].ready && self.runs(Who::Client(*c)));
        let seats: Vec<_> = seats.collect();
        if seats.is_empty() {
            return;
        }
        let seat = seats[self.rng.below(seats.len() as u64) as usize];
        let lba = self.rng.below(span.min(self.size.blocks()));
        let count = (1 + self.rng.below(9)).min(self.size.blocks() - lba);
        let write = self.rng.below(3) != 0;
        self.command(seat, lba, count, write);
    }
}

pub fn some_commands(world: &mut World, count: u64) {
    let Some(seat) = world.seat() else {
        return;
    };
    for _ in 0..count {
        let lba = world.rng.below(world.size.blocks() - 8);
        let (count, write) = (1 + world.rng.below(8), world.rng.below(3) != 0);
        world.command(seat, lba, count, write);
    }
}

/// Executes a random number of events, below `most`.
pub fn steps(world: &mut World, most: u64) {
    for _ in 0..world.rng.below(most) {
        world.step();
    }
}

/// Ends all faults and checks all blocks.
pub fn done(mut world: World) -> World {
    world.heal();
    world.judge();
    world
}
