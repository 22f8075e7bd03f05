// SPDX-License-Identifier: GPL-2.0

//! A login at one target: its channels, its SCSI host, and how both end.
//!
//! There is one way to end a connection, whatever the reason: mark the session as lost, wait until
//! nobody posts, move the queue pairs to their error state, drain them, end the commands. A live
//! session gets another connection then, see [`recovery`](super::recovery); otherwise it is removed.
//! The work for it runs on a queue of its own, because the removal of the disks waits for commands
//! that it ends.
//!
//! Lock order: `live` comes after the port's list of sessions and the mutex of the transport class, and
//! nothing is taken under it. `phase` is innermost.

mod ending;
mod loss;
mod starving;
mod watch;

pub use ending::LOG_OUT_PATIENCE_MS;

use ending::Patience;

use super::{
    channels::Channels,
    connect::Plan,
    error::{
        LoginFailure,
        Trouble, //
    },
    front::scsi::Io,
    geometry::Geometry,
    logic::{
        backoff::Backoff,
        budget::Budget,
        session::{
            next,
            Event,
            State,
            Step, //
        },
        strikes::Strikes, //
    },
    port::{
        Port,
        Queues, //
    },
    proto::{
        guid::Guid,
        ids::PortId, //
    },
    statistics::Statistics,
    turns::Turns, //
};
use crate::{
    rdma::pd::Pd,
    scsi::Host,
    sync::{
        new_spinlock_irq,
        Completion,
        Interrupt,
        SpinLockIrq, //
        WaitQueue,
    },
    sys::{
        monotonic_ns,
        real_seconds, //
    },
    trace::trace,
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Crew,
        Delayed, //
    }, //
};
use core::fmt;
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::Msecs,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// How long a wait for the disks is at a time.
const WAIT_SLICE_MS: Msecs = 10_000;

/// What makes a target unique on a port: `id_ext`, `ioc_guid` and `initiator_ext`.
pub type Key = (Guid, Guid, Guid);

/// What ends with the session.
#[derive(Default)]
pub(super) struct Live {
    pub(super) pd: Option<Arc<Pd>>,
    pub(super) channels: Option<Arc<Channels>>,
    pub(super) host: Option<Arc<Host<Io>>>,
}

/// Whether the transport class knows that the connection is lost.
#[derive(Clone, Copy)]
pub(super) enum Told {
    No,
    /// It is being told, and knows if its timeouts have blocked the port.
    Now,
    Yes,
}

/// A try to reconnect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// There is none.
    None,
    /// It is under way.
    Connecting,
    /// It has succeeded, and its thread has the transport class take it.
    Taking,
}

/// What is decided together.
pub(super) struct Phase {
    pub(super) state: State,
    /// Something failed since the present try to reconnect began.
    pub(super) broken: bool,
    /// That try has succeeded and waits for the transport class to take it.
    pub(super) ready: bool,
    pub(super) attempt: Attempt,
    pub(super) backoff: Backoff,
    /// What the log may still have of losses.
    pub(super) budget: Budget,
    pub(super) strikes: Strikes,
    pub(super) told: Told,
    /// The connection was ended to reset the host.
    pub(super) reset: bool,
    /// Somebody waits for the outcome of that.
    pub(super) awaited: bool,
    /// When the connection came up, in nanoseconds of the monotonic clock.
    pub(super) since: i64,
}

