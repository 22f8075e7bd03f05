// SPDX-License-Identifier: GPL-2.0

//! What memory registration costs, as the papers measured it, on a soft device.
//!
//! Only in a build with `SRP_BENCH=1`. In a guest whose clock counts instructions a nanosecond is one.
//! Each result is a line `srp_bench: NAME KEY=VALUE...`; userspace-tests/bench/papers.py reads them.

use super::{
    check,
    link::{
        Link,
        Shape, //
    },
    list::{
        List,
        Piece, //
    },
    peer::Transfer,
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    rdma::{
        dma::Direction,
        mr::{
            ScatterList,
            Segment, //
        }, //
    },
    sys::random_u64, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    },
};

/// How often each thing is done.
const ROUNDS: u32 = 20;
/// Most handles of a connection here.
const MOST: usize = 32;
/// Bytes of the peer's memory.
const CHUNK: usize = 64 << 10;

/// Nanoseconds that `work` takes, on average; once before does not count.
fn timed(mut work: impl FnMut() -> Result) -> Result<u64> {
    work()?;
    let began = Instant::<Monotonic>::now();
    for _ in 0..ROUNDS {
        work()?;
    }
    Ok(began.elapsed().as_nanos() as u64 / u64::from(ROUNDS))
}

/// `count` pieces of `bytes`, no two of which are neighbours.
fn scattered(count: usize, bytes: usize) -> Result<List> {
    let mut pieces = KVec::<Piece>::with_capacity(count, GFP_KERNEL)?;
    for number in 0..count {
        pieces.push((2 * number * PAGE_SIZE, bytes), GFP_KERNEL)?;
    }
    List::new((2 * count).next_power_of_two(), &pieces)
}

/// Registers the lists and invalidates them again, each in a handle of its own.
fn register(link: &mut Link, lists: &mut KVec<List>) -> Result {
    let count = lists.len();
    for handle in 0..count {
        let list = lists.pop().ok_or(EINVAL)?;
        let place = link.handles.get_mut(handle).ok_or(EINVAL)?;
        place.attach(list).map_err(|_| EBUSY)?;
        place.map(Direction::FromDevice, random_u64())?;
        let register = place.register().ok_or(EINVAL)?;
        link.qp.post_register(register)?;
    }
    link.revoke_all(0..count)?;
    for handle in 0..count {
        lists.push(link.take(handle)?, GFP_KERNEL)?;
    }
    Ok(())
}

/// Kernel PM2, table 3: one handle for all segments against one registration for each.
fn registrations(soft: &Soft) -> Result {
    let shape = Shape {
        handles: MOST,
        per_handle: 1,
        pages: soft.device.limits().max_pages_per_mr,
        pieces: 1,
        piece_size: PAGE_SIZE,
    };
    let mut link = Link::with(soft, &shape)?;
    for bytes in [1024, 2048, 4096] {
        for count in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            // A region holds whole pages with parts at its ends only.
            let together = bytes == PAGE_SIZE && count <= shape.pages as usize;
            let mut one = 0;
            if together || count == 1 {
                let mut lists = KVec::with_capacity(1, GFP_KERNEL)?;
                lists.push(scattered(count, bytes)?, GFP_KERNEL)?;
                one = timed(|| register(&mut link, &mut lists))?;
            }
            let mut each = 0;
            if count <= MOST {
                let mut lists = KVec::with_capacity(count, GFP_KERNEL)?;
                for _ in 0..count {
                    lists.push(scattered(1, bytes)?, GFP_KERNEL)?;
                }
                each = timed(|| register(&mut link, &mut lists))?;
            }
            pr_info!(
                "srp_bench: registration segments={count} bytes={bytes} one={one} each={each}\n"
            );
        }
    }
    check!(link.record().failed() == 0);
    Ok(())
}

/// The peer writes `len` bytes to segments, which have them, from their beginnings.
fn fill(link: &mut Link, segments: &[Segment], len: usize) -> Result {
    let mut left = len;
    for segment in segments {
        let mut at = 0;
        while at < segment.len as usize && left > 0 {
            let n = left.min(CHUNK).min(segment.len as usize - at);
            let part = Segment {
                addr: segment.addr + at as u64,
                key: segment.key,
                len: n as u32,
            };
            check!(link
                .peer
                .transfer_spinning(Transfer::Write, &part)?
                .is_success());
            at += n;
            left -= n;
        }
    }
    Ok(())
}

/// Gfarm, figure 5: a copy from memory that stays registered against registration in place. The peer
/// writes the same in both cases; `transfer` is what that alone costs.
fn static_and_dynamic(soft: &Soft) -> Result {
    let limits = soft.device.limits();
    let piece_size = limits.max_pages_per_mr.min(16) as usize * PAGE_SIZE;
    let shape = Shape {
        handles: 1,
        per_handle: 8,
        pages: limits.max_pages_per_mr,
        pieces: limits.max_pages_per_mr as usize * PAGE_SIZE / piece_size,
        piece_size,
    };
    let mut link = Link::with(soft, &shape)?;
    let mut len = 512usize;
    while len <= 4 << 20 {
        let pages = len.div_ceil(PAGE_SIZE);
        let list = scattered(pages, len.min(PAGE_SIZE))?;
        let to = list.list();
        let count = list.count();
        let pieces = len.div_ceil(piece_size);
        let mut copied = 0;
        if pieces <= shape.pieces {
            let mut transfer = |link: &mut Link, copy: bool| -> Result {
                link.send(None)?;
                link.arrived_spinning()?;
                for number in 0..pieces {
                    let n = piece_size.min(len - number * piece_size);
                    let segment = link.piece(number)?.give(n as u32)?;
                    fill(link, &[segment], n)?;
                    let bytes = link.piece(number)?.take(n as u32);
                    if copy {
                        let skip = (number * piece_size) as _;
                        // SAFETY: The list has `count` entries that cover `len` bytes, and nobody else
                        // uses it; there are `n` bytes to copy.
                        unsafe {
                            bindings::sg_pcopy_from_buffer(
                                to,
                                count,
                                bytes.as_ptr().cast(),
                                n,
                                skip,
                            )
                        };
                    }
                }
                Ok(())
            };
            let alone = timed(|| transfer(&mut link, false))?;
            copied = timed(|| transfer(&mut link, true))?;
            pr_info!("srp_bench: transfer bytes={len} ns={alone}\n");
        }
        let mut list = Some(list);
        let placed = timed(|| {
            let place = link.handles.get_mut(0).ok_or(EINVAL)?;
            place
                .attach(list.take().ok_or(EINVAL)?)
                .map_err(|_| EBUSY)?;
            place.map(Direction::FromDevice, random_u64())?;
            let mut segments = [Segment {
                addr: 0,
                key: 0,
                len: 0,
            }; 8];
            for (to, from) in segments.iter_mut().zip(place.segments()) {
                *to = from;
            }
            let register = place.register().ok_or(EINVAL)?;
            link.qp.post_register(register)?;
            // The registration is done when what follows it is, and the peer must not be earlier.
            link.send(None)?;
            link.arrived_spinning()?;
            fill(&mut link, &segments, len)?;
            link.revoke_all(0..1)?;
            list = Some(link.take(0)?);
            Ok(())
        })?;
        pr_info!("srp_bench: place bytes={len} static={copied} dynamic={placed}\n");
        len *= 2;
    }
    Ok(())
}

suite!(
    srp_bench_rxe,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [registrations, static_and_dynamic]
);
suite!(
    srp_bench_siw,
    siw,
    crate::rdma::tests::soft::Kind::Siw,
    [registrations, static_and_dynamic]
);
