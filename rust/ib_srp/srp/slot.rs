// SPDX-License-Identifier: GPL-2.0

//! A slot for one command on a channel.
//!
//! The number of a slot normally equals the blk-mq tag of its command. A slot owns what every
//! command needs: a chunk of the channel's message memory and the regions of a memory handle. The
//! state determines which context may access the slot; see
//! [`logic::slot_state`](super::logic::slot_state).

use super::{
    bounce::Piece,
    logic::{
        data_path::DataPath,
        slot_state::{
            Event,
            State,
            Word, //
        },
    },
    proto::ids::Lun, //
};
use crate::{
    rdma::{
        dma::Chunk,
        mr::Handle, //
    },
    scsi::{
        self,
        Command,
        ScsiResult, //
    },
    sync::{
        smp_rmb,
        smp_wmb,
        state_cell::{
            Guard,
            StateCell, //
        }, //
    }, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The data of a slot.
pub struct Slot {
    /// Memory for the command's message.
    pub iu: Chunk,
    /// The command, and the regions that its data is registered with.
    pub handle: Handle<Command>,
    /// The result of a command with its response, while its registrations are invalidated.
    pub result: ScsiResult,
    /// The slot's own memory for small data, if there is any.
    pub bounce: Option<Piece>,
    /// The data path of the command.
    pub path: DataPath,
    /// Length of the command's data, in bytes.
    pub len: u32,
    /// The logical unit of the command.
    pub lun: Lun,
    /// Index of the slot on its channel.
    pub index: u16,
    /// The blk-mq tag of the command. It normally equals the indices of the channel and the slot;
    /// they may differ while a channel is not connected.
    pub tag: scsi::Tag,
}

impl Slot {
    /// Creates the slot with this index, without a command.
    pub fn new(index: u16, iu: Chunk, handle: Handle<Command>, bounce: Option<Piece>) -> Self {
        Self {
            iu,
            handle,
            result: ScsiResult::DID_ERROR,
            bounce,
            path: DataPath::None,
            len: 0,
            lun: Lun([0; 8]),
            index,
            tag: scsi::Tag {
                hw_queue: 0,
                index: 0,
            },
        }
    }
}

/// A slot and its state, on its own cache lines: the next slot may belong to another CPU.
#[repr(align(64))]
pub struct Cell {
    slot: StateCell<Slot>,
    /// The logical unit of the command as the midlayer numbers it, for searches.
    lun: Atomic<u64>,
    /// The [`Slot::tag`] of the command, for searches.
    tag: Atomic<u32>,
    /// [`RECALLED`] and the generation of the last command recalled from the target; 0 if there is
    /// none. A response to that command may arrive when another command has the slot.
    recalled: Atomic<u64>,
    /// Random bits for the next generations, the next 16 lowest; 0 if none are left. Accessed like
    /// the slot, except that [`Self::claim`] reads them first.
    random: Atomic<u64>,
}

fn number(tag: scsi::Tag) -> u32 {
    u32::from(tag.hw_queue) << 16 | u32::from(tag.index)
}

/// Flag of `Cell::recalled`: a command has been recalled.
const RECALLED: u64 = 1 << 32;

/// A slot that the caller owns, and the state that other contexts see.
pub struct Held<'a> {
    guard: Guard<'a, Slot>,
    word: Word,
}

impl Cell {
    /// Creates a cell with a free slot.
    pub fn new(slot: Slot) -> Self {
        Self {
            slot: StateCell::new(Word::default().raw(), slot),
            lun: Atomic::new(0),
            tag: Atomic::new(0),
            recalled: Atomic::new(0),
            random: Atomic::new(0),
        }
    }

    /// The state and the generation, which may change at any time.
    pub fn word(&self) -> Word {
        Word::from_raw(self.slot.load().0)
    }

