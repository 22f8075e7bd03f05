// SPDX-License-Identifier: GPL-2.0

//! The addresses of memory regions.
//!
//! `ib_map_mr_sg()` sets the address of a region, its `iova`, to the DMA address of the first byte.
//! When the registration is posted, drivers use it as follows (Linux 7.2, `drivers/infiniband/`):
//!
//! | driver | `IB_WR_REG_MR` | upper bits may differ |
//! |---|---|---|
//! | mlx5, mlx4 | `start_addr` of the region (`mlx5/wr.c`, `mlx4/qp.c`) | yes |
//! | cxgb4, bnxt_re, hns, irdma, qedr, erdma, pvrdma | the virtual address, as it is | yes |
//! | ionic | the same; of the lower bits the offset in the first page (`ionic_pgtbl_off()`) | yes |
//! | rxe, siw, rdmavt (hfi1) | keeps it, and subtracts it from the address in a request | yes |
//! | ocrdma | the same as an offset: `iova - pages[0]` must be within the first page | no |
//! | others (mana, efa, usnic, mthca, new ones) | no fast registration, or not examined | no |
//!
//! The offset in the page must not change: drivers use the lower bits. A page is at most 1 GiB.

use crate::{
    bindings,
    compat, //
};

/// The upper bits of an address, without the topmost, so that an end address never wraps.
const IOVA_UPPER: u64 = 0x7fff_ffff_0000_0000;

/// The bits of a region's address that a driver does not compare with its DMA address.
pub(super) const fn iova_mask(driver: bindings::rdma_driver_id) -> u64 {
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
