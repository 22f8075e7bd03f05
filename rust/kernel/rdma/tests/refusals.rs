// SPDX-License-Identifier: GPL-2.0

//! Devices that fail to stop or destroy a queue pair.

use super::{
    check,
    check_eq,
    link::{
        Link,
        Record,
        Shape,
        SHAPE,
        WINDOW, //
    },
    operation::Operation,
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    dma::DataDirection,
    errno::ENOTCONN,
    rdma::{
        pd::Pd,
        qp::{
            PollContext,
            Qp, //
        }, //
    },
    sync::race::race, //
};
use core::ptr::null_mut;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// More refusals than the driver may ask for. Then the device gives in, so that a driver that asks
/// without end fails a check within a minute.
const ALWAYS: i32 = 60;

/// The queue pair that the refusals apply to.
static QP: Atomic<*mut bindings::ib_qp> = Atomic::new(null_mut());
/// The domain of that queue pair.
static PD: Atomic<*mut bindings::ib_pd> = Atomic::new(null_mut());
/// Numbers of calls still to refuse: moves of `QP` to the error state, its destruction, its send
/// requests; in `DEREGS`, deregistrations of regions of `PD`.
static STOPS: Atomic<i32> = Atomic::new(0);
static ENDS: Atomic<i32> = Atomic::new(0);
static POSTS: Atomic<i32> = Atomic::new(0);
/// Number of send requests to accept but never complete.
static LOST: Atomic<i32> = Atomic::new(0);
static DEREGS: Atomic<i32> = Atomic::new(0);
/// The original operations of the device.
static MODIFY: Atomic<usize> = Atomic::new(0);
static DESTROY: Atomic<usize> = Atomic::new(0);
static POST: Atomic<usize> = Atomic::new(0);
static DEREG: Atomic<usize> = Atomic::new(0);

type Modify = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *mut bindings::ib_qp_attr,
    c_int,
    *mut bindings::ib_udata,
) -> c_int;
type Destroy = unsafe extern "C" fn(*mut bindings::ib_qp, *mut bindings::ib_udata) -> c_int;
type Post = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *const bindings::ib_send_wr,
    *mut *const bindings::ib_send_wr,
) -> c_int;

type Dereg = unsafe extern "C" fn(*mut bindings::ib_mr, *mut bindings::ib_udata) -> c_int;

/// Returns whether to refuse an operation on `qp`; consumes one refusal.
fn refused(qp: *mut bindings::ib_qp, what: &Atomic<i32>) -> bool {
    qp == QP.load(Acquire) && what.fetch_sub(1, Full) > 0
}

/// # Safety
///
/// As for the `modify_qp` of the device.
unsafe extern "C" fn modify(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    data: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: The arguments are valid.
    let state = unsafe { (*attr).qp_state };
    if state == bindings::ib_qp_state_IB_QPS_ERR && refused(qp, &STOPS) {
        return ETIMEDOUT.to_errno();
    }
    // SAFETY: `Refusing::new` stored `MODIFY`.
    let modify: Modify = unsafe { core::mem::transmute(MODIFY.load(Acquire)) };
    // SAFETY: The arguments are valid.
    unsafe { modify(qp, attr, mask, data) }
}

/// # Safety
///
/// As for the `destroy_qp` of the device.
unsafe extern "C" fn destroy(qp: *mut bindings::ib_qp, data: *mut bindings::ib_udata) -> c_int {
    if refused(qp, &ENDS) {
        return EIO.to_errno();
    }
    // SAFETY: `Refusing::new` stored `DESTROY`.
    let destroy: Destroy = unsafe { core::mem::transmute(DESTROY.load(Acquire)) };
    // SAFETY: The arguments are valid.
    unsafe { destroy(qp, data) }
}

/// # Safety
///
/// As for the `post_send` of the device.
unsafe extern "C" fn post(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    if refused(qp, &POSTS) {
        // SAFETY: The arguments are valid.
        unsafe { *bad = wr };
        return EIO.to_errno();
    }
    if refused(qp, &LOST) {
        return 0;
    }
    // SAFETY: `Refusing::new` stored `POST`.
    let post: Post = unsafe { core::mem::transmute(POST.load(Acquire)) };
    // SAFETY: The arguments are valid.
    unsafe { post(qp, wr, bad) }
}

/// # Safety
///
/// As for the `dereg_mr` of the device.
unsafe extern "C" fn dereg(mr: *mut bindings::ib_mr, data: *mut bindings::ib_udata) -> c_int {
    // SAFETY: The arguments are valid.
    let pd = unsafe { (*mr).pd };
    if pd == PD.load(Acquire) && DEREGS.fetch_sub(1, Full) > 0 {
        return EIO.to_errno();
    }
    // SAFETY: `Refusing::new` stored `DEREG`.
    let dereg: Dereg = unsafe { core::mem::transmute(DEREG.load(Acquire)) };
    // SAFETY: The arguments are valid.
    unsafe { dereg(mr, data) }
}