/// A login at one target.
#[pin_data]
pub struct Session {
    key: Key,
    port: Arc<Port>,
    /// Where to log in, the first time and each time after.
    pub(super) plan: Plan,
    pub(super) geometry: Geometry,
    pub(super) queues: Queues,
    /// Shared with those who log in at the same place.
    pub(super) turns: Arc<Turns>,
    /// Ends the connections.
    pub(super) crew: Crew,
    #[pin]
    pub(super) phase: SpinLockIrq<Phase>,
    /// `phase.state`, for those who only look.
    state: Atomic<u32>,
    /// The number of the SCSI host, for the trace events; `u32::MAX` before there is one.
    host_number: Atomic<u32>,
    /// There is no connection, or it is of no more use.
    lost: Atomic<bool>,
    /// `fast_io_fail_tmo` has passed since the connection was lost.
    failing: Atomic<bool>,
    /// The connection is lost, and all commands are ended.
    is_down: Atomic<bool>,
    /// The log-out has begun, so the end of the connection is no news.
    leaving: Atomic<bool>,
    /// The log has had enough of losses, and does not have this one either.
    pub(super) quiet: Atomic<bool>,
    /// The last trouble, and when it came, in seconds since 1970.
    #[pin]
    last_error: SpinLockIrq<Option<(i64, Trouble)>>,
    /// Milliseconds after which the transport has certainly ended a command; 0 if that is not known.
    time_allowed: Atomic<u32>,
    /// Most descriptors that a command of the midlayer may take.
    pub(super) descriptors: Atomic<u32>,
    #[pin]
    pub(super) live: Mutex<Live>,
    /// The session is live again, or recovery has finished or is suspended.
    pub(super) settled: Atomic<bool>,
    /// A try to reconnect has ended, or waits for [`Session::commit`].
    pub(super) tried: Atomic<bool>,
    /// Woken when `is_down`, `settled`, `tried` or `phase.awaited` changes.
    #[pin]
    pub(super) changed: WaitQueue,
    #[pin]
    down_work: Work<Session, 0>,
    #[pin]
    removal: Work<Session, 1>,
    #[pin]
    scan: Work<Session, 2>,
    /// The disks have been looked for.
    #[pin]
    scanned: Completion,
    #[pin]
    removal_timeout: Delayed<Session, 0>,
    #[pin]
    pub(super) fill: Delayed<Session, 1>,
    #[pin]
    pub(super) keep_alive: Delayed<Session, 2>,
    #[pin]
    pub(super) rescan: Delayed<Session, 3>,
    /// A thread that connects, in a call that has no deadline.
    #[pin]
    pub(super) waiting: Interrupt,
    #[pin]
    pub(super) waiting_timeout: Delayed<Session, 4>,
    #[pin]
    watch: Delayed<Session, 5>,
    /// The next try to reconnect.
    #[pin]
    pub(super) reconnect: Delayed<Session, 6>,
    #[pin]
    credit_watch: Delayed<Session, 7>,
    /// How often channels that are missing have been tried to add.
    pub(super) fills: Atomic<u32>,
    /// The system has been asleep since the last test of the connection.
    pub(super) woken: Atomic<bool>,
    /// When disks were looked for last, in nanoseconds of the monotonic clock.
    pub(super) last_scan: Atomic<i64>,
    /// What has happened to it.
    pub statistics: Statistics,
    /// What the removal timer goes by.
    patience: Patience,
}

impl_has_work! {
    impl HasWork<Session, 0> for Session { self.down_work }
    impl HasWork<Session, 1> for Session { self.removal }
    impl HasWork<Session, 2> for Session { self.scan }
}
impl_has_delayed! {
    impl HasDelayed<0> for Session { self.removal_timeout }
    impl HasDelayed<1> for Session { self.fill }
    impl HasDelayed<2> for Session { self.keep_alive }
    impl HasDelayed<3> for Session { self.rescan }
    impl HasDelayed<4> for Session { self.waiting_timeout }
    impl HasDelayed<5> for Session { self.watch }
    impl HasDelayed<6> for Session { self.reconnect }
    impl HasDelayed<7> for Session { self.credit_watch }
}

/// How a session is called in the log.
pub struct Name<'a>(&'a Session);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {}", self.0.port.name(), self.0.plan.target)
    }
}

