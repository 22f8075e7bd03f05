// SPDX-License-Identifier: GPL-2.0

//! Memory that a peer may write for the duration of a connection.

use super::{
    check,
    check_eq,
    link::{
        Link,
        Shape,
        PIECES,
        SHAPE, //
    },
    peer::{
        within,
        Transfer, //
    },
    soft::Soft,
    suite, //
};
use crate::{
    dma::{
        DataDirection,
        DeviceBytes, //
    },
    rdma::{
        dma::{
            Pool,
            MAX_CHUNK, //
        },
        mr::{
            FixedMr,
            Segment, //
        },
        pd::Pd, //
    }, //
};
use kernel::prelude::*;

fn theirs(piece: usize, at: usize) -> u8 {
    (at.wrapping_mul(211) >> 2) as u8 ^ (piece as u8).wrapping_mul(57)
}

/// Returns byte `at`. The device must have finished its access.
fn byte(bytes: DeviceBytes<'_>, at: usize) -> Option<u8> {
    if at >= bytes.len() {
        return None;
    }
    // SAFETY: `at` is below the length.
    let byte = unsafe { bytes.as_ptr().add(at) };
    // SAFETY: `bytes` contains the byte, and the device has finished its access.
    Some(unsafe { byte.read_volatile() })
}

/// Lets the peer write the first `len` bytes of each piece, and checks them.
fn written(link: &mut Link, len: usize) -> Result {
    for number in 0..PIECES {
        let segment = link.piece(number)?.expose(len)?;
        for (at, byte) in link.peer.source().iter_mut().take(len).enumerate() {
            *byte = theirs(number, at);
        }
        check!(link.peer.transfer(Transfer::Write, &segment)?.is_success());
    }
    // A message sent after a transfer arrives after it.
    let before = link.record().received();
    link.peer.send(4)?;
    within(|| link.record().received() > before)?;
    for number in 0..PIECES {
        let bytes = link.piece(number)?.read(len);
        check_eq!(bytes.len(), len);
        for at in 0..len {
            check_eq!(byte(bytes, at), Some(theirs(number, at)));
        }
    }
    Ok(())
}

fn peer_writes_all_pieces(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    for len in [link.piece(0)?.reach, 1, 513] {
        written(&mut link, len)?;
    }
    check_eq!(link.record().wrong() + link.record().failed(), 0);
    Ok(())
}

