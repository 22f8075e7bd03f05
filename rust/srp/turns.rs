// SPDX-License-Identifier: GPL-2.0

//! Logins at one target that are under way, a few at a time.
//!
//! Many sessions lose their connections together. A target that gets all their requests at once answers the
//! last one after as long as it takes for all of them, and holds memory for each; so does our side. So those that go
//! to the same place from the same port take turns. Whoever hears nothing for a while waits on
//! without its turn: a target that is away holds up nobody.

use crate::{
    clock::monotonic_ns,
    sync::Completion, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Msecs, //
};

/// Logins at a time.
const TURNS: usize = 8;
/// A turn in which the target says nothing ends after so many milliseconds.
pub const SILENT_TURN_MS: Msecs = 2_000;

/// The turns at one target.
#[pin_data]
pub struct Turns {
    /// Counts those that are free.
    #[pin]
    free: Completion,
    /// When the target said something last, in nanoseconds of the monotonic clock.
    heard: Atomic<i64>,
}

impl Turns {
    /// All are free.
    pub fn new() -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                free <- Completion::new(),
                heard: Atomic::new(i64::MIN),
            }),
            GFP_KERNEL,
        )?;
        for _ in 0..TURNS {
            this.free.complete();
        }
        Ok(this)
    }

    /// Waits for a turn, at most `timeout` milliseconds; `None` if there was none. Those who wait get theirs
    /// in the order of these calls. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub fn take(self: &Arc<Self>, timeout: Msecs) -> Result<Option<Turn>> {
        match self.free.wait_interruptible_timeout(timeout) {
            Ok(()) => Ok(Some(Turn(self.clone()))),
            Err(e) if e == ETIMEDOUT => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The target has said something. Any context.
    pub fn hear(&self) {
        self.heard.store(monotonic_ns(), Relaxed);
    }

    /// For how many milliseconds the target has said nothing to anybody, at most since the time `since`, in
    /// nanoseconds of the monotonic clock. Any context.
    pub fn silence(&self, since: i64) -> Msecs {
        let since = since.max(self.heard.load(Relaxed));
        Msecs::try_from(monotonic_ns().saturating_sub(since) / 1_000_000).unwrap_or(0)
    }
}

/// One turn; ends when it is dropped.
pub struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.free.complete();
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_turns)]
mod tests {
    use super::*;
    use kernel::time::{
        delay::fsleep,
        Delta, //
    };

    #[test]
    fn so_many_and_no_more() -> Result {
        let turns = Turns::new()?;
        let mut taken = KVec::new();
        for _ in 0..TURNS {
            let turn = turns.take(0)?.ok_or(EBUSY)?;
            taken.push(turn, GFP_KERNEL)?;
        }
        assert!(turns.take(20)?.is_none());
        assert!(taken.pop().is_some());
        let last = turns.take(20)?;
        assert!(last.is_some());
        assert!(turns.take(0)?.is_none());
        drop((taken, last));
        assert!(turns.take(0)?.is_some());
        Ok(())
    }

    #[test]
    fn silence_ends_when_anybody_hears_something() -> Result {
        let turns = Turns::new()?;
        let since = monotonic_ns();
        fsleep(Delta::from_millis(50));
        // A timer of User-Mode Linux ends up to a tick early by this clock.
        assert!(turns.silence(since) >= 40);
        turns.hear();
        assert!(turns.silence(since) < 40);
        // What was heard before does not count.
        assert_eq!(turns.silence(monotonic_ns()), 0);
        Ok(())
    }
}
