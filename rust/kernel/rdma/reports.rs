// SPDX-License-Identifier: GPL-2.0

//! Whether success of `ib_destroy_qp()` and `ib_dereg_mr()` is the result of the device or only of
//! the driver, from the source of Linux 7.3 (`drivers/infiniband/`):
//!
//! | driver | `destroy_qp` | `dereg_mr` |
//! |---|---|---|
//! | ionic | the device's answer (`ionic_controlpath.c`) | the device's |
//! | rxe, siw, rdmavt (hfi1, qib) | the driver is the device | the driver is the device |
//! | mlx5 | warns and returns 0 (`mlx5/qp.c`) | the device's (`mlx5/mr.c`) |
//! | mlx4 | warns and returns 0 (`mlx4/qp.c`) | the device's (`mlx4/mr.c`) |
//! | irdma | returns 0 (`irdma/verbs.c`) | the device's |
//! | bnxt_re | logs and returns 0 (`bnxt_re/ib_verbs.c`) | the device's |
//! | qedr | returns 0 (`qedr/verbs.c`) | the device's |
//! | hns, erdma, cxgb4, ocrdma, pvrdma | return 0 | return 0 |
//! | others | not examined | not examined |

use crate::{
    bindings,
    compat, //
};

/// The objects for which a driver returns the error of its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    pub(super) queue_pairs: bool,
    pub(super) regions: bool,
}

impl Reports {
    /// Looks up `driver` in the table above.
    pub(super) const fn of(driver: bindings::rdma_driver_id) -> Self {
        let queue_pairs = matches!(
            driver,
            compat::RDMA_DRIVER_IONIC
                | bindings::rdma_driver_id_RDMA_DRIVER_RXE
                | bindings::rdma_driver_id_RDMA_DRIVER_SIW
                | bindings::rdma_driver_id_RDMA_DRIVER_HFI1
                | bindings::rdma_driver_id_RDMA_DRIVER_QIB
        );
        let regions = matches!(
            driver,
            bindings::rdma_driver_id_RDMA_DRIVER_MLX5
                | bindings::rdma_driver_id_RDMA_DRIVER_MLX4
                | bindings::rdma_driver_id_RDMA_DRIVER_IRDMA
                | bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE
                | bindings::rdma_driver_id_RDMA_DRIVER_QEDR
        );
        Self {
            queue_pairs,
            regions: queue_pairs || regions,
        }
    }
}