/// Tries a transfer that must fail.
fn refused(mut link: Link, how: Transfer, segment: &Segment) -> Result {
    let status = link.peer.transfer(how, segment)?;
    // An iWARP write completes when it is sent; the connection ends after it has arrived.
    within(|| link.is_over() || !status.is_success())?;
    link.qp.shutdown();
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

fn memory_ends_with_the_last_piece(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    let last = link.piece(PIECES - 1)?;
    let mut segment = last.expose(last.reach)?;
    segment.addr += 1;
    refused(link, Transfer::Write, &segment)?;
    let mut link = Link::new(soft)?;
    let mut segment = link.piece(0)?.expose(1)?;
    segment.addr -= 1;
    refused(link, Transfer::Write, &segment)
}

fn memory_cannot_be_read(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    let segment = link.piece(1)?.expose(64)?;
    refused(link, Transfer::Read, &segment)
}

fn each_connection_has_its_own_key(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    written(&mut link, 100)?;
    let old = link.piece(0)?.expose(100)?;
    link.qp.destroy();
    link.again(soft)?;
    written(&mut link, 100)?;
    let new = link.piece(0)?.expose(100)?;
    check!((old.addr, old.key) != (new.addr, new.key));
    refused(link, Transfer::Write, &old)
}

fn only_the_beginning_of_a_piece_is_reached(soft: &Soft) -> Result {
    let mut link = Link::with(
        soft,
        &Shape {
            reach: SHAPE.piece_size / 2,
            ..SHAPE
        },
    )?;
    // With large pages it is the whole piece.
    let half = link.piece(1)?.reach;
    check_eq!(link.piece(1)?.expose(half + 1).err(), Some(EMSGSIZE));
    // The next piece begins at offset `half`.
    written(&mut link, half)?;
    let mut segment = link.piece(PIECES - 1)?.expose(half)?;
    segment.addr += 1;
    refused(link, Transfer::Write, &segment)
}

fn messages_have_two_parts(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    for round in 0..40 {
        // A message has at least 4 bytes.
        link.send_parted(round % PIECES, 1 + round % 4)?;
        link.arrived()?;
    }
    // Other memory, of this domain or not, is not sent.
    for pd in [link.pd.clone(), Pd::new(soft.device.hold()?)?] {
        let (_, mut chunks) = Pool::shared(&pd, 1, 64, DataDirection::ToDevice)?;
        let chunk = chunks.first_mut().ok_or(EINVAL)?;
        check_eq!(link.send_with(chunk).err(), Some(EINVAL));
    }
    check_eq!(link.record().wrong() + link.record().failed(), 0);
    Ok(())
}

fn sizes_are_checked(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let limits = soft.device.limits();
    let page = limits.mr_page_size as usize;
    let both = DataDirection::Bidirectional;
    for (count, size, reach) in [
        (4, page / 2, page / 2),
        (4, page + 1, page),
        (4, page + 64, page),
        (4, page, 2 * page),
        (4, page, page / 2),
        (4, page, 0),
        (0, page, page),
    ] {
        if size > MAX_CHUNK {
            continue;
        }
        let (pool, chunks) = Pool::shared(&pd, count, size, both)?;
        let wrong = FixedMr::new(&pd, &pool, &chunks, reach);
        check_eq!(wrong.err(), Some(EINVAL));
    }
    if 2 * page > MAX_CHUNK {
        return Ok(());
    }
    let (pool, chunks) = Pool::shared(&pd, 8, 2 * page, both)?;
    // The chunks of another pool, and chunks that the device only reads.
    let (other, _) = Pool::shared(&pd, 8, 2 * page, both)?;
    let wrong = FixedMr::new(&pd, &other, &chunks, page);
    check_eq!(wrong.err(), Some(EINVAL));
    let (reads, read) = Pool::shared(&pd, 8, 2 * page, DataDirection::ToDevice)?;
    let wrong = FixedMr::new(&pd, &reads, &read, page);
    check_eq!(wrong.err(), Some(EINVAL));
    // As many chunks as the device supports, and one more.
    let most = limits.max_pages_per_mr as usize * page / MAX_CHUNK;
    let (all, list) = Pool::shared(&pd, most + 1, MAX_CHUNK, both)?;
    let large = FixedMr::new(&pd, &all, &list, MAX_CHUNK);
    check_eq!(large.err(), Some(EINVAL));
    let fitting = list.get(1..).ok_or(EINVAL)?;
    check!(FixedMr::new(&pd, &all, fitting, MAX_CHUNK).is_ok());
    for reach in [2 * page, page] {
        let (_mr, parts) = FixedMr::new(&pd, &pool, &chunks, reach)?;
        check_eq!(parts.len(), 8);
        let part = parts.get(7).ok_or(EINVAL)?;
        check!(part.segment(reach as u32).is_ok());
        check_eq!(part.segment(reach as u32 + 1).err(), Some(EMSGSIZE));
    }
    Ok(())
}

/// A chunk never gives out more bytes than it has.
fn chunks_end(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let (_, mut chunks) = Pool::shared(&pd, 2, 700, DataDirection::Bidirectional)?;
    let chunk = chunks.first_mut().ok_or(EINVAL)?;
    check!(chunk.as_chunk().part(700).is_ok());
    check_eq!(chunk.as_chunk().part(701).err(), Some(EMSGSIZE));
    check_eq!(chunk.place(usize::MAX).len(), 700);
    check_eq!(chunk.sync_for_cpu(usize::MAX).len(), 700);
    Ok(())
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr, [$($more:ident),*];)*) => {
        $(
            suite!($suite, $module, $kind, [
                $($more,)*
                peer_writes_all_pieces,
                memory_ends_with_the_last_piece,
                each_connection_has_its_own_key,
                only_the_beginning_of_a_piece_is_reached,
                messages_have_two_parts,
                sizes_are_checked,
                chunks_end,
            ]);
        )*
    };
}

suites!(
    // siw serves reads without checking the access rights.
    srp_fixed_rxe rxe crate::rdma::tests::soft::Kind::Rxe, [memory_cannot_be_read];
    srp_fixed_siw siw crate::rdma::tests::soft::Kind::Siw, [];
);
