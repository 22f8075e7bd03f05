// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of connections by the InfiniBand connection manager: synthetic events in every
//! order, passed to its callback; and real connections over RoCE.

mod answer;
mod events;
mod passive;
pub(crate) mod target;

use super::{
    Event,
    EventHandler,
    Id,
    Request, //
};
use crate::{
    bindings,
    errno::{
        ENOTCONN,
        EOPNOTSUPP, //
    },
    rdma::{
        cm_id::{
            try_destroy,
            CmId, //
        },
        device::Gid,
        lookup::Lookup,
        path::{
            Path,
            PathRec,
            SgidAttr, //
        },
        pd::Pd,
        tests::{
            check,
            check_eq,
            peer::within,
            soft::{
                Kind,
                Soft, //
            },
            suite, //
        }, //
    },
};
use answer::{
    bounds_every_ack_delay,
    bounds_rdma_depths,
    bounds_what_the_peer_says_of_time,
    takes_a_chosen_ack_timeout, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use events::{
    in_every_order,
    rejects, //
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
use target::{
    Answer,
    Asked,
    Target, //
};

/// The partition that every RoCE port is in.
const PKEY: u16 = 0xffff;
/// Each byte of the private data of a reply or a reject.
const PATTERN: u8 = 0x5a;

/// A handler that counts its events.
struct Record {
    answers: Atomic<u32>,
    refusals: Atomic<u32>,
    silences: Atomic<u32>,
    ends: Atomic<u32>,
    exits: Atomic<u32>,
    /// Number of MRAs from the target, and the time in milliseconds that the last one asked for.
    delays: Atomic<u32>,
    delay: Atomic<u32>,
    /// Reason of the last reject, and the length of its `info`.
    reason: Atomic<u32>,
    info: Atomic<u32>,
    /// Number of events with private data that differs from what was sent.
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
                delays: zero(),
                delay: zero(),
                reason: zero(),
                info: zero(),
                wrong: zero(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the numbers of answers, refusals, silences, ends and exits.
    fn counts(&self) -> [u32; 5] {
        [
            &self.answers,
            &self.refusals,
            &self.silences,
            &self.ends,
            &self.exits,
        ]
        .map(|n| n.load(Acquire))
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
            Event::Later(ms) => {
                self.delay.store(ms, Relaxed);
                (&self.delays, true)
            }
            Event::Replied(data) => (&self.answers, good(data, 196)),
            Event::Rejected {
                reason,
                info,
                private_data,
            } => {
                self.reason.store(reason.into(), Relaxed);
                self.info.store(info.len() as u32, Relaxed);
                // Only a consumer-defined reject (28) has private data.
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
        in_every_order,
        rejects,
        connects_and_disconnects,
        bounds_what_the_peer_says_of_time,
        takes_a_chosen_ack_timeout,
        bounds_every_ack_delay,
        bounds_rdma_depths,
        is_disconnected,
        is_rejected,
        no_listener,
        peer_is_silent,
        refuses_an_answer,
        answer_is_looked_at,
        target_needs_time,
        connects_once,
        paths,
        path_of_another_device_is_refused,
        lookups_end_at_any_time,
    ]
);
suite!(
    srp_rdma_ib_cm_siw,
    siw,
    crate::rdma::tests::soft::Kind::Siw,
    [has_no_ib_cm]
);

/// The GID that is the device's IPv4 address.
fn gid_of(soft: &Soft) -> Gid {
    soft.address.to_ipv6_mapped().octets()
}

fn path_rec(soft: &Soft, service_id: u64) -> PathRec {
    PathRec {
        sgid: gid_of(soft),
        dgid: gid_of(soft),
        pkey: PKEY,
        service_id,
    }
}

fn path(soft: &Soft, rec: &PathRec) -> Result<Path> {
    let lookup = Lookup::start(&soft.device, 1, rec, 1000)?;
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
/// `qp` is the queue pair of `id`, with `cq` for both directions; both are valid.
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
            // INVARIANT: Both were just created.
            Ok(qp) => Ok(Self {
                record,
                id,
                qp,
                cq,
                _pd: pd,
            }),
            Err(e) => {
                // SAFETY: Nothing uses the queue.
                unsafe { bindings::ib_free_cq(cq) };
                Err(e)
            }
        }
    }

    fn request(&self, soft: &Soft, service_id: u64, qpn: Option<u32>) -> Result {
        let path = path(soft, &path_rec(soft, service_id))?;
        self.request_along(path, service_id, qpn)
    }

    fn request_along(&self, mut path: Path, service_id: u64, qpn: Option<u32>) -> Result {
        self.id.request(
            &mut path,
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
        Ok(self.query(bindings::ib_qp_attr_mask_IB_QP_STATE)?.qp_state)
    }

    fn query(&self, what: bindings::ib_qp_attr_mask) -> Result<KBox<bindings::ib_qp_attr>> {
        let mut attr = KBox::new(bindings::ib_qp_attr::default(), GFP_KERNEL)?;
        let mut init = KBox::new(bindings::ib_qp_init_attr::default(), GFP_KERNEL)?;
        let mask = what as c_int;
        // SAFETY: The queue pair is valid; the others are valid for writing.
        kernel::error::to_result(unsafe {
            bindings::ib_query_qp(self.qp.as_ptr(), &mut *attr, mask, &mut *init)
        })?;
        Ok(attr)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.id.release_qp();
        // SAFETY: The queue pair is valid; the identifier has released it, and nothing was posted.
        let _ = unsafe { try_destroy(self.qp) };
        // SAFETY: The queue is valid, and its queue pair is gone.
        unsafe { bindings::ib_free_cq(self.cq) };
    }
}

/// Accepts every request, with recognisable data.
fn yes(_: usize, _: &Asked) -> Answer {
    Answer::accept(&[PATTERN; 64])
}

fn connects_and_disconnects(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_INIT);
    attempt.request(soft, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    let asked = target.request(0)?;
    check!(asked.usual);
    check_eq!(asked.data.first_chunk(), Some(&[PATTERN; 64]));
    check_eq!(asked.data.last_chunk(), Some(&[0; 28]));
    check_eq!((asked.sgid, asked.dgid), (gid_of(soft), gid_of(soft)));
    check_eq!((asked.pkey, asked.retry_count, asked.reads), (PKEY, 5, 3));
    // 5 retries of 4.096 us * 2^17 at least: the packet life time of the path is 16.
    check!(attempt.id.confirm(None)? >= 5 * 4 * 536 + 1000);
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_RTS);
    target.has_heard(|heard| &heard.confirmed, 1)?;
    check_eq!(attempt.id.confirm(None), Err(ENOTCONN));

    attempt.id.disconnect();
    check_eq!(attempt.state()?, bindings::ib_qp_state_IB_QPS_ERR);
    target.has_heard(|heard| &heard.disconnected, 1)?;
    attempt.id.disconnect();
    attempt.record.wait(&attempt.record.exits)?;
    check_eq!(attempt.record.counts(), [1, 0, 0, 0, 1]);
    check_eq!(attempt.record.wrong.load(Relaxed), 0);
    target.has_heard(|heard| &heard.disconnected, 1)?;
    target.has_heard(|heard| &heard.refused, 0)?;
    check_eq!(target.requests(), 1);
    Ok(())
}

fn is_disconnected(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    attempt.id.confirm(None)?;
    target.has_heard(|heard| &heard.confirmed, 1)?;
    target.disconnect(0)?;
    attempt.record.wait(&attempt.record.ends)?;
    check_eq!(attempt.record.counts(), [1, 0, 0, 1, 0]);
    // The callback answers the DREQ, so the peer need not wait for our disconnect.
    target.has_heard(|heard| &heard.released, 1)?;
    attempt.record.wait(&attempt.record.exits)?;
    check_eq!(attempt.record.counts(), [1, 0, 0, 1, 1]);
    target.has_heard(|heard| &heard.disconnected, 0)
}

fn is_rejected(soft: &Soft) -> Result {
    for (reason, info) in [(28, 0), (24, 72), (25, 16), (10, 0)] {
        let no = move |_: usize, _: &Asked| {
            let pattern = [PATTERN; 148];
            Answer::reject(reason, pattern.get(..info).unwrap_or(&[]), &pattern)
        };
        let target = Target::new(&soft.device, no)?;
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, target.service_id(), None)?;
        attempt.record.wait(&attempt.record.refusals)?;
        check_eq!(attempt.record.reason.load(Relaxed), u32::from(reason));
        check_eq!(attempt.record.info.load(Relaxed), info as u32);
        check_eq!(attempt.record.wrong.load(Relaxed), 0);
        check_eq!(attempt.record.counts(), [0, 1, 0, 0, 0]);
        check_eq!(attempt.id.confirm(None), Err(ENOTCONN));
    }
    Ok(())
}

fn no_listener(soft: &Soft) -> Result {
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, 0x1234_5678_9abc_def0, None)?;
    attempt.record.wait(&attempt.record.refusals)?;
    // Invalid service ID.
    check_eq!(attempt.record.reason.load(Relaxed), 8);
    check_eq!(attempt.record.counts(), [0, 1, 0, 0, 0]);
    Ok(())
}

