// SPDX-License-Identifier: GPL-2.0

//! Interrupting the wait of another thread, without a signal that a process would see.
//!
//! C header: [`include/linux/sched/signal.h`](srctree/include/linux/sched/signal.h)
//!
//! # Examples
//!
//! ```
//! use ib_srp::sync::Interrupt;
//! use kernel::prelude::*;
//!
//! /// In one thread: runs a function that may wait forever.
//! fn discover(interrupt: &Interrupt, discover: impl FnOnce() -> Result) -> Result {
//!     interrupt.run(discover)
//! }
//!
//! /// In another thread: ends that wait.
//! fn stop(interrupt: &Interrupt) {
//!     interrupt.interrupt();
//! }
//! ```

use crate::{
    bindings,
    sync::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
};
use kernel::{
    current,
    prelude::*,
    sync::aref::ARef,
    task::Task, //
};

/// The signal sent to a kernel thread, which accepts it from the kernel only.
const SIGNAL: c_int = bindings::SIGINT as c_int;

/// Lets other threads end the interruptible waits of a thread, in C functions that have no timeout.
#[pin_data]
pub struct Interrupt {
    /// The thread in [`Interrupt::run`]. A kernel thread accepts the signal at least as long as it
    /// is stored here.
    #[pin]
    task: SpinLockIrq<Option<Waiter>>,
}

/// A thread in [`Interrupt::run`].
struct Waiter {
    task: ARef<Task>,
    /// Whether the thread was interrupted.
    hit: bool,
}

impl Interrupt {
    /// Creates an initialiser; no thread can be interrupted yet.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            task <- new_spinlock_irq!(None, "Interrupt::task"),
        })
    }

    /// Calls `f`. [`Interrupt::interrupt`] ends the interruptible waits of `f`. Process context.
    ///
    /// Only one thread at a time can be interrupted: in any other thread, this only calls `f`. To a
    /// user thread, an interrupt looks like a pending signal until `f` returns.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let task: ARef<Task> = ARef::from(&**current!());
        let of_kernel = is_of_kernel(&task);
        if self.task.lock().is_some() {
            return f();
        }
        if of_kernel {
            // Outside the lock, because `allow_kernel_signal()` enables interrupts.
            // SAFETY: The call changes how the current thread treats a signal that it otherwise
            // ignores.
            unsafe { bindings::srp_helper_allow_kernel_signal(SIGNAL) };
        }
        if !self.enter(task) {
            if of_kernel {
                // SAFETY: The thread ignores the signal again, as before.
                unsafe { bindings::srp_helper_disallow_signal(SIGNAL) };
            }
            return f();
        }
        let result = f();
        let waiter = self.task.lock().take();
        if !of_kernel {
            if let Some(Waiter { task, hit: true }) = waiter {
                // Later waits must not end early, and the system call must not restart.
                // SAFETY: The call clears a flag of the current thread.
                unsafe { bindings::srp_helper_clear_notify_signal() };
                // SAFETY: `task` is the current task. The flag is also set for pending task work.
                if unsafe { bindings::srp_helper_task_work_pending(task.as_ptr()) } {
                    // SAFETY: The task is valid.
                    unsafe { bindings::srp_helper_set_notify_signal(task.as_ptr()) };
                }
            }
            return result;
        }
        // SAFETY: The thread ignores the signal again, as before. No other thread sends it now.
        unsafe { bindings::srp_helper_disallow_signal(SIGNAL) };
        if let Some(Waiter { task, .. }) = waiter {
            // SAFETY: `task` is the current thread, which takes no other signal.
            unsafe { bindings::flush_signals(task.as_ptr()) };
        }
        result
    }

    /// Registers `task` as the interruptible thread. Returns `false` if there is one already.
    fn enter(&self, task: ARef<Task>) -> bool {
        let mut place = self.task.lock();
        if place.is_some() {
            return false;
        }
        *place = Some(Waiter { task, hit: false });
        true
    }

    /// Ends the current wait of the thread in [`Interrupt::run`], and each wait that the thread
    /// begins before it leaves that function. Any context except NMI.
    pub fn interrupt(&self) {
        let mut place = self.task.lock();
        let Some(Waiter { task, hit }) = &mut *place else {
            return;
        };
        *hit = true;
        if is_of_kernel(task) {
            // SAFETY: The task is valid, and accepts the signal while it is stored in `self.task`.
            unsafe { bindings::send_sig(SIGNAL, task.as_ptr(), 1) };
        } else {
            // SAFETY: The task is valid.
            unsafe { bindings::srp_helper_set_notify_signal(task.as_ptr()) };
            // SAFETY: The task is valid. Every wait tolerates a spurious wake-up.
            unsafe { bindings::wake_up_process(task.as_ptr()) };
        }
    }
}

