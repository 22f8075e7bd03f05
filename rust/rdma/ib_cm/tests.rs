// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of connections by the InfiniBand connection manager: events that it might bring, in
//! every order, handed to the callback that it calls; and real connections along RoCE.

mod listener;

use super::{
    Event,
    EventHandler,
    Id,
    Raw,
    Report,
    Request, //
};
use crate::{
    bindings,
    errno::{
        ENOTCONN, //
        EOPNOTSUPP,
    },
    rdma::{
        device::Gid,
        link::Link,
        path::{
            Ends,
            Lookup,
            Path, //
        },
        pd::Pd,
        sa,
        tests::{
            check,
            check_eq,
            peer::within,
            soft::Soft,
            suite, //
        }, //
    },
    srp::logic::cm,
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use listener::{
    Answer,
    Listener, //
};

/// The partition that every RoCE port is in.
const PKEY: u16 = 0xffff;
/// What an answer or a reject carries.
const PATTERN: u8 = 0x5a;

/// Counts what it is told.
struct Record {
    answers: Atomic<u32>,
    refusals: Atomic<u32>,
    silences: Atomic<u32>,
    ends: Atomic<u32>,
    exits: Atomic<u32>,
    /// Of the last reject.
    reason: Atomic<u32>,
    info: Atomic<u32>,
    /// Private data that is not what was sent.
    wrong: Atomic<u32>,
}

impl Record {
    fn new() -> Result<Arc<Self>> {
        let zero = || Atomic::new(0);
        Ok(Arc::new(
            Self {
                answers: zero(),
                refusals: zero(),
                silences: zero(),
                ends: zero(),
                exits: zero(),
                reason: zero(),
                info: zero(),
                wrong: zero(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Answers, ends of any kind, exits.
    fn counts(&self) -> [u32; 3] {
        let ends = [&self.refusals, &self.silences, &self.ends].map(|n| n.load(Acquire));
        let [a, b, c] = ends;
        [
            self.answers.load(Acquire),
            a + b + c,
            self.exits.load(Acquire),
        ]
    }

    fn wait(&self, what: &Atomic<u32>) -> Result {
        within(|| what.load(Acquire) != 0)
    }
}

impl EventHandler for Record {
    fn event(&self, event: Event<'_>) {
        let good = |bytes: &[u8], len| {
            bytes.len() == len && bytes.iter().take(8).all(|byte| *byte == PATTERN)
        };
        let (count, good) = match event {
            Event::Answered(data) => (&self.answers, good(data, 196)),
            Event::Rejected {
                reason,
                info,
                private_data,
            } => {
                self.reason.store(reason.into(), Relaxed);
                self.info.store(info.len() as u32, Relaxed);
                // Only the target's own layer sends private data.
                let good = reason != 28 || good(private_data, 148);
                (&self.refusals, good && private_data.len() == 148)
            }
            Event::Unreachable => (&self.silences, true),
            Event::Disconnected => (&self.ends, true),
            Event::TimewaitExit => (&self.exits, true),
        };
        if !good {
            self.wrong.fetch_add(1, Relaxed);
        }
        count.fetch_add(1, Release);
    }
}

suite!(
    srp_rdma_ib_cm,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        events_in_every_order,
        rejects,
        connects_and_disconnects,
        is_disconnected,
        is_rejected,
        nobody_listens,
        peer_is_silent,
        refuses_an_answer,
        connects_once,
        paths,
        lookups_end_at_any_time,
    ]
);
suite!(
    srp_rdma_ib_cm_siw,
    siw,
    crate::rdma::tests::soft::Kind::Siw,
    [has_no_ib_cm]
);

/// An event as the connection manager makes it.
fn synthetic(kind: bindings::ib_cm_event_type, data: &[u8; 256]) -> bindings::ib_cm_event {
    bindings::ib_cm_event {
        event: kind,
        private_data: data.as_ptr().cast_mut().cast(),
        ..Default::default()
    }
}

/// Hands an event to the callback.
fn bring(id: &Id<Record>, event: &bindings::ib_cm_event) -> Result {
    // SAFETY: The identifier is one of ours, and the event has the private data that its kind has.
    check_eq!(
        unsafe { Raw::<Record>::event_callback(id.as_raw(), event) },
        0
    );
    Ok(())
}

/// Every sequence of three events after each thing that we can do.
fn events_in_every_order(soft: &Soft) -> Result {
    let kinds = [
        bindings::ib_cm_event_type_IB_CM_REP_RECEIVED,
        bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED,
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR,
        bindings::ib_cm_event_type_IB_CM_MRA_RECEIVED,
        bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED,
        bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED,
        bindings::ib_cm_event_type_IB_CM_DREQ_ERROR,
        bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT,
        bindings::ib_cm_event_type_IB_CM_USER_ESTABLISHED,
    ];
    let rep = bindings::ib_cm_event_type_IB_CM_REP_RECEIVED;
    let data = [PATTERN; 256];
    // Nothing, asked, asked and answered, connected, given up.
    for begin in 0..5 {
        for sequence in 0..kinds.len().pow(3) {
            let record = Record::new()?;
            let id = Id::new(&soft.device, 1, PKEY, record.clone())?;
            let shared = &id.raw.shared;
            if begin > 0 {
                check_eq!(shared.note(cm::Event::Ask), Ok(Report::Nothing));
            }
            if begin == 2 || begin == 3 {
                bring(&id, &synthetic(rep, &data))?;
            }
            if begin == 3 {
                check_eq!(shared.note(cm::Event::Confirm), Ok(Report::Nothing));
            }
            if begin == 4 {
                check_eq!(shared.note(cm::Event::Hangup), Ok(Report::Nothing));
            }
            let mut left = sequence;
            for _ in 0..3 {
                let before = record.counts();
                let kind = kinds.get(left % kinds.len()).ok_or(EINVAL)?;
                left /= kinds.len();
                bring(&id, &synthetic(*kind, &data))?;
                let [answers, ends, exits] = record.counts();
                check!(answers <= 1 && ends <= 1);
                // One report for an event, and no answer after the end.
                let [a, e, x] = before;
                check!(answers - a + ends - e + exits - x <= 1);
                check!(e == 0 || answers == a);
                check!(begin != 0 && begin != 4 || answers + ends == 0);
            }
            check_eq!(record.wrong.load(Relaxed), 0);
        }
    }
    Ok(())
}

/// A reject of each reason, with additional information of each length that it may claim.
fn rejects(soft: &Soft) -> Result {
    let data = [PATTERN; 256];
    for reason in Iterator::chain(0..=40, [u16::MAX]) {
        for claimed in [0, 1, 16, 71, 72, 73, 127, 255] {
            let record = Record::new()?;
            let id = Id::new(&soft.device, 1, PKEY, record.clone())?;
            id.raw.shared.note(cm::Event::Ask)?;
            let mut event = synthetic(bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED, &data);
            // SAFETY: It is a reject, which has this field.
            *unsafe { event.param.rej_rcvd.as_mut() } = bindings::ib_cm_rej_event_param {
                reason: reason.into(),
                ari: data.as_ptr().cast_mut().cast(),
                ari_length: claimed,
            };
            bring(&id, &event)?;
            bring(&id, &event)?;
            check_eq!(record.counts(), [0, 1, 0]);
            check_eq!(record.reason.load(Relaxed), u32::from(reason));
            check_eq!(record.info.load(Relaxed), u32::from(claimed.min(72)));
            check_eq!(record.wrong.load(Relaxed), 0);
            check_eq!(id.confirm(), Err(ENOTCONN));
        }
    }
    Ok(())
}

/// The GID that is the device's IPv4 address.
fn gid_of(soft: &Soft) -> Gid {
    soft.address.to_ipv6_mapped().octets()
}

fn ends_of(soft: &Soft, service_id: u64) -> Ends {
    Ends {
        sgid: gid_of(soft),
        dgid: gid_of(soft),
        pkey: PKEY,
        service_id,
    }
}

/// Looks a path up.
fn path(soft: &Soft, ends: &Ends) -> Result<Path> {
    let lookup = Lookup::start(&soft.device, 1, ends, 1000)?;
    for _ in 0..50 {
        if let Some(path) = lookup.wait(100)? {
            return path;
        }
    }
    Err(ETIMEDOUT)
}

/// An identifier with a queue pair on bare verbs.
///
/// # Invariants
///
/// `qp` is that of `id`, with `cq` for both directions; both are valid.
struct Attempt {
    record: Arc<Record>,
    id: Arc<Id<Record>>,
    qp: NonNull<bindings::ib_qp>,
    cq: *mut bindings::ib_cq,
    _pd: Arc<Pd>,
}

impl Attempt {
    fn new(soft: &Soft) -> Result<Self> {
        let pd = Pd::new(soft.device.hold()?)?;
        let record = Record::new()?;
        let id = Id::new(&soft.device, 1, PKEY, record.clone())?;
        // SAFETY: The device is registered; nothing uses the context.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                soft.device.as_raw(),
                null_mut(),
                8,
                0,
                bindings::ib_poll_context_IB_POLL_DIRECT,
                c"ib_srp".as_char_ptr(),
            )
        })?;
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            cap: bindings::ib_qp_cap {
                max_send_wr: 2,
                max_recv_wr: 2,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The queue is of the domain's device, and is freed after the queue pair.
        match unsafe { id.create_qp(&pd, &mut attr) } {
            // INVARIANT: Both were just made.
            Ok(qp) => Ok(Self {
                record,
                id,
                qp,
                cq,
                _pd: pd,
            }),
            Err(e) => {
                // SAFETY: Nothing uses it.
                unsafe { bindings::ib_free_cq(cq) };
                Err(e)
            }
        }
    }

    fn request(&self, soft: &Soft, service_id: u64, qpn: Option<u32>) -> Result {
        self.id.request(
            &mut path(soft, &ends_of(soft, service_id))?,
            &Request {
                service_id,
                private_data: &[PATTERN; 64],
                responder_resources: 3,
                retry_count: 5,
                rnr_retry_count: 7,
                remote_cm_qpn: qpn,
            },
        )
    }

    /// The state of the queue pair.
    fn state(&self) -> Result<bindings::ib_qp_state> {
        let mut attr = KBox::new(bindings::ib_qp_attr::default(), GFP_KERNEL)?;
        let mut init = KBox::new(bindings::ib_qp_init_attr::default(), GFP_KERNEL)?;
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: By the type invariant the queue pair is valid; the others are valid for writing.
        kernel::error::to_result(unsafe {
            bindings::ib_query_qp(self.qp.as_ptr(), &mut *attr, mask, &mut *init)
        })?;
        Ok(attr.qp_state)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is the identifier's; nothing was posted.
        unsafe { self.id.destroy_qp(self.qp) };
        // SAFETY: By the type invariant it is valid, and its queue pair is gone.
        unsafe { bindings::ib_free_cq(self.cq) };
    }
}

fn connects_and_disconnects(soft: &Soft) -> Result {
    let listener = Listener::new(&soft.device, Answer::Accept)?;
    let attempt = Attempt::new(soft)?;
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_INIT);
    attempt.request(soft, listener.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    // 5 retries of 4.096 us * 2^17 at least: the path's packet life time is 16.
    check!(attempt.id.confirm()? >= 5 * 4 * 536 + 1000);
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_RTS);
    within(|| listener.established())?;
    check!(listener.was_asked_well());
    check_eq!(attempt.id.confirm(), Err(ENOTCONN));

    attempt.id.disconnect();
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_ERR);
    within(|| listener.disconnected())?;
    attempt.id.disconnect();
    attempt.record.wait(&attempt.record.exits)?;
    check_eq!(attempt.record.counts(), [1, 0, 1]);
    check_eq!(attempt.record.wrong.load(Relaxed), 0);
    Ok(())
}

fn is_disconnected(soft: &Soft) -> Result {
    let listener = Listener::new(&soft.device, Answer::Accept)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, listener.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    attempt.id.confirm()?;
    within(|| listener.established())?;
    listener.disconnect();
    attempt.record.wait(&attempt.record.ends)?;
    check_eq!(attempt.record.counts(), [1, 1, 0]);
    within(|| listener.disconnected())?;
    attempt.record.wait(&attempt.record.exits)
}

fn is_rejected(soft: &Soft) -> Result {
    for (reason, info) in [(28, 0), (24, 72), (25, 16), (10, 0)] {
        let listener = Listener::new(&soft.device, Answer::Reject(reason, info))?;
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, listener.service_id(), None)?;
        attempt.record.wait(&attempt.record.refusals)?;
        check_eq!(attempt.record.reason.load(Relaxed), u32::from(reason));
        check_eq!(attempt.record.info.load(Relaxed), u32::from(info));
        check_eq!(attempt.record.wrong.load(Relaxed), 0);
        check_eq!(attempt.id.confirm(), Err(ENOTCONN));
    }
    Ok(())
}

