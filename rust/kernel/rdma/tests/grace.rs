// SPDX-License-Identifier: GPL-2.0

//! Tests of the waits in the teardown of a queue pair, and of concurrent posting.

use super::{
    check,
    check_eq,
    link::{
        Events,
        Link, //
    },
    operation::Operation,
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    dma::DataDirection,
    errno::{
        ENOTCONN,
        ESHUTDOWN, //
    },
    random::random_u64,
    rdma::{
        cm,
        cm_id::CmId as _,
        dma::Pool,
        mr::{
            FixedMr,
            Handle,
            Regions, //
        },
        pd::Pd,
        qp::{
            Failure,
            Handler,
            Memory,
            PollContext,
            Qp,
            Sizes, //
        },
        tests::list::List,
        wc::Flags, //
    },
    sync::race::race, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        rcu,
        Arc,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Number of entries in the send queue.
const SENDS: u32 = 200;

/// The handler of a queue pair without a peer.
struct NoPeer;

impl Handler for NoPeer {
    fn received(_: &Qp<Self>, _: &[u8], _: Flags) {}
    fn invalidated(_: &Qp<Self>, _: usize) {}
    fn control_sent(_: &Qp<Self>) {}
    fn last_sent(_: &Qp<Self>) {}
    fn failed(_: &Qp<Self>, _: Failure) {}
}

/// A link without a connection manager. Its queue pair accepts requests, unless creating it fails.
struct Bare {
    fails: bool,
}

// SAFETY: The queue pair is created as requested, and nothing here uses it after that.
unsafe impl crate::rdma::cm_id::CmId for Bare {
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>> {
        if self.fails {
            return Err(ENOMEM);
        }
        // SAFETY: The queues in `attr` are valid.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), attr, c"srp_test".as_char_ptr())
        })?;
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            port_num: 1,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE
            | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | bindings::ib_qp_attr_mask_IB_QP_PORT
            | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
        // SAFETY: The queue pair was just created.
        to_result(unsafe { bindings::ib_modify_qp(qp, &mut attr, mask as c_int) })?;
        NonNull::new(qp).ok_or(ENOMEM)
    }

    fn release_qp(&self) {}

    fn disconnect(&self) {}
}

/// Sizes that match the memory of [`bare_in`].
const SIZES: Sizes = Sizes {
    send: SENDS,
    send_sge: 2,
    receive: 1,
    vector: 0,
    context: PollContext::Interrupt,
    handles: 1,
};

fn bare(soft: &Soft) -> Result<Arc<Qp<NoPeer>>> {
    let pd = Pd::new(soft.device.hold()?)?;
    Ok(bare_in(soft, &pd, SIZES)?.0)
}

/// Creates a queue pair with these sizes in `pd`, and its handle.
fn bare_in(
    soft: &Soft,
    pd: &Arc<Pd>,
    sizes: Sizes, //
) -> Result<(Arc<Qp<NoPeer>>, Handle<List>)> {
    let page = soft.page();
    let (regions, mut handles) = Regions::new(pd, 1, 1)?;
    let (messages, _) = Pool::new(pd, 1, 64, DataDirection::ToDevice)?;
    let (_, receives) = Pool::new(pd, 1, 64, DataDirection::FromDevice)?;
    let (data, chunks) = Pool::shared(pd, 1, page, DataDirection::Bidirectional)?;
    let (fixed, _) = FixedMr::new(pd, &data, &chunks, page)?;
    let memory = Memory {
        receives,
        messages,
        data: Some(data),
        regions,
        fixed: Some(fixed),
    };
    let handle = handles.pop().ok_or(EINVAL)?;
    Ok((Qp::new(pd, sizes, memory, NoPeer)?, handle))
}

fn connect(qp: &Qp<NoPeer>, fails: bool) -> Result {
    qp.create(Arc::new(Bare { fails }, GFP_KERNEL)?)
}

/// Number of grace periods so far, approximately.
fn grace_periods() -> usize {
    // SAFETY: No precondition. The low two bits are the state of the current grace period.
    let state = unsafe { bindings::get_state_synchronize_rcu() };
    state >> 2
}