/// Returns whether `task` is a kernel thread, which has no signals of its own.
fn is_of_kernel(task: &Task) -> bool {
    // SAFETY: The task is valid.
    let flags = unsafe { &raw const (*task.as_ptr()).flags };
    // SAFETY: The task is valid. It may change other flags concurrently, but not this one.
    let flags = unsafe { flags.read_volatile() };
    flags & bindings::PF_KTHREAD != 0
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_interrupt)]
mod tests {
    use super::*;
    use crate::{
        sync::Completion,
        workqueue::{
            Flag,
            WorkQueue, //
        },
    };
    use kernel::{
        impl_has_hr_timer, impl_has_work, new_work,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc,
            ArcBorrow, //
        },
        time::{
            hrtimer::{
                HrTimer,
                HrTimerCallback,
                HrTimerCallbackContext,
                HrTimerPointer,
                HrTimerRestart,
                RelativeMode, //
            },
            Delta,
            Monotonic, //
        },
        workqueue::{
            Work,
            WorkItem, //
        },
    };

    #[pin_data]
    struct Sleeper {
        #[pin]
        interrupt: Interrupt,
        #[pin]
        never: Completion,
        #[pin]
        begun: Completion,
        #[pin]
        ended: Completion,
        #[pin]
        work: Work<Sleeper>,
        result: Atomic<i32>,
    }

    impl_has_work! {
        impl HasWork<Self> for Sleeper { self.work }
    }

    impl WorkItem for Sleeper {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            let result = this.interrupt.run(|| {
                this.begun.complete();
                this.never.wait_interruptible_timeout(20_000)
            });
            // Outside of `run`, the interrupt has no effect.
            let after = this.never.wait_interruptible_timeout(10);
            let ok = result == Err(ERESTARTSYS) && after == Err(ETIMEDOUT);
            this.result.store(i32::from(ok), Relaxed);
            this.ended.complete();
        }
    }

    /// Calls [`Interrupt::interrupt`] in hard interrupt context.
    #[pin_data]
    struct Alarm {
        #[pin]
        timer: HrTimer<Self>,
        sleeper: Arc<Sleeper>,
        #[pin]
        rung: Completion,
    }

    impl HrTimerCallback for Alarm {
        type Pointer<'a> = Arc<Self>;

        fn run(this: ArcBorrow<'_, Self>, _: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
            this.sleeper.interrupt.interrupt();
            this.rung.complete();
            HrTimerRestart::NoRestart
        }
    }

    impl_has_hr_timer! {
        impl HasHrTimer<Self> for Alarm { mode: RelativeMode<Monotonic>, field: self.timer }
    }

    #[test]
    fn ends_the_wait_of_a_worker() -> Result {
        let queue = WorkQueue::new(c"srp_test_interrupt", Flag::Unbound)?;
        let sleeper = Arc::pin_init(
            pin_init!(Sleeper {
                interrupt <- Interrupt::new(),
                never <- Completion::new(),
                begun <- Completion::new(),
                ended <- Completion::new(),
                work <- new_work!("srp_test_sleeper"),
                result: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        // No thread is in `run` yet.
        sleeper.interrupt.interrupt();
        let to_wake = sleeper.clone();
        let alarm = Arc::pin_init(
            pin_init!(Alarm {
                timer <- HrTimer::new(),
                sleeper: to_wake,
                rung <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        for round in 0..20 {
            sleeper.result.store(0, Relaxed);
            assert!(queue.handle().enqueue(sleeper.clone()).is_ok());
            sleeper.begun.wait_timeout(10_000)?;
            if round % 2 == 0 {
                // Teaches lockdep that the lock is taken in an interrupt, so interrupts must be
                // disabled while it is held.
                let _handle = alarm.clone().start(Delta::from_millis(1));
                alarm.rung.wait_timeout(10_000)?;
            } else {
                sleeper.interrupt.interrupt();
            }
            sleeper.ended.wait_timeout(10_000)?;
            assert_eq!(sleeper.result.load(Relaxed), 1);
        }
        Ok(())
    }
}