fn nobody_listens(soft: &Soft) -> Result {
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, 0x1234_5678_9abc_def0, None)?;
    attempt.record.wait(&attempt.record.refusals)?;
    // Invalid service ID.
    check_eq!(attempt.record.reason.load(Relaxed), 8);
    check_eq!(attempt.record.counts(), [0, 1, 0]);
    Ok(())
}

/// An attempt that is given up does not wait for its end.
fn peer_is_silent(soft: &Soft) -> Result {
    let listener = Listener::new(&soft.device, Answer::Silence)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, listener.service_id(), None)?;
    within(|| listener.was_asked())?;
    check_eq!(attempt.record.counts(), [0, 0, 0]);
    check_eq!(attempt.id.confirm(), Err(ENOTCONN));
    attempt.id.disconnect();
    drop(attempt);
    // The connection manager has told it.
    within(|| listener.was_rejected())
}

fn refuses_an_answer(soft: &Soft) -> Result {
    let listener = Listener::new(&soft.device, Answer::Accept)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, listener.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    attempt.id.refuse();
    within(|| listener.was_rejected())?;
    check_eq!(attempt.id.confirm(), Err(ENOTCONN));
    check_eq!(attempt.record.counts(), [1, 0, 0]);
    check!(!listener.established());
    Ok(())
}

