// SPDX-License-Identifier: GPL-2.0

//! Messages and transfers over a connection.

use super::{
    check,
    check_eq,
    link::{
        Call,
        Link,
        HANDLES,
        SENDS,
        WINDOW, //
    },
    list::{
        List,
        Piece, //
    },
    peer::{
        within,
        Transfer, //
    },
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    dma::{
        DataDirection,
        ScatterList, //
    },
    errno::ENOTCONN,
    random::random_u64,
    rdma::{
        dma::MAX_CHUNK,
        mr::Segment, //
    }, //
};
use core::net::Ipv4Addr;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Lists of all shapes that a command may have, and some that it may not have: whole pages, parts
/// of pages, adjacent pieces, gaps, several regions.
fn lists(page: usize) -> Result<[List; 6]> {
    let list = |pieces: &[Piece]| List::new(16 * page, pieces);
    Ok([
        list(&[(0, page)])?,
        list(&[(100, 1)])?,
        list(&[(512, page - 512), (2 * page, page), (4 * page, 100)])?,
        list(&[(1000, 24), (1024, page - 1024), (page, page)])?,
        list(&[(0, 512), (2 * page, 512), (3 * page + 100, 200)])?,
        list(&[
            (14 * page + 96, page - 96),
            (0, page),
            (2 * page, page),
            (4 * page, page),
            (12 * page, page),
            (6 * page, 6 * page),
        ])?,
    ])
}

/// The segment in parts that fit into the peer's memory.
fn parts(segment: Segment) -> impl Iterator<Item = Segment> {
    let each = move |at: u32| Segment {
        addr: segment.addr + u64::from(at),
        key: segment.key,
        len: (segment.len - at).min(MAX_CHUNK as u32),
    };
    (0..segment.len).step_by(MAX_CHUNK).map(each)
}

/// The beginning of a handle's first segment, as much as fits into the peer's memory.
fn first(link: &Link, handle: usize) -> Result<Segment> {
    let segments = link.segments(handle)?;
    segments.into_iter().flat_map(parts).next().ok_or(EINVAL)
}

fn ours(at: usize) -> u8 {
    (at.wrapping_mul(167) >> 3) as u8 | 1
}

fn theirs(at: usize) -> u8 {
    (at.wrapping_mul(211) >> 2) as u8 | 2
}

/// Connects. The device must have an address.
fn link(soft: &Soft) -> Result<Link> {
    check!(soft.address != Ipv4Addr::UNSPECIFIED);
    Link::new(soft)
}

/// Checks that a connection had no errors, and drops it.
fn end(link: Link) -> Result {
    check_eq!(link.record().wrong(), 0);
    check_eq!(link.record().failed(), 0);
    check_eq!(link.peer.disordered(), 0);
    Ok(())
}

fn peer_reads_every_list(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for mut list in lists(soft.page())? {
        list.fill(ours);
        link.grant(0, list, DataDirection::ToDevice)?;
        let mut at = 0;
        for segment in link.segments(0)?.into_iter().flat_map(parts) {
            let status = link.peer.transfer(Transfer::Read, &segment)?;
            check_eq!(status.number(), 0);
            for byte in link.peer.sink(segment.len as usize) {
                check_eq!(*byte, ours(at));
                at += 1;
            }
        }
        check!(link.take(0).is_err());
        link.revoke(0)?;
        check_eq!(at, link.take(0)?.len() as usize);
    }
    end(link)
}

fn peer_writes_every_list(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for list in lists(soft.page())? {
        link.grant(1, list, DataDirection::FromDevice)?;
        let mut at = 0;
        for segment in link.segments(1)?.into_iter().flat_map(parts) {
            for byte in link.peer.source().iter_mut().take(segment.len as usize) {
                *byte = theirs(at);
                at += 1;
            }
            let status = link.peer.transfer(Transfer::Write, &segment)?;
            check_eq!(status.number(), 0);
        }
        // A message sent after a transfer arrives after it.
        let before = link.record().received();
        link.peer.send(4)?;
        within(|| link.record().received() > before)?;
        link.revoke(1)?;
        let list = link.take(1)?;
        check_eq!(at, list.len() as usize);
        for at in 0..at {
            check_eq!(list.get(at), Some(theirs(at)));
        }
        check_eq!(list.spoilt(), 0);
    }
    end(link)
}

