// SPDX-License-Identifier: GPL-2.0

//! The sessions of a port.

use super::{
    connect::{
        LoginParams,
        Throttle, //
    },
    error::Lost,
    log::port_log,
    port::Port,
    session::{
        Key,
        Queues,
        Registry,
        Session, //
    },
    sizes::Geometry, //
};
use crate::scsi::transport::srp::Transport;
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::Msecs, //
};

#[derive(Default)]
struct List {
    all: KVec<Arc<Session>>,
    /// The port is being removed: no more logins.
    closed: bool,
}

/// The logins through a port.
#[pin_data]
pub struct Sessions {
    port: Arc<Port>,
    transport: Arc<Transport<Session>>,
    queues: Queues,
    /// Taken before [`Session`]'s locks. Under this lock, work is only queued.
    #[pin]
    list: Mutex<List>,
    /// Notified when a session has left the list.
    #[pin]
    gone: CondVar,
}

impl Sessions {
    /// Creates an empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(
        port: Arc<Port>,
        transport: Arc<Transport<Session>>,
        queues: Queues,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                port,
                transport,
                queues,
                list <- new_mutex!(List::default(), "Sessions::list"),
                gone <- new_condvar!("Sessions::gone"),
            }),
            GFP_KERNEL,
        )
    }

    /// The port of the sessions.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The SRP transport of the SCSI hosts.
    pub fn transport(&self) -> &Arc<Transport<Session>> {
        &self.transport
    }

    /// Creates a session and puts it on the list. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if a session has this key, `ENODEV` if the port is being removed, `ENOMEM`.
    pub fn begin(
        self: &Arc<Self>,
        key: Key,
        params: LoginParams,
        geometry: Geometry,
    ) -> Result<Arc<Session>> {
        let mut list = self.list.lock();
        let to = &params.destination;
        let other = list
            .all
            .iter()
            .find(|s| s.logins.params.destination.is_like(to));
        let throttle = other.map(|other| Ok(other.logins.throttle.clone()));
        let throttle = throttle.unwrap_or_else(Throttle::new)?;
        let session = Session::new(
            self.port.clone(),
            self.clone(),
            key,
            params,
            geometry,
            self.queues.clone(),
            throttle,
        )?;
        if list.closed {
            return Err(ENODEV);
        }
        if let Some(other) = list.all.iter().find(|other| other.key() == key) {
            let what = match other.status().state().is_ending() {
                true => "still logging out at",
                false => "already logged in at",
            };
            let target = session.status().target();
            port_log!(pr_info, self.port, "login refused: {what} {target}");
            return Err(EEXIST);
        }
        list.all.push(session.clone(), GFP_KERNEL)?;
        Ok(session)
    }

    /// Calls `notify`, which must not sleep, for each session.
    pub fn each(&self, notify: impl Fn(&Arc<Session>)) {
        self.list.lock().all.iter().for_each(notify);
    }

    /// Handles a fatal error of the device.
    pub fn fatal(&self) {
        self.port.health().fail();
        self.each(|session| session.fail(Lost::Device));
    }

    /// Refuses new sessions, and asks the existing ones to end.
    pub fn close(&self, patience: Msecs) {
        let mut list = self.list.lock();
        list.closed = true;
        for session in &list.all {
            session.remove(patience);
        }
    }

    /// Waits until all sessions have ended. Sleeps.
    pub fn wait_empty(&self) {
        let mut list = self.list.lock();
        while !list.all.is_empty() {
            self.gone.wait(&mut list);
        }
    }

    /// Waits until the session of a failed login has ended. Sleeps.
    pub fn wait_gone(&self, session: &Arc<Session>) {
        let mut list = self.list.lock();
        while list.all.iter().any(|other| Arc::ptr_eq(other, session)) {
            self.gone.wait(&mut list);
        }
    }
}

impl Registry for Sessions {
    fn forget(&self, session: &Arc<Session>) {
        let mut list = self.list.lock();
        list.all.retain(|other| !Arc::ptr_eq(other, session));
        drop(list);
        self.gone.notify_all();
    }
}