fn many_share_a_grace_period(soft: &Soft) -> Result {
    const MANY: usize = 64;
    let mut all = KVec::new();
    for _ in 0..MANY {
        let qp = bare(soft)?;
        connect(&qp, false)?;
        all.push(qp, GFP_KERNEL)?;
    }
    let begin = grace_periods();
    for qp in &all {
        qp.retire();
    }
    for qp in &all {
        qp.destroy();
    }
    let together = grace_periods() - begin;
    for qp in &all {
        connect(qp, false)?;
    }
    let begin = grace_periods();
    for qp in &all {
        qp.destroy();
    }
    let alone = grace_periods() - begin;
    pr_info!("{MANY} queue pairs: {together} grace periods together, {alone} one by one\n");
    check!(alone >= MANY);
    check!(together <= MANY / 2);

    let begin = grace_periods();
    for qp in &all {
        let _ = qp.finish();
    }
    drop(all);
    check!(grace_periods() - begin <= MANY / 2);
    Ok(())
}

fn a_finished_one_is_not_connected(soft: &Soft) -> Result {
    let qp = bare(soft)?;
    connect(&qp, false)?;
    qp.retire();
    check_eq!(qp.live(&rcu::read_lock()).err(), Some(ENOTCONN));
    // The queue pair still exists.
    check_eq!(connect(&qp, false), Err(EBUSY));
    let _ = qp.finish();
    check_eq!(connect(&qp, false), Err(ESHUTDOWN));
    Ok(())
}

fn a_vector_is_one_of_the_device(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let count = soft.device.limits().num_comp_vectors;
    let with = |vector| Sizes { vector, ..SIZES };
    check!(bare_in(soft, &pd, with(count - 1)).is_ok());
    check_eq!(bare_in(soft, &pd, with(count)).err(), Some(EINVAL));
    Ok(())
}

/// More receives than entries would leave no entry for the drain. Data after a message needs a
/// second SGE.
fn memory_is_as_much_as_the_sizes_say(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    for receive in [0, 2] {
        let sizes = Sizes { receive, ..SIZES };
        check_eq!(bare_in(soft, &pd, sizes).err(), Some(EINVAL));
    }
    let send_sge = 1;
    let sizes = Sizes { send_sge, ..SIZES };
    check_eq!(bare_in(soft, &pd, sizes).err(), Some(EINVAL));
    Ok(())
}

/// A key is valid on each queue pair of the domain.
fn memory_is_kept_until_all_have_drained(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let (one, mut handle) = bare_in(soft, &pd, SIZES)?;
    let (other, _) = bare_in(soft, &pd, SIZES)?;
    check!(handle.attach(soft.scattered(1)?).is_ok());
    for last in [&one, &other] {
        connect(&one, false)?;
        connect(&other, false)?;
        handle.map(DataDirection::FromDevice, random_u64())?;
        check!(handle.expose().is_some());
        let first = if core::ptr::eq(last, &one) {
            &other
        } else {
            &one
        };
        first.shutdown();
        check!(!handle.unreachable());
        check_eq!(handle.detach().err(), Some(EBUSY));
        last.shutdown();
        let list = handle.detach()?.ok_or(EINVAL)?;
        // The device may still have the memory registered.
        first.destroy();
        last.destroy();
        check_eq!(connect(&other, false), Err(EBUSY));
        one.renew_regions()?;
        check!(handle.attach(list).is_ok());
    }
    // A failed connect leaves nothing to drain.
    check_eq!(connect(&other, true), Err(ENOMEM));
    check!(pd.is_drained());
    connect(&other, false)?;
    check!(!pd.is_drained());
    drop(other);
    check!(pd.is_drained());
    Ok(())
}

/// A queue pair that connects repeatedly, sometimes with a failure.
#[pin_data]
struct Fickle {
    qp: Arc<Qp<NoPeer>>,
    #[pin]
    handle: SpinLock<Handle<List>>,
    round: Atomic<u32>,
    done: Atomic<bool>,
    wrong: Atomic<bool>,
}