/// A device that refuses operations on one queue pair while this exists.
struct Refusing {
    driver: Operation<bindings::rdma_driver_id>,
    _modify: Operation<Option<Modify>>,
    _destroy: Operation<Option<Destroy>>,
    _post: Operation<Option<Post>>,
    _dereg: Operation<Option<Dereg>>,
}

impl Refusing {
    /// Refuses the error state `stops` times and the destruction `ends` times.
    fn new(soft: &Soft, link: &Link, stops: i32, ends: i32) -> Result<Self> {
        // SAFETY: The device is registered.
        let ops = unsafe { &raw mut (*soft.device.as_raw()).ops };
        // SAFETY: The device is registered, and nothing else modifies its operations meanwhile.
        let mut on_modify = unsafe { Operation::new(&raw mut (*ops).modify_qp) };
        // SAFETY: Nothing else modifies `ops` meanwhile.
        let driver = unsafe { Operation::new(&raw mut (*ops).driver_id) };
        // SAFETY: Nothing else modifies `ops` meanwhile.
        let mut on_destroy = unsafe { Operation::new(&raw mut (*ops).destroy_qp) };
        // SAFETY: Nothing else modifies `ops` meanwhile.
        let mut on_post = unsafe { Operation::new(&raw mut (*ops).post_send) };
        // SAFETY: Nothing else modifies `ops` meanwhile.
        let mut on_dereg = unsafe { Operation::new(&raw mut (*ops).dereg_mr) };
        MODIFY.store(on_modify.before().ok_or(EINVAL)? as usize, Release);
        DESTROY.store(on_destroy.before().ok_or(EINVAL)? as usize, Release);
        POST.store(on_post.before().ok_or(EINVAL)? as usize, Release);
        DEREG.store(on_dereg.before().ok_or(EINVAL)? as usize, Release);
        STOPS.store(stops, Release);
        ENDS.store(ends, Release);
        POSTS.store(0, Release);
        LOST.store(0, Release);
        DEREGS.store(0, Release);
        PD.store(link.pd.as_raw(), Release);
        QP.store(link.qp.as_raw(), Release);
        on_modify.set(Some(modify));
        on_destroy.set(Some(destroy));
        on_post.set(Some(post));
        on_dereg.set(Some(dereg));
        Ok(Self {
            driver,
            _modify: on_modify,
            _destroy: on_destroy,
            _post: on_post,
            _dereg: on_dereg,
        })
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        QP.store(null_mut(), Release);
        PD.store(null_mut(), Release);
    }
}

const POLLED: Shape = Shape {
    ours: PollContext::Direct,
    ..SHAPE
};

/// Checks that the next connection works, unaffected by the last one.
fn goes_on(link: &mut Link, soft: &Soft) -> Result {
    link.qp.destroy();
    check_eq!(link.qp.poll(), 0);
    link.again(soft)?;
    for _ in 0..3 {
        let (before, qp) = (link.record().received(), link.qp.clone());
        link.peer.send_all(WINDOW, WINDOW + 1, || before)?;
        link.peer.poll_until(|_| {
            qp.poll();
            qp.received() >= before + WINDOW
        })?;
    }
    check_eq!(link.record().wrong(), 0);
    Ok(())
}

/// Creates a connection with a region that the peer may reach.
fn exposed(soft: &Soft, shape: &Shape) -> Result<Link> {
    let mut link = Link::with(soft, shape)?;
    link.grant(0, soft.scattered(5)?, DataDirection::FromDevice)?;
    check!(link.take(0).is_err());
    Ok(link)
}

/// Shuts down; returns the time until the memory is unreachable, in milliseconds.
fn ends(link: &mut Link) -> Result<i64> {
    let begin = Instant::<Monotonic>::now();
    link.qp.shutdown();
    let took = begin.elapsed().as_millis();
    check!(link.qp.is_shut_down());
    check!(link.pd.is_drained());
    check!(link.take(0).is_ok());
    Ok(took)
}

/// A device that refuses for a while is retried until it stops.
fn one_that_stops_later_is_drained(soft: &Soft) -> Result {
    for shape in [&SHAPE, &POLLED] {
        let mut link = exposed(soft, shape)?;
        let refusing = Refusing::new(soft, &link, 2, 0)?;
        check!(ends(&mut link)? >= 1_000);
        check_eq!(ENDS.load(Acquire), 0);
        drop(refusing);
        goes_on(&mut link, soft)?;
    }
    Ok(())
}

