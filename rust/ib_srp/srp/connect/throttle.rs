// SPDX-License-Identifier: GPL-2.0

//! Limits the number of logins in flight to one target.
//!
//! Many sessions lose their connections together. A target that gets all their requests at once
//! answers the last one only after all others, and holds memory for each, as does the initiator. So
//! a login needs a permit, and logins from the same port to the same destination share a few. A
//! login that hears nothing for a while waits without its permit, so an unreachable target holds up
//! no other login.

use crate::{
    srp::ktime::{
        ktime_get,
        AtomicKtime,
        Ktime, //
    },
    sync::Completion, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// Maximum number of logins in flight.
const PERMITS: usize = 8;
/// Milliseconds of silence of the target after which a login gives its permit back.
pub(super) const SILENCE_MS: Msecs = 2_000;

/// The permits for one target.
#[pin_data]
pub struct Throttle {
    /// Counts the free permits.
    #[pin]
    free: Completion,
    /// Time at which the target last sent something.
    heard: AtomicKtime,
}

impl Throttle {
    /// Returns a throttle with all permits free.
    pub fn new() -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                free <- Completion::new(),
                heard: AtomicKtime::new(Ktime::MIN),
            }),
            GFP_KERNEL,
        )?;
        for _ in 0..PERMITS {
            this.free.complete();
        }
        Ok(this)
    }

    /// Waits for a permit, at most `timeout` milliseconds; returns `None` if there was none.
    /// Waiters are served in FIFO order. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub fn acquire(self: &Arc<Self>, timeout: Msecs) -> Result<Option<Permit>> {
        match self.free.wait_interruptible_timeout(timeout) {
            Ok(()) => Ok(Some(Permit(self.clone()))),
            Err(e) if e == ETIMEDOUT => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Records that the target has sent something. Any context.
    pub fn hear(&self) {
        self.heard.store(ktime_get());
    }

    /// Milliseconds since the target last sent something to any login, or since `since` if that is
    /// later. Any context.
    pub fn silence(&self, since: Ktime) -> Msecs {
        ktime_get().ms_since(since.max(self.heard.load()))
    }
}

/// Lets a login proceed. Dropping it returns the permit.
pub struct Permit(Arc<Throttle>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.complete();
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_throttle)]
mod tests {
    use super::*;
    use kernel::time::{
        delay::fsleep,
        Delta, //
    };

    #[test]
    fn so_many_and_no_more() -> Result {
        let throttle = Throttle::new()?;
        let mut taken = KVec::new();
        for _ in 0..PERMITS {
            let permit = throttle.acquire(0)?.ok_or(EBUSY)?;
            taken.push(permit, GFP_KERNEL)?;
        }
        assert!(throttle.acquire(20)?.is_none());
        assert!(taken.pop().is_some());
        let last = throttle.acquire(20)?;
        assert!(last.is_some());
        assert!(throttle.acquire(0)?.is_none());
        drop((taken, last));
        assert!(throttle.acquire(0)?.is_some());
        Ok(())
    }

    #[test]
    fn any_event_ends_the_silence() -> Result {
        let throttle = Throttle::new()?;
        let since = ktime_get();
        fsleep(Delta::from_millis(50));
        // A timer of User-Mode Linux expires up to a tick early by this clock.
        assert!(throttle.silence(since) >= 40);
        throttle.hear();
        assert!(throttle.silence(since) < 40);
        // Messages before `since` do not count.
        assert_eq!(throttle.silence(ktime_get()), 0);
        Ok(())
    }
}
