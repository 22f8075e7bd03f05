// SPDX-License-Identifier: GPL-2.0

//! The place of one command on a channel.
//!
//! blk-mq's tag is the number of the slot. What a slot needs for a command it owns for life: a piece
//! of the channel's message memory and the regions of a memory handle. Who may touch it says its
//! state, see [`logic::slot`](super::logic::slot).

use super::{
    logic::slot::{
        Event,
        State,
        Word, //
    },
    proto::ids::Lun, //
};
use crate::{
    rdma::{
        dma::Chunk,
        mr::Handle, //
    },
    scsi::{
        Command,
        ScsiResult, //
    },
    sync::state_cell::{
        Guard,
        StateCell, //
    }, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// What a slot owns.
pub struct Slot {
    /// Memory for the command's message.
    pub iu: Chunk,
    /// The command, and what its data is registered with.
    pub handle: Handle<Command>,
    /// How the command ended, once it has been answered.
    pub result: ScsiResult,
    /// The data was registered for the target.
    pub registered: bool,
}

/// A slot and its state.
pub struct Cell {
    slot: StateCell<Slot>,
    /// The unit of the command, for those who look for its commands.
    lun: Atomic<u64>,
    /// The error handler has asked for the command back, so it is the one who ends it.
    aborted: Atomic<bool>,
}

/// A slot whose data is ours, and the state that others see.
pub struct Held<'a> {
    cell: &'a Cell,
    guard: Guard<'a, Slot>,
    word: Word,
}

impl Cell {
    /// A free slot.
    pub fn new(slot: Slot) -> Self {
        Self {
            slot: StateCell::new(Word::default().raw(), slot),
            lun: Atomic::new(0),
            aborted: Atomic::new(false),
        }
    }

    /// The state, which may be another one at once.
    pub fn word(&self) -> Word {
        Word::from_raw(self.slot.load().0).unwrap_or_default()
    }

    /// Takes the slot if nobody has it and its state allows `event`, and moves it on.
    #[inline]
    pub fn take(&self, event: Event) -> Option<Held<'_>> {
        self.take_from(self.word(), event)
    }

    /// Takes the slot if nobody has it and its state is `from`, and moves it on by `event`.
    #[inline]
    pub fn take_from(&self, from: Word, event: Event) -> Option<Held<'_>> {
        self.acquire(from, from.next(event)?)
    }

    /// Takes the slot if nobody has it and its state is `word`, which stays.
    #[inline]
    pub fn hold(&self, word: Word) -> Option<Held<'_>> {
        self.acquire(word, word)
    }

    fn acquire(&self, from: Word, word: Word) -> Option<Held<'_>> {
        let guard = self.slot.acquire(from.raw(), word.raw())?;
        Some(Held {
            cell: self,
            guard,
            word,
        })
    }

    /// Gives the command to the error handler, if its state is still `from`: from now on it is not
    /// completed but released. Does not take the slot, so that a response never finds it taken.
    pub fn abort(&self, from: Word) -> bool {
        let Some(to) = from.next(Event::Abort) else {
            return false;
        };
        self.aborted.store(true, Relaxed);
        self.slot.transition(from.raw(), to.raw())
    }

    /// The error handler has asked for the command of this generation.
    pub fn is_aborted(&self, generation: u32) -> bool {
        self.aborted.load(Relaxed) && self.word().generation() == generation
    }

    /// The slot has a command of this generation, in whatever state.
    pub fn holds(&self, generation: u32) -> bool {
        let word = self.word();
        word.state() != State::Free && word.generation() == generation
    }

    /// The target may have the command of the slot, and it is for the unit `lun`.
    pub fn is_out_for(&self, lun: Lun) -> bool {
        matches!(self.word().state(), State::Posted | State::Aborting)
            && self.lun.load(Relaxed) == u64::from_be_bytes(lun.0)
    }
}

impl Held<'_> {
    /// A new command for the unit `lun` has come into the slot.
    #[inline]
    pub fn begin(&mut self, lun: Lun) {
        self.cell.lun.store(u64::from_be_bytes(lun.0), Relaxed);
        self.cell.aborted.store(false, Relaxed);
    }

    /// The error handler ends the command.
    pub fn is_aborted(&self) -> bool {
        self.cell.aborted.load(Relaxed)
    }

    /// The state and the generation.
    pub fn word(&self) -> Word {
        self.word
    }

    /// Gives the slot back in its state.
    #[inline]
    pub fn release(self) {
        self.guard.release(self.word.raw());
    }

    /// Moves the slot on and gives it back. An event that the state does not allow, which would be
    /// a bug of ours, leaves the state.
    #[inline]
    pub fn release_after(mut self, event: Event) {
        self.word = self.word.next(event).unwrap_or(self.word);
        self.release();
    }
}

impl core::ops::Deref for Held<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.guard
    }
}

impl core::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.guard
    }
}
