// SPDX-License-Identifier: GPL-2.0

//! Benchmarks of memory registration, transfers and notification on the soft devices, after the
//! Kernel PM2 and Gfarm papers.
//!
//! A module built with `SRP_BENCH=1` runs them when it is loaded. In a guest with a clock that
//! counts instructions, a nanosecond is one instruction. Each result is a line `srp_bench: NAME
//! KEY=VALUE...`; userspace-tests/bench/papers.py reads them.

use super::tests::{
    check,
    link::{
        Link,
        Shape, //
    },
    list::{
        List,
        Piece, //
    },
    peer::{
        within,
        Transfer, //
    },
    soft::{
        Kind,
        Soft, //
    },
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        ScatterList, //
    },
    random::random_u64,
    rdma::{
        mr::{
            Segment, //
        },
        qp::PollContext, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::rcu,
    time::{
        ClockSource,
        Instant,
        Monotonic, //
    }, //
};

/// Number of iterations per measurement.
const ROUNDS: u32 = 20;
/// Maximum number of segments.
const MOST: usize = 512;
/// Size of the peer's memory, and so the maximum length of a request, in bytes.
const CHUNK: usize = 64 << 10;
/// Maximum number of segments of [`transfers`].
const TOGETHER: usize = 32;

/// Returns the average duration of `work` in nanoseconds, after one call to warm up.
fn timed(mut work: impl FnMut() -> Result) -> Result<u64> {
    work()?;
    let began = Instant::<Monotonic>::now();
    for _ in 0..ROUNDS {
        work()?;
    }
    Ok(began.elapsed().as_nanos().unsigned_abs() / u64::from(ROUNDS))
}

/// Creates a list of `count` pieces of `bytes`, no two of them adjacent.
fn scattered(count: usize, bytes: usize) -> Result<List> {
    let mut pieces = KVec::<Piece>::with_capacity(count, GFP_KERNEL)?;
    for number in 0..count {
        pieces.push((2 * number * PAGE_SIZE, bytes), GFP_KERNEL)?;
    }
    List::new((2 * count).next_power_of_two() * PAGE_SIZE, &pieces)
}

/// Creates a list of `count` pieces of `bytes`, each directly after the last.
fn adjacent(count: usize, bytes: usize) -> Result<List> {
    let mut pieces = KVec::<Piece>::with_capacity(count, GFP_KERNEL)?;
    for number in 0..count {
        pieces.push((number * bytes, bytes), GFP_KERNEL)?;
    }
    let pages = (count * bytes).div_ceil(PAGE_SIZE);
    List::new(pages.next_power_of_two() * PAGE_SIZE, &pieces)
}

/// Creates a list of `count` pieces of `bytes` for one region. They are adjacent unless they are
/// whole pages: only the first and last page of a region may be partial.
fn together(count: usize, bytes: usize) -> Result<List> {
    if bytes == PAGE_SIZE {
        scattered(count, bytes)
    } else {
        adjacent(count, bytes)
    }
}

/// Creates a list of `count` pieces of `bytes`, each in the next page.
fn paged(count: usize, bytes: usize) -> Result<List> {
    let mut pieces = KVec::<Piece>::with_capacity(count, GFP_KERNEL)?;
    for number in 0..count {
        pieces.push((number * PAGE_SIZE, bytes), GFP_KERNEL)?;
    }
    List::new(count.next_power_of_two() * PAGE_SIZE, &pieces)
}

/// Registers the lists, each in its own handle, and invalidates them.
fn register(link: &mut Link, lists: &mut KVec<List>) -> Result {
    let count = lists.len();
    for handle in 0..count {
        let list = lists.pop().ok_or(EINVAL)?;
        let place = link.handles.get_mut(handle).ok_or(EINVAL)?;
        place.attach(list).map_err(|_| EBUSY)?;
        place.map(DataDirection::FromDevice, random_u64())?;
        link.qp.live(&rcu::read_lock())?.register(place)?;
    }
    link.revoke_all(0..count)?;
    for handle in 0..count {
        lists.push(link.take(handle)?, GFP_KERNEL)?;
    }
    Ok(())
}

