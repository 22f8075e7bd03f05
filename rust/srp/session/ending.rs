// SPDX-License-Identifier: GPL-2.0

//! The teardown of a session's connections: the only error path.

use super::Session;
use crate::srp::logic::recovery::{
    Ended,
    Ending,
    Recovery, //
};
use kernel::{
    impl_has_work,
    sync::Arc,
    workqueue::WorkItem, //
};

/// Identifies a `Work` of the session.
pub(super) const ENDING: u64 = 1;
impl_has_work! { impl HasWork<Session, ENDING> for Session { self.ending } }

impl Session {
    fn end_connections(self: &Arc<Self>) {
        let (channels, _) = self.parts();
        match self.on(Recovery::ending) {
            Ending::Notify => {
                if let Some(rport) = self.rport() {
                    // Before the commands go back to the midlayer, which then holds them.
                    rport.start_tl_fail_timers();
                }
                self.on(Recovery::notified);
            }
            Ending::EndCommands => {}
        }
        // The fill checks whether the connection is lost. It must not connect anything after this.
        self.nexus.waiting.interrupt();
        self.end_fill();
        // The starving check belongs to this connection. If a command that is being refused arms
        // its timer again, the check finds the connection lost, or the next one.
        self.end_starving();
        if let Some(channels) = &channels {
            channels.end(&self.crew);
        }
        match self.on(Recovery::ended) {
            Ended::Remove => self.remove(super::LOG_OUT_PATIENCE_MS),
            Ended::Retry(retry) => self.retry(retry),
        }
    }
}

impl WorkItem<ENDING> for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.end_connections();
    }
}
