// SPDX-License-Identifier: GPL-2.0

//! All personalities.
//!
//! If a driver's source lacks a value that the device reports, the value is that of a common
//! device. Devices that flush requests in hardware flush one at a time.

use super::{
    After,
    Connections,
    Flush,
    Flushed,
    FreeKeys,
    Iova,
    Limits,
    Order,
    Outage,
    Personality,
    Regions,
    Reset,
    Told,
    Variant,
    Verbs, //
};
use crate::provider::attr::Driver;
use kernel::prelude::*;

/// Time from the outage to the unregistration, in ms.
const PAUSE: u32 = 200;
/// Time from unregistration to the next registration, in ms.
const AWAY: u32 = 300;

/// All sends, then all receives, immediately after the call that causes the error.
const SENDS_FIRST: Flush = Flush {
    order: Order::SendsFirst,
    pause: 0,
    at_once: u32::MAX,
};

/// One at a time, in the device's order of completion.
const ONE_BY_ONE: Flush = Flush {
    order: Order::Interleaved,
    pause: 100_000,
    at_once: 1,
};

/// The device dies; its driver unregisters it and registers it again.
const fn dies(flushed: Flushed, told: &'static [Told], verbs: Verbs) -> Reset {
    Reset {
        outage: Outage {
            stops: true,
            flushed,
            told,
            verbs,
        },
        pause: PAUSE,
        after: After::Another(AWAY),
    }
}

/// An adapter with high limits. All verbs keep working while the device is reset.
pub const DEFAULT: Personality = Personality {
    name: "default",
    driver: Driver::QIB,
    limits: Limits {
        qp_wr: 16384,
        send_sge: 32,
        recv_sge: 32,
        read_sge: 32,
        cqe: 1 << 18,
        cq: 1 << 16,
        mr: (1 << 16) - 1,
        reads: 16,
        vectors: u32::MAX,
    },
    regions: Regions {
        pages: 512,
        // 4 KiB to 2 GiB.
        page_sizes: 0xffff_f000,
        len: u64::MAX,
        gaps: false,
        local_dma_lkey: true,
        variant: Variant::Zero,
        iova: Iova::Any,
        offsets: 1,
        free_keys: FreeKeys::None,
    },
    connections: Connections { rnr_retries: true },
    flush: Flush::SIMPLE,
    drains: false,
    moderates: false,
    purges: true,
    reset: dies(Flushed::AtOnce, &[Told::DeviceFatal], Verbs::WORK),
    removal: Outage::NONE,
};

