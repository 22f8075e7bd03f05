// SPDX-License-Identifier: GPL-2.0

//! Log lines about a port or a session.

/// Logs a line about an RDMA port at the level of `$print`, such as `pr_warn`.
macro_rules! port_log {
    ($print:ident, $port:expr, $($text:tt)+) => {
        kernel::$print!(
            "{}: {}\n",
            core::format_args!("{}", $port.name()),
            core::format_args!($($text)+)
        )
    };
}
pub(crate) use port_log;

/// Logs a line about a session, with its host as prefix, as in the C driver.
macro_rules! session_log {
    ($level:ident, $session:expr, $($text:tt)+) => {{
        let session = &*$session;
        $crate::scsi::log::shost_printk(
            $crate::scsi::log::Level::$level,
            session.host_number(),
            core::format_args!("ib_srp: {}: {}\n", session.name(), core::format_args!($($text)+)),
        )
    }};
}
pub(crate) use session_log;

/// As `session_log`, with a [`RateLimit`](crate::ratelimit::RateLimit) for each call site.
macro_rules! session_log_ratelimited {
    ($level:ident, $session:expr, $($text:tt)+) => {{
        static LIMIT: $crate::ratelimit::RateLimit = $crate::ratelimit::RateLimit::new();
        if LIMIT.allow() {
            $crate::srp::log::session_log!($level, $session, $($text)+)
        }
    }};
}
pub(crate) use session_log_ratelimited;
