// SPDX-License-Identifier: GPL-2.0

//! The state of a session, as its connections and others see it.

use super::{
    geometry::Geometry,
    logic::{
        session::Life,
        view::View, //
    },
    port::{
        Port,
        PortName, //
    },
    proto::ids::PortId,
    statistics::Statistics, //
};
use core::fmt;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        SetOnce, //
    }, //
};

/// What is visible of a session without a lock: its identity and state. Any context.
pub struct Status {
    /// The [`View`] of its state, which a command checks first.
    view: Atomic<u32>,
    /// The number of the SCSI host, when there is one.
    host_number: SetOnce<u32>,
    port: Arc<Port>,
    target: PortId,
    /// Its sizes.
    pub geometry: Geometry,
    /// Its event counters.
    pub statistics: Statistics,
}

/// The name of a session in the log.
pub struct Name<'a>(PortName, &'a PortId);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {}", self.0, self.1)
    }
}

impl Status {
    /// Makes the status of a session of `port` at `target`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(
        port: Arc<Port>,
        target: PortId,
        geometry: Geometry,
        view: View,
    ) -> Result<Arc<Self>> {
        let this = Self {
            view: Atomic::new(view.word()),
            host_number: SetOnce::new(),
            port,
            target,
            geometry,
            statistics: Statistics::new(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The port of the login.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The target's port identifier.
    pub fn target(&self) -> &PortId {
        &self.target
    }

    /// The name in the log.
    pub fn name(&self) -> Name<'_> {
        Name(self.port.name(), &self.target)
    }

    /// The number of the SCSI host, when there is one.
    pub fn host_number(&self) -> Option<u32> {
        self.host_number.copy()
    }

    /// That number for the trace events; without a host, one that no host has.
    pub fn host(&self) -> u32 {
        self.host_number().unwrap_or(u32::MAX)
    }

    /// Sets the number of the SCSI host, which exists from now on.
    pub fn set_host_number(&self, number: u32) {
        self.host_number.populate(number);
    }

    /// What is visible of the state without a lock.
    #[inline]
    pub fn view(&self) -> View {
        View::from_word(self.view.load(Acquire))
    }

    /// Sets the view. For the session only.
    pub fn set_view(&self, view: View) {
        self.view.store(view.word(), Release);
    }

    /// Whether there is no connection, or it has failed.
    ///
    /// A sender that sees `false` in an RCU read-side section may post until the end of the
    /// section.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.view().is_lost()
    }

    /// Whether all commands of the lost connection are ended, and its queue pairs gone.
    pub fn is_down(&self) -> bool {
        self.view().is_down()
    }

    /// The stage of its life.
    pub fn life(&self) -> Life {
        self.view().life()
    }

    /// Whether the session is being removed, or will be.
    pub fn is_ending(&self) -> bool {
        self.life().is_ending()
    }

    /// Whether commands must fail, because the target has been away for too long.
    pub fn is_failing(&self) -> bool {
        self.view().is_failing()
    }
}
