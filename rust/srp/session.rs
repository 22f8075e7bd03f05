// SPDX-License-Identifier: GPL-2.0

//! A login at one target: its channels, its SCSI host, and how both end.
//!
//! There is one way to end a connection, whatever the reason: mark the session as lost, move the
//! queue pairs to their error state, drain them, end the commands. The work for it runs on a queue
//! of its own, because the removal of the disks waits for commands that it ends.
//!
//! Lock order: `live` before everything of the rdma and scsi modules; nothing is taken before it.

use super::{
    channel::Connection,
    error::{
        LoginFailure,
        Lost, //
    },
    front::scsi::Io,
    logic::session::{
        next,
        Event,
        State,
        Step, //
    },
    port::{
        Port,
        Queues, //
    },
    proto::ids::{
        Guid,
        PortId, //
    }, //
};
use crate::{
    scsi::Host,
    sync::Completion,
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Delayed,
        DelayedItem, //
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
            Full,
            Relaxed, //
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

/// The patience of a log-out, in milliseconds; see [`Session::remove`].
pub const LOG_OUT_PATIENCE_MS: Msecs = 10_000;

/// How long a wait for the disks is at a time.
const WAIT_SLICE_MS: Msecs = 10_000;

/// What makes a target unique on a port: `id_ext`, `ioc_guid` and `initiator_ext`.
pub type Key = (Guid, Guid, Guid);

/// What ends with the session.
#[derive(Default)]
struct Live {
    connections: KVec<Arc<Connection>>,
    host: Option<Arc<Host<Io>>>,
}

/// A login at one target.
#[pin_data]
pub struct Session {
    key: Key,
    target: PortId,
    port: Arc<Port>,
    queues: Queues,
    state: Atomic<u32>,
    /// The connection is of no more use.
    lost: Atomic<bool>,
    #[pin]
    live: Mutex<Live>,
    /// All queue pairs are drained and all commands ended.
    #[pin]
    down: Completion,
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
    /// Commands that had ended when the removal timer was set.
    progress: Atomic<i32>,
    /// The time of the removal timer.
    patience: Atomic<u32>,
}

impl_has_work! {
    impl HasWork<Session, 0> for Session { self.down_work }
    impl HasWork<Session, 1> for Session { self.removal }
    impl HasWork<Session, 2> for Session { self.scan }
}
impl_has_delayed! {
    impl HasDelayed<0> for Session { self.removal_timeout }
}

/// How a session is called in the log.
pub struct Name<'a>(&'a Session);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {}", self.0.port.name(), self.0.target)
    }
}

