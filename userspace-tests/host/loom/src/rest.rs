// SPDX-License-Identifier: GPL-2.0

//! Stand-ins for the parts of the driver that contain no atomic protocol.

pub mod compat {
    pub const PREEMPTIBLE_SPINLOCKS: bool = false;

    pub mod queue_status {
        pub type Status = i32;
        pub const DEVICE_BUSY: Status = 0x1056;
        pub const HOST_BUSY: Status = 0x1055;
    }
}

pub mod errno {
    use kernel::error::Error;

    pub const EPROTO: Error = Error::from_errno(-71);
    pub const EOPNOTSUPP: Error = Error::from_errno(-95);
    pub const EADDRINUSE: Error = Error::from_errno(-98);
    pub const ECONNRESET: Error = Error::from_errno(-104);
    pub const ENOTCONN: Error = Error::from_errno(-107);
    pub const EHOSTUNREACH: Error = Error::from_errno(-113);
}

pub mod params {
    pub fn use_imm_data() -> bool {
        true
    }

    pub fn max_imm_data() -> u32 {
        512
    }

    pub fn static_read_max() -> u32 {
        0
    }

    pub fn poll_queues() -> u32 {
        0
    }
}

pub mod random {
    pub fn random_u16() -> u16 {
        0x5a
    }

    pub fn random_u32() -> u32 {
        0x5a5a
    }

    pub fn random_u64() -> u64 {
        0x5a5a_5a5a
    }
}

pub mod ratelimit {
    pub struct RateLimit;

    impl RateLimit {
        pub const fn new() -> Self {
            Self
        }

        pub fn allow(&self) -> bool {
            true
        }
    }
}

pub mod topology {
    pub fn num_online_nodes() -> u32 {
        1
    }

    pub fn num_online_cpus() -> u32 {
        2
    }
}

pub mod workqueue {
    /// All work runs in the calling thread.
    pub struct WorkerPool;

    impl WorkerPool {
        pub fn each<T: Sync>(&self, items: &[T], others: &[T], run: impl Fn(&T) + Sync) {
            items.iter().chain(others).for_each(run);
        }
    }
}

/// No trace event has a listener.
pub mod trace {
    macro_rules! trace {
        ($event:ident($($argument:expr),* $(,)?)) => {
            if $crate::trace::OFF {
                let _ = ($($argument,)*);
            }
        };
    }
    pub(crate) use trace;

    pub const OFF: bool = false;

    macro_rules! events {
        ($($event:ident($($argument:ident),*);)*) => {$(
            pub mod $event {
                pub fn is_on() -> bool {
                    false
                }

                #[allow(clippy::too_many_arguments)]
                pub fn log($($argument: impl Sized),*) {
                    let _ = ($($argument,)*);
                }
            }
        )*};
    }

    events! {
        send(host, channel, tag, lun, queue, hw_tag, high, low, len, direction, way, segments);
        response(host, channel, tag, result);
        invalidate(host, channel, tag);
        done(host, channel, tag, result);
    }
}

/// The log is not read.
pub mod log {
    macro_rules! session_log_ratelimited {
        ($level:ident, $session:expr, $($text:tt)+) => {{
            let _ = &$session;
            let _ = format_args!($($text)+);
        }};
    }
    pub(crate) use session_log_ratelimited;
}

pub mod ktime {
    pub use crate::srp::logic::time::Ktime;

    /// Time stands still.
    pub fn ktime_get() -> Ktime {
        Ktime::from_ns(0)
    }
}

/// Counters that affect no decision. Loom does not see them.
pub mod count {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[derive(Default)]
    pub struct Count(AtomicU64);

    impl Count {
        pub fn get(&self) -> u64 {
            self.0.load(Relaxed)
        }

        pub fn increment(&self) {
            self.add_alone(1);
        }

        pub fn add_alone(&self, n: u64) {
            self.0.fetch_add(n, Relaxed);
        }
    }
}
