// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::Ops;
use crate::{
    bindings,
    compat::user_mr::Register,
    errno::EOPNOTSUPP,
    provider::{
        attr::{
            access,
            PdName, //
        },
        object::{
            provider,
            MrObject, //
        },
        pages::{
            pages_of,
            MrHead, //
        },
        umem::Umem,
        verbs::Region,
        Provider, //
    }, //
};
use core::ffi::{
    c_int,
    c_uint, //
};
use kernel::prelude::*;

/// Access rights that a process may request. The optional ones are hints.
const RIGHTS: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_OPTIONAL;

// See the documentation of `ops` for the guarantees of `ib_core`.
impl<P: Provider> Ops<P> {
    /// # Safety
    ///
    /// The domain belongs to this device.
    unsafe fn new_mr(
        pd: *mut bindings::ib_pd,
        region: Region,
        access: u32,
    ) -> *mut bindings::ib_mr {
        // SAFETY: `pd` is valid.
        let provider = unsafe { provider::<P>((*pd).device) };
        // SAFETY: `pd` is valid.
        let name = unsafe { PdName::of(pd) };
        let created = provider
            .create_mr(name, region, access)
            .and_then(|(mr, key)| {
                // INVARIANT: The pages are those of `mr`.
                let head = MrHead::new(key, P::pages(&mr));
                KBox::new(MrObject::<P::Mr> { head, mr }, GFP_KERNEL).map_err(Error::from)
            });
        match created {
            Ok(object) => KBox::into_raw(object).cast(),
            Err(e) => e.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // CAST: A set of bits.
        // SAFETY: `pd` is valid.
        unsafe { Self::new_mr(pd, Region::All, access as u32) }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        pages: u32,
    ) -> *mut bindings::ib_mr {
        let region = match kind {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => Region::Pages(pages),
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => Region::Pieces(pages),
            _ => return EOPNOTSUPP.to_ptr(),
        };
        // SAFETY: `pd` is valid.
        unsafe { Self::new_mr(pd, region, 0) }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn map_mr_sg(
        raw: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        count: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        provider.describing();
        // SAFETY: `raw` is the first field of a `MrHead`.
        match unsafe { pages_of(raw) } {
            // SAFETY: The arguments are valid; the caller has exclusive use of the region.
            Some(pages) => unsafe { pages.describe(raw, sg, count, offset) },
            None => EINVAL.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn dereg_mr(
        raw: *mut bindings::ib_mr,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `raw` is valid.
        let provider = unsafe { provider::<P>((*raw).device) };
        // SAFETY: `raw` came from `KBox::into_raw` in `new_mr`.
        let object = unsafe { KBox::from_raw(raw.cast::<MrObject<P::Mr>>()) };
        match provider.destroy_mr(&object.mr) {
            Ok(()) => 0,
            Err(e) => {
                // The region still exists.
                let _ = KBox::into_raw(object);
                e.to_errno()
            }
        }
    }
}

impl<P: Provider> Register for Ops<P> {
    unsafe fn register(
        pd: *mut bindings::ib_pd,
        start: u64,
        len: u64,
        iova: u64,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // CAST: A set of bits.
        let access = access as u32;
        if access & !RIGHTS != 0 {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: `pd` is valid; the field is constant.
        let device = unsafe { (*pd).device };
        // SAFETY: `device` is valid; `ib_core` deregisters all regions before it is freed.
        match unsafe { Umem::new(device, start, len, iova, access) } {
            // SAFETY: `pd` is valid.
            Ok(memory) => unsafe { Self::new_mr(pd, Region::Process(memory), access) },
            Err(e) => e.to_ptr(),
        }
    }
}
