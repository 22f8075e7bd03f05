// SPDX-License-Identifier: GPL-2.0

//! Threads that run jobs of a queue.

use std::{
    io,
    sync::{
        mpsc::{channel, Sender},
        Arc, Mutex, PoisonError,
    },
    thread::{self, JoinHandle},
};

/// The threads. Drop waits until they have run all jobs.
pub(crate) struct Pool<J> {
    jobs: Option<Sender<J>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // No thread panics: that ends the process.
            let _ = thread.join();
        }
    }
}

/// Ends the process if its thread panics. The job of a worker would never end, and a later login of
/// the same initiator would wait for it.
pub(crate) struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl<J: Send + 'static> Pool<J> {
    /// Starts `count` threads of this name that run `work` on each job. Returns the error of the
    /// failed system call.
    pub(crate) fn new(
        name: &str,
        count: usize,
        work: impl Fn(J) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, queue) = channel::<J>();
        let queue = Arc::new(Mutex::new(queue));
        let start = || {
            let (queue, work) = (Arc::clone(&queue), work.clone());
            thread::Builder::new()
                .name(name.into())
                .spawn(move || loop {
                    let _fatal = Fatal;
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = next else { return };
                    work(job);
                })
        };
        Ok(Self {
            threads: (0..count).map(|_| start()).collect::<io::Result<_>>()?,
            jobs: Some(jobs),
        })
    }

    /// Queues a job.
    pub(crate) fn give(&self, job: J) {
        if let Some(jobs) = &self.jobs {
            // This cannot fail: the threads live as long as `self`.
            let _ = jobs.send(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const SIGABRT: i32 = 6;

    /// The test runs itself as a child with this variable set.
    const CHILD: &str = "A_PANIC_ENDS_THE_PROCESS";

    #[test]
    fn a_panic_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let pool = Pool::new("test", 2, |job: u32| assert_eq!(job, 0)).unwrap();
            pool.give(1);
            thread::sleep(std::time::Duration::from_secs(10));
            return;
        }
        let this = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(this);
        child.args(["--exact", "pool::tests::a_panic_ends_the_process"]);
        let status = child.env(CHILD, "").output().unwrap().status;
        assert_eq!(status.signal(), Some(SIGABRT), "{status}");
    }
}
