// SPDX-License-Identifier: GPL-2.0

//! Memory that a peer may write as long as a connection lasts.

use super::{
    check,
    check_eq,
    link::{
        Link,
        PIECES,
        PIECE_SIZE, //
    },
    peer::{
        within,
        Transfer, //
    },
    soft::Soft,
    suite, //
};
use crate::rdma::{
    bounce::Bounce,
    dma::DeviceBytes,
    mr::Segment,
    pd::Pd, //
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

fn sizes_are_checked(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let mut limits = soft.device.limits();
    let page = limits.mr_page_size as usize;
    check_eq!(Bounce::new(&pd, &limits, 4, page / 2).err(), Some(EINVAL));
    check_eq!(Bounce::new(&pd, &limits, 4, page + 1).err(), Some(EINVAL));
    check_eq!(Bounce::new(&pd, &limits, 0, page).err(), Some(EINVAL));
    check_eq!(
        Bounce::new(&pd, &limits, usize::MAX, page).err(),
        Some(EINVAL)
    );
    limits.max_pages_per_mr = 15;
    check_eq!(Bounce::new(&pd, &limits, 8, 2 * page).err(), Some(EINVAL));
    limits.max_pages_per_mr = 16;
    let (bounce, mut pieces) = Bounce::new(&pd, &limits, 8, 2 * page)?;
    check_eq!((pieces.len(), bounce.bytes()), (8, 16 * page));
    let piece = pieces.get_mut(7).ok_or(EINVAL)?;
    check!(piece.give(2 * page as u32).is_ok());
    check_eq!(piece.give(2 * page as u32 + 1).err(), Some(EMSGSIZE));
    check_eq!(piece.take(u32::MAX).len(), 2 * page);
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
