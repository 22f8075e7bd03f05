// SPDX-License-Identifier: GPL-2.0

//! Log lines about a port or a session.

use super::status::Status;
use crate::scsi::log::{
    shost_printk,
    Level, //
};
use core::fmt::Arguments;

/// Logs a line about an RDMA port at the level of `$print`, such as `pr_warn`.
macro_rules! port_log {
    ($print:ident, $port:expr, $($text:tt)+) => {
        kernel::$print!(
            "{}:{}: {}\n",
            core::format_args!("{}", $port.device().name()),
            $port.number(),
            core::format_args!($($text)+)
        )
    };
}
pub(crate) use port_log;

impl Status {
    /// Logs a line about the session, with its host as prefix, as in the C driver. Any context.
    pub fn log(&self, level: Level, text: Arguments<'_>) {
        let (port, target) = (self.port(), self.target());
        let (device, port) = (port.device().name(), port.number());
        shost_printk(
            level,
            self.host_number(),
            format_args!("ib_srp: {device}:{port} target {target}: {text}\n"),
        );
    }
}

/// Logs a line about a session, see [`Status::log`].
macro_rules! session_log {
    ($level:ident, $session:expr, $($text:tt)+) => {
        $session.log($crate::scsi::log::Level::$level, core::format_args!($($text)+))
    };
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