    /// Takes the slot for a new command of the unit that the midlayer numbers `lun`, if it is free.
    /// The upper half of its generation is a quarter of a random number from `draw`: one number of
    /// 64 bits costs less than four of 16.
    #[inline(always)]
    pub fn claim(&self, draw: impl FnOnce() -> u64, lun: u64, tag: scsi::Tag) -> Option<Held<'_>> {
        let from = self.word();
        let random = match self.random.load(Relaxed) {
            0 if from.state() == State::Free => draw(),
            left => left,
        };
        // If this succeeds, no other command has taken the slot, and these bits, since `from`.
        // CAST: The lower bits.
        let mut slot = self.acquire(from, from.claim(random as u16)?)?;
        self.random.store(random >> 16, Relaxed);
        // The unit and the tag usually equal those of the previous command.
        if self.lun.load(Relaxed) != lun {
            slot.lun = Lun::from_int(lun);
            self.lun.store(lun, Relaxed);
        }
        if slot.tag != tag {
            slot.tag = tag;
            self.tag.store(number(tag), Relaxed);
        }
        Some(slot)
    }

    /// Takes the slot if it is not held and its state is `from`, and applies `event`.
    #[inline]
    pub fn take_from(&self, from: Word, event: Event) -> Option<Held<'_>> {
        self.acquire(from, from.next(event)?)
    }

    /// Takes the slot if it is not held and its state is `word`, and keeps the state.
    #[inline]
    pub fn hold(&self, word: Word) -> Option<Held<'_>> {
        self.acquire(word, word)
    }

    #[inline]
    fn acquire(&self, from: Word, word: Word) -> Option<Held<'_>> {
        let guard = self.slot.acquire(from.raw(), word.raw())?;
        Some(Held { guard, word })
    }

    /// Moves a command that the target may have to Aborting, if its state is still `from`. Does not
    /// take the slot, so that a response never finds it held.
    pub fn abort(&self, from: Word) -> bool {
        let aborting = from.next(Event::Abort);
        aborting.is_some_and(|to| self.slot.transition(from.raw(), to.raw()))
    }

    /// Records that the command of this generation was recalled from the target: a response to it
    /// is ignored from now on.
    pub fn recall(&self, generation: u32) {
        self.recalled
            .store(RECALLED | u64::from(generation), Relaxed);
        // Pairs with the barrier in `is_recalled()`: a CPU that sees that the command has left the
        // slot sees this store, too.
        smp_wmb();
    }

    /// Whether the last [`Self::recall`] was for this generation.
    pub fn is_recalled(&self, generation: u32) -> bool {
        smp_rmb();
        self.recalled.load(Relaxed) == RECALLED | u64::from(generation)
    }

    /// Whether the slot has a command of this generation, in any state.
    pub fn holds(&self, generation: u32) -> bool {
        let word = self.word();
        word.state() != State::Free && word.generation() == generation
    }

    /// Returns the state if the slot has the command with this tag. A slot in Building does not
    /// count: it may have the tag of the previous command.
    pub fn of_tag(&self, tag: scsi::Tag) -> Option<Word> {
        let word = self.word();
        let built = !matches!(word.state(), State::Free | State::Building);
        (built && self.tag.load(Relaxed) == number(tag)).then_some(word)
    }

    /// Returns the state if the slot has a command for the unit `lun`, in any state.
    pub fn for_unit(&self, lun: Lun) -> Option<Word> {
        let word = self.word();
        let ours = word.state() != State::Free && self.lun.load(Relaxed) == lun.to_int();
        ours.then_some(word)
    }
}

impl Held<'_> {
    /// The state and the generation.
    pub fn word(&self) -> Word {
        self.word
    }

    /// Releases the slot without changing its state.
    #[inline]
    pub fn release(self) {
        self.guard.release(self.word.raw());
    }

    /// Applies `event` and releases the slot. An event that the state does not allow, which is a
    /// driver bug, leaves the state unchanged.
    #[inline(always)]
    pub fn release_after(mut self, event: Event) {
        self.word = self.word.next(event).unwrap_or(self.word);
        self.release();
    }
}

impl core::ops::Deref for Held<'_> {
    type Target = Slot;

    #[inline(always)]
    fn deref(&self) -> &Slot {
        &self.guard
    }
}

impl core::ops::DerefMut for Held<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.guard
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