impl Fickle {
    fn come_and_go(&self) {
        for round in 0..60u32 {
            self.round.store(round, Release);
            let fails = round % 3 == 2;
            if connect(&self.qp, fails).is_ok() == fails {
                self.wrong.store(true, Release);
            }
            self.qp.destroy();
        }
        self.done.store(true, Release);
    }

    fn post_one(&self) -> Result {
        self.qp.live(&rcu::read_lock())?.register_fixed()
    }

    /// Tries to invalidate the handle, which is not registered.
    fn invalidate(&self) -> Result<bool> {
        let section = rcu::read_lock();
        let live = self.qp.live(&section)?;
        Ok(live.invalidation(&mut self.handle.lock())?.is_some())
    }

    fn post(&self) {
        let (mut round, mut posted, mut turns) = (0, 0, 0u32);
        while !self.done.load(Acquire) {
            // Lets the other threads run on a kernel without preemption.
            turns = turns.wrapping_add(1);
            if turns % 64 == 0 {
                fsleep(Delta::from_micros(20));
            }
            let now = self.round.load(Acquire);
            if now != round {
                (round, posted) = (now, 0);
            }
            // Leaves room for the drain request. The queue pair may already be the next one.
            if posted < SENDS / 5 && self.post_one().is_ok() {
                posted += 1;
            }
            if self.invalidate() == Ok(true) {
                self.wrong.store(true, Release);
            }
        }
    }
}

fn posting_races_with_connecting(soft: &Soft) -> Result {
    let pd = Pd::new(soft.device.hold()?)?;
    let (qp, handle) = bare_in(soft, &pd, SIZES)?;
    let fickle = Arc::pin_init(
        pin_init!(Fickle {
            qp,
            handle <- new_spinlock!(handle, "Fickle::handle"),
            round: Atomic::new(0),
            done: Atomic::new(false),
            wrong: Atomic::new(false),
        }),
        GFP_KERNEL,
    )?;
    race(&fickle, &[Fickle::come_and_go, Fickle::post, Fickle::post])?;
    check!(!fickle.wrong.load(Acquire));
    Ok(())
}

/// Number of polls of a completion queue.
static LOOKS: Atomic<u32> = Atomic::new(0);
/// The original `poll_cq`.
static POLL: Atomic<usize> = Atomic::new(0);

type Poll = unsafe extern "C" fn(*mut bindings::ib_cq, c_int, *mut bindings::ib_wc) -> c_int;

/// # Safety
///
/// As for the `poll_cq` of the device.
unsafe extern "C" fn look(
    cq: *mut bindings::ib_cq,
    count: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    LOOKS.fetch_add(1, Full);
    // SAFETY: `late_event_is_not_polled` stored `POLL`.
    let poll: Poll = unsafe { core::mem::transmute(POLL.load(Acquire)) };
    // SAFETY: The arguments are valid for `poll_cq`.
    unsafe { poll(cq, count, wc) }
}

fn late_event_is_not_polled(soft: &Soft) -> Result {
    let qp = bare(soft)?;
    connect(&qp, false)?;
    // SAFETY: The queue pair is valid until it is disconnected, and so is its queue until the drop.
    let cq = unsafe { (*qp.as_raw()).send_cq };
    // SAFETY: The queue lives until the drop; these fields are constant.
    let (event, context) = unsafe { ((*cq).comp_handler, (*cq).cq_context) };
    let event = event.ok_or(EINVAL)?;
    // SAFETY: The device is registered.
    let place = unsafe { &raw mut (*soft.device.as_raw()).ops.poll_cq };
    // SAFETY: No other test uses the device concurrently.
    let mut poll_cq = unsafe { Operation::new(place) };
    POLL.store(poll_cq.before().ok_or(EINVAL)? as usize, Release);
    poll_cq.set(Some(look));
    let looks = || {
        LOOKS.store(0, Release);
        // SAFETY: The queue is valid, and this is its handler.
        unsafe { event(cq, context) };
        fsleep(Delta::from_millis(100));
        LOOKS.load(Acquire)
    };
    let connected = looks();
    let _ = qp.finish();
    let finished = looks();
    drop(poll_cq);
    check!(connected > 0);
    check_eq!(finished, 0);
    Ok(())
}

