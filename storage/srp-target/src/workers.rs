// SPDX-License-Identifier: GPL-2.0

//! Worker threads for blocking work, such as file I/O.

use std::{
    io,
    os::fd::RawFd,
    sync::{
        mpsc::{channel, Receiver, Sender},
        Arc, Mutex, PoisonError,
    },
    thread::{self, JoinHandle},
};

use crate::{
    target::{Buffer, Done, TaskId, Work},
    wake::Woken,
};

/// A command for [`execute`].
pub struct Job<B> {
    /// The task.
    pub task: TaskId,
    /// The work.
    pub work: Work<B>,
    /// Buffer for the whole DATA-IN.
    pub into: Option<B>,
}

/// A thread pool. Drop waits for the threads.
pub struct Workers<J, R> {
    jobs: Option<Sender<J>>,
    done: Receiver<R>,
    woken: Woken,
    threads: Vec<JoinHandle<()>>,
}

impl<J, R> Drop for Workers<J, R> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // No thread panics: that ends the process.
            let _ = thread.join();
        }
    }
}

/// Executes a command.
pub fn execute<B: Buffer>(job: Job<B>) -> (TaskId, Done<B>) {
    let Job {
        task,
        work,
        mut into,
    } = job;
    let empty: (&[u8], &mut [u8]) = (&[], &mut []);
    let len = work.command.data_out() as usize;
    let out = match &work.out {
        Some(out) => &out.buffer[out.at..out.at + len],
        None => empty.0,
    };
    let room = match &mut into {
        Some(buffer) => &mut buffer[..work.into],
        None => empty.1,
    };
    let result = work.command.execute(work.unit.as_deref(), out, room);
    let done = Done {
        result,
        out: work.out,
        into,
    };
    (task, done)
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

impl<J: Send + 'static, R: Send + 'static> Workers<J, R> {
    /// Starts `count` threads that run `work` on each job.
    pub fn new(count: usize, work: impl Fn(J) -> R + Clone + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = channel::<J>();
        let (results, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let (woken, waker) = Woken::new()?;
        let mut threads = Vec::new();
        for _ in 0..count {
            let (queue, results, work) = (Arc::clone(&queue), results.clone(), work.clone());
            let waker = waker.clone();
            threads.push(thread::spawn(move || loop {
                let _fatal = Fatal;
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(job) = next else { return };
                if results.send(work(job)).is_err() {
                    return;
                }
                waker.wake();
            }));
        }
        Ok(Self {
            jobs: Some(jobs),
            done,
            woken,
            threads,
        })
    }

    /// Queues a job.
    pub fn give(&self, job: J) {
        if let Some(jobs) = &self.jobs {
            // This cannot fail: the threads live as long as `self`.
            let _ = jobs.send(job);
        }
    }

    /// Descriptor that is readable when results are available.
    pub fn fd(&self) -> RawFd {
        self.woken.fd()
    }

    /// Takes all available results.
    pub fn done(&mut self) -> Vec<R> {
        self.woken.clear();
        self.done.try_iter().collect()
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
            let workers = Workers::new(2, |job: u32| assert_eq!(job, 0)).unwrap();
            workers.give(1);
            thread::sleep(std::time::Duration::from_secs(10));
            return;
        }
        let this = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(this);
        child.args(["--exact", "workers::tests::a_panic_ends_the_process"]);
        let status = child.env(CHILD, "").output().unwrap().status;
        assert_eq!(status.signal(), Some(SIGABRT), "{status}");
    }
}
