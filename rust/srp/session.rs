// SPDX-License-Identifier: GPL-2.0

//! A login at one target: its channels, its SCSI host, and their teardown.
//!
//! There is one way to end a connection, whatever the reason: mark the session as lost, wait until
//! no thread posts, move the queue pairs to their error state, drain them, end the commands. Then a
//! live session reconnects; any other is removed. The state machine is one table, [`recovery`];
//! each of its work items has a module below this one. They run on separate queues, because the
//! removal of the disks waits for commands that another work item ends.
//!
//! Lock order: the port's list of sessions and the mutex of the class's remote port come before
//! `live`, under which no lock is taken; `recovery` and `news` are innermost.

mod ending;
mod fill;
mod keep_alive;
mod loss;
mod owner;
mod poll;
mod port_event;
mod queues;
mod reconnect;
mod registry;
mod removal;
mod rescan;
mod rport;
mod starving;
mod upper;

pub use queues::Queues;
pub use registry::Registry;
pub use removal::LOG_OUT_PATIENCE_MS;
pub use upper::Upper;

use ending::ENDING;
use fill::Fill;
use keep_alive::KeepAlive;
use loss::News;
use poll::Poll;
use port_event::PortEvent;
use reconnect::Reconnect;
use removal::{
    Removal,
    TEAR_DOWN, //
};
use rescan::{
    Rescan,
    SCAN, //
};
use starving::Starving;

use super::{
    channels::Channels,
    connect::{
        Login,
        Nexus,
        Plan,
        Purpose, //
    },
    error::LoginFailure,
    geometry::Geometry,
    logic::recovery::{
        self,
        Recovery, //
    },
    port::Port,
    proto::guid::Guid,
    status::Status,
    throttle::Throttle,
    waiting::Waiting, //
};
use crate::{
    rdma::pd::Pd,
    scsi::transport::srp::Rport,
    sync::{
        new_spinlock_irq,
        SpinLockIrq,
        WaitQueue, //
    },
    trace::trace,
    workqueue::{
        new_delayed,
        Crew,
        Delayed,
        DelayedItem,
        HasDelayed, //
    }, //
};
use core::ops::Deref;
use kernel::{
    new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs,
    workqueue::Work,
};

/// What makes a target unique on a port: `id_ext`, `ioc_guid` and `initiator_ext`.
pub type Key = (Guid, Guid, Guid);

/// Resources that are released at the end of the session.
#[derive(Default)]
struct Live {
    pd: Option<Arc<Pd>>,
    channels: Option<Arc<Channels>>,
    host: Option<Arc<dyn Upper>>,
    rport: Option<Arc<Rport<Session>>>,
}

/// A login at one target.
#[pin_data]
pub struct Session {
    key: Key,
    /// The list that the session is on.
    registry: Arc<dyn Registry>,
    /// Where to log in, initially and on each reconnect.
    pub(super) nexus: Arc<Nexus>,
    queues: Queues,
    /// Helps to end the connections.
    crew: Crew,
    /// The state machine.
    #[pin]
    recovery: SpinLockIrq<Recovery>,
    /// Woken when [`Status::view`] changes.
    #[pin]
    changed: WaitQueue,
    #[pin]
    news: SpinLockIrq<News>,
    #[pin]
    live: Mutex<Live>,
    #[pin]
    ending: Work<Session, ENDING>,
    #[pin]
    tear_down: Work<Session, TEAR_DOWN>,
    #[pin]
    scan: Work<Session, SCAN>,
    #[pin]
    reconnect: Reconnect,
    #[pin]
    fill: Fill,
    #[pin]
    keep_alive: KeepAlive,
    #[pin]
    rescan: Rescan,
    #[pin]
    poll: Poll,
    #[pin]
    port_event: PortEvent,
    #[pin]
    starving: Starving,
    #[pin]
    removal: Removal,
}

impl Deref for Session {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.nexus.status
    }
}

