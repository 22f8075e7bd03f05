// SPDX-License-Identifier: GPL-2.0

//! A test's model of the midlayer.

use crate::{
    bindings,
    dma::{DataDirection, DeviceBytes, DeviceBytesMut, ScatterList},
};
use std::sync::{
    atomic::{AtomicU32, Ordering::Relaxed},
    Arc,
};

#[path = "../../../../rust/kernel/scsi/error.rs"]
pub mod error;
#[path = "../../../../rust/kernel/scsi/limits.rs"]
pub mod limits;

pub use error::{Busy, ScsiResult};
pub use limits::Limits;

pub const SG_MAX_SEGMENTS: u32 = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub hw_queue: u16,
    pub index: u16,
}

/// A `struct scsi_cmnd`. The test keeps it as long as the driver does.
pub struct Cmnd {
    pub tag: Tag,
    pub lun: u64,
    pub direction: DataDirection,
    pub list: bindings::scatterlist,
    /// Number of times that the driver has ended the command.
    pub ended: AtomicU32,
    /// The result with which the command ended.
    pub result: AtomicU32,
}

impl Cmnd {
    /// Creates a read command.
    pub fn read(index: u16) -> Arc<Self> {
        Self::new(index, DataDirection::FromDevice)
    }

    /// Creates a write command, short enough for immediate data.
    pub fn write(index: u16) -> Arc<Self> {
        Self::new(index, DataDirection::ToDevice)
    }

    /// Creates a command without data.
    pub fn none(index: u16) -> Arc<Self> {
        Self::new(index, DataDirection::None)
    }

    fn new(index: u16, direction: DataDirection) -> Arc<Self> {
        Arc::new(Self {
            tag: Tag { hw_queue: 0, index },
            lun: 0,
            direction,
            list: bindings::scatterlist::new(512),
            ended: AtomicU32::new(0),
            result: AtomicU32::new(0),
        })
    }

    /// Number of times that the driver has ended the command.
    pub fn ended(&self) -> u32 {
        self.ended.load(Relaxed)
    }
}

/// A command that the driver owns.
pub struct Command(pub Arc<Cmnd>);

impl Command {
    pub fn tag(&self) -> Tag {
        self.0.tag
    }

    pub fn is_failfast(&self) -> bool {
        false
    }

    pub fn is_failfast_driver(&self) -> bool {
        false
    }

    pub fn is_block_read(&self) -> bool {
        true
    }

    pub fn is_first_try(&self) -> bool {
        true
    }

    pub fn len_up_to(&self, _: u64) -> u32 {
        0
    }

    pub fn cdb(&self) -> &[u8] {
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0]
    }

    pub fn lun(&self) -> u64 {
        self.0.lun
    }

    pub fn direction(&self) -> DataDirection {
        self.0.direction
    }

    pub fn data_len(&self) -> u32 {
        match self.0.direction {
            DataDirection::None => 0,
            _ => self.0.list.length,
        }
    }

    pub fn segments(&self) -> u32 {
        1
    }

    pub fn copy_from_buffer(&self, _: DeviceBytesMut<'_>) {}

    pub fn copy_to_buffer(&self, src: DeviceBytes<'_>) -> usize {
        src.len()
    }

    pub fn set_resid(&self, _: u32) {}

    pub fn with_sense(&self, status: u8, sense: &[u8]) -> ScsiResult {
        let code = sense.first().copied().unwrap_or(0);
        ScsiResult::status(status).with_response_code(code)
    }

    /// Ends the command. From now on the midlayer uses it and its memory.
    pub fn done(self, result: ScsiResult) {
        self.0.list.memory.get();
        self.0.result.store(result.number(), Relaxed);
        self.0.ended.fetch_add(1, Relaxed);
        std::mem::forget(self);
    }

    /// Returns the command to the midlayer.
    pub fn release(self) {
        self.0.list.memory.get();
        std::mem::forget(self);
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a command is lost");
    }
}

// SAFETY: The command owns the list.
unsafe impl ScatterList for Command {
    fn list(&self) -> *mut bindings::scatterlist {
        (&raw const self.0.list).cast_mut()
    }

    fn count(&self) -> u32 {
        1
    }

    fn len(&self) -> u32 {
        self.data_len()
    }
}

pub struct Rejected {
    pub cmd: Command,
    pub why: Busy,
}
