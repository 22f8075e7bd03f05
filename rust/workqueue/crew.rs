// SPDX-License-Identifier: GPL-2.0

//! One job for many things at once, on a path that may not allocate.

use super::{
    cancel_sync,
    Cancel,
    Handle, //
};
use core::ptr::null_mut;
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// Work items that share a job with the thread that has it done.
///
/// They are made beforehand, so that a job needs no memory. What the queue does not get to, the
/// thread does itself: a job goes on even if no worker can be had.
pub struct Crew {
    queue: Handle,
    hands: KVec<Arc<Hand>>,
    /// Held while a job is being done.
    busy: Pin<KBox<Mutex<()>>>,
}

/// # Invariants
///
/// While the work waits or runs, `job` points at a [`Job`] that lives until it does neither.
#[pin_data]
struct Hand {
    #[pin]
    work: Work<Hand>,
    job: Atomic<*mut Job<'static>>,
}

impl_has_work! {
    impl HasWork<Hand> for Hand { self.work }
}

// SAFETY: `work` is a `Work`.
unsafe impl Cancel for Hand {}

struct Job<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// The first that nobody has begun with.
    next: Atomic<usize>,
}

impl Job<'_> {
    /// Does what nobody else has begun with.
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Relaxed);
            if index >= self.count {
                return;
            }
            (self.run)(index);
        }
    }
}

impl WorkItem for Hand {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the type invariant, as the work runs. A job is only shared.
        if let Some(job) = unsafe { this.job.load(Acquire).as_ref() } {
            job.work();
        }
    }
}

impl Crew {
    /// `hands` work items for `queue`, beside the thread that has a job done. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(queue: Handle, hands: usize) -> Result<Self> {
        let mut list = KVec::with_capacity(hands, GFP_KERNEL)?;
        for _ in 0..hands {
            // INVARIANT: The work does not wait.
            let hand = Arc::pin_init(
                pin_init!(Hand {
                    work <- new_work!("Crew::hand"),
                    job: Atomic::new(null_mut()),
                }),
                GFP_KERNEL,
            )?;
            list.push(hand, GFP_KERNEL)?;
        }
        Ok(Self {
            queue,
            hands: list,
            busy: KBox::pin_init(new_mutex!((), "Crew::busy"), GFP_KERNEL)?,
        })
    }

    /// Calls `run` for each item of two lists, with as many at a time as there are hands and one, and returns
    /// when it has come back for all of them. Sleeps; allocates nothing. One job at a time.
    ///
    /// The thread may run on the queue of the crew. `run` must not have another job done.
    pub fn each<T: Sync>(&self, items: &[T], others: &[T], run: impl Fn(&T) + Sync) {
        let _busy = self.busy.lock();
        let run = |index: usize| {
            let other = || others.get(index.checked_sub(items.len())?);
            if let Some(item) = items.get(index).or_else(other) {
                run(item);
            }
        };
        let count = items.len() + others.len();
        let job = Job {
            run: &run,
            count,
            next: Atomic::new(0),
        };
        let hands = self.hands.iter().take(count.saturating_sub(1));
        for hand in hands.clone() {
            // INVARIANT: `job` lives until the end of this function, which waits for the work.
            hand.job.store((&raw const job).cast_mut().cast(), Release);
            // If the queue is closed, this thread does it all.
            let _ = self.queue.enqueue(hand.clone());
        }
        job.work();
        for hand in hands {
            // What has not begun finds nothing to do.
            cancel_sync(hand);
            hand.job.store(null_mut(), Relaxed);
        }
    }
}
