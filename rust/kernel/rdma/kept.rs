// SPDX-License-Identifier: GPL-2.0

//! Memory that is kept because a device refuses to stop its access.

use super::device::Device;
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// The pause before a device is asked again.
pub(super) const AGAIN: Delta = Delta::from_millis(500);

pub(super) const QUEUE_PAIR: &str = "a queue pair cannot be stopped";
pub(super) const REGION: &str = "a memory region cannot be deregistered";

/// Logs the problem `what`, which keeps memory, and the error.
pub(super) fn say(device: &Device, what: &str, why: Error) {
    pr_err!(
        "{}: {what} (error {}); its memory is kept until it can be\n",
        format_args!("{}", device.name()),
        why.to_errno()
    );
}

/// Repeats `ask` until it succeeds, and logs the first error. Sleeps.
pub(super) fn insist(device: &Device, what: &str, mut ask: impl FnMut() -> Result) {
    let mut said = false;
    while let Err(why) = ask() {
        if !said {
            say(device, what, why);
            said = true;
        }
        fsleep(AGAIN);
    }
}
