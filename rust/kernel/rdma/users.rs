// SPDX-License-Identifier: GPL-2.0

//! Objects through which C calls functions of the module, which stays loaded until they are gone.
//!
//! The device guards of objects with callbacks are counted: those of queue pairs, completion
//! queues, `ib_cm` identifiers, queries to the subnet administrator. An `rdma_cm` identifier has no
//! guard and is counted itself. Safe code can leak any of these objects, or form a reference cycle;
//! then the module must not be unloaded.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// The polling interval.
const PAUSE: Delta = Delta::from_millis(10);
/// Number of polls after which a leak is logged.
const PATIENCE: u32 = 6_000;

/// The count of the objects of the module.
pub(super) static USERS: Users = Users::none();

/// A count of objects through which C calls the module.
pub(super) struct Users(Atomic<i32>);

/// A field of a counted object. The drop of the field ends the count.
pub(super) struct User<'a>(&'a Users);

impl Users {
    const fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts one more object.
    pub(super) fn one(&self) -> User<'_> {
        self.0.add(1, Relaxed);
        User(self)
    }

    /// Waits until no object is left: forever, if one was leaked. Sleeps.
    pub(super) fn wait(&self) {
        let mut looks = 0u32;
        while self.0.load(Acquire) != 0 {
            looks = looks.saturating_add(1);
            if looks == PATIENCE {
                pr_err!("the module cannot be unloaded: it has leaked objects of RDMA devices\n");
            }
            fsleep(PAUSE);
        }
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        // Orders all uses of the object before the decrement.
        self.0 .0.fetch_sub(1, Release);
    }
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_rdma_users)]
mod tests {
    use super::*;
    use crate::sync::race::begin;
    use kernel::sync::Arc;

    struct Waiting {
        users: Users,
        over: Atomic<bool>,
    }

    #[test]
    fn all_are_waited_for() -> Result {
        let waiting = Arc::new(
            Waiting {
                users: Users::none(),
                over: Atomic::new(false),
            },
            GFP_KERNEL,
        )?;
        let (one, two) = (waiting.users.one(), waiting.users.one());
        let race = begin(
            &waiting,
            &[|waiting: &Waiting| {
                waiting.users.wait();
                waiting.over.store(true, Release);
            }],
        )?;
        drop(one);
        fsleep(Delta::from_millis(100));
        let early = waiting.over.load(Acquire);
        drop(two);
        race.wait()?;
        assert!(!early);
        assert!(waiting.over.load(Acquire));
        Ok(())
    }
}