impl Session {
    /// A session of `port` that is being connected.
    pub fn new(port: &Arc<Port>, key: Key, target: PortId, queues: Queues) -> Result<Arc<Self>> {
        let timer = queues.ending.clone();
        Arc::pin_init(
            pin_init!(Self {
                key,
                target,
                port: port.clone(),
                queues,
                state: Atomic::new(State::Connecting as u32),
                lost: Atomic::new(false),
                live <- new_mutex!(Live::default(), "Session::live"),
                down <- Completion::new(),
                down_work <- new_work!("Session::down_work"),
                removal <- new_work!("Session::removal"),
                scan <- new_work!("Session::scan"),
                scanned <- Completion::new(),
                removal_timeout <- new_delayed!(timer, "Session::removal_timeout"),
                progress: Atomic::new(0),
                patience: Atomic::new(LOG_OUT_PATIENCE_MS),
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
        &self.target
    }

    /// The port that it was logged in through.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// How it is called in the log.
    pub fn name(&self) -> Name<'_> {
        Name(self)
    }

    /// The connection is of no more use. Any context.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// The session has failed or is being removed.
    pub fn is_ending(&self) -> bool {
        let now = self.state.load(Acquire);
        now != State::Connecting as u32 && now != State::Live as u32
    }

    /// Moves the state on; `true` if that changed it.
    fn advance(&self, event: Event) -> bool {
        let mut now = self.state.load(Acquire);
        loop {
            let state = State::ALL.get(now as usize).copied().unwrap_or(State::Gone);
            let Some(Step::To(new)) = next(state, event) else {
                return false;
            };
            match self.state.cmpxchg(now, new as u32, Full) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    /// Keeps a connection until the session ends.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENOTCONN` if the session is lost already.
    pub fn add_connection(&self, connection: Arc<Connection>) -> Result {
        let mut live = self.live.lock();
        // Whoever ends the connections says so before it takes the lock.
        if self.is_lost() {
            return Err(crate::errno::ENOTCONN);
        }
        live.connections.push(connection, GFP_KERNEL)?;
        Ok(())
    }

    /// The login is done: keeps the host, which is not added yet, until the session ends.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the session is ending already.
    pub fn go_live(&self, host: Arc<Host<Io>>) -> Result {
        let mut live = self.live.lock();
        if self.is_lost() || !self.advance(Event::LoggedIn) {
            return Err(ENODEV);
        }
        live.host = Some(host);
        Ok(())
    }

    /// Looks for disks. Sleeps, for as long as the commands take.
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
                Ok(()) if self.is_lost() => return Err(LoginFailure::Disconnected),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The connection is of no more use: ends it, the commands, and then the session.
    ///
    /// Says why in the log, once. Any context, interrupts may be off.
    pub fn fail(self: &Arc<Self>, why: Lost) {
        self.lose(Some(why));
    }

    fn lose(self: &Arc<Self>, why: Option<Lost>) {
        if self.lost.xchg(true, Full) {
            return;
        }
        self.advance(Event::Fail);
        if let Some(why) = why {
            pr_err!(
                "{}: connection lost: {}\n",
                format_args!("{}", self.name()),
                format_args!("{why}")
            );
        }
        // It was not queued before, as this is done once.
        let _ = self.queues.ending.enqueue::<Self, 0>(self.clone());
    }

    /// Ends the session in the background, the disks first. Does not sleep.
    ///
    /// While the disks go, which may have much to write, some command must end within `patience`
    /// milliseconds; else the connection is ended, whatever they wait for. The first call counts.
    pub fn remove(self: &Arc<Self>, patience: Msecs) {
        if !self.is_ending() {
            self.patience.store(patience, Relaxed);
        }
        if self.advance(Event::Remove) {
            // It was not queued before, as the state changes once.
            let _ = self.queues.removal.enqueue::<Self, 1>(self.clone());
        }
    }

    /// Waits until all commands are ended, at most `timeout` milliseconds. Sleeps.
    pub fn wait_down(&self, timeout: Msecs) -> bool {
        self.down.wait_timeout(timeout).is_ok()
    }

    /// Commands that have ended, modulo 2^32.
    fn ended(&self) -> i32 {
        let live = self.live.lock();
        let counts = live.connections.iter().map(|c| c.handler().ended());
        counts.fold(0, i32::wrapping_add)
    }

    /// Ends the connections: the one error path.
    fn bring_down(self: &Arc<Self>) {
        // Nobody adds to them now, and `tear_down` takes them after this.
        let connections = core::mem::take(&mut self.live.lock().connections);
        for connection in &connections {
            connection.handler().task.wake();
        }
        for connection in &connections {
            connection.id().disconnect();
        }
        for connection in &connections {
            // This work runs once, so nobody else is at it.
            let _ = connection.shutdown();
            connection.handler().sweep();
        }
        self.live.lock().connections = connections;
        self.down.complete_all();
        self.remove(LOG_OUT_PATIENCE_MS);
    }

    /// Ends the session: disks, commands, connections, in this order.
    fn tear_down(self: &Arc<Self>) {
        let host = self.live.lock().host.clone();
        if let Some(host) = &host {
            self.progress.store(self.ended(), Relaxed);
            let _ = Delayed::schedule(self.clone(), self.patience.load(Relaxed));
            host.remove();
            Delayed::<Self, 0>::cancel_sync(self);
        }
        self.lose(None);
        self.down.wait();
        drop(host);
        let live = core::mem::take(&mut *self.live.lock());
        // The host first: it has references to the connections.
        drop(live.host);
        drop(live.connections);
        self.advance(Event::Removed);
        self.port.forget(self);
    }
}

impl WorkItem<0> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.bring_down();
    }
}

impl WorkItem<1> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.tear_down();
    }
}

impl WorkItem<2> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let host = this.live.lock().host.clone();
        if let Some(host) = host {
            host.scan();
        }
        this.scanned.complete_all();
    }
}

impl DelayedItem for Session {
    fn run(this: Arc<Self>) {
        let ended = this.ended();
        if this.progress.xchg(ended, Relaxed) == ended {
            this.fail(Lost::RemovalTimeout);
        } else {
            // Refused if the disks have gone meanwhile.
            let patience = this.patience.load(Relaxed);
            let _ = Delayed::schedule(this, patience);
        }
    }
}