/// Abandoning an attempt does not wait for its end.
fn peer_is_silent(soft: &Soft) -> Result {
    let silence = |_: usize, _: &Asked| Answer::Silence;
    let target = Target::new(&soft.device, silence)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, target.service_id(), None)?;
    within(|| target.requests() == 1)?;
    check_eq!(attempt.record.counts(), [0; 5]);
    check_eq!(attempt.id.confirm(None), Err(ENOTCONN));
    attempt.id.disconnect();
    let record = attempt.record.clone();
    drop(attempt);
    // The connection manager has sent the target a reject: timeout.
    target.has_heard(|heard| &heard.refused, 1)?;
    check_eq!(target.heard().reason.load(Relaxed), 4);
    check_eq!(record.counts(), [0; 5]);
    Ok(())
}

fn refuses_an_answer(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    attempt.id.refuse();
    target.has_heard(|heard| &heard.refused, 1)?;
    // The reject comes from the consumer, not from the connection manager.
    check_eq!(target.heard().reason.load(Relaxed), 28);
    check_eq!(attempt.id.confirm(None), Err(ENOTCONN));
    check_eq!(attempt.record.counts(), [1, 0, 0, 0, 0]);
    target.has_heard(|heard| &heard.confirmed, 0)
}

/// An impatient target is told to wait while its reply is being examined.
fn answer_is_looked_at(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    // The target repeats its reply after a second or two.
    within(|| target.heard().delayed.load(Acquire) > 0)?;
    check_eq!(attempt.record.counts(), [1, 0, 0, 0, 0]);
    attempt.id.confirm(None)?;
    target.has_heard(|heard| &heard.confirmed, 1)
}

