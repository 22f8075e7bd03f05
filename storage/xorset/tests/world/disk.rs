// SPDX-License-Identifier: GPL-2.0

//! A file that on power failure loses data that is not durable, sector by sector.

use std::{cell::RefCell, collections::BTreeSet, io, rc::Rc};

use super::Rng;
use xorset::{journal::Media, layout::BLOCK};

/// Size of the pages in which a file is read and written, in bytes.
const PAGE: u64 = 4096;

#[derive(Default)]
struct State {
    /// The content that reads return.
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that are not durable: offset and bytes.
    dirty: Vec<(u64, Vec<u8>)>,
    /// Number of earlier writes.
    before: u64,
    /// Number of writes and syncs until all of them fail.
    left: Option<u64>,
    /// Reads, writes and syncs since the last query.
    calls: [u64; 3],
    /// Sectors that cannot be read until they are written. Their pages cannot be written in part.
    bad: BTreeSet<u64>,
    /// Offsets of bytes that have changed without notice and were not written since.
    rotten: BTreeSet<u64>,
}

impl State {
    /// The sectors of the pages in a range, without those at its ends that it covers in part.
    fn whole(at: u64, len: u64) -> std::ops::Range<u64> {
        let per = PAGE / BLOCK as u64;
        at.div_ceil(PAGE) * per..(at + len) / PAGE * per
    }

    /// Fails if a bad sector is in the pages of the range and not in `except`.
    fn bad(&self, at: u64, len: u64, except: std::ops::Range<u64>) -> io::Result<()> {
        let per = PAGE / BLOCK as u64;
        let mut all = self
            .bad
            .range(at / PAGE * per..(at + len).div_ceil(PAGE) * per);
        match all.any(|s| !except.contains(s)) {
            true => Err(io::Error::other("a bad sector")),
            false => Ok(()),
        }
    }

    fn step(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Clone, Default)]
pub struct Disk(Rc<RefCell<State>>);

impl Disk {
    pub fn new(len: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            cache: vec![0; len as usize],
            durable: vec![0; len as usize],
            ..State::default()
        })))
    }

    /// Number of writes so far.
    pub fn written(&self) -> u64 {
        let state = self.0.borrow();
        state.before + state.dirty.len() as u64
    }

    /// Makes the first `count` writes durable.
    pub fn stable(&self, count: u64) {
        let state = &mut *self.0.borrow_mut();
        let n = count.saturating_sub(state.before) as usize;
        for (at, bytes) in state.dirty.drain(..n) {
            state.durable[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            state.before += 1;
        }
    }

    /// Number of reads, writes and syncs since the last query.
    pub fn calls(&self) -> [u64; 3] {
        std::mem::take(&mut self.0.borrow_mut().calls)
    }

    /// Makes the sector at an offset bad.
    pub fn spoil(&self, at: u64) {
        self.0.borrow_mut().bad.insert(at / BLOCK as u64);
    }

    /// The sector at an offset can be read again, with its old content.
    pub fn mend(&self, at: u64) {
        self.0.borrow_mut().bad.remove(&(at / BLOCK as u64));
    }

    /// Changes a byte without notice.
    pub fn rot(&self, at: u64) {
        let state = &mut *self.0.borrow_mut();
        state.cache[at as usize] ^= 0x10;
        state.durable[at as usize] ^= 0x10;
        state.rotten.insert(at);
    }

    /// Number of bad sectors and changed bytes.
    pub fn bad(&self) -> usize {
        let state = self.0.borrow();
        state.bad.len() + state.rotten.len()
    }

    pub fn content(&self) -> Vec<u8> {
        self.0.borrow().cache.clone()
    }

    /// Lets all writes and syncs fail after the next `count`, until the power fails.
    pub fn fails_after(&self, count: u64) {
        self.0.borrow_mut().left = Some(count);
    }

    /// The power fails: any subset of the sectors that are not durable is written.
    pub fn power(&self, rng: &mut Rng) {
        let state = &mut *self.0.borrow_mut();
        let odds = [0, 1, 2, 9][rng.below(4) as usize];
        for (at, bytes) in state.dirty.drain(..) {
            state.before += 1;
            // Writes are not aligned. The bytes of a sector share its fate only within one write.
            let mut from = 0;
            while from < bytes.len() {
                let len = (BLOCK - (at as usize + from) % BLOCK).min(bytes.len() - from);
                if odds == 9 || (odds > 0 && rng.below(odds + 1) != 0) {
                    let place = at as usize + from;
                    state.durable[place..place + len].copy_from_slice(&bytes[from..from + len]);
                }
                from += len;
            }
        }
        state.cache.clone_from(&state.durable);
        state.left = None;
    }
}

impl Media for Disk {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.calls[0] += 1;
        state.bad(at, bytes.len() as u64, 0..0)?;
        bytes.copy_from_slice(&state.cache[at as usize..at as usize + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.step()?;
        state.calls[1] += 1;
        let len = bytes.len() as u64;
        let whole = State::whole(at, len);
        state.bad(at, len, whole.clone())?;
        state.bad.retain(|s| !whole.contains(s));
        state.rotten.retain(|b| !(at..at + len).contains(b));
        state.cache[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        state.dirty.push((at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        {
            let state = &mut *self.0.borrow_mut();
            state.step()?;
            state.calls[2] += 1;
        }
        self.stable(self.written());
        Ok(())
    }
}
