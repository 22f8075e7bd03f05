// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! As in real adapters, polling a completion frees the queue slots of its request and of all
//! earlier requests. A send queue that is too small, or polled too late, becomes full.

use super::fault::{
    Faults,
    Kind,
    FLUSHED,
    RECV, //
};
use crate::{
    compat::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    provider::{
        event::CqTarget,
        notify::{
            CqHandle,
            Notify, //
        },
        timer::{
            Expire,
            Timer, //
        },
        wc::{
            QpName,
            Room,
            Status,
            Wc, //
        }, //
    },
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};

/// Number of requests of a queue that are done and polled, modulo 2^32.
pub struct Freed(Atomic<u32>);

impl Freed {
    /// Creates a count of 0.
    pub fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// The number of freed requests.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// Sets the count.
    #[inline]
    pub fn set(&self, count: u32) {
        self.0.store(count, Release);
    }
}

/// A completion, and the queue slots that it frees.
struct Entry {
    wc: Wc,
    freed: Option<Arc<Freed>>,
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

struct Ring {
    entries: KVVec<Entry>,
    /// Number of completions added (`head`) and polled (`tail`), modulo 2^32.
    head: u32,
    tail: u32,
    armed: Armed,
    /// Completions are delayed from this number on.
    held: Option<u32>,
    /// The interrupt is delayed until so many completions, for at most so many us.
    moderation: (u16, u16),
    /// Completions until a delayed interrupt.
    awaited: u16,
    overrun: bool,
}

/// A completion queue.
#[pin_data]
pub struct Cq {
    #[pin]
    ring: SpinLockIrq<Ring>,
    #[pin]
    notify: Notify,
    #[pin]
    target: CqTarget,
    #[pin]
    late: Timer<Self>,
    size: u32,
}

/// The outcome of [`Cq::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The completion was added, or a fault dropped it.
    Fine,
    /// The completion queue is full.
    Overrun,
    /// A fault made the completion an error: the queue pair must fail.
    Broken,
}

