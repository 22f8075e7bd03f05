// SPDX-License-Identifier: GPL-2.0

//! An RDMA device, and names of parts that are not modelled.

use crate::bindings;
use core::ops::Deref;
use kernel::{prelude::*, sync::Arc};

pub use super::limits::Limits;

/// The module name that is passed to the verbs.
pub const CALLER: Caller = Caller;

pub struct Caller;

impl Caller {
    pub fn as_char_ptr(&self) -> *const core::ffi::c_char {
        c"loom".as_ptr()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    InfiniBand,
    Opa,
    Roce,
    Other,
}

pub struct Name;

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("loom0")
    }
}

pub struct Device;

/// The device.
pub static DEVICE: Device = Device;

impl Device {
    pub fn as_raw(&self) -> *mut bindings::ib_device {
        core::ptr::null_mut()
    }

    pub fn name(&self) -> Name {
        Name
    }

    pub fn fabric(&self, _: u32) -> Fabric {
        Fabric::InfiniBand
    }

    pub fn limits(&self) -> Limits {
        Limits {
            max_qp_wr: 1024,
            max_cqe: 1024,
            max_send_sge: 2,
            max_qp_rd_atom: 1,
            mr_page_size: 4096,
            max_pages_per_mr: 16,
            sg_gaps: true,
            bounces: false,
            memory_page: 4096,
            iova_mask: 0,
            max_segment_size: 65536,
            num_comp_vectors: 1,
        }
    }

    pub fn hold(&self) -> Result<Registered> {
        Ok(Registered)
    }
}

pub struct Registered;

impl Deref for Registered {
    type Target = Device;

    fn deref(&self) -> &Device {
        &DEVICE
    }
}

/// A device without failures.
pub struct Health;

impl Health {
    pub fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self, GFP_KERNEL)?)
    }

    pub fn is_going(&self) -> bool {
        false
    }
}

pub mod cm {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EventKind {
        Disconnected,
    }

    impl core::fmt::Display for EventKind {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("disconnected")
        }
    }
}

pub mod wc {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Status(pub u32);

    impl Status {
        pub fn number(self) -> u32 {
            self.0
        }
    }

    impl core::fmt::Display for Status {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("status")
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags(pub i32);

    impl Flags {
        pub fn with_imm(self) -> bool {
            false
        }

        pub fn with_invalidate(self) -> bool {
            false
        }
    }
}