/// Whether a queue pair is being created.
static MAKES: Atomic<bool> = Atomic::new(false);
/// Number of calls that are about to begin and must not run meanwhile.
static ABOUT: Atomic<usize> = Atomic::new(0);
/// The original `create_qp`.
static CREATE: Atomic<usize> = Atomic::new(0);

type Create = unsafe extern "C" fn(
    *mut bindings::ib_qp,
    *mut bindings::ib_qp_init_attr,
    *mut bindings::ib_udata,
) -> c_int;

/// # Safety
///
/// As for the `create_qp` of the device.
unsafe extern "C" fn make(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    data: *mut bindings::ib_udata,
) -> c_int {
    MAKES.store(true, Release);
    wait_for(|| ABOUT.load(Acquire) == Busy::OTHERS.len());
    fsleep(Delta::from_millis(100));
    // SAFETY: `one_call_at_a_time` stored `CREATE`.
    let create: Create = unsafe { core::mem::transmute(CREATE.load(Acquire)) };
    // SAFETY: The arguments are valid for `create_qp`.
    let result = unsafe { create(qp, attr, data) };
    MAKES.store(false, Release);
    result
}

/// Waits until `what` is true, for at most a minute.
fn wait_for(what: impl Fn() -> bool) {
    let begin = Instant::<Monotonic>::now();
    while !what() && begin.elapsed().as_millis() < 60_000 {
        fsleep(Delta::from_millis(1));
    }
}

/// An identifier with concurrent users.
struct Busy {
    qp: Arc<Qp<NoPeer>>,
    id: Arc<cm::Id<Events>>,
    made: Atomic<bool>,
    beside: Atomic<u32>,
}

impl Busy {
    /// The calls that must not run while a queue pair is created.
    const OTHERS: [fn(&Self); 4] = [
        |busy| busy.beside(|id| id.set_service_type(1)),
        |busy| busy.beside(|id| _ = id.resolve_route(1000)),
        |busy| busy.beside(|id| _ = id.src_addr()),
        |busy| busy.beside(|id| id.disconnect()),
    ];

    fn connect(&self) {
        self.made
            .store(self.qp.create(self.id.clone()).is_ok(), Release);
    }

    fn beside(&self, call: impl FnOnce(&cm::Id<Events>)) {
        wait_for(|| MAKES.load(Acquire));
        ABOUT.fetch_add(1, Full);
        call(&self.id);
        self.beside.add(u32::from(MAKES.load(Acquire)), Relaxed);
    }
}

/// The connection manager's functions must not run concurrently for one identifier.
fn one_call_at_a_time(soft: &Soft) -> Result {
    let (_peer, _, id) = Link::route(soft, bindings::ib_poll_context_IB_POLL_DIRECT)?;
    let busy = Arc::new(
        Busy {
            qp: bare(soft)?,
            id,
            made: Atomic::new(false),
            beside: Atomic::new(0),
        },
        GFP_KERNEL,
    )?;
    // SAFETY: The device is registered.
    let place = unsafe { &raw mut (*soft.device.as_raw()).ops.create_qp };
    // SAFETY: No other test uses the device concurrently.
    let mut create_qp = unsafe { Operation::new(place) };
    CREATE.store(create_qp.before().ok_or(EINVAL)? as usize, Release);
    create_qp.set(Some(make));
    ABOUT.store(0, Release);
    let [a, b, c, d] = Busy::OTHERS;
    race(&busy, &[Busy::connect, a, b, c, d])?;
    drop(create_qp);
    busy.qp.destroy();
    check!(busy.made.load(Acquire));
    check_eq!(busy.beside.load(Acquire), 0);
    Ok(())
}

suite!(
    srp_grace_rxe,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        many_share_a_grace_period,
        a_finished_one_is_not_connected,
        a_vector_is_one_of_the_device,
        late_event_is_not_polled,
        posting_races_with_connecting,
        memory_is_kept_until_all_have_drained,
        memory_is_as_much_as_the_sizes_say,
        one_call_at_a_time,
    ]
);
