// SPDX-License-Identifier: GPL-2.0

//! A login at one target: its channels, its SCSI host, and their teardown.
//!
//! There is one way to end a connection, whatever the reason: mark the session as lost, wait until
//! no thread posts, move the queue pairs to their error state, drain them, end the commands. Then a
//! live session reconnects; any other is removed. [`Recovery`] is the state machine. The modules
//! below this one have the five work items of a session. They run on three queues, because the
//! removal of the disks waits for commands that another work item ends.
//!
//! Lock order: the port's list of sessions and the mutex of the class's remote port come before
//! `rounds` and `live`, under which no mutex is taken; `recovery` and `news` are innermost.

mod disks;
mod end;
mod reconnect;
mod tick;

pub use disks::LOGOUT_PATIENCE_MS;

use disks::Disks;
use end::News;
use reconnect::Connect;
use tick::{
    Rounds,
    Tick, //
};

use super::{
    channels::Channels,
    connect::{
        Login,
        LoginContext,
        LoginParams,
        Purpose,
        Throttle, //
    },
    error::LoginFailure,
    ktime::{
        AtomicKtime,
        Ktime, //
    },
    logic::recovery::Recovery,
    port::Port,
    proto::guid::Guid,
    sizes::Geometry,
    status::Status, //
};
use crate::{
    rdma::pd::Pd,
    scsi::{
        log::Level,
        transport::srp::{
            AnyHost,
            Operations,
            Rport, //
        }, //
    },
    sync::{
        new_spinlock_irq,
        Completion,
        SpinLockIrq,
        WaitQueue, //
    },
    trace::trace,
    workqueue::{
        new_delayed,
        Handle,
        TimedInterrupt,
        WorkerPool, //
    }, //
};
use core::fmt::Arguments;
use kernel::{
    new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::Msecs,
    workqueue::Work,
};

/// The work items of a session, by number: they end its connections, check them at deadlines, log
/// in, and scan and remove the disks. Two equal numbers do not compile.
const END: u64 = 1;
const TICK: u64 = 2;
const CONNECT: u64 = 3;
const DISKS: u64 = 4;

/// Maximum length of one wait, in milliseconds.
const WAIT_SLICE_MS: Msecs = 10_000;

/// The key of a session, unique on a port: `id_ext`, `ioc_guid` and `initiator_ext`.
pub type Key = (Guid, Guid, Guid);

/// The work queues of all sessions.
#[derive(Clone)]
pub struct Queues {
    /// Teardown of connections.
    pub ending: Handle,
    /// Removal of disks, which waits for teardowns.
    pub removal: Handle,
    /// Reconnects, which wait for the network.
    pub reconnect: Handle,
}

/// The SCSI host of a session, whose driver depends on the session. The fast path does not use it.
pub type SessionHost = dyn AnyHost<Session>;

/// A list of sessions.
pub trait Registry: Send + Sync {
    /// Removes a session that has ended from the list.
    ///
    /// Context: process, may sleep.
    fn forget(&self, session: &Arc<Session>);
}

/// Resources that are released at the end of the session, in this order: the remote port refers to
/// the session, and the host to the channels.
#[derive(Default)]
struct Parts {
    rport: Option<Arc<Rport<Session>>>,
    host: Option<Arc<SessionHost>>,
    channels: Option<Arc<Channels>>,
    pd: Option<Arc<Pd>>,
}

/// A login at one target.
#[pin_data]
pub struct Session {
    key: Key,
    /// The list that the session is on.
    registry: Arc<dyn Registry>,
    /// The context of the first login and of each reconnect.
    pub(super) logins: Arc<LoginContext>,
    queues: Queues,
    /// Work items that end the channels in parallel.
    workers: WorkerPool,
    /// The state machine.
    #[pin]
    recovery: SpinLockIrq<Recovery>,
    /// Woken when [`Status::state`] changes.
    #[pin]
    changed: WaitQueue,
    #[pin]
    news: SpinLockIrq<News>,
    #[pin]
    live: Mutex<Parts>,
    /// Taken by the tick, and by the end of a connection while no tick runs.
    #[pin]
    rounds: Mutex<KVec<Rounds>>,
    /// Completed when the first scan is done.
    #[pin]
    scanned: Completion,
    /// Time at which the last rescan ran or was postponed.
    last_scan: AtomicKtime,
    #[pin]
    end: Work<Session, END>,
    #[pin]
    tick: Tick,
    #[pin]
    connect: Connect,
    #[pin]
    disks: Disks,
}

