// SPDX-License-Identifier: GPL-2.0

//! A parallel loop over many items, on a path that must not allocate.

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

/// Work items that share a job with the calling thread.
///
/// The items are allocated in advance, so that a job allocates no memory. The calling thread itself
/// does the work that the queue does not reach: a job proceeds even if no worker is available.
pub struct WorkerPool {
    queue: Handle,
    workers: KVec<Arc<Worker>>,
    /// Held while a job runs.
    busy: Pin<KBox<Mutex<()>>>,
}

/// # Invariants
///
/// While the work is queued or running, `job` points to a live [`Job`].
#[pin_data]
struct Worker {
    #[pin]
    work: Work<Worker>,
    job: Atomic<*mut Job<'static>>,
}

impl_has_work! {
    impl HasWork<Worker> for Worker { self.work }
}

// SAFETY: `work` is a `Work` and not part of a `DelayedWork`.
unsafe impl Cancel for Worker {}

struct Job<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// The next index to take.
    next: Atomic<usize>,
}

impl Job<'_> {
    /// Calls `run` for the indices that no other thread has taken.
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

impl WorkItem for Worker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: The work is running, so by the type invariant `job` points to a live `Job`, to
        // which there are shared references only.
        if let Some(job) = unsafe { this.job.load(Acquire).as_ref() } {
            job.work();
        }
    }
}

impl WorkerPool {
    /// Allocates `workers` work items for `queue`, in addition to the calling thread of a job. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(queue: Handle, workers: usize) -> Result<Self> {
        let mut list = KVec::with_capacity(workers, GFP_KERNEL)?;
        for _ in 0..workers {
            // INVARIANT: The work is neither queued nor running.
            let worker = Arc::pin_init(
                pin_init!(Worker {
                    work <- new_work!("WorkerPool::worker"),
                    job: Atomic::new(null_mut()),
                }),
                GFP_KERNEL,
            )?;
            list.push(worker, GFP_KERNEL)?;
        }
        Ok(Self {
            queue,
            workers: list,
            busy: KBox::pin_init(new_mutex!((), "WorkerPool::busy"), GFP_KERNEL)?,
        })
    }

    /// Calls `run` for each item of two lists, from up to `workers` + 1 threads at a time, and
    /// returns after the last call has returned. Sleeps; allocates nothing. One job at a time.
    ///
    /// The caller may run on the queue of the workers. `run` must not start another job.
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
        let workers = self.workers.iter().take(count.saturating_sub(1));
        for worker in workers.clone() {
            // INVARIANT: `job` lives until the end of this function, which waits for the work.
            worker
                .job
                .store((&raw const job).cast_mut().cast(), Release);
            // If the queue is closed, this thread does all the work.
            let _ = self.queue.enqueue(worker.clone());
        }
        job.work();
        for worker in workers {
            // A worker that has not started would find nothing left to do.
            cancel_sync(worker);
            worker.job.store(null_mut(), Relaxed);
        }
    }
}