/// Kernel PM2, table 3: compares one handle for all segments with one registration per segment.
fn registrations(soft: &Soft) -> Result {
    let shape = Shape {
        handles: MOST,
        per_handle: 1,
        pages: soft.device.limits().max_pages_per_mr,
        pieces: 1,
        piece_size: PAGE_SIZE,
        reach: PAGE_SIZE,
        context: bindings::ib_poll_context_IB_POLL_DIRECT,
        ours: PollContext::Interrupt,
    };
    let mut link = Link::with(soft, &shape)?;
    for bytes in [1024, 2048, 4096] {
        for count in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            let mut one = 0;
            if count <= shape.pages as usize {
                let mut lists = KVec::with_capacity(1, GFP_KERNEL)?;
                lists.push(together(count, bytes)?, GFP_KERNEL)?;
                one = timed(|| register(&mut link, &mut lists))?;
            }
            let mut lists = KVec::with_capacity(count, GFP_KERNEL)?;
            for _ in 0..count {
                lists.push(scattered(1, bytes)?, GFP_KERNEL)?;
            }
            let each = timed(|| register(&mut link, &mut lists))?;
            pr_info!(
                "srp_bench: registration device={:?} segments={count} bytes={bytes} one={one} \
                 each={each}\n",
                soft.kind
            );
        }
    }
    check!(link.record().failed() == 0);
    Ok(())
}

/// Has the peer write `len` bytes to the segments, in order. They must be long enough.
fn fill(link: &mut Link, segments: &[Segment], len: usize) -> Result {
    let mut left = len;
    for segment in segments {
        let mut at = 0;
        while at < segment.len as usize && left > 0 {
            let n = left.min(CHUNK).min(segment.len as usize - at);
            let part = part(segment, at, n);
            let status = link.peer.transfer_spinning(Transfer::Write, &[part])?;
            check!(status.is_success());
            at += n;
            left -= n;
        }
    }
    Ok(())
}

/// The `len` bytes from `at` of a segment.
fn part(segment: &Segment, at: usize, len: usize) -> Segment {
    Segment {
        addr: segment.addr + at as u64,
        key: segment.key,
        len: len as u32,
    }
}

/// Cuts the segments into those of a request each.
fn requests(segments: &[Segment]) -> Result<KVec<Segment>> {
    let mut all = KVec::new();
    for segment in segments {
        let len = segment.len as usize;
        for at in (0..len).step_by(CHUNK) {
            all.push(part(segment, at, CHUNK.min(len - at)), GFP_KERNEL)?;
        }
    }
    Ok(all)
}

