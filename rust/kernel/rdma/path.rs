// SPDX-License-Identifier: GPL-2.0

//! Paths to another port.
//!
//! C header: [`include/rdma/ib_sa.h`](srctree/include/rdma/ib_sa.h).

use super::{
    device::{
        Device,
        Gid,
        Registered, //
    },
    timeout::packet_life_time, //
};
use crate::bindings;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*, //
};

/// The components of a path record (`struct sa_path_rec`) that are known before the lookup.
#[derive(Clone, Copy, Debug)]
pub struct PathRec {
    /// GID of the local port.
    pub sgid: Gid,
    /// GID of the remote port.
    pub dgid: Gid,
    /// Partition key.
    pub pkey: u16,
    /// Identifier of the service at the remote port.
    pub service_id: u64,
}

impl PathRec {
    /// Returns a request for one path with these components, all others unset.
    pub(super) fn to_raw(self, kind: bindings::sa_path_rec_type) -> bindings::sa_path_rec {
        bindings::sa_path_rec {
            dgid: raw_gid(self.dgid),
            sgid: raw_gid(self.sgid),
            service_id: self.service_id.to_be(),
            pkey: self.pkey.to_be(),
            numb_path: 1,
            rec_type: kind,
            ..Default::default()
        }
    }
}

/// The C form of a GID.
pub(super) fn raw_gid(gid: Gid) -> bindings::ib_gid {
    let mut raw = bindings::ib_gid::default();
    // SAFETY: Every bit pattern is a valid byte array.
    *unsafe { raw.raw.as_mut() } = gid;
    raw
}

/// A reference to an entry of a GID table. It may be dropped in any context.
///
/// # Invariants
///
/// The entry is valid and of `device`, and this object holds one of its references.
pub(super) struct SgidAttr {
    attr: NonNull<bindings::ib_gid_attr>,
    /// Keeps the device registered. The core frees the GID table with the device, even if entries
    /// are referenced; the put of one would then access freed memory.
    device: Registered,
}

// SAFETY: The reference may be dropped in any context.
unsafe impl Send for SgidAttr {}
// SAFETY: A shared reference only reads constant fields of the entry.
unsafe impl Sync for SgidAttr {}

impl SgidAttr {
    /// Finds the entry with `gid` in the GID table of `port`. Tries the types in order.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, `ENODEV` if the device is being removed.
    pub(super) fn find(
        device: &Device,
        port: u32,
        gid: Gid,
        types: &[bindings::ib_gid_type],
    ) -> Result<Self> {
        let gid = raw_gid(gid);
        let device = device.hold()?;
        for kind in types {
            // SAFETY: The device is registered, `gid` is valid for the call, and null matches any
            // network interface.
            let found = unsafe {
                bindings::rdma_find_gid_by_port(device.as_raw(), &gid, *kind, port, null_mut())
            };
            let found = from_err_ptr(found.cast_mut());
            if let Some(found) = found.ok().and_then(NonNull::new) {
                // INVARIANT: The lookup has taken the reference.
                return Ok(Self {
                    attr: found,
                    device,
                });
            }
        }
        Err(ENOENT)
    }

    pub(super) fn as_raw(&self) -> *const bindings::ib_gid_attr {
        self.attr.as_ptr()
    }

    /// The device of the entry.
    fn device(&self) -> &Device {
        &self.device
    }

    /// The type of the entry, an `enum ib_gid_type`.
    pub(super) fn kind(&self) -> bindings::ib_gid_type {
        // SAFETY: By the type invariant the entry is valid; the field is constant.
        unsafe { (*self.as_raw()).gid_type }
    }
}

impl Drop for SgidAttr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the reference, and the device outlives it.
        unsafe { bindings::rdma_put_gid_attr(self.as_raw()) };
    }
}

/// A path to another port, ready for a connection.
pub struct Path {
    record: bindings::sa_path_rec,
    sgid: Option<SgidAttr>,
}

impl Path {
    pub(super) fn new(mut record: bindings::sa_path_rec, sgid: Option<SgidAttr>) -> Self {
        record.packet_life_time = packet_life_time(record.packet_life_time);
        Self { record, sgid }
    }

    /// The destination GID.
    pub fn dgid(&self) -> Gid {
        // SAFETY: Every bit pattern is a valid byte array.
        unsafe { *self.record.dgid.raw.as_ref() }
    }

    /// The source GID.
    pub fn sgid(&self) -> Gid {
        // SAFETY: Every bit pattern is a valid byte array.
        unsafe { *self.record.sgid.raw.as_ref() }
    }

    /// The partition key.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.record.pkey)
    }

    /// Redirects the path to another port of the same subnet, by its LID. The other components stay
    /// unchanged.
    ///
    /// Must not be called for RoCE, which has no LIDs: the next hop would not change.
    pub fn redirect(&mut self, lid: u16, gid: Option<Gid>, pkey: Option<u16>) {
        if let Some(gid) = gid {
            self.record.dgid = raw_gid(gid);
        }
        if let Some(pkey) = pkey {
            self.record.pkey = pkey.to_be();
        }
        // SAFETY: The record is valid for writing.
        unsafe { bindings::srp_helper_sa_path_set_dlid(&mut self.record, u32::from(lid)) };
    }

    pub(super) fn as_raw(&mut self) -> *mut bindings::sa_path_rec {
        &mut self.record
    }

    /// Returns whether the path begins at a port of `device`, or of an unknown device.
    pub(super) fn is_from(&self, device: &Device) -> bool {
        self.sgid
            .as_ref()
            .is_none_or(|sgid| sgid.device().as_raw() == device.as_raw())
    }

    pub(super) fn sgid_attr(&self) -> *const bindings::ib_gid_attr {
        self.sgid
            .as_ref()
            .map_or(core::ptr::null(), SgidAttr::as_raw)
    }
}