/// A device that has no room for the drain request is retried until there is room.
fn one_that_takes_requests_later_is_drained(soft: &Soft) -> Result {
    for shape in [&SHAPE, &POLLED] {
        let mut link = exposed(soft, shape)?;
        let refusing = Refusing::new(soft, &link, 0, 0)?;
        POSTS.store(2, Release);
        check!(ends(&mut link)? >= 2_000);
        check!(POSTS.load(Acquire) < 0);
        check_eq!(ENDS.load(Acquire), 0);
        drop(refusing);
        goes_on(&mut link, soft)?;
    }
    Ok(())
}

/// A failed device gets one request to stop; its queue pairs are destroyed, and the regions that
/// the peer may reach are deregistered.
fn one_that_has_failed_is_destroyed(soft: &Soft) -> Result {
    for (shape, stops, posts) in [
        (&SHAPE, ALWAYS, 0),
        (&SHAPE, 0, ALWAYS),
        (&POLLED, ALWAYS, 0),
        (&POLLED, 0, ALWAYS),
    ] {
        let mut link = exposed(soft, shape)?;
        link.pd.health().fail();
        let refusing = Refusing::new(soft, &link, stops, 0)?;
        POSTS.store(posts, Release);
        ends(&mut link)?;
        // The device got one request.
        check_eq!(STOPS.load(Acquire), stops - 1);
        check_eq!(ENDS.load(Acquire), -1);
        check!(DEREGS.load(Acquire) < 0);
        check_eq!(link.qp.live(&rcu::read_lock()).err(), Some(ENOTCONN));
        drop(refusing);
        goes_on(&mut link, soft)?;
    }
    Ok(())
}

/// A device without known failure has one second to stop.
fn one_that_does_not_stop_is_destroyed(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    let refusing = Refusing::new(soft, &link, ALWAYS, 0)?;
    check!(ends(&mut link)? >= 1_000);
    check_eq!(STOPS.load(Acquire), ALWAYS - 3);
    check_eq!(ENDS.load(Acquire), -1);
    drop(refusing);
    goes_on(&mut link, soft)
}

/// A device that is late with completions in the error state gets more time.
fn one_that_is_late_is_drained(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    let refusing = Refusing::new(soft, &link, 0, 0)?;
    LOST.store(4, Release);
    check!(ends(&mut link)? >= 4_000);
    check_eq!(ENDS.load(Acquire), 0);
    drop(refusing);
    goes_on(&mut link, soft)
}

type Kept = (Arc<Qp<Record>>, Arc<Pd>);

/// Stores in [`EARLY`] whether the queue pair has shut down within two seconds. Then marks the
/// device as removed.
fn goes((qp, pd): &Kept) {
    fsleep(Delta::from_millis(2_000));
    EARLY.store(qp.is_shut_down(), Release);
    pd.health().go();
}

/// With a driver that reports the outcome of deregistrations only, commands get their memory back,
/// and the other memory is kept until the device is removed.
fn one_of_unknown_end_is_kept(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    link.pd.health().fail();
    let mut refusing = Refusing::new(soft, &link, ALWAYS, 0)?;
    refusing
        .driver
        .set(bindings::rdma_driver_id_RDMA_DRIVER_IRDMA);
    ends(&mut link)?;
    check_eq!(ENDS.load(Acquire), -1);
    link.qp.destroy();
    check_eq!(link.again(soft).err(), Some(ENODEV));
    drop(refusing);
    let kept: Kept = (link.qp.clone(), link.pd.clone());
    let kept = Arc::new(kept, GFP_KERNEL)?;
    let begin = Instant::<Monotonic>::now();
    race(&kept, &[|(qp, _): &Kept| qp.wait_going(), goes])?;
    check!(begin.elapsed().as_millis() >= 2_000);
    Ok(())
}

/// With a driver that reports neither destruction nor deregistration, the queue pair is drained in
/// the end, or kept until the device is removed.
fn one_without_reports_is_kept(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    let mut refusing = Refusing::new(soft, &link, 6, 0)?;
    let driver = bindings::rdma_driver_id_RDMA_DRIVER_HNS;
    refusing.driver.set(driver);
    check!(ends(&mut link)? >= 3_000);
    check_eq!(ENDS.load(Acquire), 0);
    drop(refusing);
    goes_on(&mut link, soft)?;

    let mut link = exposed(soft, &SHAPE)?;
    link.pd.health().fail();
    let mut refusing = Refusing::new(soft, &link, ALWAYS, 0)?;
    refusing.driver.set(driver);
    let kept: Kept = (link.qp.clone(), link.pd.clone());
    let kept = Arc::new(kept, GFP_KERNEL)?;
    race(&kept, &[|(qp, _): &Kept| qp.shutdown(), goes])?;
    check!(!EARLY.load(Acquire));
    check_eq!(ENDS.load(Acquire), -1);
    check!(link.take(0).is_ok());
    Ok(())
}

