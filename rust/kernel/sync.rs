// SPDX-License-Identifier: GPL-2.0

//! Synchronisation primitives that the kernel crate does not have.

pub mod bh_lock;
pub mod completion;
pub mod count;
pub mod grace_period;
pub mod interrupt;
pub mod noio;
#[cfg(SRP_KUNIT)]
pub(crate) mod race;
pub mod state_cell;
pub mod wait_queue;

pub use crate::compat::{
    new_spinlock_irq,
    smp_mb,
    smp_rmb,
    smp_wmb,
    synchronize_rcu,
    SpinLockIrq, //
};
pub use bh_lock::{
    new_spinlock_bh,
    SpinLockBh,
    SpinLockBhGuard, //
};
pub use completion::Completion;
pub use count::Count;
pub use grace_period::GracePeriod;
pub use interrupt::Interrupt;
pub use noio::noio;
pub use state_cell::StateCell;
pub use wait_queue::WaitQueue;
