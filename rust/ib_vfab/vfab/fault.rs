// SPDX-License-Identifier: GPL-2.0

//! Fault injection: starting with the n-th operation of a kind, a number of operations go wrong and
//! are counted.
//!
//! Only reliable connections and datagrams of queue pair 1 have faults, so that the subnet and its
//! management stay up.

use super::gmp;
use crate::provider::wc::Status;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    }, //
};

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// A request is executed, but its completion has the given status, and the queue pair fails.
    /// For a flushed request, only the completion changes.
    Error,
    /// A request is not executed. It completes with the given status, and the queue pair fails.
    Fail,
    /// Before a request is posted or memory is mapped, the next receive request completes with the
    /// given status, and the queue pair fails.
    Receive,
    /// A completion and all later ones are delayed by some milliseconds.
    Delay,
    /// A completion is lost.
    Swallow,
    /// A completion is added twice.
    Double,
    /// A completion queue is treated as full.
    Overrun,
    /// `ib_post_send` refuses a request and the rest of its list.
    Post,
    /// `ib_post_recv` refuses a request and the rest of its list.
    PostRecv,
    /// A registration fails.
    Register,
    /// A queue pair fails instead of executing a request.
    Death,
    /// A request is lost in flight.
    Loss,
    /// The acknowledgement of a request is lost, so the request is sent twice.
    Ack,
    /// The move to the error state takes some milliseconds.
    Hang,
    /// The move to the error state is refused, and the queue pair keeps working.
    Stop,
    /// The destruction of a queue pair is refused, and the queue pair is unchanged.
    Destroy,
    /// A datagram to or from the subnet administrator is lost.
    SaLoss,
    /// A request to the subnet administrator is not sent: the reply is BUSY.
    SaBusy,
    /// A management datagram that queue pair 1 sends is lost.
    GmpLoss,
    /// A management datagram that queue pair 1 sends arrives twice.
    GmpDouble,
    /// A management datagram that queue pair 1 sends is delayed by some seconds.
    GmpLate,
}

/// Names of the kinds, in the order of [`Kind`].
pub const NAMES: [&str; 21] = [
    "error",
    "fail",
    "receive",
    "delay",
    "swallow",
    "double",
    "overrun",
    "post",
    "post-recv",
    "register",
    "death",
    "loss",
    "ack",
    "hang",
    "stop",
    "destroy",
    "sa-loss",
    "sa-busy",
    "gmp-loss",
    "gmp-double",
    "gmp-late",
];

/// All kinds.
const KINDS: [Kind; 21] = [
    Kind::Error,
    Kind::Fail,
    Kind::Receive,
    Kind::Delay,
    Kind::Swallow,
    Kind::Double,
    Kind::Overrun,
    Kind::Post,
    Kind::PostRecv,
    Kind::Register,
    Kind::Death,
    Kind::Loss,
    Kind::Ack,
    Kind::Hang,
    Kind::Stop,
    Kind::Destroy,
    Kind::SaLoss,
    Kind::SaBusy,
    Kind::GmpLoss,
    Kind::GmpDouble,
    Kind::GmpLate,
];

/// Selects requests of a receive queue.
pub const RECV: u32 = 1;
/// Selects send requests with a message.
pub const MESSAGE: u32 = 1 << 1;
/// Selects send requests that read or write the peer's memory.
pub const RDMA: u32 = 1 << 2;
/// Selects send requests that register a region.
pub const REG_MR: u32 = 1 << 3;
/// Selects send requests that invalidate a key.
pub const LOCAL_INV: u32 = 1 << 4;
/// Selects all send requests.
pub const SEND: u32 = MESSAGE | RDMA | REG_MR | LOCAL_INV;
/// Selects the mapping of memory to a region, not a request.
pub const MAP: u32 = 1 << 5;
/// Bits of flushed requests are shifted left by this number.
pub const FLUSHED: u32 = 8;

/// Names of the selections of requests.
const WHICH: [(&str, u32); 9] = [
    ("send", SEND),
    ("recv", RECV),
    ("message", MESSAGE),
    ("rdma", RDMA),
    ("reg-mr", REG_MR),
    ("local-inv", LOCAL_INV),
    ("map", MAP),
    ("flushed-send", SEND << FLUSHED),
    ("flushed-recv", RECV << FLUSHED),
];

/// Selects datagrams of kind `kind`, an index into [`gmp::NAMES`].
pub fn gmp_bit(kind: usize) -> u32 {
    1 << kind
}

/// The status with this name, except success.
///
/// # Errors
///
/// `EINVAL`
pub fn bad_status(name: &str) -> Result<Status> {
    Status::named(name)
        .filter(|status| *status != Status::SUCCESS)
        .ok_or(EINVAL)
}

/// The remaining operations of an armed fault.
struct FaultState {
    /// Number of operations left before the fault happens.
    before: Atomic<i32>,
    /// Number of times left.
    times: Atomic<i32>,
    value: Atomic<u64>,
    which: Atomic<u32>,
    happened: Atomic<u64>,
}

/// The faults of a device.
pub struct Faults {
    /// A bit for each armed kind.
    armed: Atomic<u32>,
    states: [FaultState; NAMES.len()],
}