/// Gfarm, figure 5: compares a copy from memory that stays registered with registration of the
/// destination. The peer writes the same bytes in both cases; `transfer` is the cost without the
/// copy.
fn static_and_dynamic(soft: &Soft) -> Result {
    let limits = soft.device.limits();
    let piece_size = limits.max_pages_per_mr.min(16) as usize * PAGE_SIZE;
    let shape = Shape {
        handles: 1,
        per_handle: 8,
        pages: limits.max_pages_per_mr,
        pieces: limits.max_pages_per_mr as usize * PAGE_SIZE / piece_size,
        piece_size,
        reach: piece_size,
        context: bindings::ib_poll_context_IB_POLL_DIRECT,
        ours: PollContext::Interrupt,
    };
    let mut link = Link::with(soft, &shape)?;
    let mut len = 512usize;
    while len <= 4 << 20 {
        let pages = len.div_ceil(PAGE_SIZE);
        let list = paged(pages, len.min(PAGE_SIZE))?;
        let to = list.list();
        let count = list.count();
        let pieces = len.div_ceil(piece_size);
        let mut copied = 0;
        if pieces <= shape.pieces {
            let transfer = |link: &mut Link, copy: bool| -> Result {
                link.send(None)?;
                link.arrived_spinning()?;
                for number in 0..pieces {
                    let n = piece_size.min(len - number * piece_size);
                    let segment = link.piece(number)?.expose(n)?;
                    fill(link, &[segment], n)?;
                    let bytes = link.piece(number)?.read(n);
                    if copy {
                        let skip = (number * piece_size) as _;
                        // SAFETY: The list has `count` entries that cover `len` bytes, and nothing
                        // else uses it; `bytes` has `n` bytes.
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
            pr_info!(
                "srp_bench: transfer device={:?} bytes={len} ns={alone}\n",
                soft.kind
            );
        }
        let mut list = Some(list);
        let placed = timed(|| {
            let place = link.handles.get_mut(0).ok_or(EINVAL)?;
            place
                .attach(list.take().ok_or(EINVAL)?)
                .map_err(|_| EBUSY)?;
            place.map(DataDirection::FromDevice, random_u64())?;
            let segments = link.segments(0)?;
            link.send(Some(0))?;
            link.arrived_spinning()?;
            fill(&mut link, &segments, len)?;
            link.revoke_all(0..1)?;
            list = Some(link.take(0)?);
            Ok(())
        })?;
        pr_info!(
            "srp_bench: place device={:?} bytes={len} static={copied} dynamic={placed}\n",
            soft.kind
        );
        len *= 2;
    }
    Ok(())
}

/// Kernel PM2, figure 11: compares one handle and one transfer for all segments, of a request per
/// 64 KiB, with a handle and a request per segment.
fn transfers(soft: &Soft) -> Result {
    let shape = Shape {
        handles: 1 + TOGETHER,
        per_handle: 1,
        pages: TOGETHER as u32,
        pieces: 1,
        piece_size: PAGE_SIZE,
        reach: PAGE_SIZE,
        context: bindings::ib_poll_context_IB_POLL_DIRECT,
        ours: PollContext::Interrupt,
    };
    let mut link = Link::with(soft, &shape)?;
    for (name, how, direction) in [
        ("read", Transfer::Read, DataDirection::ToDevice),
        ("write", Transfer::Write, DataDirection::FromDevice),
    ] {
        for bytes in [1024, 2048, 4096] {
            let mut count = 1;
            while count <= TOGETHER {
                link.grant(0, together(count, bytes)?, direction)?;
                let mut segments = KVec::with_capacity(count, GFP_KERNEL)?;
                for number in 1..=count {
                    link.grant(number, scattered(1, bytes)?, direction)?;
                    segments.extend_from_slice(&link.segments(number)?, GFP_KERNEL)?;
                }
                let all = requests(&link.segments(0)?)?;
                check!(all.iter().map(|s| s.len as usize).sum::<usize>() == count * bytes);
                let mut transfer = |segments: &[Segment]| {
                    timed(|| {
                        check!(link.peer.transfer_spinning(how, segments)?.is_success());
                        Ok(())
                    })
                };
                let (one, each) = (transfer(&all)?, transfer(&segments)?);
                pr_info!(
                    "srp_bench: rdma device={:?} how={name} segments={count} bytes={bytes} \
                     one={one} each={each}\n",
                    soft.kind
                );
                link.revoke_all(0..count + 1)?;
                for number in 0..=count {
                    link.take(number)?;
                }
                count *= 2;
            }
        }
    }
    Ok(())
}

/// Kernel PM2, figures 4 and 10: measures the time from the sender's call to the receiver's
/// callback, which runs in a softirq, in a workqueue, or in a polling thread.
fn latency(soft: &Soft) -> Result {
    for (name, context) in [
        ("polling", bindings::ib_poll_context_IB_POLL_DIRECT),
        ("softirq", bindings::ib_poll_context_IB_POLL_SOFTIRQ),
        ("workqueue", bindings::ib_poll_context_IB_POLL_WORKQUEUE),
    ] {
        let shape = Shape {
            handles: 1,
            per_handle: 1,
            pages: 1,
            pieces: 1,
            piece_size: PAGE_SIZE,
            reach: PAGE_SIZE,
            context,
            ours: PollContext::Interrupt,
        };
        let mut link = Link::with(soft, &shape)?;
        let (mut sum, mut least, mut most) = (0, u64::MAX, 0);
        // The first round is a warm-up.
        for round in 0..=ROUNDS {
            let began = Monotonic::ktime_get();
            link.send(None)?;
            if context == bindings::ib_poll_context_IB_POLL_DIRECT {
                link.arrived_spinning()?;
            } else {
                within(|| link.arrived_by_itself())?;
            }
            let took = (link.peer.arrived() - began).unsigned_abs();
            if round == 0 {
                continue;
            }
            sum += took;
            least = least.min(took);
            most = most.max(took);
        }
        pr_info!(
            "srp_bench: latency device={:?} by={name} mean={} min={least} max={most}\n",
            soft.kind,
            sum / u64::from(ROUNDS)
        );
    }
    Ok(())
}

/// Runs all benchmarks on each available kind of soft device. Sleeps.
pub(crate) fn run() {
    const ALL: [(&str, fn(&Soft) -> Result); 4] = [
        ("registration", registrations),
        ("rdma", transfers),
        ("latency", latency),
        ("place", static_and_dynamic),
    ];
    for kind in [Kind::Rxe, Kind::Siw] {
        let Some(soft) = Soft::find(kind) else {
            continue;
        };
        for (name, bench) in ALL {
            if let Err(e) = bench(&soft) {
                pr_err!("srp_bench: failed {name} {kind:?}: {}\n", e.to_errno());
            }
        }
    }
    pr_info!("srp_bench: end\n");
}
