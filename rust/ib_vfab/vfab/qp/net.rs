// SPDX-License-Identifier: GPL-2.0

//! Ports and their queue pairs.

use super::{
    super::{
        changes::Changes,
        fabric::{
            Fabric,
            PortId, //
        },
        gmp,
        mad::{
            Lrh,
            Mad,
            LEN, //
        },
    },
    groups::{
        Group,
        Groups, //
    },
    Qp, //
};
use crate::{
    compat::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    provider::{
        event::{
            DeviceTarget,
            Kind, //
        },
        queue::WorkQueue,
        timer::{
            Expire,
            Timer, //
        },
        wc::Source, //
    },
};
use core::ops::Deref;
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Maximum number of queue pairs of a device, including numbers 0 and 1, which belong to the ports.
pub const MAX_QPS: u32 = 8192;
/// Maximum number of ports of all adapters.
const MAX_ENDS: usize = 16;
/// Period of the timer, in nanoseconds.
const TICK: u64 = 1_000_000_000;

struct Numbers {
    all: KVVec<Option<Arc<Qp>>>,
    next: u32,
}

/// The queue pairs of a device, by number.
#[pin_data]
pub struct Qps {
    #[pin]
    numbers: SpinLockIrq<Numbers>,
    /// The multicast memberships of these queue pairs.
    #[pin]
    pub groups: Groups,
}

