// SPDX-License-Identifier: GPL-2.0

//! Lockless snapshot of the state of a session.

use super::{
    recovery::State,
    session::Life, //
};

/// The part of a [`State`] that is read without the lock, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct View(u32);

impl View {
    const LIFE: u32 = 7;
    const LOST: u32 = 1 << 3;
    const DOWN: u32 = 1 << 4;
    const FAILING: u32 = 1 << 5;
    const SETTLED: u32 = 1 << 6;
    const ASKED: u32 = 1 << 7;

    /// Converts from [`View::word`].
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The snapshot as a number.
    pub const fn word(self) -> u32 {
        self.0
    }

    const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// [`State::life`].
    pub fn life(self) -> Life {
        // CAST: Less than 8.
        let number = (self.0 & Self::LIFE) as usize;
        Life::ALL.get(number).copied().unwrap_or(Life::Gone)
    }

    /// [`State::is_lost`].
    pub const fn is_lost(self) -> bool {
        self.has(Self::LOST)
    }

    /// [`State::is_down`].
    pub const fn is_down(self) -> bool {
        self.has(Self::DOWN)
    }

    /// [`State::failing`].
    pub const fn is_failing(self) -> bool {
        self.has(Self::FAILING)
    }

    /// [`State::is_settled`].
    pub const fn is_settled(self) -> bool {
        self.has(Self::SETTLED)
    }

    /// [`State::asked`].
    pub const fn is_asked(self) -> bool {
        self.has(Self::ASKED)
    }
}

impl State {
    /// The part of the state that is read without the lock.
    pub const fn view(&self) -> View {
        let mut word = self.life as u32;
        if self.is_lost() {
            word |= View::LOST;
        }
        if self.is_down() {
            word |= View::DOWN;
        }
        if self.failing {
            word |= View::FAILING;
        }
        if self.is_settled() {
            word |= View::SETTLED;
        }
        if self.asked {
            word |= View::ASKED;
        }
        View(word)
    }
}