impl Cq {
    /// Creates a queue for `size` completions. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new(size: u32, handle: CqHandle) -> Result<Arc<Self>> {
        let size = size.next_power_of_two();
        let mut entries = KVVec::with_capacity(size as usize, GFP_KERNEL)?;
        for _ in 0..size {
            let entry = Entry {
                wc: Wc::empty(),
                freed: None,
                count: 0,
            };
            entries.push(entry, GFP_KERNEL)?;
        }
        let ring = Ring {
            entries,
            head: 0,
            tail: 0,
            armed: Armed::No,
            held: None,
            moderation: (0, 0),
            awaited: 0,
            overrun: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                ring <- new_spinlock_irq!(ring, "vfab::Cq"),
                notify <- Notify::new(handle),
                target <- CqTarget::new(),
                late <- Timer::new(),
                size,
            }),
            GFP_KERNEL,
        )
    }

    /// The capacity in completions.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The queue's interrupt.
    pub fn notify(&self) -> &Notify {
        &self.notify
    }

    /// The target of the queue's events.
    pub fn target(&self) -> &CqTarget {
        &self.target
    }

    /// Adds the completion of request `count - 1` of a queue. `faults` contains the faults that
    /// apply, and the bit that selects the request. Any context.
    #[inline]
    pub fn push(
        self: &Arc<Self>,
        wc: &Wc,
        freed: &Arc<Freed>,
        count: u32,
        solicited: bool,
        faults: Option<(&Faults, u32)>,
    ) -> Pushed {
        if let Some((faults, which)) = faults {
            return self.push_with(faults, which, wc, freed, count, solicited);
        }
        self.push_as_it_is(wc, freed, count, solicited)
    }

    #[inline]
    fn push_as_it_is(&self, wc: &Wc, freed: &Arc<Freed>, count: u32, solicited: bool) -> Pushed {
        let mut ring = self.ring.lock();
        if !ring.add(wc, Some(freed.clone()), count) {
            return Pushed::Overrun;
        }
        if ring.held.is_none() {
            ring.interrupt(&self.notify, solicited || wc.status() != Status::SUCCESS);
        }
        Pushed::Fine
    }

    /// Adds a completion, applying faults. The send queue itself changes the status of its
    /// requests.
    #[cold]
    fn push_with(
        self: &Arc<Self>,
        faults: &Faults,
        which: u32,
        wc: &Wc,
        freed: &Arc<Freed>,
        count: u32,
        solicited: bool,
    ) -> Pushed {
        let mut wc = wc.copy();
        let mut result = Pushed::Fine;
        if wc.status() == Status::WR_FLUSH_ERR && which == RECV {
            if let Some(status) = faults.status(Kind::Error, which << FLUSHED) {
                wc.set_status(status);
            }
        }
        if wc.status() != Status::SUCCESS {
            return self.push_as_it_is(&wc, freed, count, solicited);
        }
        if which == RECV {
            if let Some(status) = faults.status(Kind::Error, which) {
                wc.set_status(status);
                result = Pushed::Broken;
            }
        }
        let copies = match (
            faults.hit(Kind::Swallow, which),
            faults.hit(Kind::Double, which),
        ) {
            (_, Some(_)) => 2,
            (Some(_), None) => 0,
            (None, None) => 1,
        };
        let mut ring = self.ring.lock();
        if faults.hit(Kind::Overrun, which).is_some() {
            ring.overrun = true;
            return Pushed::Overrun;
        }
        if let Some(ms) = faults.hit(Kind::Delay, which) {
            if ring.held.is_none() {
                ring.held = Some(ring.head);
                self.late.start(self.clone(), ms * 1_000_000);
            }
        }
        for copy in 0..copies {
            if !ring.add(&wc, (copy == 0).then(|| freed.clone()), count) {
                return Pushed::Overrun;
            }
        }
        if copies > 0 && ring.held.is_none() {
            ring.interrupt(&self.notify, solicited || wc.status() != Status::SUCCESS);
        }
        result
    }

    /// Polls completions into `room`. Returns their number.
    #[inline]
    pub fn poll(&self, room: &mut Room<'_>) -> usize {
        let mut ring = self.ring.lock();
        let end = ring.held.unwrap_or(ring.head);
        let count = room.size().min(end.wrapping_sub(ring.tail) as usize);
        for n in 0..count {
            let at = (ring.tail & (self.size - 1)) as usize;
            ring.tail = ring.tail.wrapping_add(1);
            let entry = &mut ring.entries[at];
            room.put(n, &entry.wc);
            if let Some(freed) = entry.freed.take() {
                freed.set(entry.count);
            }
        }
        count
    }

    /// Arms the interrupt of the next completion. Returns whether a completion is pending.
    pub fn arm(&self, solicited_only: bool) -> bool {
        let mut ring = self.ring.lock();
        ring.armed = match (solicited_only, ring.armed) {
            (true, Armed::No) => Armed::Solicited,
            (true, armed) => armed,
            (false, _) => Armed::Next,
        };
        ring.held.unwrap_or(ring.head) != ring.tail
    }

    /// Delays the interrupt until `count` completions, for at most `period` us.
    pub fn moderate(&self, count: u16, period: u16) {
        self.ring.lock().moderation = (count, period);
    }

    /// Removes all completions of a queue pair.
    pub fn purge(&self, qp: QpName) {
        let mut ring = self.ring.lock();
        let (mut from, head) = (ring.tail, ring.head);
        let held = ring.held;
        let mut to = from;
        while from != head {
            let at = (from & (self.size - 1)) as usize;
            if ring.entries[at].wc.qp() != qp {
                ring.entries.swap(at, (to & (self.size - 1)) as usize);
                to = to.wrapping_add(1);
            } else {
                ring.entries[at].freed = None;
                if held.is_some_and(|held| held.wrapping_sub(from) as i32 > 0) {
                    ring.held = ring.held.map(|held| held.wrapping_sub(1));
                }
            }
            from = from.wrapping_add(1);
        }
        ring.head = to;
    }

    /// Reports an overrun, if there was one. Sleeps.
    pub fn tell_overrun(&self) {
        let overrun = core::mem::take(&mut self.ring.lock().overrun);
        if overrun {
            self.target.tell();
        }
    }

    /// Cancels delayed completions. Sleeps.
    pub fn stop(&self) {
        self.late.cancel();
    }
}

impl Ring {
    /// Adds a completion. Returns `false` if the queue is full.
    #[inline]
    fn add(&mut self, wc: &Wc, freed: Option<Arc<Freed>>, count: u32) -> bool {
        let size = self.entries.len();
        if self.head.wrapping_sub(self.tail) as usize >= size {
            self.overrun = true;
            return false;
        }
        let entry = &mut self.entries[self.head as usize & (size - 1)];
        self.head = self.head.wrapping_add(1);
        entry.wc = wc.copy();
        entry.freed = freed;
        entry.count = count;
        true
    }

    #[inline]
    fn interrupt(&mut self, notify: &Notify, urgent: bool) {
        if notify.is_delayed() {
            self.awaited = self.awaited.saturating_sub(1);
            if self.awaited == 0 {
                notify.raise_now();
            }
        } else if self.armed == Armed::Next || self.armed == Armed::Solicited && urgent {
            self.armed = Armed::No;
            match self.moderation {
                (0 | 1, _) | (_, 0) => notify.raise(),
                (count, period) => {
                    self.awaited = count - 1;
                    notify.raise_in(u64::from(period) * 1000);
                }
            }
        }
    }
}

impl Expire for Cq {
    fn expired(self: Arc<Self>) {
        let mut ring = self.ring.lock();
        ring.held = None;
        if ring.head != ring.tail {
            ring.interrupt(&self.notify, true);
        }
    }
}
