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

/// What is known of a path before it is looked up: these components of its path record (`struct sa_path_rec`).
#[derive(Clone, Copy, Debug)]
pub struct PathRec {
    /// Our port's GID.
    pub sgid: Gid,
    /// The other port's GID.
    pub dgid: Gid,
    /// The partition.
    pub pkey: u16,
    /// What is to be reached there.
    pub service_id: u64,
}

impl PathRec {
    /// A path record with these components and nothing else.
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

/// A counted entry of a GID table. It may be dropped in any context.
///
/// # Invariants
///
/// The entry is valid and of `device`, and one of its references is this object's.
pub(super) struct SgidAttr {
    attr: NonNull<bindings::ib_gid_attr>,
    /// The core frees the table with the device, whatever entries are counted; what is left of one
    /// looks at it then.
    device: Registered,
}

// SAFETY: The reference may be given up in any context.
unsafe impl Send for SgidAttr {}
// SAFETY: What a shared one reads of the entry is constant.
unsafe impl Sync for SgidAttr {}

impl SgidAttr {
    /// Finds the entry of a port with this GID, of one of these types, the first that there is.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, `ENODEV` if the device goes.
    pub(super) fn find(
        device: &Device,
        port: u32,
        gid: Gid,
        types: &[bindings::ib_gid_type],
    ) -> Result<Self> {
        let gid = raw_gid(gid);
        let device = device.hold()?;
        for kind in types {
            // SAFETY: The device is registered, `gid` is valid for the call, and any network
            // interface will do.
            let found = unsafe {
                bindings::rdma_find_gid_by_port(device.as_raw(), &gid, *kind, port, null_mut())
            };
            let found = from_err_ptr(found.cast_mut());
            if let Some(found) = found.ok().and_then(NonNull::new) {
                // INVARIANT: The lookup has counted a reference.
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

    /// The device that it is of.
    fn device(&self) -> &Device {
        &self.device
    }

    /// `enum ib_gid_type`.
    pub(super) fn kind(&self) -> bindings::ib_gid_type {
        // SAFETY: By the type invariant; the field is constant.
        unsafe { (*self.as_raw()).gid_type }
    }
}

impl Drop for SgidAttr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours to give up, and the device goes after
        // it.
        unsafe { bindings::rdma_put_gid_attr(self.as_raw()) };
    }
}

/// A path to another port, ready to connect along.
pub struct Path {
    record: bindings::sa_path_rec,
    sgid: Option<SgidAttr>,
}

impl Path {
    pub(super) fn new(mut record: bindings::sa_path_rec, sgid: Option<SgidAttr>) -> Self {
        record.packet_life_time = packet_life_time(record.packet_life_time);
        Self { record, sgid }
    }

    /// The GID that it leads to.
    pub fn dgid(&self) -> Gid {
        // SAFETY: Every bit pattern is a valid byte array.
        unsafe { *self.record.dgid.raw.as_ref() }
    }

    /// The GID that it comes from.
    pub fn sgid(&self) -> Gid {
        // SAFETY: Every bit pattern is a valid byte array.
        unsafe { *self.record.sgid.raw.as_ref() }
    }

    /// Its partition.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.record.pkey)
    }

    /// Has it lead to another port of the same subnet, whose LID is known, with the rest of it as it is.
    ///
    /// Not for RoCE, which has no LIDs: the next hop would be the old one.
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

    /// It begins at a port of this device, or it is not known where.
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
