// SPDX-License-Identifier: GPL-2.0

//! Threads that execute commands, as the file may take its time.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        mpsc::{channel, Receiver, Sender},
        Arc, Mutex, PoisonError,
    },
    thread::{self, JoinHandle},
};

use crate::target::{Buffer, Done, TaskId, Work};

struct Job<B> {
    task: TaskId,
    work: Work<B>,
    into: Option<B>,
}

/// Threads with work. Dropped, it waits for them.
pub struct Workers<B> {
    jobs: Option<Sender<Job<B>>>,
    done: Receiver<(TaskId, Done<B>)>,
    woken: UnixStream,
    threads: Vec<JoinHandle<()>>,
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Executes a command. `into` has room for all of its DATA-IN.
pub fn execute<B: Buffer>(work: Work<B>, mut into: Option<B>) -> Done<B> {
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
    Done {
        result,
        out: work.out,
        into,
    }
}

impl<B: Buffer + Send + 'static> Workers<B> {
    /// So many threads without work.
    pub fn new(count: usize) -> io::Result<Self> {
        let (jobs, queue) = channel::<Job<B>>();
        let (results, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let mut threads = Vec::new();
        for _ in 0..count {
            let (queue, results) = (Arc::clone(&queue), results.clone());
            let mut wake = wake.try_clone()?;
            threads.push(thread::spawn(move || loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(job) = next else { return };
                if results
                    .send((job.task, execute(job.work, job.into)))
                    .is_err()
                {
                    return;
                }
                // If it is full, it is awake.
                let _ = wake.write(&[0]);
            }));
        }
        Ok(Self {
            jobs: Some(jobs),
            done,
            woken,
            threads,
        })
    }

    /// Has a command executed.
    pub fn execute(&self, task: TaskId, work: Work<B>, into: Option<B>) {
        if let Some(jobs) = &self.jobs {
            // The threads end with `self` only.
            let _ = jobs.send(Job { task, work, into });
        }
    }

    /// Can be read when a command has been executed.
    pub fn fd(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// What has been executed.
    pub fn done(&mut self) -> Vec<(TaskId, Done<B>)> {
        let mut bytes = [0; 256];
        while matches!(self.woken.read(&mut bytes), Ok(n) if n > 0) {}
        self.done.try_iter().collect()
    }
}
