// SPDX-License-Identifier: GPL-2.0

//! Loss of processes, files and power.

use super::*;

impl World {
    pub fn blank(&self, n: usize) -> Disk {
        let disk = Disk::new(Journal::<Disk>::file_len(&self.size, LOG));
        Journal::format(disk.clone(), n as u8, self.size, LOG).unwrap();
        disk
    }

    /// Offset in a node's file of a block of one of its cells.
    pub fn offset(&self, stripe: u64, row: u64, block: u64) -> u64 {
        let cell = u64::from(self.size.cell);
        4096 + 2 * LOG + ((stripe * ROWS as u64 + row) * cell + block) * BLOCK as u64
    }

    /// Spoils a random block of the cells of a node: it cannot be read, or has changed.
    pub fn spoil_any(&mut self, n: usize) {
        let stripe = self.rng.below(self.size.stripes);
        let (row, block) = (
            self.rng.below(ROWS as u64),
            self.rng.below(u64::from(self.size.cell)),
        );
        let at = self.offset(stripe, row, block);
        let rots = self.rng.one_in(2);
        self.note(|| format!("Node({n}): bad block {block} of row {row}, stripe {stripe}"));
        match rots {
            true => self.slots[n].disk.rot(at),
            false => self.slots[n].disk.spoil(at),
        }
        self.slots[n].spoilt = true;
    }

    /// Kills a node and replaces its file.
    pub fn lose(&mut self, n: usize) {
        self.note(|| format!("blank {n}"));
        self.kill(Who::Node(n));
        self.slots[n].disk = self.blank(n);
        self.slots[n].lost = true;
    }

    /// Kills a process. Its peers may not notice.
    pub fn kill(&mut self, who: Who) {
        match who {
            Who::Node(n) => {
                if self.slots[n].node.take().is_none() {
                    return;
                }
                self.slots[n].sync = None;
                self.slots[n].stall = 0;
                self.slots[n].fault = self.now;
            }
            Who::Client(c) => {
                if self.seats[c].client.take().is_none() {
                    return;
                }
                self.seats[c].asks.clear();
                self.seats[c].ready = false;
                let (gone, left) = std::mem::take(&mut self.commands)
                    .into_iter()
                    .partition(|(_, o)| o.seat == c);
                self.commands = left;
                let gone: BTreeMap<u64, Command> = gone;
                self.orphans.extend(gone.into_values());
            }
            Who::Etcd => return,
        }
        self.note(|| format!("kill {who:?}"));
        self.frozen.remove(&who);
        self.connects.retain(|(_, w, _, _)| *w != who);
        let ids: Vec<_> = self.conns.keys().copied().collect();
        for id in ids {
            for side in 0..2 {
                let mine = |c: &Conn| c.ends[side].0 == who && c.open[side];
                if self.conns.get(&id).is_some_and(mine) {
                    let silent = self.rng.one_in(2);
                    self.hang_up(id, side, silent);
                }
            }
        }
    }

    /// Kills all nodes at once; data that is not durable may be lost.
    pub fn power_loss(&mut self) {
        self.note(|| "power loss".to_string());
        for n in 0..NODES {
            self.kill(Who::Node(n));
            self.slots[n].disk.power(&mut self.rng);
            self.slots[n].hang = None;
        }
    }
}