/// A slow target sends an MRA, and the attempt continues.
fn target_needs_time(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, |_: usize, _: &Asked| Answer::Later)?;
    let attempt = Attempt::new(soft)?;
    attempt.request(soft, target.service_id(), None)?;
    // The request is repeated after four seconds.
    within(|| {
        // SAFETY: The identifier is valid; the field is a number.
        let state = unsafe { (&raw const (*attempt.id.as_raw()).state).read_volatile() };
        state == bindings::ib_cm_state_IB_CM_MRA_REQ_RCVD
    })?;
    attempt.record.wait(&attempt.record.delays)?;
    check_eq!(attempt.record.delay.load(Relaxed), 68_719);
    check_eq!(attempt.record.counts(), [0; 5]);
    target.answer(0, &yes(0, &target.request(0)?))?;
    attempt.record.wait(&attempt.record.answers)?;
    check_eq!(attempt.record.counts(), [1, 0, 0, 0, 0]);
    attempt.id.confirm(None)?;
    target.has_heard(|heard| &heard.confirmed, 1)?;
    check_eq!(target.requests(), 1);
    Ok(())
}

fn connects_once(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    // A queue pair without a connection manager does not answer, but the request counts.
    attempt.request(soft, target.service_id(), Some(0x00ff_fff0))?;
    check_eq!(
        attempt.request(soft, target.service_id(), None),
        Err(EINVAL)
    );
    check_eq!(target.requests(), 0);
    // A second queue pair is refused, too.
    let mut attr = bindings::ib_qp_init_attr::default();
    // SAFETY: It is refused before the queues are used.
    let second = unsafe { attempt.id.create_qp(&attempt._pd, &mut attr) };
    check!(matches!(second, Err(e) if e == EBUSY));

    // Without a queue pair there is nothing to connect.
    let id = Id::new(&soft.device, 1, PKEY, Record::new()?)?;
    let mut path = path(soft, &path_rec(soft, 1))?;
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
    let rec = path_rec(soft, 1);
    let mut found = path(soft, &rec)?;
    check_eq!(found.dgid(), rec.dgid);
    check_eq!(found.pkey(), PKEY);
    found.redirect(7, Some([1; 16]), Some(0x8001));
    check_eq!((found.dgid(), found.pkey()), ([1; 16], 0x8001));
    found.redirect(7, None, None);
    check_eq!((found.dgid(), found.pkey()), ([1; 16], 0x8001));

    let failure = |rec: &PathRec| path(soft, rec).err();
    // A GID that the port does not have; an address of the other family.
    let sgid = [7; 16];
    check_eq!(failure(&PathRec { sgid, ..rec }), Some(ENOENT));
    let mut dgid = [0; 16];
    (dgid[0], dgid[1], dgid[15]) = (0xfe, 0x80, 1);
    check_eq!(failure(&PathRec { dgid, ..rec }), Some(EINVAL));
    check!(Lookup::start(&soft.device, 9, &rec, 1000).is_err());
    check_eq!(soft.device.pkey_index(1, PKEY), Ok(0));
    check_eq!(soft.device.pkey_index(1, 0x8001), Err(ENOENT));
    // Limited membership suffices.
    check_eq!(soft.device.pkey_index(1, PKEY & 0x7fff), Ok(0));
    Ok(())
}

