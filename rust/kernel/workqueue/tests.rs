// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the workqueues: every reference that a queue takes is returned.

use super::*;
use crate::sync::race::race;
use kernel::{
    impl_has_work,
    new_work,
    sync::atomic::Relaxed,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

#[pin_data]
struct Item {
    runs: Atomic<i32>,
    #[pin]
    started: Completion,
    #[pin]
    go: Completion,
    #[pin]
    work: Work<Item>,
    #[pin]
    timer: Delayed<Item>,
}

impl_has_work! {
    impl HasWork<Self> for Item { self.work }
}

impl_has_delayed! {
    impl HasDelayed<0> for Item { self.timer }
}

// SAFETY: `work` is a `Work` and not part of a `DelayedWork`.
unsafe impl Cancel for Item {}

impl WorkItem for Item {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.started.complete();
        this.go.wait();
        this.runs.add(1, Relaxed);
    }
}

impl DelayedItem for Item {
    fn run(this: Arc<Self>) {
        this.runs.add(1, Relaxed);
    }
}

fn queue() -> Result<WorkQueue> {
    WorkQueue::new(c"srp_test", Flag::Unbound | Flag::MemReclaim)
}

fn item(queue: &WorkQueue) -> Result<Arc<Item>> {
    Arc::pin_init(
        pin_init!(Item {
            runs: Atomic::new(0),
            started <- Completion::new(),
            go <- Completion::new(),
            work <- new_work!("Item::work"),
            timer <- new_delayed!(queue.handle(), "Item::timer"),
        }),
        GFP_KERNEL,
    )
}

/// Returns whether `item` is the only reference left.
fn is_last(item: Arc<Item>) -> bool {
    Arc::into_unique_or_drop(item).is_some()
}

#[kunit_tests(srp_workqueue)]
mod cases {
    use super::*;

    #[test]
    fn flags_are_checked() {
        assert!(WorkQueue::new(c"srp_test", Flag::MemReclaim).is_err());
        assert!(WorkQueue::new(c"srp_test", Flag::Percpu | Flag::Unbound).is_err());
    }

    #[test]
    fn runs_and_gives_the_reference_back() -> Result {
        let queue = queue()?;
        let item = item(&queue)?;
        item.go.complete_all();
        assert!(queue.enqueue::<_, 0>(item.clone()).is_ok());
        queue.flush()?;
        assert_eq!(item.runs.load(Relaxed), 1);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn cancel_takes_back_what_waits() -> Result {
        let queue = queue()?;
        let item = item(&queue)?;
        assert!(!cancel_sync::<_, 0>(&item));
        assert!(queue.enqueue::<_, 0>(item.clone()).is_ok());
        item.started.wait();
        // The item runs; a second round is queued behind it, and a third is refused.
        assert!(queue.enqueue::<_, 0>(item.clone()).is_ok());
        assert!(queue.enqueue::<_, 0>(item.clone()).is_err());
        item.go.complete_all();
        let waited = cancel_sync::<_, 0>(&item);
        let runs = item.runs.load(Relaxed);
        assert_eq!(runs, if waited { 1 } else { 2 });
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn delayed_runs_once() -> Result {
        let queue = queue()?;
        let item = item(&queue)?;
        assert!(Delayed::<Item>::schedule(item.clone(), 10).is_ok());
        assert!(Delayed::<Item>::schedule(item.clone(), 10).is_err());
        // Dropping the queue waits for the timer.
        drop(queue);
        assert_eq!(item.runs.load(Relaxed), 1);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn delayed_cancel_gives_the_reference_back() -> Result {
        let queue = queue()?;
        let item = item(&queue)?;
        assert!(!Delayed::<Item>::cancel_sync(&item));
        assert!(Delayed::<Item>::schedule(item.clone(), 1_000_000).is_ok());
        assert!(Delayed::<Item>::cancel_sync(&item));
        // The drop does not wait for the cancelled timer of a quarter of an hour.
        drop(queue);
        assert_eq!(item.runs.load(Relaxed), 0);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn hurry_changes_the_time() -> Result {
        let queue = queue()?;
        let item = item(&queue)?;
        assert!(Delayed::<Item>::hurry(item.clone(), 1_000_000).is_ok());
        assert!(Delayed::<Item>::hurry(item.clone(), 500_000).is_ok());
        assert!(Delayed::<Item>::hurry(item.clone(), 1).is_ok());
        // The drop would wait for minutes if one of the first two timers still counted.
        drop(queue);
        assert_eq!(item.runs.load(Relaxed), 1);
        assert!(Delayed::<Item>::hurry(item.clone(), 1).is_err());
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn hurry_races_with_others() -> Result {
        for _ in 0..20 {
            let queue = queue()?;
            let item = item(&queue)?;
            let now = |item: &Arc<Item>| drop(Delayed::<Item>::hurry(item.clone(), 0));
            now(&item);
            race(
                &Arc::new(item.clone(), GFP_KERNEL)?,
                &[
                    |item| drop(Delayed::<Item>::hurry(item.clone(), 0)),
                    |item| drop(Delayed::<Item>::hurry(item.clone(), 1)),
                    |item| {
                        let _ = Delayed::<Item>::cancel_sync(item);
                    },
                ],
            )?;
            drop(queue);
            assert!(item.runs.load(Relaxed) <= 3);
            assert!(is_last(item));
        }
        Ok(())
    }

    #[test]
    fn a_worker_pool_does_all_at_once() -> Result {
        let queue = queue()?;
        let workers = WorkerPool::new(queue.handle(), 3)?;
        for round in 0..20 {
            // Each call waits until all four have begun, so each needs its own thread.
            let begun = Atomic::new(0);
            let done = [0; 4].map(Atomic::<i32>::new);
            let (some, others) = done.split_at(round % 5);
            workers.each(some, others, |item| {
                begun.add(1, Relaxed);
                for _ in 0..20_000 {
                    if begun.load(Relaxed) == 4 {
                        return item.add(1, Relaxed);
                    }
                    fsleep(Delta::from_millis(1));
                }
            });
            assert!(done.iter().all(|item| item.load(Relaxed) == 1));
        }
        Ok(())
    }

    #[test]
    fn a_worker_pool_does_all_without_hands() -> Result {
        let queue = queue()?;
        let workers = WorkerPool::new(queue.handle(), 2)?;
        let alone = WorkerPool::new(queue.handle(), 0)?;
        let done = [0; 64].map(Atomic::<i32>::new);
        workers.each(&done, &[], |item| item.add(1, Relaxed));
        alone.each(&[], &done, |item| item.add(1, Relaxed));
        workers.each::<Atomic<i32>>(&[], &[], |item| item.add(1, Relaxed));
        drop(queue);
        // The queue is closed, so no worker helps.
        workers.each(&done, &[], |item| item.add(1, Relaxed));
        assert!(done.iter().all(|item| item.load(Relaxed) == 3));
        Ok(())
    }

    #[test]
    fn closed_queue_refuses() -> Result {
        let queue = queue()?;
        let handle = queue.handle();
        let item = item(&queue)?;
        drop(queue);
        assert!(handle.enqueue::<_, 0>(item.clone()).is_err());
        assert!(Delayed::<Item>::schedule(item.clone(), 1).is_err());
        assert!(handle.flush() == Err(ESHUTDOWN));
        assert!(is_last(item));
        Ok(())
    }
}