impl Qps {
    /// Creates an empty table. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new() -> Result<Arc<Self>> {
        let mut all = KVVec::with_capacity(MAX_QPS as usize, GFP_KERNEL)?;
        for _ in 0..MAX_QPS {
            all.push(None, GFP_KERNEL)?;
        }
        let groups = Groups::new()?;
        Arc::pin_init(
            pin_init!(Self {
                numbers <- new_spinlock_irq!(Numbers { all, next: 2 }, "vfab::Qps"),
                groups <- groups,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns a free number. Numbers are reused as late as possible. Callers must serialise this.
    pub fn free_number(&self) -> Option<u32> {
        let mut numbers = self.numbers.lock();
        for _ in 2..MAX_QPS {
            let n = numbers.next;
            numbers.next = if n + 1 == MAX_QPS { 2 } else { n + 1 };
            if numbers.all[n as usize].is_none() {
                return Some(n);
            }
        }
        None
    }

    /// Adds a queue pair.
    pub fn add(&self, qp: Arc<Qp>) {
        let mut numbers = self.numbers.lock();
        if let Some(place) = numbers.all.get_mut(qp.num as usize) {
            *place = Some(qp);
        }
    }

    /// Removes a queue pair.
    pub fn remove(&self, num: u32) -> Option<Arc<Qp>> {
        let mut numbers = self.numbers.lock();
        numbers.all.get_mut(num as usize)?.take()
    }

    /// The queue pair with this number.
    pub fn get(&self, num: u32) -> Option<Arc<Qp>> {
        self.numbers.lock().all.get(num as usize)?.clone()
    }

    /// Calls `with` for each queue pair.
    pub fn each(&self, mut with: impl FnMut(Arc<Qp>)) {
        for num in 0..MAX_QPS {
            if let Some(qp) = self.get(num) {
                with(qp);
            }
        }
    }
}

/// Number of datagrams of each kind in [`gmp::NAMES`].
pub struct Count([Atomic<u64>; gmp::NAMES.len()]);

impl Count {
    fn none() -> Self {
        Self([const { Atomic::new(0) }; gmp::NAMES.len()])
    }

    /// Counts a datagram.
    pub fn add(&self, kind: usize) {
        if let Some(count) = self.0.get(kind) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Number of datagrams of a kind.
    pub fn of(&self, kind: usize) -> u64 {
        self.0.get(kind).map_or(0, |count| count.load(Relaxed))
    }
}

/// A port, and the queue pairs of its device.
#[pin_data]
pub struct End {
    /// The adapter and port number.
    pub id: PortId,
    /// The port's network.
    pub net: Arc<Net>,
    qps: Arc<Qps>,
    target: Arc<DeviceTarget>,
    /// Datagrams that queue pair 1 has sent.
    pub sent: Count,
    /// Datagrams that queue pair 1 has received.
    pub received: Count,
    /// Queue pairs 0 and 1.
    #[pin]
    special: SpinLockIrq<[Option<Arc<Qp>>; 2]>,
    /// The queue pair that receives the connection manager messages sent to queue pair 1; 0 means
    /// queue pair 1 itself.
    manager: Atomic<u32>,
}

impl End {
    /// Creates a port of a device that has these queue pairs and reports events to `target`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(
        id: PortId,
        net: Arc<Net>,
        qps: Arc<Qps>,
        target: Arc<DeviceTarget>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                id,
                net,
                qps,
                target,
                sent: Count::none(),
                received: Count::none(),
                special <- new_spinlock_irq!([None, None], "vfab::End::special"),
                manager: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// The queue pair with this number.
    pub fn qp(&self, num: u32) -> Option<Arc<Qp>> {
        match num {
            0 | 1 => self.special.lock()[num as usize].clone(),
            _ => self.qps.get(num),
        }
    }

    /// Sets the queue pair that receives connection manager messages sent to queue pair 1; 0 is
    /// queue pair 1. If there is no such queue pair, the messages are lost.
    pub fn set_manager(&self, num: u32) {
        self.manager.store(num, Relaxed);
    }

    /// The queue pair that receives connection manager messages, unless it is queue pair 1.
    pub fn manager(&self) -> Option<u32> {
        Some(self.manager.load(Relaxed)).filter(|num| *num != 0)
    }

    /// Calls `with` for each queue pair of this port that is in `group`, while holding the lock of
    /// the groups.
    pub fn each_of(&self, group: &Group, mut with: impl FnMut(&Arc<Qp>)) {
        self.qps.groups.each(group, |qp| {
            if qp.end.lock().id == self.id {
                with(qp);
            }
        });
    }

    /// Sets queue pair 0 or 1; `false` if the port already has it.
    pub fn set_special(&self, qp: &Arc<Qp>) -> bool {
        let mut special = self.special.lock();
        match special.get_mut(qp.num as usize) {
            Some(place @ None) => {
                *place = Some(qp.clone());
                true
            }
            _ => false,
        }
    }

    /// Removes queue pair 0 or 1.
    pub fn clear_special(&self, num: u32) {
        let was = self
            .special
            .lock()
            .get_mut(num as usize)
            .and_then(Option::take);
        drop(was);
    }
}

/// A delayed management datagram.
pub struct Late {
    /// Timer ticks until delivery; a tick is one second.
    pub ticks: u64,
    /// Destination port.
    pub at: PortId,
    /// Destination queue pair.
    pub taker: u32,
    /// Source.
    pub from: Source,
    /// The datagram.
    pub mad: Mad,
}

/// Maximum number of delayed datagrams.
const MAX_LATE: usize = 16;

/// All ports and the fabric.
#[pin_data]
pub struct Net {
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Runs the work items of queue pairs.
    pub work: WorkQueue,
    #[pin]
    ends: SpinLockIrq<[Option<Arc<End>>; MAX_ENDS]>,
    #[pin]
    late: SpinLockIrq<KVec<Late>>,
    #[pin]
    timer: Timer<Self>,
    #[pin]
    ticking: SpinLockIrq<bool>,
}

impl Net {
    /// Creates the network of `fabric`, without ports.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn run(fabric: Arc<Fabric>) -> Result<Running> {
        let work = WorkQueue::new()?;
        let late = KVec::with_capacity(MAX_LATE, GFP_KERNEL)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                fabric,
                work,
                ends <- new_spinlock_irq!([const { None }; MAX_ENDS], "vfab::Net::ends"),
                late <- new_spinlock_irq!(late, "vfab::Net::late"),
                timer <- Timer::new(),
                ticking <- new_spinlock_irq!(true, "vfab::Net::ticking"),
            }),
            GFP_KERNEL,
        )?;
        this.timer.start(this.clone(), TICK);
        Ok(Running(this))
    }

    /// Adds a port.
    pub fn add(&self, end: Arc<End>) {
        let mut ends = self.ends.lock();
        if let Some(place) = ends.iter_mut().find(|e| e.is_none()) {
            *place = Some(end);
        }
    }