/// A fault to arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    kind: Kind,
    nth: i32,
    times: i32,
    value: u64,
    which: u32,
}

impl Order {
    /// Parses the words of a fault: the kind; the number of the operation (the next is 1); a
    /// datagram of [`gmp::NAMES`], if the kind needs one; a status, milliseconds, seconds or an
    /// errno, if the kind needs one; a selection of requests such as `send` (default: all of both
    /// queues); the number of times (default: once).
    ///
    /// # Errors
    ///
    /// `EINVAL`
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next().ok_or(EINVAL)?;
        let at = NAMES.iter().position(|n| *n == name).ok_or(EINVAL)?;
        let kind = *KINDS.get(at).ok_or(EINVAL)?;
        let nth: i32 = words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
        let (mut which, mut times) = (SEND | RECV, 1);
        if matches!(kind, Kind::GmpLoss | Kind::GmpDouble | Kind::GmpLate) {
            let name = words.next().ok_or(EINVAL)?;
            which = gmp_bit(gmp::NAMES.iter().position(|n| *n == name).ok_or(EINVAL)?);
        }
        let value = match kind {
            Kind::Error | Kind::Fail | Kind::Receive => {
                u64::from(bad_status(words.next().ok_or(EINVAL)?)?.number())
            }
            Kind::Stop | Kind::Destroy => {
                let errno: u16 = words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
                // The range of errnos in an `Error`.
                if !(1..=4095).contains(&errno) {
                    return Err(EINVAL);
                }
                errno.into()
            }
            Kind::Delay | Kind::Hang | Kind::GmpLate => {
                words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?
            }
            _ => 0,
        };
        for word in words {
            match WHICH.iter().find(|(name, _)| *name == word) {
                Some((_, bits)) => which = *bits,
                None => times = word.parse().map_err(|_| EINVAL)?,
            }
        }
        if nth < 1 || times < 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            kind,
            nth,
            times,
            value,
            which,
        })
    }
}

impl Faults {
    /// Creates a set without armed faults.
    pub fn none() -> Self {
        Self {
            armed: Atomic::new(0),
            states: [const {
                FaultState {
                    before: Atomic::new(0),
                    times: Atomic::new(0),
                    value: Atomic::new(0),
                    which: Atomic::new(0),
                    happened: Atomic::new(0),
                }
            }; NAMES.len()],
        }
    }

    /// Arms a fault, which replaces the armed fault of the same kind. 0 times disarms it.
    pub fn order(&self, order: Order) {
        let bit = 1 << order.kind as u32;
        let state = &self.states[order.kind as usize];
        self.disarm(bit);
        state.value.store(order.value, Relaxed);
        state.which.store(order.which, Relaxed);
        state.times.store(order.times, Relaxed);
        state.before.store(order.nth - 1, Release);
        if order.times > 0 {
            self.armed.store(self.armed.load(Relaxed) | bit, Release);
        }
    }

    fn disarm(&self, bit: u32) {
        let mut old = self.armed.load(Relaxed);
        while let Err(now) = self.armed.cmpxchg(old, old & !bit, Full) {
            old = now;
        }
    }

    /// Counts an operation. Returns the fault's value if the operation must go wrong.
    #[inline]
    pub fn hit(&self, kind: Kind, which: u32) -> Option<u64> {
        if self.armed.load(Relaxed) & 1 << kind as u32 == 0 {
            return None;
        }
        self.count(kind, which)
    }

    /// Like [`Self::hit`], for a kind whose value is a status.
    #[inline]
    pub fn status(&self, kind: Kind, which: u32) -> Option<Status> {
        // CAST: It is a status number.
        self.hit(kind, which).map(|n| Status::numbered(n as u32))
    }

    /// Like [`Self::hit`], for a kind whose value is an errno and which applies to a whole queue
    /// pair.
    ///
    /// # Errors
    ///
    /// The error of the fault.
    #[inline]
    pub fn refusal(&self, kind: Kind) -> Result {
        match self.hit(kind, SEND) {
            // CAST: The errno is at most 4095.
            Some(errno) => Err(Error::from_errno(-(errno as i32))),
            None => Ok(()),
        }
    }

    #[cold]
    fn count(&self, kind: Kind, which: u32) -> Option<u64> {
        let state = &self.states[kind as usize];
        if state.which.load(Relaxed) & which == 0 || state.before.fetch_sub(1, Full) > 0 {
            return None;
        }
        let left = state.times.fetch_sub(1, Full);
        if left <= 1 {
            self.disarm(1 << kind as u32);
        }
        if left < 1 {
            return None;
        }
        state.happened.fetch_add(1, Relaxed);
        Some(state.value.load(Relaxed))
    }

    /// Whether any fault is armed.
    #[inline]
    pub fn any(&self) -> bool {
        self.armed.load(Relaxed) != 0
    }

    /// The number of times that each kind of fault has happened, in the order of [`NAMES`].
    pub fn happened(&self) -> [u64; NAMES.len()] {
        core::array::from_fn(|n| self.states[n].happened.load(Relaxed))
    }
}
