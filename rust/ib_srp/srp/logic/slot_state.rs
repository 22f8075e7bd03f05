// SPDX-License-Identifier: GPL-2.0

//! State machine of a slot, which holds one command of a channel.
//!
//! ```text
//!   Free --Claim--> Building --Post--> Posted --Respond-> Responded --Invalidate--> Invalidating
//!    ^                 |                 |                 ^     |                       |
//!    |               Cancel            Abort           Respond Finish                  Finish
//!    |                 |                 v                 |     |                       |
//!    +-----------------+              Aborting ------------+     |                       |
//!    +-----------------------------------------------------------+-----------------------+
//!
//!   any but Free --Fail--> Failed --Drained--> Free
//! ```
//!
//! The data buffers of a command leave the driver only when its slot becomes Free.

/// State of a slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// No command.
    #[default]
    Free = 0,
    /// A command is being prepared; the target does not know it.
    Building = 1,
    /// The target has the command or will have it.
    Posted = 2,
    /// The target must not access the data after its response, but still can.
    Responded = 3,
    /// Memory regions are being invalidated.
    Invalidating = 4,
    /// Error handling owns the command; the target may still work on it.
    Aborting = 5,
    /// The connection is lost; waiting for the queue pair to drain.
    Failed = 6,
}

impl State {
    /// The state with this number.
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Free,
            1 => Self::Building,
            2 => Self::Posted,
            3 => Self::Responded,
            4 => Self::Invalidating,
            5 => Self::Aborting,
            // No other values exist. Failed keeps the slot out of use until its connection ends.
            _ => Self::Failed,
        }
    }
}

/// Events of a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A command takes the slot, with a new generation.
    Claim,
    /// The command cannot be sent: no credit, no mapping.
    Cancel,
    /// The work requests are about to be posted.
    Post,
    /// The response has arrived, or the response to an abort is "complete".
    Respond,
    /// Invalidations are about to be posted.
    Invalidate,
    /// The target can access none of the command's memory.
    Finish,
    /// Error handling takes the command.
    Abort,
    /// The connection is lost.
    Fail,
    /// The queue pair is drained.
    Drained,
}

/// The state after `event`, or `None` if `event` must not occur in `state`.
#[inline(always)]
pub const fn next(state: State, event: Event) -> Option<State> {
    Some(match (state, event) {
        (State::Free, Event::Claim) => State::Building,
        (State::Building, Event::Cancel) => State::Free,
        (State::Building, Event::Post) => State::Posted,
        (State::Posted | State::Aborting, Event::Respond) => State::Responded,
        (State::Posted, Event::Abort) => State::Aborting,
        (State::Responded, Event::Invalidate) => State::Invalidating,
        (State::Responded | State::Invalidating, Event::Finish) => State::Free,
        (State::Free | State::Failed, Event::Fail) => return None,
        (_, Event::Fail) => State::Failed,
        (State::Failed, Event::Drained) => State::Free,
        _ => return None,
    })
}

/// State and generation of a slot in one word.
///
/// Bits 0 to 7 are the state, bits 8 to 39 the generation, the others are 0; bit 63 is free for an
/// owner mark.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Word(u64);

impl Word {
    const GENERATION_SHIFT: u32 = 8;

    /// Builds a word.
    pub const fn new(state: State, generation: u32) -> Self {
        Self(state as u64 | (generation as u64) << Self::GENERATION_SHIFT)
    }

    /// Converts a stored word; drops the owner mark.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw & ((1 << (Self::GENERATION_SHIFT + 32)) - 1))
    }

    /// The value to store.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The state.
    pub const fn state(self) -> State {
        State::from_number(self.0 as u8)
    }

    /// Distinguishes the commands that the slot has held; part of their tags.
    pub const fn generation(self) -> u32 {
        (self.0 >> Self::GENERATION_SHIFT) as u32
    }

    /// The same generation in another state.
    pub const fn with_state(self, state: State) -> Self {
        Self::new(state, self.generation())
    }

    /// Returns the word of a new command in a free slot, or `None` if the slot is not free. Half of
    /// the generation is a counter, so it differs from the 65535 preceding generations. The other
    /// half is `random`, so the target cannot guess the command's tag before the command is sent.
    #[inline(always)]
    pub const fn claim(self, random: u16) -> Option<Self> {
        // CAST: The lower half.
        let count = (self.generation() as u16).wrapping_add(1);
        let generation = (random as u32) << 16 | count as u32;
        match next(self.state(), Event::Claim) {
            // Name the state, so that the compiler knows it from here on.
            Some(State::Building) => Some(Self::new(State::Building, generation)),
            _ => None,
        }
    }

    /// The word after `event`, or `None` if `event` must not occur now or is [`Event::Claim`].
    #[inline(always)]
    pub const fn next(self, event: Event) -> Option<Self> {
        match (event, next(self.state(), event)) {
            (Event::Claim, _) | (_, None) => None,
            (_, Some(state)) => Some(self.with_state(state)),
        }
    }
}
