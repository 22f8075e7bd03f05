// SPDX-License-Identifier: GPL-2.0

//! What an event of the port is to a session: the network may be back, or the way to the target may lead elsewhere.

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

/// The next event that counts, see [`Backoff::event`](crate::srp::logic::backoff::Backoff::event).
#[pin_data]
pub(super) struct PortEvent {
    #[pin]
    timer: Timer,
    /// The way to the target may lead elsewhere since the last one.
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
    /// Something has happened to the port. A session that waits to reconnect does it now, as the network may be back, and
    /// a try that waits for a lost packet to be sent again begins anew. If the way to the target may have `moved`, one
    /// that has a connection tests it. Of a storm of events few count. Any context.
    pub fn port_changed(self: &Arc<Self>, moved: bool) {
        match self.life() {
            Life::Recovering => {}
            Life::Live if moved => self.port_event.moved.store(true, Relaxed),
            _ => return,
        }
        let delay = self.recovery.lock().port_event(ktime_get());
        self.later::<EVENT>(delay);
    }

    /// No more events. The session is ending. Sleeps.
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
