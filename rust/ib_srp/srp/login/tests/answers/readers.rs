// SPDX-License-Identifier: GPL-2.0

//! Threads that read data and check it.

use super::testbed::{
    cdb,
    pattern,
    unit,
    DID_RESET, //
};
use crate::{
    rdma::tests::check_eq,
    scsi::tests::unit::Unit,
    srp::session::Session,
    sync::race::{
        race,
        Context, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Readers of a device.
pub(super) struct Readers {
    pub(super) unit: Unit,
    /// Length of a read, in bytes.
    pub(super) len: usize,
    /// Number of reads per thread.
    pub(super) count: u32,
    pub(super) next: Atomic<u32>,
    pub(super) good: Atomic<u32>,
    pub(super) wrong: Atomic<u32>,
    pub(super) lost: Atomic<u32>,
    /// Number of buffers written to after the end of their read.
    pub(super) touched: Atomic<u32>,
    pub(super) done: Atomic<bool>,
}

impl Readers {
    pub(super) fn new(session: &Session, len: usize, count: u32) -> Result<Arc<Self>> {
        let zero = || Atomic::new(0);
        let this = Self {
            unit: unit(session)?,
            len,
            count,
            next: zero(),
            good: zero(),
            wrong: zero(),
            lost: zero(),
            touched: zero(),
            done: Atomic::new(false),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    pub(super) fn read_once(&self) -> Result {
        let number = self.next.fetch_add(1, Relaxed);
        let mut data = KVec::from_elem(0u8, self.len, GFP_KERNEL)?;
        let result = self.unit.read(cdb(number), &mut data)?;
        let count = match result {
            0 if data.starts_with(&pattern(number)) => &self.good,
            DID_RESET => &self.lost,
            _ => &self.wrong,
        };
        count.fetch_add(1, Relaxed);
        if result != 0 {
            // The buffer is the reader's again: no peer may write to it.
            data.fill(0x5a);
            fsleep(Delta::from_millis(20));
            if data.iter().any(|&byte| byte != 0x5a) {
                self.touched.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    pub(super) fn read(&self) {
        for _ in 0..self.count {
            if let Err(e) = self.read_once() {
                pr_err!("a read fails: {}\n", e.to_errno());
                self.wrong.fetch_add(1, Relaxed);
            }
        }
        self.done.store(true, Release);
    }

    /// Numbers of good, lost and wrong reads.
    pub(super) fn ends(&self) -> (u32, u32, u32) {
        let read = |count: &Atomic<u32>| count.load(Relaxed);
        (read(&self.good), read(&self.lost), read(&self.wrong))
    }
}

/// Reads `count` times in each of four threads. All reads must be good.
pub(super) fn read_all(session: &Session, len: usize, count: u32) -> Result {
    let readers = Readers::new(session, len, count)?;
    let contexts: [Context<Readers>; 4] = [Readers::read; 4];
    race(&readers, &contexts)?;
    check_eq!(readers.ends(), (4 * count, 0, 0));
    Ok(())
}