impl Session {
    /// A session of `port` that is being connected.
    pub fn new(
        port: &Arc<Port>,
        key: Key,
        plan: Plan,
        geometry: Geometry,
        queues: Queues,
        turns: Arc<Turns>,
    ) -> Result<Arc<Self>> {
        let (to_end, to_beat) = (queues.ending.clone(), queues.ending.clone());
        let (to_hurry, to_watch) = (queues.ending.clone(), queues.ending.clone());
        let to_feed = queues.ending.clone();
        let (to_scan, to_fill) = (queues.removal.clone(), queues.reconnect.clone());
        let to_connect = queues.reconnect.clone();
        let hands = geometry.all_channels().saturating_sub(1);
        let crew = Crew::new(queues.ending.clone(), usize::from(hands))?;
        Arc::pin_init(
            pin_init!(Self {
                key,
                port: port.clone(),
                plan,
                geometry,
                queues,
                turns,
                crew,
                phase <- new_spinlock_irq!(
                    Phase {
                        state: State::Connecting,
                        broken: false,
                        ready: false,
                        attempt: Attempt::None,
                        backoff: Backoff::new(),
                        budget: Budget::new(),
                        strikes: Strikes::new(),
                        told: Told::No,
                        reset: false,
                        awaited: false,
                        since: 0,
                    },
                    "Session::phase"
                ),
                state: Atomic::new(State::Connecting as u32),
                host_number: Atomic::new(u32::MAX),
                lost: Atomic::new(false),
                failing: Atomic::new(false),
                is_down: Atomic::new(false),
                leaving: Atomic::new(false),
                quiet: Atomic::new(false),
                last_error <- new_spinlock_irq!(None, "Session::last_error"),
                time_allowed: Atomic::new(0),
                descriptors: Atomic::new(0),
                live <- new_mutex!(Live::default(), "Session::live"),
                settled: Atomic::new(false),
                tried: Atomic::new(false),
                changed <- WaitQueue::new(),
                down_work <- new_work!("Session::down_work"),
                removal <- new_work!("Session::removal"),
                scan <- new_work!("Session::scan"),
                scanned <- Completion::new(),
                removal_timeout <- new_delayed!(to_end, "Session::removal_timeout"),
                fill <- new_delayed!(to_fill, "Session::fill"),
                keep_alive <- new_delayed!(to_beat, "Session::keep_alive"),
                rescan <- new_delayed!(to_scan, "Session::rescan"),
                waiting <- Interrupt::new(),
                waiting_timeout <- new_delayed!(to_hurry, "Session::waiting_timeout"),
                watch <- new_delayed!(to_watch, "Session::watch"),
                reconnect <- new_delayed!(to_connect, "Session::reconnect"),
                credit_watch <- new_delayed!(to_feed, "Session::credit_watch"),
                fills: Atomic::new(0),
                woken: Atomic::new(false),
                last_scan: Atomic::new(i64::MIN),
                statistics: Statistics::new(),
                patience: Patience::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// What makes it unique on its port.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The target's port identifier.
    pub fn target(&self) -> &PortId {
        &self.plan.target
    }

    /// The number of the SCSI host, for the trace events; `u32::MAX` before there is one.
    pub fn host_number(&self) -> u32 {
        self.host_number.load(Relaxed)
    }

    /// The port that it was logged in through.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// How it is called in the log.
    pub fn name(&self) -> Name<'_> {
        Name(self)
    }

    /// There is no connection, or it is of no more use. Any context.
    ///
    /// Whoever has seen in an RCU read-side section that this is not so may post until its end.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// All commands of the lost connection are ended, and its queue pairs gone.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Acquire)
    }

    /// A channel may take so many milliseconds to end a command.
    pub(super) fn allow_time(&self, msecs: Msecs) {
        // Logins of one session come one after the other.
        if msecs > self.time_allowed() {
            self.time_allowed.store(msecs, Relaxed);
        }
    }

    /// Milliseconds after which the transport has certainly ended a command; 0 if that is not known.
    pub fn time_allowed(&self) -> Msecs {
        self.time_allowed.load(Relaxed)
    }

    /// The state now.
    pub fn state(&self) -> State {
        let now = self.state.load(Acquire);
        State::ALL.get(now as usize).copied().unwrap_or(State::Gone)
    }

    /// The session is being removed, or will be.
    pub fn is_ending(&self) -> bool {
        self.state().is_ending()
    }

    /// The connection that was lost last, or the try to reconnect that failed last, and when, in seconds since
    /// 1970. Any context.
    pub fn last_error(&self) -> Option<(i64, Trouble)> {
        *self.last_error.lock()
    }

    /// From now on that is [`Self::last_error`]. Any context.
    pub(super) fn note(&self, what: Trouble) {
        *self.last_error.lock() = Some((real_seconds(), what));
    }

    /// Commands are to be failed, because the target has been away for too long.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Acquire)
    }

    /// From now on commands fail at once, until there is a new connection. Any context.
    pub fn fail_fast(&self) {
        self.failing.store(true, Release);
        self.settle();
    }

    /// Moves the state on; `true` if that changed it.
    pub(super) fn step(&self, phase: &mut Phase, event: Event) -> bool {
        let Some(Step::To(new)) = next(phase.state, event) else {
            return false;
        };
        let from = phase.state;
        phase.state = new;
        self.state.store(new as u32, Release);
        let (high, low) = self.target().halves();
        trace!(session(
            self.host_number(),
            high,
            low,
            from as u8,
            new as u8
        ));
        true
    }

    fn advance(&self, event: Event) -> bool {
        self.step(&mut self.phase.lock(), event)
    }

    /// The new connection is that of the session, whose state is Live. With `phase` locked.
    pub(super) fn is_up(&self, phase: &mut Phase) {
        phase.ready = false;
        phase.told = Told::No;
        phase.reset = false;
        phase.awaited = false;
        phase.backoff.connected();
        phase.since = monotonic_ns();
        self.is_down.store(false, Relaxed);
        self.failing.store(false, Relaxed);
        self.lost.store(false, Release);
        self.changed.wake_all();
    }

    /// Keeps the connections and the host, which is not added yet, until the session ends.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the session is ending already.
    pub fn keep(
        &self,
        pd: Arc<Pd>,
        channels: Arc<Channels>,
        host: Arc<Host<Io>>,
        descriptors: u32,
    ) -> Result {
        self.descriptors.store(descriptors, Relaxed);
        let mut live = self.live.lock();
        // Whoever ends the connections says so before it takes the lock.
        if self.is_lost() || self.is_ending() {
            return Err(ENODEV);
        }
        self.host_number.store(host.number(), Relaxed);
        *live = Live {
            pd: Some(pd),
            channels: Some(channels),
            host: Some(host),
        };
        Ok(())
    }

    /// Looks for disks, which is the end of the login. Sleeps, for as long as the commands take.
    ///
    /// The midlayer waits for them without heed to signals, so it does so on a queue. A signal ends
    /// the connection, and with it the commands.
    ///
    /// # Errors
    ///
    /// After a signal, or if the connection is lost.
    pub fn look_for_disks(self: &Arc<Self>) -> Result<(), LoginFailure> {
        // It was not queued before, as this is done once.
        let _ = self.queues.removal.enqueue::<Self, 2>(self.clone());
        loop {
            match self.scanned.wait_interruptible_timeout(WAIT_SLICE_MS) {
                Err(e) if e == ETIMEDOUT => {}
                Err(_) => {
                    self.lose(None);
                    return Err(LoginFailure::Signal);
                }
                Ok(()) => break,
            }
        }
        {
            let mut phase = self.phase.lock();
            if !self.step(&mut phase, Event::LoggedIn) {
                return Err(LoginFailure::Disconnected);
            }
            phase.since = monotonic_ns();
        }
        self.look_after();
        Ok(())
    }

    /// Waits until all commands of a lost connection are ended, for as long as the device takes. There may
    /// be another one by then. Sleeps.
    pub fn wait_down(&self) {
        self.changed.wait(|| self.is_down() || !self.is_lost());
    }

    /// Waits until a lost session is live again or there is no hope of that for now, at most `timeout`
    /// milliseconds; a reset of the host has its try. Sleeps.
    pub fn wait_settled(&self, timeout: Msecs) {
        let settled = || !self.phase.lock().awaited && self.settled.load(Acquire);
        let _ = self
            .changed
            .wait_timeout(timeout, || self.is_ending() || settled());
    }

    /// There is nothing more to wait for in [`Self::wait_settled`]. Any context.
    pub(super) fn settle(&self) {
        self.settled.store(true, Release);
        self.changed.wake_all();
    }

    /// The channels and the host, if the login has come so far.
    pub(super) fn parts(&self) -> (Option<Arc<Channels>>, Option<Arc<Host<Io>>>) {
        let live = self.live.lock();
        (live.channels.clone(), live.host.clone())
    }
}

impl WorkItem<2> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let (_, Some(host)) = this.parts() {
            host.scan();
        }
        this.scanned.complete_all();
    }
}
