// SPDX-License-Identifier: GPL-2.0

//! InfiniBand SCSI RDMA Protocol (SRP) initiator.
//!
//! [`srp`] is the driver, without unsafe code. The other modules are abstractions of kernel
//! interfaces that the `kernel` crate lacks.

#![crate_name = "ib_srp"]
// kbuild sets these on the command line, where `rustdoc --test` takes no attributes.
#![cfg_attr(doctest, no_std, feature(asm_goto))]

#[path = "../bindings/lib.rs"]
pub mod bindings;
pub mod params;
pub mod srp;
pub mod trace;

// Adds the modules of `rust/kernel/` to this crate.
include!("../kernel/lib.rs");

use kernel::{
    prelude::*,
    sync::Arc, //
};
use pm::Notifier;
use rdma::client::Registration;
use scsi::transport::srp::Transport;
use srp::{
    front::sysfs::PORT_ATTRIBUTES,
    initiator::{
        AllPorts,
        Initiator, //
    },
    session::Queues, //
};
use workqueue::{
    Flag,
    WorkQueue, //
};

module! {
    type: Module,
    name: "ib_srp",
    authors: ["The srp-rs authors"],
    description: "InfiniBand SCSI RDMA Protocol initiator",
    license: "GPL",
}

/// Starts the teardown of all sessions when dropped.
struct Ending(Arc<AllPorts>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The module. Its fields are dropped in order. `_end` starts the teardown of all sessions, so that
/// they end concurrently. `client` then removes the devices one after the other; the teardown of
/// their sessions needs the fields below.
#[pin_data]
pub struct Module {
    _end: Ending,
    #[pin]
    _sleep: Notifier<AllPorts>,
    #[pin]
    client: Registration<Initiator>,
    _reconnect: WorkQueue,
    _removal: WorkQueue,
    _ending: WorkQueue,
}

impl kernel::InPlaceModule for Module {
    fn init(_: &'static ThisModule) -> impl PinInit<Self, Error> {
        params::check();
        if params::never_register() || !params::register_always() {
            pr_info!(
                "never_register and register_always are ignored: memory is always registered\n"
            );
        }
        #[cfg(SRP_BENCH)]
        rdma::bench::run();
        pin_init::pin_init_scope(|| {
            let flags = Flag::Unbound | Flag::MemReclaim;
            // No `MemReclaim`: the power management workqueue, which a removal waits for, has no
            // rescuer.
            let removal = WorkQueue::new(c"srp_remove", Flag::Unbound)?;
            let ending = WorkQueue::new(c"srp_end", flags)?;
            let reconnect = WorkQueue::new(c"srp_reconnect", flags)?;
            let queues = Queues {
                ending: ending.handle(),
                removal: removal.handle(),
                reconnect: reconnect.handle(),
            };
            let transport = Arc::new(Transport::new(params::timeouts())?, GFP_KERNEL)?;
            let all = AllPorts::new()?;
            let initiator = Initiator::new(&PORT_ATTRIBUTES, transport, queues, all.clone())?;
            Ok(try_pin_init!(Self {
                _end: Ending(all.clone()),
                _sleep <- Notifier::new(all),
                client <- Registration::new(initiator),
                _reconnect: reconnect,
                _removal: removal,
                _ending: ending,
            }? Error))
        })
    }
}