fn connects_once(soft: &Soft) -> Result {
    let listener = Listener::new(&soft.device, Answer::Accept)?;
    let attempt = Attempt::new(soft)?;
    // To a queue pair where no connection manager is: nobody answers. The first request counts.
    attempt.request(soft, listener.service_id(), Some(0x00ff_fff0))?;
    check_eq!(
        attempt.request(soft, listener.service_id(), None),
        Err(EINVAL)
    );
    check!(!listener.was_asked());
    // No second queue pair either.
    let mut attr = bindings::ib_qp_init_attr::default();
    // SAFETY: It is refused before the queues are looked at.
    let second = unsafe { attempt.id.create_qp(&attempt._pd, &mut attr) };
    check!(matches!(second, Err(e) if e == EBUSY));

    // Without a queue pair there is nothing to connect.
    let id = Id::new(&soft.device, 1, PKEY, Record::new()?)?;
    let mut path = path(soft, &ends_of(soft, 1))?;
    let request = Request {
        service_id: 1,
        private_data: &[],
        responder_resources: 1,
        retry_count: 1,
        rnr_retry_count: 1,
        remote_cm_qpn: None,
    };
    check_eq!(id.request(&mut path, &request), Err(ENOTCONN));
    Ok(())
}

fn paths(soft: &Soft) -> Result {
    let ends = ends_of(soft, 1);
    let mut found = path(soft, &ends)?;
    check_eq!(found.dgid(), ends.dgid);
    check_eq!(found.pkey(), PKEY);
    found.turn(7, Some([1; 16]), Some(0x8001));
    check_eq!((found.dgid(), found.pkey()), ([1; 16], 0x8001));
    found.turn(7, None, None);
    check_eq!((found.dgid(), found.pkey()), ([1; 16], 0x8001));

    let failure = |ends: &Ends| path(soft, ends).err();
    // A GID that is not ours; an address of the other family.
    let sgid = [7; 16];
    check_eq!(failure(&Ends { sgid, ..ends }), Some(ENOENT));
    let mut dgid = [0; 16];
    (dgid[0], dgid[1], dgid[15]) = (0xfe, 0x80, 1);
    check_eq!(failure(&Ends { dgid, ..ends }), Some(EINVAL));
    check!(Lookup::start(&soft.device, 9, &ends, 1000).is_err());
    check_eq!(soft.device.pkey_index(1, PKEY), Ok(0));
    check_eq!(soft.device.pkey_index(1, 0x8001), Err(ENOENT));
    // There is no subnet administrator to be asked.
    for opa in [false, true] {
        let query = sa::Query::start(&soft.device, 1, &ends, opa, 1000);
        check_eq!(query.err(), Some(ENODEV));
    }
    Ok(())
}

/// A lookup that is dropped while it is being answered.
fn lookups_end_at_any_time(soft: &Soft) -> Result {
    let ends = ends_of(soft, 1);
    for i in 0..300 {
        let lookup = Lookup::start(&soft.device, 1, &ends, 1000)?;
        if i % 3 != 0 {
            fsleep(Delta::from_micros(i % 50));
        }
        if i % 7 == 0 {
            let _ = lookup.wait(1)?;
        }
        drop(lookup);
    }
    Ok(())
}

fn has_no_ib_cm(soft: &Soft) -> Result {
    let ends = ends_of(soft, 1);
    check_eq!(
        Lookup::start(&soft.device, 1, &ends, 1000).err(),
        Some(EOPNOTSUPP)
    );
    Ok(())
}
