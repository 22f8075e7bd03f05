// SPDX-License-Identifier: GPL-2.0

//! A memory region, as the verbs have it.
//!
//! `ib_map_mr_sg()` makes the DMA address of the first byte the address of a region, its `iova`. What
//! a driver does with it when the registration is posted (Linux 7.2, `drivers/infiniband/`):
//!
//! | driver | `IB_WR_REG_MR` | other upper bits |
//! |---|---|---|
//! | mlx5, mlx4 | `start_addr` of the region (`mlx5/wr.c`, `mlx4/qp.c`) | yes |
//! | cxgb4, bnxt_re, hns, irdma, qedr, erdma, pvrdma | the virtual address, as it is | yes |
//! | ionic | the same; of the lower bits the offset in the first page (`ionic_pgtbl_off()`) | yes |
//! | rxe, siw, rdmavt (hfi1) | keeps it, and takes its distance to what a peer asks for | yes |
//! | ocrdma | the same as an offset: `iova - pages[0]` must be within the first page | no |
//! | others (mana, efa, usnic, mthca, what is new) | no fast registration, or not read | no |
//!
//! The offset in the page must stay, whatever the driver: all take it from the lower bits. A page has at most
//! 1 GiB.

use crate::{
    bindings,
    compat,
    rdma::pd::Pd, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*, //
};

/// The upper bits of an address; without the topmost, so that an end never wraps.
const IOVA_UPPER: u64 = 0x7fff_ffff_0000_0000;

/// The bits of a region's address that a driver does not compare with those of its memory, see above.
pub(in crate::rdma) const fn iova_mask(driver: bindings::rdma_driver_id) -> u64 {
    match driver {
        bindings::rdma_driver_id_RDMA_DRIVER_MLX5
        | bindings::rdma_driver_id_RDMA_DRIVER_MLX4
        | bindings::rdma_driver_id_RDMA_DRIVER_CXGB4
        | bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE
        | bindings::rdma_driver_id_RDMA_DRIVER_HNS
        | bindings::rdma_driver_id_RDMA_DRIVER_IRDMA
        | bindings::rdma_driver_id_RDMA_DRIVER_QEDR
        | bindings::rdma_driver_id_RDMA_DRIVER_ERDMA
        | bindings::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA
        | compat::RDMA_DRIVER_IONIC
        | bindings::rdma_driver_id_RDMA_DRIVER_RXE
        | bindings::rdma_driver_id_RDMA_DRIVER_SIW
        | bindings::rdma_driver_id_RDMA_DRIVER_HFI1 => IOVA_UPPER,
        _ => 0,
    }
}

/// Makes a region for `pages` pages.
///
/// # Errors
///
/// Those of the device.
pub(in crate::rdma) fn alloc(
    pd: &Pd,
    kind: bindings::ib_mr_type,
    pages: u32,
) -> Result<*mut bindings::ib_mr> {
    // SAFETY: The protection domain is valid.
    from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })
}

/// Unmakes a region.
///
/// # Safety
///
/// `mr` came from [`alloc`], and no queue pair can use it any more.
pub(in crate::rdma) unsafe fn free(mr: *mut bindings::ib_mr) {
    // SAFETY: By this function's contract.
    unsafe { bindings::ib_dereg_mr_user(mr, core::ptr::null_mut()) };
}

/// Gives a region another key, and another address in the bits of `iova_mask`, with some bits of `random`, and
/// returns both.
///
/// # Safety
///
/// `mr` is valid, the caller's alone, and not posted.
#[inline(always)]
pub(in crate::rdma) unsafe fn name_anew(
    mr: *mut bindings::ib_mr,
    iova_mask: u64,
    random: u64,
) -> (u32, u64) {
    // SAFETY: By this function's contract. A key's lower byte is its owner's to choose.
    let key = unsafe { ((*mr).rkey & !0xff) | u32::from(random as u8) };
    // SAFETY: As above; this is `ib_update_fast_reg_key()`.
    unsafe { (*mr).rkey = key };
    // SAFETY: As above.
    unsafe { (*mr).lkey = key };
    // SAFETY: As above.
    let iova = unsafe { ((*mr).iova & !iova_mask) | (random & iova_mask) };
    // SAFETY: As above. Drivers take the address from here when the registration is posted or
    // executed.
    unsafe { (*mr).iova = iova };
    (key, iova)
}