    /// Removes a port.
    pub fn remove(&self, id: PortId) {
        let was = {
            let mut ends = self.ends.lock();
            ends.iter_mut()
                .find(|e| e.as_ref().is_some_and(|e| e.id == id))
                .and_then(Option::take)
        };
        drop(was);
    }

    /// Makes all connections release queue pairs of an adapter that has been removed. May sleep.
    pub fn forget(&self, ca: u8) {
        for id in self.fabric.ports().filter(|id| id.ca != ca) {
            if let Some(end) = self.end(id) {
                end.qps.each(|qp| qp.forget_peer_of(ca));
            }
        }
    }

    /// The port `id`.
    pub fn end(&self, id: PortId) -> Option<Arc<End>> {
        let ends = self.ends.lock();
        ends.iter().flatten().find(|e| e.id == id).cloned()
    }

    /// Sends an SMP from a port.
    pub fn send_smp(&self, from: PortId, lrh: &mut Lrh, mad: &mut Mad) {
        if let Some(to) = self.fabric.smp(from, lrh, mad) {
            self.deliver_smp(to, lrh, mad);
        }
    }

    fn deliver_smp(&self, to: PortId, lrh: &Lrh, mad: &mut Mad) {
        if let Some(qp) = self.end(to).and_then(|end| end.qp(0)) {
            let from = Source {
                lid: lrh.slid,
                sl: lrh.sl,
                ..Default::default()
            };
            qp.receive_mad(to, from, mad);
        }
    }

    /// Delays a management datagram; returns `false` if too many are already delayed.
    pub fn hold(&self, late: Late) -> bool {
        self.late.lock().push_within_capacity(late).is_ok()
    }

    /// Delivers one delayed datagram that is due; returns `false` if there is none.
    fn come_late(&self) -> bool {
        let due = {
            let mut all = self.late.lock();
            let at = all.iter().position(|late| late.ticks == 0);
            at.and_then(|at| all.remove(at).ok())
        };
        let Some(mut late) = due else { return false };
        if let Some(end) = self.end(late.at) {
            if let Some(qp) = end.qp(late.taker) {
                if late.taker == 1 {
                    end.received.add(gmp::kind(&late.mad));
                }
                qp.receive_mad(late.at, late.from, &mut late.mad);
            }
        }
        true
    }

    /// Reports all changes and sends the due traps. Any context without the lock of a receive
    /// queue.
    pub fn attend(&self) {
        while let Some((id, bit)) = self.fabric.news() {
            let kind = match bit {
                Changes::ACTIVE => Kind::PORT_ACTIVE,
                Changes::ERROR => Kind::PORT_ERR,
                Changes::LID => Kind::LID_CHANGE,
                Changes::SM => Kind::SM_CHANGE,
                Changes::PKEY => Kind::PKEY_CHANGE,
                Changes::GID => Kind::GID_CHANGE,
                _ => Kind::CLIENT_REREGISTER,
            };
            if let Some(end) = self.end(id) {
                end.target.dispatch(kind, id.port.into());
            }
        }
        let mut lrh = Lrh::PERMISSIVE;
        let mut mad = [0; LEN];
        while let Some(to) = self.fabric.trap(&mut lrh, &mut mad) {
            self.deliver_smp(to, &lrh, &mut mad);
        }
    }
}

/// A network with a running timer, which sends due traps. Dropping it stops the timer, and sleeps.
pub struct Running(Arc<Net>);

impl Deref for Running {
    type Target = Arc<Net>;

    fn deref(&self) -> &Arc<Net> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.ticking.lock() = false;
        self.0.timer.cancel();
        self.0.work.flush();
    }
}

impl Expire for Net {
    fn expired(self: Arc<Self>) {
        self.fabric.tick();
        for late in self.late.lock().iter_mut() {
            late.ticks = late.ticks.saturating_sub(1);
        }
        while self.come_late() {}
        self.attend();
        let ticking = self.ticking.lock();
        if *ticking {
            self.timer.start(self.clone(), TICK);
        }
    }
}
