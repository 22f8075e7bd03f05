// SPDX-License-Identifier: GPL-2.0

//! Objects in files and block devices, which threads read and write.

use std::{io, os::fd::RawFd, path::PathBuf, sync::Arc};

use serde_json::Value;
use srp_target::{disk::Disk, sense::Sense, store::Use, workers::Workers};

use super::objects::{Done, Job, Objects};
use crate::{
    message::{Status, Zero},
    rs::Work,
};

pub(super) struct Files {
    disks: Arc<Vec<Disk>>,
    threads: Workers<Job, Done>,
}

fn status(result: Result<(), Sense>) -> Status {
    match result {
        Ok(()) => Status::Good,
        Err(Sense::READ_ERROR) => Status::ReadError,
        Err(Sense::FULL) => Status::Full,
        Err(_) => Status::WriteError,
    }
}

/// Does file I/O. The store has checked the object and the blocks.
fn execute(disks: &[Disk], job: &mut Job) -> Status {
    let object = match job.work {
        Work::Read { object, .. }
        | Work::Write { object, .. }
        | Work::Zero { object, .. }
        | Work::Flush { object } => object,
    };
    let Some(disk) = disks.get(object as usize) else {
        return Status::Invalid;
    };
    let bytes = job.memory.as_deref_mut().unwrap_or_default();
    let flush = |stable| if stable { disk.flush() } else { Ok(()) };
    status(match job.work {
        Work::Read {
            at, blocks, stable, ..
        } => flush(stable).and_then(|()| disk.read(at, &mut bytes[..blocks as usize * 512])),
        Work::Write {
            at, blocks, stable, ..
        } => disk
            .write(at, &bytes[..blocks as usize * 512])
            .and_then(|()| flush(stable)),
        Work::Zero {
            at,
            blocks,
            stable,
            how,
            ..
        } => match how {
            Zero::Unmap => disk.unmap(at, blocks.into()),
            Zero::Write => disk.fill(at, blocks.into(), &[0; 512]),
        }
        .and_then(|()| flush(stable)),
        Work::Flush { .. } => disk.flush(),
    })
}

/// Number of this boot of the host: until the next one, the page cache has all answered writes.
pub(super) fn boot() -> io::Result<u64> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(PATH).map_err(|e| io::Error::other(format!("{PATH}: {e}")))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let first = digits
        .get(..16)
        .and_then(|d| u64::from_str_radix(d, 16).ok());
    first.ok_or_else(|| io::Error::other(format!("{PATH}: {text:?} is no boot number")))
}

/// Opens the stores of an RS.
pub(super) fn open(number: u32, files: &[PathBuf], how: Use) -> io::Result<Vec<Disk>> {
    let open = |(n, file): (u32, &PathBuf)| Disk::object(file, number, n, how);
    (0..).zip(files).map(open).collect()
}

impl Files {
    pub(super) fn new(disks: Vec<Disk>, threads: usize) -> io::Result<Self> {
        let disks = Arc::new(disks);
        let shared = Arc::clone(&disks);
        let work = move |mut job: Job| {
            let status = execute(&shared, &mut job);
            (job.op, status, job.memory)
        };
        Ok(Self {
            disks,
            threads: Workers::new(threads, work)?,
        })
    }
}

impl Objects for Files {
    fn blocks(&self) -> Vec<u64> {
        self.disks.iter().map(Disk::blocks).collect()
    }

    fn give(&mut self, job: Job) {
        self.threads.give(job);
    }

    fn done(&mut self) -> Vec<Done> {
        self.threads.done()
    }

    fn fd(&self) -> RawFd {
        self.threads.fd()
    }

    fn status(&self, all: &mut Value) {
        let objects = self.disks.iter().enumerate();
        all["objects"] = objects
            .map(|(n, disk)| disk.status(&n.to_string()))
            .collect();
    }
}
