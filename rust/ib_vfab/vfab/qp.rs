// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! A send request is executed before its post returns: the data is in the peer's memory, and both
//! queue pairs have their completions. A request that must wait, because the peer has no receive
//! request or a packet was lost, stays in the send queue until a timer retries it.
//!
//! Lock order, outer to inner: the send queue, the receive queue of the peer (or of the same queue
//! pair), a completion queue. The lock of [`Fabric`](super::fabric::Fabric) is taken and released
//! between the first two. The lock of [`Groups`](groups::Groups) is held between the first two
//! while a datagram is copied to the members of a group.

pub mod datagram;
mod flush;
pub mod groups;
pub mod net;
mod peer;
pub mod requester;
pub mod responder;
mod wqes;

use self::{
    net::{
        End,
        Net, //
    },
    requester::Requester,
    responder::Responder, //
};
use super::{
    cq::Cq,
    fault::{
        Faults,
        Kind as Fault,
        SEND, //
    },
    memory::Memory,
    personality::Manner,
};
use crate::{
    compat::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    provider::{
        attr::{
            Kind,
            Mask,
            PdName,
            QpAttr,
            Sizes,
            State, //
        },
        event::{
            self,
            QpTarget, //
        },
        timer::{
            Expire,
            Timer, //
        },
        wc::QpName, //
    },
};
use kernel::{
    fmt,
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// A queue pair.
#[pin_data]
pub struct Qp {
    /// Queue pair number.
    pub num: u32,
    kind: Kind,
    pd: PdName,
    name: QpName,
    sizes: Sizes,
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    manner: Arc<Manner>,
    net: Arc<Net>,
    /// The port, which may change until the queue pair is connected.
    #[pin]
    end: SpinLockIrq<Arc<End>>,
    #[pin]
    sq: SpinLockIrq<Requester>,
    #[pin]
    rq: SpinLockIrq<Responder>,
    state: Atomic<u32>,
    /// Incremented on each connect and reset.
    epoch: Atomic<u32>,
    /// The device has stopped, and flushes nothing until the queue pair is moved to the error
    /// state.
    frozen: Atomic<bool>,
    /// The device drains the queue pair: drain requests are accepted while all others are refused.
    draining: Atomic<bool>,
    /// Pending actions of the work item: a bit for each of [`TOLD`], [`FLUSH`] and [`OVERRUN`].
    events: Atomic<u32>,
    #[pin]
    timer: Timer<Self>,
    /// Serialises state changes, which threads of a process may request concurrently.
    #[pin]
    changing: Mutex<()>,
    #[pin]
    target: QpTarget,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Qp { self.work }
}

/// Events that the work item reports.
const TOLD: [event::Kind; 4] = [
    event::Kind::QP_FATAL,
    event::Kind::QP_REQ_ERR,
    event::Kind::QP_ACCESS_ERR,
    event::Kind::COMM_EST,
];
/// The work item flushes the send queue.
const FLUSH: u32 = 1 << 8;
/// The work item reports lost completions.
const OVERRUN: u32 = 1 << 9;

/// Arguments of [`Qp::new`].
pub struct New<'a> {
    /// The kind of the queue pair.
    pub kind: Kind,
    /// Protection domain.
    pub pd: PdName,
    /// Name in completions.
    pub name: QpName,
    /// Sizes of the two queues.
    pub sizes: Sizes,
    /// Whether each send request has a completion.
    pub all_signaled: bool,
    /// Completion queue of the send requests.
    pub send_cq: &'a Arc<Cq>,
    /// Completion queue of the receive requests.
    pub recv_cq: &'a Arc<Cq>,
    /// The memory that the queue pair accesses.
    pub memory: &'a Arc<Memory>,
    /// The faults of the adapter.
    pub faults: &'a Arc<Faults>,
    /// Personality and current outage of the adapter.
    pub manner: &'a Arc<Manner>,
    /// The initial port.
    pub end: Arc<End>,
}