/// ConnectX-4 and later: drains itself, and flushes in software when it is dead.
const MLX5: Personality = Personality {
    name: "mlx5",
    driver: Driver::MLX5,
    limits: Limits {
        qp_wr: 8192,
        send_sge: 30,
        recv_sge: 30,
        read_sge: 30,
        cqe: 4194303,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 65536,
        page_sizes: 0xffff_ffff_ffff_f000,
        local_dma_lkey: false,
        variant: Variant::Changing,
        gaps: true,
        free_keys: FreeKeys::Any,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    drains: true,
    moderates: true,
    reset: dies(
        Flushed::AtOnce,
        &[Told::DeviceFatal],
        Verbs {
            modify: Some(EIO),
            create: Some(EIO),
            post: Some(EIO),
            ..Verbs::WORK
        },
    ),
    ..DEFAULT
};

/// ConnectX-3: like mlx5, except that a dead device refuses the move to the error state.
const MLX4: Personality = Personality {
    name: "mlx4",
    driver: Driver::MLX4,
    limits: Limits {
        qp_wr: 16351,
        send_sge: 32,
        recv_sge: 32,
        read_sge: 32,
        cqe: 4194303,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 511,
        page_sizes: 0xffff_fe00,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    drains: true,
    reset: dies(
        Flushed::AtOnce,
        &[Told::DeviceFatal],
        Verbs {
            post: Some(EIO),
            ..Verbs::fail(Some(EIO))
        },
    ),
    ..DEFAULT
};

/// E810: software flushes late; a dead device does not flush and does not release regions.
const IRDMA: Personality = Personality {
    name: "irdma",
    driver: Driver::IRDMA,
    limits: Limits {
        qp_wr: 4063,
        send_sge: 13,
        recv_sge: 13,
        read_sge: 13,
        cqe: 1048574,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 262144,
        page_sizes: 0x4020_1000,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: Flush {
        pause: 20_000_000,
        ..SENDS_FIRST
    },
    reset: dies(
        Flushed::Never,
        &[],
        Verbs {
            create: Some(EBUSY),
            dereg: Some(EBUSY),
            ..Verbs::fail(Some(EINVAL))
        },
    ),
    ..DEFAULT
};

/// The firmware reports that the device is dead.
const BNXT_RE: Personality = Personality {
    name: "bnxt_re",
    driver: Driver::BNXT_RE,
    limits: Limits {
        qp_wr: 4095,
        send_sge: 6,
        recv_sge: 6,
        read_sge: 6,
        cqe: 1048575,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 512,
        page_sizes: 0x7fff_f000,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    reset: dies(
        Flushed::WhenTried,
        &[Told::QpFatal],
        Verbs::fail(Some(ETIMEDOUT)),
    ),
    ..DEFAULT
};

/// HIP09: a dead device refuses the move to the error state twice, then accepts it without effect.
const HNS: Personality = Personality {
    name: "hns",
    driver: Driver::HNS,
    limits: Limits {
        qp_wr: 32768,
        send_sge: 64,
        recv_sge: 64,
        read_sge: 64,
        cqe: 4194304,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 512,
        page_sizes: 0x0fff_f000,
        local_dma_lkey: false,
        variant: Variant::Changing,
        offsets: 128,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    drains: true,
    reset: dies(
        Flushed::AtOnce,
        &[],
        Verbs {
            stops: 2,
            post: Some(EIO),
            ..Verbs::fail(Some(EBUSY))
        },
    ),
    ..DEFAULT
};

/// Elastic RDMA: only the hardware flushes.
const ERDMA: Personality = Personality {
    name: "erdma",
    driver: Driver::ERDMA,
    limits: Limits {
        qp_wr: 8192,
        send_sge: 6,
        recv_sge: 1,
        read_sge: 6,
        cqe: 1048576,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 512,
        page_sizes: 0x7fff_f000,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: ONE_BY_ONE,
    reset: dies(Flushed::Never, &[], Verbs::fail(Some(ENODEV))),
    ..DEFAULT
};

/// No REG_MR regions, so no login.
const MANA: Personality = Personality {
    name: "mana",
    driver: Driver::MANA,
    limits: Limits {
        qp_wr: 8192,
        send_sge: 8,
        recv_sge: 8,
        read_sge: 8,
        cqe: 65536,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 0,
        ..DEFAULT.regions
    },
    ..DEFAULT
};

/// A reset or removal first fails all admin commands. The device stays dead after a reset.
const IONIC: Personality = Personality {
    name: "ionic",
    driver: Driver::IONIC,
    limits: Limits {
        qp_wr: 65535,
        send_sge: 8,
        recv_sge: 8,
        read_sge: 8,
        cqe: 65435,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 32768,
        page_sizes: 0x7fff_f000,
        local_dma_lkey: false,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    reset: Reset {
        outage: Outage {
            told: &[Told::DeviceFatal],
            ..ADMIN_KILLED
        },
        pause: 0,
        after: After::Nothing,
    },
    removal: ADMIN_KILLED,
    ..DEFAULT
};

/// The outage of ionic before its driver unregisters the device.
const ADMIN_KILLED: Outage = Outage {
    stops: true,
    flushed: Flushed::AtOnce,
    told: &[],
    verbs: Verbs::fail(Some(ENODEV)),
};

/// A dead device accepts the move to the error state, but flushes nothing.
const QEDR: Personality = Personality {
    name: "qedr",
    driver: Driver::QEDR,
    limits: Limits {
        qp_wr: 32767,
        send_sge: 4,
        recv_sge: 4,
        read_sge: 4,
        cqe: 8388000,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 8192,
        page_sizes: 0xffff_f000,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: ONE_BY_ONE,
    purges: false,
    reset: dies(
        Flushed::Never,
        &[],
        Verbs {
            create: Some(EBUSY),
            ..Verbs::WORK
        },
    ),
    removal: Outage {
        told: &[Told::PortErr],
        ..Outage::NONE
    },
    ..DEFAULT
};

/// iWARP, as far as InfiniBand connections permit: a message that finds no receive request ends the
/// connection.
const CXGB4: Personality = Personality {
    name: "cxgb4",
    driver: Driver::CXGB4,
    limits: Limits {
        qp_wr: 8191,
        send_sge: 17,
        recv_sge: 4,
        read_sge: 1,
        cqe: 65518,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 128,
        page_sizes: 0x0fff_f000,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    connections: Connections { rnr_retries: false },
    reset: dies(
        Flushed::AtOnce,
        &[Told::DeviceFatal],
        Verbs {
            modify: Some(EIO),
            create: Some(EIO),
            ..Verbs::WORK
        },
    ),
    ..DEFAULT
};

/// Takes the address of a region as an offset. A dead device refuses the move to the error state
/// once.
const OCRDMA: Personality = Personality {
    name: "ocrdma",
    driver: Driver::OCRDMA,
    limits: Limits {
        qp_wr: 4096,
        send_sge: 6,
        recv_sge: 6,
        read_sge: 6,
        cqe: 8192,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 1024,
        page_sizes: 0x0fff_f000,
        variant: Variant::Changing,
        iova: Iova::FirstPage,
        ..DEFAULT.regions
    },
    flush: SENDS_FIRST,
    reset: dies(
        Flushed::WhenTried,
        &[],
        Verbs {
            stop: Some(EPERM),
            stops: 1,
            ..Verbs::WORK
        },
    ),
    removal: Outage {
        told: &[Told::PortErr],
        ..Outage::NONE
    },
    ..DEFAULT
};

/// One completion vector; only the hardware flushes.
const VMW_PVRDMA: Personality = Personality {
    name: "vmw_pvrdma",
    driver: Driver::VMW_PVRDMA,
    limits: Limits {
        qp_wr: 4096,
        send_sge: 16,
        recv_sge: 16,
        read_sge: 16,
        cqe: 65536,
        vectors: 1,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 128,
        page_sizes: 0xffff_f000,
        local_dma_lkey: false,
        variant: Variant::Changing,
        ..DEFAULT.regions
    },
    flush: ONE_BY_ONE,
    reset: dies(Flushed::Never, &[], Verbs::fail(Some(ETIMEDOUT))),
    ..DEFAULT
};

/// Software: two tasks flush. A reset is only a removal.
const RXE: Personality = Personality {
    name: "rxe",
    driver: Driver::RXE,
    limits: Limits {
        qp_wr: 1048576,
        send_sge: 32,
        recv_sge: 32,
        read_sge: 32,
        cqe: 32767,
        ..DEFAULT.limits
    },
    regions: Regions {
        pages: 512,
        page_sizes: 0xffff_f000,
        local_dma_lkey: false,
        variant: Variant::Changing,
        free_keys: FreeKeys::Same,
        ..DEFAULT.regions
    },
    flush: Flush {
        order: Order::Interleaved,
        ..SENDS_FIRST
    },
    purges: false,
    reset: Reset {
        outage: Outage::NONE,
        pause: 0,
        after: After::Another(AWAY),
    },
    ..DEFAULT
};

/// All personalities.
pub const PERSONALITIES: &[&Personality] = &[
    &DEFAULT,
    &MLX5,
    &MLX4,
    &IRDMA,
    &BNXT_RE,
    &HNS,
    &ERDMA,
    &MANA,
    &IONIC,
    &QEDR,
    &CXGB4,
    &OCRDMA,
    &VMW_PVRDMA,
    &RXE,
];
