// SPDX-License-Identifier: GPL-2.0

//! A driver without disks, for tests of other parts.

use super::super::{
    transport::Transport,
    Command,
    CommandRef,
    Device,
    Disposition,
    Driver,
    Host,
    HostReset,
    Limits,
    Rejected,
    ScsiResult, //
};
use core::marker::PhantomData;
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// Completes each command with `DID_NO_CONNECT`.
pub(crate) struct NoDisks<T>(PhantomData<T>);

impl<T: Transport> NoDisks<T> {
    /// Creates a host of this driver.
    ///
    /// # Errors
    ///
    /// The errors of [`Host::new`].
    pub(crate) fn host(limits: &Limits, transport: Arc<T>) -> Result<Arc<Host<Self>>> {
        let driver = Arc::new(Self(PhantomData), GFP_KERNEL)?;
        let host = Host::new(limits, c"no disks", transport, driver)?;
        Ok(Arc::new(host, GFP_KERNEL)?)
    }
}

#[vtable]
impl<T: Transport> Driver for NoDisks<T> {
    const MODULE: &'static ThisModule = crate::compat::THIS_MODULE;
    const NAME: &'static CStr = c"SRP target without disks";
    const PROC_NAME: &'static CStr = c"srp_no_disks";
    type Transport = T;

    fn queue_command(&self, cmd: Command) -> Result<(), Rejected> {
        cmd.done(ScsiResult::DID_NO_CONNECT);
        Ok(())
    }

    fn abort(&self, _: &CommandRef<'_>) -> Disposition {
        Disposition::Failed
    }

    fn device_reset(&self, _: &Device, _: &CommandRef<'_>) -> Disposition {
        Disposition::Failed
    }

    fn host_reset(&self) -> HostReset {
        HostReset::Done
    }
}