/// The GID of a path belongs to its device and must not go into a queue pair of another device.
fn path_of_another_device_is_refused(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    let other = Soft::find(Kind::Siw).ok_or(ENODEV)?;
    let gid = other.device.gid(1, 0)?;
    let types = [bindings::ib_gid_type_IB_GID_TYPE_IB];
    let sgid = SgidAttr::find(&other.device, 1, gid, &types)?;
    let rec = path_rec(soft, target.service_id());
    let kind = bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2;
    let path = Path::new(rec.to_raw(kind), Some(sgid));
    check!(path.is_from(&other.device) && !path.is_from(&soft.device));
    let refused = attempt.request_along(path, target.service_id(), None);
    check_eq!(refused, Err(EINVAL));
    // The refused request does not count.
    attempt.request(soft, target.service_id(), None)
}

/// A lookup is dropped while it completes.
fn lookups_end_at_any_time(soft: &Soft) -> Result {
    let rec = path_rec(soft, 1);
    for i in 0..300 {
        let lookup = Lookup::start(&soft.device, 1, &rec, 1000)?;
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
    let rec = path_rec(soft, 1);
    check_eq!(
        Lookup::start(&soft.device, 1, &rec, 1000).err(),
        Some(EOPNOTSUPP)
    );
    Ok(())
}
