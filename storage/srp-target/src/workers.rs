// SPDX-License-Identifier: GPL-2.0

//! Worker threads for blocking work, such as file I/O.

use std::{io, os::fd::RawFd};

use crate::{
    pool::Pool,
    results::Results,
    target::{Buffer, Done, TaskId, Work},
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

/// A thread pool, and its results. Drop waits for the threads.
pub struct Workers<J, R> {
    pool: Pool<J>,
    results: Results<R>,
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

impl<J: Send + 'static, R: Send + 'static> Workers<J, R> {
    /// Starts `count` threads that run `work` on each job. Returns the error of the failed system
    /// call.
    pub fn new(count: usize, work: impl Fn(J) -> R + Clone + Send + 'static) -> io::Result<Self> {
        let (results, sender) = Results::new()?;
        let pool = Pool::new("worker", count, move |job| sender.send(work(job)))?;
        Ok(Self { pool, results })
    }

    /// Queues a job.
    pub fn give(&self, job: J) {
        self.pool.give(job);
    }

    /// Descriptor that is readable when results are available.
    pub fn fd(&self) -> RawFd {
        self.results.fd()
    }

    /// Takes all available results.
    pub fn done(&mut self) -> Vec<R> {
        self.results.take()
    }
}