/// Tries a transfer that must fail, and checks that the list is unchanged.
fn refused(mut link: Link, how: Transfer, segment: &Segment) -> Result {
    for byte in link.peer.source() {
        *byte = 0xee;
    }
    let status = link.peer.transfer(how, segment)?;
    // An iWARP write completes when it is sent; the connection ends after it has arrived.
    if status.is_success() {
        check_eq!(how, Transfer::Write);
    }
    within(|| link.is_over() || !status.is_success())?;
    link.qp.shutdown();
    let list = link.take(0)?;
    for at in 0..list.len() as usize {
        check_eq!(list.get(at), Some(ours(at)));
    }
    check_eq!(list.spoilt(), 0);
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

/// Creates a connection with a list of our bytes in handle 0.
fn granted(soft: &Soft, direction: DataDirection) -> Result<(Link, Segment)> {
    let mut link = link(soft)?;
    let page = soft.page();
    // The end of a page, and the beginning of another one.
    let mut list = List::new(4 * page, &[(page - 2048, 2048), (2 * page, 2048)])?;
    list.fill(ours);
    link.grant(0, list, direction)?;
    let segment = first(&link, 0)?;
    Ok((link, segment))
}

fn revoked_memory_cannot_be_written(soft: &Soft) -> Result {
    let (mut link, segment) = granted(soft, DataDirection::FromDevice)?;
    link.revoke(0)?;
    refused(link, Transfer::Write, &segment)
}

fn revoked_memory_cannot_be_read(soft: &Soft) -> Result {
    let (mut link, segment) = granted(soft, DataDirection::ToDevice)?;
    let status = link.peer.transfer(Transfer::Read, &segment)?;
    check!(status.is_success());
    link.revoke(0)?;
    refused(link, Transfer::Read, &segment)
}

fn read_grant_cannot_be_written(soft: &Soft) -> Result {
    let (link, segment) = granted(soft, DataDirection::ToDevice)?;
    refused(link, Transfer::Write, &segment)
}

fn write_grant_cannot_be_read(soft: &Soft) -> Result {
    let (link, segment) = granted(soft, DataDirection::FromDevice)?;
    refused(link, Transfer::Read, &segment)
}

fn grant_ends_with_the_list(soft: &Soft) -> Result {
    let (link, mut segment) = granted(soft, DataDirection::ToDevice)?;
    segment.len += 1;
    refused(link, Transfer::Read, &segment)?;
    let (link, mut segment) = granted(soft, DataDirection::FromDevice)?;
    segment.addr -= 1;
    refused(link, Transfer::Write, &segment)
}

fn old_key_does_not_work_again(soft: &Soft) -> Result {
    let (mut link, old) = granted(soft, DataDirection::ToDevice)?;
    link.revoke(0)?;
    // Repeats until the random byte differs.
    for _ in 0..8 {
        let list = link.take(0)?;
        link.grant(0, list, DataDirection::ToDevice)?;
        let new = first(&link, 0)?;
        if new.key != old.key {
            check!(link.peer.transfer(Transfer::Read, &new)?.is_success());
            let stale = Segment {
                key: old.key,
                ..new
            };
            return refused(link, Transfer::Read, &stale);
        }
        link.revoke(0)?;
    }
    Err(EINVAL)
}

fn messages_stay_in_order(soft: &Soft) -> Result {
    const COUNT: u32 = 500;
    let mut link = link(soft)?;
    let qp = link.qp.clone();
    link.peer.send_all(COUNT, WINDOW, || qp.received())?;
    within(|| qp.received() >= COUNT)?;
    drop(qp);
    check_eq!(link.record().received(), COUNT);
    end(link)
}

/// Many more sends than queue entries, only some of them signaled.
fn sends_are_recycled(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for number in 0..10 * SENDS {
        if number % 16 == 15 {
            link.send(None)?;
            link.arrived()?;
        } else {
            link.send_unsignaled()?;
        }
    }
    link.arrived()?;
    end(link)
}

fn completions_keep_their_order(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for handle in 0..HANDLES {
        link.grant(handle, soft.scattered(5)?, DataDirection::FromDevice)?;
    }
    check_eq!(link.regions.reachable(), 2 * HANDLES);
    check_eq!(link.record().count(), 0);
    // A handle cannot be registered twice.
    {
        let chunk = link.chunks.first_mut().ok_or(EINVAL)?;
        let handle = link.handles.first_mut().ok_or(EINVAL)?;
        let section = rcu::read_lock();
        let again = link.qp.live(&section)?.send(chunk, 4)?.register(handle);
        check_eq!(again.err(), Some(EBUSY));
    }
    // The handles are not in the order of their numbers.
    const ORDER: [usize; HANDLES] = [2, 0, 3, 1];
    for handle in ORDER {
        link.send_control()?;
        check!(link.invalidate(handle)?);
    }
    let calls = 2 * HANDLES;
    within(|| link.record().count() as usize >= calls)?;
    link.arrived()?;
    for (number, handle) in ORDER.iter().enumerate() {
        let invalidated = Call::Invalidated;
        check!(link.record().is(2 * number, Call::Control, 0));
        check!(link
            .record()
            .is(2 * number + 1, invalidated, *handle as u32));
    }
    check_eq!(link.record().count() as usize, calls);
    check_eq!(link.regions.reachable(), 0);
    for handle in 0..HANDLES {
        check_eq!(link.invalidate(handle), Ok(false));
        check_eq!(link.take(handle)?.len() as usize, 5 * soft.page());
    }
    end(link)
}

/// An invalidation posted before its registration is executed after it, and there is one per
/// registration.
fn invalidation_is_not_early(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for round in 0..4 {
        let early = round % 2 == 0;
        let handle = link.handles.first_mut().ok_or(EINVAL)?;
        let mut list = soft.scattered(1 + round)?;
        list.fill(ours);
        check!(handle.attach(list).is_ok());
        handle.map(DataDirection::FromDevice, random_u64())?;
        let (calls, received) = (link.qp.count(), link.peer.received());
        {
            let section = rcu::read_lock();
            let live = link.qp.live(&section)?;
            check!(live.invalidation(handle)?.is_none());
            let chunk = link.chunks.first_mut().ok_or(EINVAL)?;
            let mut registration = Some(live.send(chunk, 4)?.register(handle)?);
            if !early {
                registration.take().ok_or(EINVAL)?.post(true)?;
            }
            let invalidation = live.invalidation(handle)?.ok_or(EINVAL)?;
            check_eq!(live.invalidation(handle).err(), Some(EBUSY));
            invalidation.post()?;
            if let Some(registration) = registration {
                check!(!handle.unreachable());
                registration.post(true)?;
            }
        }
        let segment = first(&link, 0)?;
        within(|| link.qp.count() > calls)?;
        link.peer.poll_until(|peer| peer.received() > received)?;
        if round == 3 {
            return refused(link, Transfer::Write, &segment);
        }
        check!(link.take(0).is_ok());
    }
    Ok(())
}

fn memory_of_others_is_refused(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    let mut other = Link::new(soft)?;
    other.grant(0, soft.scattered(1)?, DataDirection::FromDevice)?;
    // A handle of one connection on the queue pair of the other.
    core::mem::swap(&mut link.handles, &mut other.handles);
    check_eq!(link.send(Some(0)), Err(EINVAL));
    core::mem::swap(&mut link.handles, &mut other.handles);
    check_eq!(link.regions.reachable(), 0);
    // The messages of the other connection.
    core::mem::swap(&mut link.chunks, &mut other.chunks);
    check_eq!(link.send_unsignaled(), Err(EINVAL));
    core::mem::swap(&mut link.chunks, &mut other.chunks);
    other.revoke(0)?;
    check!(other.take(0).is_ok());
    end(other)?;
    end(link)
}

fn shutdown_is_the_end(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    link.grant(0, soft.scattered(5)?, DataDirection::FromDevice)?;
    let segment = first(&link, 0)?;
    // The shutdown comes during traffic: messages both ways, an invalidation.
    link.grant(1, soft.scattered(1)?, DataDirection::FromDevice)?;
    for _ in 0..WINDOW {
        link.peer.send(40)?;
    }
    link.send_control()?;
    check!(link.invalidate(1)?);
    link.qp.shutdown();
    check!(link.qp.is_shut_down());
    let (count, received) = (link.record().count(), link.record().received());
    check!(received <= WINDOW);

    // Nothing is reachable, although handle 0 was never invalidated.
    check!(link.handles.iter().all(|handle| handle.unreachable()));
    let list = link.take(0)?;
    check!(link.take(1).is_ok());
    for byte in link.peer.source() {
        *byte = 0xee;
    }
    // This write comes too late, whether or not the peer has noticed; an rxe peer keeps retrying.
    let _ = link.peer.begin(Transfer::Write, &segment);
    fsleep(Delta::from_millis(50));
    link.peer.poll();
    for at in 0..list.len() as usize {
        check_eq!(list.get(at), Some(0));
    }

    // Late requests are flushed, without callbacks.
    let _ = link.send_unsignaled();
    let _ = link.send_control();
    let _ = link.peer.send(4);
    link.qp.shutdown();
    fsleep(Delta::from_millis(50));
    check_eq!(link.record().count(), count);
    check_eq!(link.record().received(), received);
    check_eq!(link.record().wrong(), 0);
    check_eq!(link.record().failed(), 0);
    Ok(())
}

/// Events of a queue pair that the device driver reports.
fn events_of_a_queue_pair(soft: &Soft) -> Result {
    use bindings::{
        ib_event_type_IB_EVENT_COMM_EST as COMM_EST,
        ib_event_type_IB_EVENT_PATH_MIG as PATH_MIG,
        ib_event_type_IB_EVENT_QP_ACCESS_ERR as QP_ACCESS_ERR,
        ib_event_type_IB_EVENT_QP_FATAL as QP_FATAL,
        ib_event_type_IB_EVENT_QP_REQ_ERR as QP_REQ_ERR,
        ib_event_type_IB_EVENT_SQ_DRAINED as SQ_DRAINED, //
    };
    let link = link(soft)?;
    let qp = link.qp.as_raw();
    for (kind, failures) in [
        (COMM_EST, 0),
        (SQ_DRAINED, 0),
        (PATH_MIG, 0),
        (QP_FATAL, 1),
        (QP_REQ_ERR, 2),
        (QP_ACCESS_ERR, 3),
    ] {
        let mut event = bindings::ib_event {
            device: soft.device.as_raw(),
            event: kind,
            ..Default::default()
        };
        // SAFETY: The whole union is initialised.
        *unsafe { event.element.qp.as_mut() } = qp;
        // SAFETY: `link` is connected, so the queue pair exists.
        let handler = unsafe { (*qp).event_handler }.ok_or(EINVAL)?;
        // SAFETY: `link` is connected, so the queue pair exists.
        let context = unsafe { (*qp).qp_context };
        // SAFETY: The event, the handler and the context are those of this queue pair.
        unsafe { handler(&mut event, context) };
        check_eq!(link.record().failed(), failures);
    }
    Ok(())
}

/// Drops a queue pair before its handles, one of them still registered, and handles before their
/// queue pair.
fn any_order_of_drops_is_good(soft: &Soft) -> Result {
    let mut first = link(soft)?;
    first.grant(0, soft.scattered(3)?, DataDirection::FromDevice)?;
    let Link {
        peer,
        handles,
        regions,
        qp,
        pd,
        ..
    } = first;
    drop((pd, regions));
    check_eq!(Arc::into_unique_or_drop(qp).is_some(), true);
    check!(handles.iter().all(|handle| handle.unreachable()));
    drop(handles);
    drop(peer);

    let mut second = link(soft)?;
    second.grant(0, soft.scattered(3)?, DataDirection::FromDevice)?;
    second.revoke(0)?;
    let Link {
        peer, handles, qp, ..
    } = second;
    drop(peer);
    drop(handles);
    drop(qp);
    Ok(())
}

fn connections_repeat(soft: &Soft) -> Result {
    for _ in 0..4 {
        let mut link = link(soft)?;
        link.grant(0, soft.scattered(1)?, DataDirection::FromDevice)?;
        link.revoke(0)?;
        end(link)?;
    }
    Ok(())
}

fn connects_again(soft: &Soft) -> Result {
    let mut link = link(soft)?;
    for round in 0..3 {
        // One region that the peer can reach, one that is being invalidated, one that is unused.
        link.grant(0, soft.scattered(5)?, DataDirection::FromDevice)?;
        link.grant(1, soft.scattered(1)?, DataDirection::ToDevice)?;
        let old = first(&link, 0)?;
        check!(link.invalidate(1)?);
        link.qp.hang_up();
        link.qp.shutdown();
        link.qp.destroy();
        check!(link.qp.is_shut_down());
        // There is no queue pair to post on.
        check_eq!(link.send_unsignaled(), Err(ENOTCONN));
        // A list that may still be registered prevents a connection.
        check_eq!(link.again(soft).err(), Some(EBUSY));
        check!(link.take(0).is_ok());
        check!(link.take(1).is_ok());
        link.again(soft)?;
        check_eq!(link.regions.reachable(), 0);

        // All handles work, and the old key does not.
        for handle in [0, 1, 2] {
            link.grant(handle, soft.scattered(3)?, DataDirection::FromDevice)?;
            let segment = first(&link, handle)?;
            check!((segment.addr, segment.key) != (old.addr, old.key));
            for byte in link.peer.source() {
                *byte = theirs(round);
            }
            let status = link.peer.transfer(Transfer::Write, &segment)?;
            check_eq!(status.number(), 0);
            let before = link.record().received();
            link.peer.send(4)?;
            within(|| link.record().received() > before)?;
            link.revoke(handle)?;
            let list = link.take(handle)?;
            check_eq!(list.get(0), Some(theirs(round)));
        }
    }
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr, [$($more:ident),*];)*) => {
        $(
            suite!($suite, $module, $kind, [
                $($more,)*
                peer_reads_every_list,
                peer_writes_every_list,
                revoked_memory_cannot_be_written,
                revoked_memory_cannot_be_read,
                read_grant_cannot_be_written,
                grant_ends_with_the_list,
                old_key_does_not_work_again,
                messages_stay_in_order,
                sends_are_recycled,
                completions_keep_their_order,
                invalidation_is_not_early,
                memory_of_others_is_refused,
                shutdown_is_the_end,
                events_of_a_queue_pair,
                any_order_of_drops_is_good,
                connections_repeat,
                connects_again,
            ]);
        )*
    };
}

suites!(
    // siw serves reads without checking the access rights.
    srp_qp_rxe rxe crate::rdma::tests::soft::Kind::Rxe, [write_grant_cannot_be_read];
    srp_qp_siw siw crate::rdma::tests::soft::Kind::Siw, [];
    // Completions run in a work item, as with PREEMPT_RT.
    srp_qp_work_rxe work_rxe crate::rdma::tests::soft::Kind::Rxe.in_work(), [];
    srp_qp_work_siw work_siw crate::rdma::tests::soft::Kind::Siw.in_work(), [];
);