impl Qp {
    /// Creates queue pair `num` in state RESET.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(num: u32, new: New<'_>) -> Result<Arc<Self>> {
        let sq = Requester::new(&new)?;
        let rq = Responder::new(&new)?;
        let New {
            kind,
            pd,
            name,
            sizes,
            memory,
            faults,
            manner,
            end,
            ..
        } = new;
        let net = end.net.clone();
        let frozen = kind == Kind::Rc && flush::freezes(manner);
        Arc::pin_init(
            pin_init!(Self {
                num,
                kind,
                pd,
                name,
                sizes,
                memory: memory.clone(),
                faults: faults.clone(),
                manner: manner.clone(),
                net,
                end <- new_spinlock_irq!(end, "vfab::Qp::end"),
                sq <- new_spinlock_irq!(sq, "vfab::Qp::sq"),
                rq <- new_spinlock_irq!(rq, "vfab::Qp::rq"),
                state: Atomic::new(State::Reset as u32),
                epoch: Atomic::new(0),
                frozen: Atomic::new(frozen),
                draining: Atomic::new(false),
                events: Atomic::new(0),
                timer <- Timer::new(),
                changing <- new_mutex!((), "vfab::Qp::changing"),
                target <- QpTarget::new(),
                work <- new_work!("vfab::Qp::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The target of the queue pair's events.
    pub fn target(&self) -> &QpTarget {
        &self.target
    }

    /// The current port.
    fn end(&self) -> Arc<End> {
        self.end.lock().clone()
    }

    /// The kind of the queue pair.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The sizes of the queues.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The current state.
    #[inline]
    pub fn state(&self) -> State {
        const ALL: [State; 7] = [
            State::Reset,
            State::Init,
            State::Rtr,
            State::Rts,
            State::Sqd,
            State::Sqe,
            State::Err,
        ];
        let n = self.state.load(Acquire) as usize;
        ALL.get(n).copied().unwrap_or(State::Err)
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u32, Release);
    }

    /// The attributes, including the current state.
    pub fn attr(&self) -> QpAttr {
        let mut attr = self.sq.lock().attr;
        attr.state = self.state();
        attr
    }

    /// The faults, if any are armed. Only RC queue pairs have faults.
    #[inline]
    fn faults(&self) -> Option<&Faults> {
        (self.faults.any() && self.kind == Kind::Rc).then_some(&*self.faults)
    }

    /// Returns an error if a fault makes operation `what` fail.
    ///
    /// # Errors
    ///
    /// The error of the fault.
    fn refusal(&self, what: Fault) -> Result {
        self.faults().map_or(Ok(()), |faults| faults.refusal(what))
    }

    /// Modifies the queue pair. `end` is the new port, if the port changes. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the transition is not allowed or lacks an attribute; that of an injected fault.
    pub fn modify(self: &Arc<Self>, attr: &QpAttr, mask: Mask, end: Option<Arc<End>>) -> Result {
        let _changing = self.changing.lock();
        let now = self.state();
        if mask.current() && attr.current != now {
            return Err(EINVAL);
        }
        let to = if mask.state() { attr.state } else { now };
        if !mask.fits(now, to, self.kind) {
            return Err(EINVAL);
        }
        if mask.path_mtu() && !(1..=5).contains(&attr.path_mtu) {
            return Err(EINVAL);
        }
        if to == State::Err {
            if let Some(ms) = self.faults().and_then(|f| f.hit(Fault::Hang, SEND)) {
                fsleep(Delta::from_millis(i64::try_from(ms).unwrap_or(0)));
            }
            self.refusal(Fault::Stop)?;
        }
        let was = end.map(|end| core::mem::replace(&mut *self.end.lock(), end));
        drop(was);
        if to == State::Reset {
            let frozen = self.kind == Kind::Rc && flush::freezes(&self.manner);
            self.frozen.store(frozen, Relaxed);
            self.reset(true);
            return Ok(());
        }
        let mut sq = self.sq.lock();
        let mut rq = self.rq.lock();
        // An error may have changed the state meanwhile.
        if to != State::Err && self.state() != now {
            return Err(EINVAL);
        }
        sq.attr.update(attr, mask);
        rq.attr = sq.attr;
        if now == State::Init && to == State::Rtr {
            rq.psn = attr.rq_psn & PSN;
            rq.established = false;
            self.epoch.fetch_add(1, Full);
        }
        if now == State::Rtr && to == State::Rts {
            sq.begin(attr.sq_psn & PSN);
        }
        self.set_state(to);
        if to == State::Err {
            self.flush_receives(&mut rq);
        }
        drop(rq);
        self.progress(&mut sq);
        let peer = sq.forget_peer_if(mask.address() || to == State::Err);
        drop(sq);
        drop(peer);
        Ok(())
    }

    /// Resets the queue pair. Posted requests get no completion; `purges` also removes its
    /// completions from the queues. May sleep.
    fn reset(self: &Arc<Self>, purges: bool) {
        let peer = {
            let mut sq = self.sq.lock();
            let mut rq = self.rq.lock();
            self.set_state(State::Reset);
            self.epoch.fetch_add(1, Full);
            sq.reset();
            rq.reset();
            sq.forget_peer_if(true)
        };
        drop(peer);
        self.timer.cancel();
        if purges {
            for cq in self.queues().into_iter().flatten() {
                cq.purge(self.name);
            }
        }
    }

    fn queues(&self) -> [Option<Arc<Cq>>; 2] {
        let send = self.sq.lock().cq.clone();
        let recv = self.rq.lock().cq.clone();
        [send, recv]
    }

    /// Whether the queue pair may be destroyed.
    ///
    /// # Errors
    ///
    /// The error of a fault.
    pub fn may_go(&self) -> Result {
        self.refusal(Fault::Destroy)
    }

    /// Resets the queue pair and releases its queues. May sleep.
    pub fn destroy(self: &Arc<Self>) {
        // A flush that has seen the error state must not start the timer after the reset.
        let _changing = self.changing.lock();
        self.reset(self.kind != Kind::Rc || self.manner.personality.purges);
        let send = {
            let mut sq = self.sq.lock();
            core::mem::replace(&mut *sq, Requester::none())
        };
        let recv = {
            let mut rq = self.rq.lock();
            core::mem::replace(&mut *rq, Responder::none())
        };
        drop((send, recv));
    }

    /// Handles an error of the receive side: flushes both queues. A work item flushes the send
    /// queue, because its lock is the outer one.
    fn break_receive(self: &Arc<Self>, rq: &mut Responder, event: Option<event::Kind>) {
        pr_info!("{self}: receive error, both queues are flushed: {event:?}\n");
        self.set_state(State::Err);
        self.flush_receives(rq);
        self.later(FLUSH | event.map_or(0, bit));
    }

    /// Handles an error of the send side: flushes the receive queue.
    fn break_send(self: &Arc<Self>) {
        let mut rq = self.rq.lock();
        self.set_state(State::Err);
        self.flush_receives(&mut rq);
    }

    /// Makes the queue pair fail without a completion that reports it. Any context without the
    /// receive queue's lock.
    pub fn die(self: &Arc<Self>) {
        self.break_send();
        self.later(FLUSH | bit(event::Kind::QP_FATAL));
    }

    /// Schedules the work item to do `what`.
    fn later(self: &Arc<Self>, what: u32) {
        let mut old = self.events.load(Relaxed);
        while let Err(now) = self.events.cmpxchg(old, old | what, Full) {
            old = now;
        }
        let _ = self.net.work.queue().enqueue(self.clone());
    }
}

impl fmt::Display for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.end.lock().id;
        write!(f, "vfab{} port {} queue pair {}", id.ca, id.port, self.num)
    }
}

/// Mask of a packet sequence number.
const PSN: u32 = 0xff_ffff;

fn bit(kind: event::Kind) -> u32 {
    TOLD.iter().position(|k| *k == kind).map_or(0, |n| 1 << n)
}

impl WorkItem for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let what = this.events.xchg(0, Full);
        if what & FLUSH != 0 {
            this.flush();
        }
        if what & OVERRUN != 0 {
            pr_info!("{this}: completion queue overrun\n");
            for cq in this.queues().into_iter().flatten() {
                cq.tell_overrun();
            }
        }
        for kind in TOLD {
            if what & bit(kind) != 0 {
                this.target.tell(kind);
            }
        }
    }
}

impl Expire for Qp {
    fn expired(self: Arc<Self>) {
        {
            let mut sq = self.sq.lock();
            sq.waiting = false;
            if self.state() != State::Err || self.flushes_simply() {
                return self.progress(&mut sq);
            }
        }
        self.flush_some();
    }
}
