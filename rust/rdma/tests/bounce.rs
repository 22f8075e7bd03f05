// SPDX-License-Identifier: GPL-2.0

//! Memory that a peer may write as long as a connection lasts.

use super::{
    check,
    check_eq,
    link::{
        Link,
        Shape,
        PIECES,
        PIECE_SIZE,
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
    dma::DeviceBytes,
    rdma::{
        bounce::Bounce,
        mr::Segment,
        pd::Pd, //
    }, //
};
use kernel::prelude::*;

fn theirs(piece: usize, at: usize) -> u8 {
    (at.wrapping_mul(211) >> 2) as u8 ^ (piece as u8).wrapping_mul(57)
}

/// Byte `at`, of a device that is done with it.
fn byte(bytes: DeviceBytes<'_>, at: usize) -> Option<u8> {
    if at >= bytes.len() {
        return None;
    }
    // SAFETY: It is one of the bytes.
    let byte = unsafe { bytes.as_ptr().add(at) };
    // SAFETY: As above.
    Some(unsafe { byte.read_volatile() })
}

/// Has the peer write the first `len` bytes of each piece, and looks at them.
fn written(link: &mut Link, len: usize) -> Result {
    for number in 0..PIECES {
        let segment = link.piece(number)?.give(len as u32)?;
        for (at, byte) in link.peer.source().iter_mut().take(len).enumerate() {
            *byte = theirs(number, at);
        }
        check!(link.peer.transfer(Transfer::Write, &segment)?.is_success());
    }
    // What is sent after a transfer arrives after it.
    let before = link.record().received();
    link.peer.send(4)?;
    within(|| link.record().received() > before)?;
    for number in 0..PIECES {
        let bytes = link.piece(number)?.take(len as u32);
        check_eq!(bytes.len(), len);
        for at in 0..len {
            check_eq!(byte(bytes, at), Some(theirs(number, at)));
        }
    }
    Ok(())
}

fn peer_writes_all_pieces(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    for len in [PIECE_SIZE, 1, 513] {
        written(&mut link, len)?;
    }
    check_eq!(link.record().wrong() + link.record().failed(), 0);
    Ok(())
}

/// A transfer that must not succeed.
fn refused(mut link: Link, how: Transfer, segment: &Segment) -> Result {
    let status = link.peer.transfer(how, segment)?;
    // An iWARP write is done when it is on its way; the connection ends when it has arrived.
    within(|| link.is_over() || !status.is_success())?;
    link.qp.shutdown();
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

fn memory_ends_with_the_last_piece(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    let mut segment = link.piece(PIECES - 1)?.give(PIECE_SIZE as u32)?;
    segment.addr += 1;
    refused(link, Transfer::Write, &segment)?;
    let mut link = Link::new(soft)?;
    let mut segment = link.piece(0)?.give(1)?;
    segment.addr -= 1;
    refused(link, Transfer::Write, &segment)
}

fn memory_cannot_be_read(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    let segment = link.piece(1)?.give(64)?;
    refused(link, Transfer::Read, &segment)
}

fn each_connection_has_its_own_key(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    written(&mut link, 100)?;
    let old = link.piece(0)?.give(100)?;
    link.qp.disconnect();
    link.again(soft)?;
    written(&mut link, 100)?;
    let new = link.piece(0)?.give(100)?;
    check!((old.addr, old.key) != (new.addr, new.key));
    refused(link, Transfer::Write, &old)
}

fn only_the_beginning_of_a_piece_is_reached(soft: &Soft) -> Result {
    let mut link = Link::with(
        soft,
        &Shape {
            reach: PIECE_SIZE / 2,
            ..SHAPE
        },
    )?;
    let half = PIECE_SIZE as u32 / 2;
    check_eq!(link.piece(1)?.give(half + 1).err(), Some(EMSGSIZE));
    // What follows there is the next piece.
    written(&mut link, half as usize)?;
    let mut segment = link.piece(PIECES - 1)?.give(half)?;
    segment.addr += 1;
    refused(link, Transfer::Write, &segment)
}

fn messages_have_two_parts(soft: &Soft) -> Result {
    let mut link = Link::new(soft)?;
    for round in 0..40 {
        // Their lengths are 4 and more.
        link.send_parted(round % PIECES, 1 + round % 4)?;
        link.arrived()?;
    }
    // A piece of other memory, of this domain or not, is not sent.
    let limits = soft.device.limits();
    let page = limits.mr_page_size as usize;
    for pd in [link.pd.clone(), Pd::new(soft.device.hold()?)?] {
        let (_, mut pieces) = Bounce::new(&pd, &limits, 1, page, 0)?;
        let piece = pieces.first_mut().ok_or(EINVAL)?;
        check_eq!(link.send_with(piece).err(), Some(EINVAL));
    }
    check_eq!(link.record().wrong() + link.record().failed(), 0);
    Ok(())
}

fn sizes_are_checked(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let mut limits = soft.device.limits();
    let page = limits.mr_page_size as usize;
    for (count, size, reach) in [
        (4, page / 2, page / 2),
        (4, page + 1, page + 1),
        (4, page + 64, page),
        (4, page, 2 * page),
        (4, 0, 0),
        (0, page, page),
        (0, page, 0),
        (usize::MAX, page, page),
    ] {
        let wrong = Bounce::new(&pd, &limits, count, size, reach);
        check_eq!(wrong.err(), Some(EINVAL));
    }
    limits.max_pages_per_mr = 15;
    let large = Bounce::new(&pd, &limits, 8, 2 * page, 2 * page);
    check_eq!(large.err(), Some(EINVAL));
    limits.max_pages_per_mr = 16;
    for (size, reach) in [
        (2 * page, 2 * page),
        (2 * page, page),
        (3 * page, 2 * page),
        (700, 0),
    ] {
        let (bounce, mut pieces) = Bounce::new(&pd, &limits, 8, size, reach)?;
        check_eq!(pieces.len(), 8);
        check_eq!(bounce.bytes(), 8 * size.next_multiple_of(64));
        let piece = pieces.get_mut(7).ok_or(EINVAL)?;
        check_eq!(piece.give(reach as u32).is_ok(), reach > 0);
        check_eq!(piece.give(reach as u32 + 1).err(), Some(EMSGSIZE));
        check!(piece.part(size as u32).is_ok());
        check_eq!(piece.part(size as u32 + 1).err(), Some(EMSGSIZE));
        check_eq!(piece.place(u32::MAX).len(), size);
        check_eq!(piece.take(u32::MAX).len(), size);
    }
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
            ]);
        )*
    };
}

suites!(
    // siw answers reads without a look at the access.
    srp_bounce_rxe rxe crate::rdma::tests::soft::Kind::Rxe, [memory_cannot_be_read];
    srp_bounce_siw siw crate::rdma::tests::soft::Kind::Siw, [];
);
