// SPDX-License-Identifier: GPL-2.0

//! What can be seen of a session, by its connections and by others.

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

/// What can be seen of a session without a lock: who it is, and how it is. Any context.
pub struct Status {
    /// The [`View`] of its state, which a command looks at first.
    view: Atomic<u32>,
    /// The number of the SCSI host, when there is one.
    host_number: SetOnce<u32>,
    port: Arc<Port>,
    target: PortId,
    /// How large all is.
    pub geometry: Geometry,
    /// What has happened to it.
    pub statistics: Statistics,
}

/// How a session is called in the log.
pub struct Name<'a>(PortName, &'a PortId);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {}", self.0, self.1)
    }
}

impl Status {
    /// That of a session of `port` at `target`.
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

    /// The port that it was logged in through.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The target's port identifier.
    pub fn target(&self) -> &PortId {
        &self.target
    }

    /// How it is called in the log.
    pub fn name(&self) -> Name<'_> {
        Name(self.port.name(), &self.target)
    }

    /// The number of the SCSI host, when there is one.
    pub fn host_number(&self) -> Option<u32> {
        self.host_number.copy()
    }

    /// That number for the trace events, which have one that no host has before.
    pub fn host(&self) -> u32 {
        self.host_number().unwrap_or(u32::MAX)
    }

    /// The SCSI host, which there is from now on, has this number.
    pub fn set_host_number(&self, number: u32) {
        self.host_number.populate(number);
    }

    /// What can be seen of the state without a lock.
    #[inline]
    pub fn view(&self) -> View {
        View::from_word(self.view.load(Acquire))
    }

    /// From now on that is `view`; for the session only.
    pub fn set_view(&self, view: View) {
        self.view.store(view.word(), Release);
    }

    /// There is no connection, or it is of no more use.
    ///
    /// Whoever has seen in an RCU read-side section that this is not so may post until its end.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.view().is_lost()
    }

    /// All commands of the lost connection are ended, and its queue pairs gone.
    pub fn is_down(&self) -> bool {
        self.view().is_down()
    }

    /// Where it is in its life.
    pub fn life(&self) -> Life {
        self.view().life()
    }

    /// The session is being removed, or will be.
    pub fn is_ending(&self) -> bool {
        self.life().is_ending()
    }

    /// Commands are to be failed, because the target has been away for too long.
    pub fn is_failing(&self) -> bool {
        self.view().is_failing()
    }
}
