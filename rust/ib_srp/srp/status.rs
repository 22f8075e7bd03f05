// SPDX-License-Identifier: GPL-2.0

//! The lock-free view of a session, and the events that connections report to it.

use super::{
    error::Lost,
    logic::state::State,
    port::Port,
    proto::ids::PortId,
    sizes::Geometry,
    statistics::Statistics, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        ArcBorrow,
        SetOnce, //
    }, //
};

/// The identity and the state of a session, readable without a lock. Any context.
pub struct Status {
    /// The [`State`] of the session, checked first for each command.
    state: Atomic<u32>,
    /// The number of the SCSI host, once there is one.
    host_number: SetOnce<u32>,
    port: Arc<Port>,
    target: PortId,
    /// The sizes of the session.
    pub geometry: Geometry,
    /// The event counters of the session.
    pub statistics: Statistics,
}

impl Status {
    /// Creates the status of a session of `port` that logs in at `target`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(port: Arc<Port>, target: PortId, geometry: Geometry) -> Result<Arc<Self>> {
        let this = Self {
            state: Atomic::new(State::default().to_word()),
            host_number: SetOnce::new(),
            port,
            target,
            geometry,
            statistics: Statistics::default(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The port that the session logs in through.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The target's port identifier.
    pub fn target(&self) -> &PortId {
        &self.target
    }

    /// The number of the SCSI host, once there is one.
    pub fn host_number(&self) -> Option<u32> {
        self.host_number.copy()
    }

    /// The number of the SCSI host, for the trace events; `u32::MAX` without one.
    pub fn host(&self) -> u32 {
        self.host_number().unwrap_or(u32::MAX)
    }

    /// Sets the number of the SCSI host, which exists from now on.
    pub fn set_host_number(&self, number: u32) {
        self.host_number.populate(number);
    }

    /// The state of the session, which may change at any time.
    ///
    /// A sender reads the state in an RCU read-side section. If the session is not lost, the sender
    /// may post until that section ends.
    #[inline]
    pub fn state(&self) -> State {
        State::from_word(self.state.load(Acquire))
    }

    /// Sets the state. For the session only.
    pub fn set_state(&self, state: State) {
        self.state.store(state.to_word(), Release);
    }
}

/// Receives the events of a connection. None of this is on the fast path.
///
/// Context: any, interrupts may be off.
pub trait Owner: Send + Sync {
    /// A connection of the session has failed.
    fn fail(self: ArcBorrow<'_, Self>, why: Lost);

    /// The target has violated the protocol on a connection before its login was done.
    fn strike(&self, why: &Lost);

    /// The answer channel with this number has failed, for the reason `why`. If `why` is `None`,
    /// the session loses its connection, too: a call of [`Owner::fail`] follows.
    fn answer_channel_lost(&self, _number: usize, _why: Option<&Lost>) {}

    /// A command was refused for lack of a credit. Answer channels do not report this.
    fn credit_missing(self: ArcBorrow<'_, Self>) {}

    /// The target reports that its logical units have changed. Answer channels do not report this.
    fn units_changed(self: ArcBorrow<'_, Self>) {}
}