/// Completions of a destroyed queue pair do not reach the next connection.
fn completions_of_a_destroyed_one_do_not_count(soft: &Soft) -> Result {
    let mut link = Link::with(soft, &POLLED)?;
    link.pd.health().fail();
    for _ in 0..3 {
        let before = link.record().received();
        link.peer.send_all(5, WINDOW, || before)?;
        link.peer.poll_until(|peer| peer.sent() >= 5)?;
        // Lets the messages arrive in our completion queue, too.
        fsleep(Delta::from_millis(30));
        let refusing = Refusing::new(soft, &link, ALWAYS, 0)?;
        link.qp.shutdown();
        check_eq!(ENDS.load(Acquire), -1);
        drop(refusing);
        check_eq!(link.qp.poll(), 0);
        check_eq!(link.record().received(), before);
        goes_on(&mut link, soft)?;
    }
    Ok(())
}

fn shut(qp: &Qp<Record>) {
    qp.shutdown();
}

/// Whether memory was released early.
static EARLY: Atomic<bool> = Atomic::new(false);

fn watch(qp: &Qp<Record>) {
    while ENDS.load(Acquire) > 1 || DEREGS.load(Acquire) > 1 {
        if qp.is_shut_down() {
            EARLY.store(true, Release);
            return;
        }
        fsleep(Delta::from_millis(1));
    }
}

/// Memory is kept until the device stops the queue pair, or destroys it and deregisters its
/// regions.
fn memory_is_kept_without_a_promise(soft: &Soft) -> Result {
    for (ends, deregs) in [(5, 0), (0, 5), (3, 3)] {
        let mut link = exposed(soft, &SHAPE)?;
        link.pd.health().fail();
        let refusing = Refusing::new(soft, &link, ALWAYS, ends)?;
        DEREGS.store(deregs, Release);
        EARLY.store(false, Release);
        let qp: Arc<_> = link.qp.clone();
        let begin = Instant::<Monotonic>::now();
        race(&qp, &[shut, watch])?;
        check!(begin.elapsed().as_millis() >= 2_400);
        check!(!EARLY.load(Acquire));
        check!(ENDS.load(Acquire) < 0 && DEREGS.load(Acquire) < 0);
        check!(link.take(0).is_ok());
        drop(refusing);
        goes_on(&mut link, soft)?;
    }
    Ok(())
}

/// A device that is being removed need not deregister regions. They are deregistered before the
/// next connection.
fn one_that_goes_may_keep_regions(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    let health = link.pd.health();
    health.go();
    let refusing = Refusing::new(soft, &link, ALWAYS, 0)?;
    DEREGS.store(ALWAYS, Release);
    check!(ends(&mut link)? < 900);
    check_eq!(ENDS.load(Acquire), -1);
    link.qp.destroy();
    check_eq!(link.qp.renew_regions(), Err(EIO));
    check_eq!(link.again(soft).err(), Some(EIO));
    drop(refusing);
    goes_on(&mut link, soft)
}

/// A connection that ended normally leaves a key with the peer, too.
fn a_region_stays_until_it_is_given_back(soft: &Soft) -> Result {
    let mut link = exposed(soft, &SHAPE)?;
    ends(&mut link)?;
    link.qp.destroy();
    let refusing = Refusing::new(soft, &link, 0, 0)?;
    for _ in 0..2 {
        DEREGS.store(1, Release);
        check_eq!(link.qp.renew_regions(), Err(EIO));
    }
    drop(refusing);
    goes_on(&mut link, soft)
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr;)*) => {
        $(
            suite!($suite, $module, $kind, [
                one_that_stops_later_is_drained,
                one_that_takes_requests_later_is_drained,
                one_that_has_failed_is_destroyed,
                one_that_does_not_stop_is_destroyed,
                one_that_is_late_is_drained,
                one_of_unknown_end_is_kept,
                one_without_reports_is_kept,
                completions_of_a_destroyed_one_do_not_count,
                memory_is_kept_without_a_promise,
                one_that_goes_may_keep_regions,
                a_region_stays_until_it_is_given_back,
            ]);
        )*
    };
}

suites!(
    srp_refusals_rxe rxe crate::rdma::tests::soft::Kind::Rxe;
    srp_refusals_siw siw crate::rdma::tests::soft::Kind::Siw;
);
