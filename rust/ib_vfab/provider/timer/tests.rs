// SPDX-License-Identifier: GPL-2.0

//! Starts and cancels of a timer at the same time, and the end of a timer in its callback.

use super::*;
use kernel::sync::atomic::Relaxed;

static QUEUED_WITHOUT_OWNER: Atomic<i32> = Atomic::new(0);

/// A timer was queued without a reference, which the invariant excludes.
pub(super) fn queued_without_owner() {
    QUEUED_WITHOUT_OWNER.add(1, Relaxed);
}

#[kunit_tests(vfab_timer)]
mod cases {
    use super::*;
    use crate::{
        check::{
            check,
            check_eq, //
        },
        provider::{
            queue::WorkQueue,
            tests::within, //
        },
    };
    use kernel::{
        impl_has_work, new_work,
        workqueue::{
            Work,
            WorkItem, //
        },
    };

    /// Its callback starts the timer again every other time. Its work item cancels the timer until
    /// `over`.
    #[pin_data]
    struct Restarted {
        #[pin]
        timer: Timer<Self>,
        #[pin]
        work: Work<Self>,
        expired: Atomic<i32>,
        cancels: Atomic<i32>,
        over: Atomic<bool>,
        freed: Freed,
    }

    /// Counts the objects that have been freed.
    struct Freed(Arc<Atomic<i32>>);

    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.add(1, Relaxed);
        }
    }

    impl_has_work! {
        impl HasWork<Self> for Restarted { self.work }
    }

    impl Restarted {
        fn new(freed: &Arc<Atomic<i32>>) -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    timer <- Timer::new(),
                    work <- new_work!("vfab::Restarted::work"),
                    expired: Atomic::new(0),
                    cancels: Atomic::new(0),
                    over: Atomic::new(false),
                    freed: Freed(freed.clone()),
                }),
                GFP_KERNEL,
            )
        }
    }

    impl Expire for Restarted {
        fn expired(self: Arc<Self>) {
            if self.expired.fetch_add(1, Relaxed) & 1 == 0 {
                self.timer.start(self.clone(), 0);
            }
        }
    }

    impl WorkItem for Restarted {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            while !this.over.load(Relaxed) {
                this.timer.cancel();
                // Let some timers expire.
                for _ in 0..this.cancels.fetch_add(1, Relaxed) & 0xff {
                    core::hint::spin_loop();
                }
            }
        }
    }

    #[test]
    fn a_queued_timer_has_its_owner() -> Result {
        QUEUED_WITHOUT_OWNER.store(0, Relaxed);
        let queue = WorkQueue::new()?;
        let freed = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let object = Restarted::new(&freed)?;
        check!(queue.queue().enqueue(object.clone()).is_ok());
        let begun = within(|| (object.cancels.load(Relaxed) > 0).then_some(()));
        for _ in 0..200_000 {
            object.timer.start(object.clone(), 0);
        }
        let expired = within(|| {
            object.timer.start(object.clone(), 0);
            (object.expired.load(Relaxed) > 0).then_some(())
        });
        object.over.store(true, Relaxed);
        queue.flush();
        object.timer.cancel();
        check!(begun.is_ok());
        check!(expired.is_ok());
        check_eq!(QUEUED_WITHOUT_OWNER.load(Relaxed), 0);
        // Each start has given its reference back.
        drop(object);
        check_eq!(freed.load(Relaxed), 1);
        Ok(())
    }

    /// The callback has the last reference. KASAN reports an access to the timer after that.
    #[test]
    fn the_callback_may_free_the_timer() -> Result {
        let freed = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut by_callback = 0;
        for n in 0..100 {
            let object = Restarted::new(&freed)?;
            object.timer.start(object.clone(), 1_000_000);
            drop(object);
            if freed.load(Relaxed) == n {
                by_callback += 1;
            }
            check!(within(|| (freed.load(Relaxed) > n).then_some(())).is_ok());
        }
        check!(by_callback > 0);
        Ok(())
    }
}