impl Session {
    /// Creates a connecting session of `port`, for the list `registry`.
    pub fn new(
        port: Arc<Port>,
        registry: Arc<dyn Registry>,
        key: Key,
        plan: Plan,
        geometry: Geometry,
        queues: Queues,
        throttle: Arc<Throttle>,
    ) -> Result<Arc<Self>> {
        let (end, connect) = (queues.ending.clone(), queues.reconnect.clone());
        let remove = queues.removal.clone();
        let hands = (u32::from(geometry.all_channels()) + geometry.answers).saturating_sub(1);
        let crew = Crew::new(end.clone(), hands as usize)?;
        let view = Recovery::new().state().view();
        let status = Status::new(port, plan.target, geometry, view)?;
        let nexus = Nexus::new(plan, status, throttle, Waiting::new(end.clone())?);
        let nexus = Arc::new(nexus, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                key,
                registry,
                nexus,
                queues,
                crew,
                recovery <- new_spinlock_irq!(Recovery::new(), "Session::recovery"),
                changed <- WaitQueue::new(),
                news <- new_spinlock_irq!(News::new(), "Session::news"),
                live <- new_mutex!(Live::default(), "Session::live"),
                ending <- new_work!("Session::ending"),
                tear_down <- new_work!("Session::tear_down"),
                scan <- new_work!("Session::scan"),
                reconnect <- new_delayed!(connect.clone(), "Session::reconnect"),
                fill <- Fill::new(connect),
                keep_alive <- KeepAlive::new(end.clone()),
                rescan <- Rescan::new(remove),
                poll <- new_delayed!(end.clone(), "Session::poll"),
                port_event <- PortEvent::new(end.clone()),
                starving <- new_delayed!(end.clone(), "Session::starving"),
                removal <- Removal::new(end),
            }),
            GFP_KERNEL,
        )
    }

    /// The key, unique on its port.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Fails commands at once from now on, until there is a new connection. Any context.
    pub fn fail_fast(&self) {
        self.on(Recovery::fail_fast);
    }

    /// A snapshot of the state machine.
    #[cfg(SRP_KUNIT)]
    pub(super) fn recovery(&self) -> Recovery {
        *self.recovery.lock()
    }

    /// Applies an event of [`recovery`]. Returns what the caller must do next. Any context.
    pub(super) fn on<T>(&self, event: impl FnOnce(&mut Recovery) -> T) -> T {
        let mut recovery = self.recovery.lock();
        let before = recovery.state();
        let outcome = event(&mut recovery);
        self.publish(before, recovery.state());
        outcome
    }

    /// Publishes a change of state. Called with `recovery` locked.
    fn publish(&self, before: recovery::State, after: recovery::State) {
        if before.view() != after.view() {
            self.nexus.status.set_view(after.view());
            self.changed.wake_all();
        }
        if before.life != after.life {
            let (high, low) = self.target().halves();
            trace!(session(
                self.host(),
                high,
                low,
                before.life as u8,
                after.life as u8
            ));
        }
    }

    /// Arms a timer, unless teardown has begun, which cancels all timers.
    fn later<const ID: u64>(self: &Arc<Self>, delay: Msecs)
    where
        Self: DelayedItem<ID> + HasDelayed<ID>,
    {
        let recovery = self.recovery.lock();
        if !recovery.state().life.is_ending() {
            // Fails if the timer is armed already, which suffices.
            let _ = <Delayed<Self, ID>>::schedule(self.clone(), delay);
        }
    }

    /// Keeps the connections and the host, which is not added yet, until the session ends.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the session has lost its connection or is ending.
    pub fn keep(
        &self,
        pd: Arc<Pd>,
        channels: Arc<Channels>,
        host: Arc<dyn Upper>,
        descriptors: u32,
    ) -> Result {
        self.nexus.need_descriptors(descriptors);
        let mut live = self.live.lock();
        // Both states are set before the teardown takes the lock.
        if self.is_lost() || self.is_ending() {
            return Err(ENODEV);
        }
        self.nexus.status.set_host_number(host.number());
        *live = Live {
            pd: Some(pd),
            channels: Some(channels),
            host: Some(host),
            rport: None,
        };
        Ok(())
    }

    /// Waits for a permit to log in; see [`Login::new`]. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Login::new`], and those of the device.
    pub fn log_in(
        self: &Arc<Self>,
        purpose: Purpose,
        patience: Msecs,
    ) -> Result<Login<'_>, LoginFailure> {
        let pd = match purpose {
            Purpose::First => self
                .port()
                .device()
                .hold()
                .and_then(|device| Pd::of(device, self.port().health().clone()))
                .map_err(|e| LoginFailure::Step("protection domain", e))?,
            Purpose::Again | Purpose::More => {
                let pd = self.live.lock().pd.clone();
                pd.ok_or(LoginFailure::Removed)?
            }
        };
        Login::new(&self.nexus, self.clone(), pd, purpose, patience)
    }

    /// Waits until all commands of a lost connection have ended, for as long as the device takes.
    /// There may be a new connection by then. Sleeps.
    pub(super) fn wait_down(&self) {
        self.changed.wait(|| self.is_down() || !self.is_lost());
    }

    /// Waits until recovery is over, see [`is_settled`](recovery::State::is_settled), for at most
    /// `timeout` milliseconds. Sleeps.
    fn wait_settled(&self, timeout: Msecs) {
        let _ = self
            .changed
            .wait_timeout(timeout, || self.view().is_settled());
    }

    /// The channels and the host, if the login has created them.
    pub(super) fn parts(&self) -> (Option<Arc<Channels>>, Option<Arc<dyn Upper>>) {
        let live = self.live.lock();
        (live.channels.clone(), live.host.clone())
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
