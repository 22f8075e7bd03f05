// SPDX-License-Identifier: GPL-2.0

//! Port events: the network may be back, or the path to the target may have changed.

use super::Session;
use crate::{
    srp::{
        ktime::ktime_get,
        logic::session::Life, //
    },
    workqueue::{
        impl_has_delayed,
        new_delayed,
        Delayed,
        DelayedItem,
        Handle, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

const EVENT: u64 = 6;
type Timer = Delayed<Session, EVENT>;
impl_has_delayed! { impl HasDelayed<EVENT> for Session { self.port_event.timer } }

/// The next port event to handle, see
/// [`Backoff::event`](crate::srp::logic::backoff::Backoff::event).
#[pin_data]
pub(super) struct PortEvent {
    #[pin]
    timer: Timer,
    /// The path to the target may have changed since the last event.
    moved: Atomic<bool>,
}

impl PortEvent {
    pub(super) fn new(queue: Handle) -> impl PinInit<Self> {
        pin_init!(Self {
            timer <- new_delayed!(queue, "Session::port_event"),
            moved: Atomic::new(false),
        })
    }
}

impl Session {
    /// Handles a port event. A session that waits to reconnect does so now, as the network may be
    /// back, and an attempt that waits for a retransmission starts over. If the path to the target
    /// may have `moved`, a connected session tests it. Events are rate-limited. Any context.
    pub fn port_changed(self: &Arc<Self>, moved: bool) {
        match self.life() {
            Life::Recovering => {}
            Life::Live if moved => self.port_event.moved.store(true, Relaxed),
            _ => return,
        }
        let delay = self.recovery.lock().port_event(ktime_get());
        self.later::<EVENT>(delay);
    }

    /// Cancels the next event. The session is ending. Sleeps.
    pub(super) fn end_port_event(self: &Arc<Self>) {
        Timer::cancel_sync(self);
    }
}

impl DelayedItem<EVENT> for Session {
    fn run(this: Arc<Self>) {
        let moved = this.port_event.moved.xchg(false, Relaxed);
        match this.life() {
            Life::Recovering => {
                this.begin_reconnect();
                this.nexus.waiting.interrupt();
            }
            Life::Live if moved => this.test(),
            _ => {}
        }
    }
}
