// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the SRP transport class.

use super::{
    Session,
    LOG_OUT_PATIENCE_MS, //
};
use crate::scsi::transport::srp::{
    Operations,
    Rport, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

impl Operations for Session {
    fn rport_delete(this: ArcBorrow<'_, Self>) {
        Arc::from(this).remove(LOG_OUT_PATIENCE_MS);
    }

    fn reconnect(this: ArcBorrow<'_, Self>) -> Result {
        Arc::from(this).commit()
    }

    fn failed_reconnects(&self) -> u32 {
        self.wanted_tries()
    }

    fn terminate_io(this: ArcBorrow<'_, Self>) {
        // Commands that were sent end with the connection; this fails the others.
        this.fail_fast();
    }
}

impl Session {
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
        if self.is_ending() {
            drop(live);
            return Err(ENODEV);
        }
        live.rport = Some(rport);
        Ok(())
    }
}