impl Session {
    /// Creates a connecting session of `port`, for the list `registry`.
    pub fn new(
        port: Arc<Port>,
        registry: Arc<dyn Registry>,
        key: Key,
        params: LoginParams,
        geometry: Geometry,
        queues: Queues,
        throttle: Arc<Throttle>,
    ) -> Result<Arc<Self>> {
        let count = usize::from(geometry.all_channels());
        let workers = (count + geometry.answer_channels as usize).saturating_sub(1);
        let workers = WorkerPool::new(queues.ending.clone(), workers)?;
        let mut rounds = KVec::new();
        rounds.resize(count, Rounds::default(), GFP_KERNEL)?;
        let status = Status::new(port, params.target, geometry)?;
        let interrupt = TimedInterrupt::new(queues.ending.clone())?;
        let logins = LoginContext::new(params, status, throttle, interrupt)?;
        Arc::pin_init(
            pin_init!(Self {
                key,
                registry,
                logins,
                queues: queues.clone(),
                workers,
                recovery <- new_spinlock_irq!(Recovery::default(), "Session::recovery"),
                changed <- WaitQueue::new(),
                news <- new_spinlock_irq!(News::default(), "Session::news"),
                live <- new_mutex!(Parts::default(), "Session::live"),
                rounds <- new_mutex!(rounds, "Session::rounds"),
                scanned <- Completion::new(),
                last_scan: AtomicKtime::new(Ktime::MIN),
                end <- new_work!("Session::end"),
                tick <- new_delayed!(queues.ending.clone(), "Session::tick"),
                connect <- new_delayed!(queues.reconnect.clone(), "Session::connect"),
                disks <- new_delayed!(queues.removal.clone(), "Session::disks"),
            }),
            GFP_KERNEL,
        )
    }

    /// The status, readable without a lock.
    pub fn status(&self) -> &Arc<Status> {
        &self.logins.status
    }

    /// Logs a line about the session, see [`Status::log`].
    pub(super) fn log(&self, level: Level, text: Arguments<'_>) {
        self.status().log(level, text);
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

    /// Applies an event of [`Recovery`]. Returns the caller's next step. Any context.
    pub(super) fn on<T>(&self, event: impl FnOnce(&mut Recovery) -> T) -> T {
        let mut recovery = self.recovery.lock();
        let before = recovery.state();
        let outcome = event(&mut recovery);
        let after = recovery.state();
        if before != after {
            self.status().set_state(after);
            self.changed.wake_all();
        }
        if before.life != after.life {
            let (high, low) = self.status().target().halves();
            trace!(session(
                self.status().host(),
                high,
                low,
                before.life as u8,
                after.life as u8
            ));
        }
        outcome
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
        host: Arc<SessionHost>,
        descriptors: u32,
    ) -> Result {
        self.logins.need_descriptors(descriptors);
        let mut live = self.live.lock();
        // Both states are set before the teardown takes the lock.
        if self.status().state().is_lost() || self.status().state().is_ending() {
            return Err(ENODEV);
        }
        self.status().set_host_number(host.number());
        *live = Parts {
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
            Purpose::First => {
                let port = self.status().port();
                let device = port.device().hold();
                let pd = device.and_then(|device| Pd::of(device, port.health().clone()));
                pd.map_err(|e| LoginFailure::Step("protection domain", e))?
            }
            Purpose::Again | Purpose::More => {
                let pd = self.live.lock().pd.clone();
                pd.ok_or(LoginFailure::Removed)?
            }
        };
        Login::new(&self.logins, self.clone(), pd, purpose, patience)
    }

    /// The channels and the host, if the login has created them.
    pub(super) fn parts(&self) -> (Option<Arc<Channels>>, Option<Arc<SessionHost>>) {
        let live = self.live.lock();
        (live.channels.clone(), live.host.clone())
    }

    /// The remote port, if the login has created it.
    pub(in crate::srp) fn rport(&self) -> Option<Arc<Rport<Self>>> {
        self.live.lock().rport.clone()
    }

    /// Keeps the remote port until the session ends.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the session is ending already: the host is removed.
    pub fn keep_rport(&self, rport: Rport<Self>) -> Result {
        let rport = Arc::new(rport, GFP_KERNEL)?;
        let mut live = self.live.lock();
        // The session is marked as ending before the teardown takes the lock.
        if self.status().state().is_ending() {
            drop(live);
            return Err(ENODEV);
        }
        live.rport = Some(rport);
        Ok(())
    }
}

impl Operations for Session {
    fn rport_delete(this: ArcBorrow<'_, Self>) {
        Arc::from(this).remove(LOGOUT_PATIENCE_MS);
    }

    fn reconnect(this: ArcBorrow<'_, Self>) -> Result {
        Arc::from(this).commit()
    }

    fn failed_reconnects(&self) -> u32 {
        self.recovery.lock().backoff().wanted_attempts()
    }

    fn terminate_io(this: ArcBorrow<'_, Self>) {
        // Commands that were sent end with the connection. Fail the others.
        this.fail_fast();
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
