// SPDX-License-Identifier: GPL-2.0

//! The trace events of `include/srp_trace.h`.
//!
//! The arguments are numbers, except in `lost`, so that an event forces no local variable into
//! memory. Any context.

use crate::tracepoint::{
    trace_events,
    Text, //
};

/// `trace!(event(argument, ...))` logs an event of this module if it is enabled.
macro_rules! trace {
    ($event:ident($($argument:expr),* $(,)?)) => {
        if $crate::trace::$event::is_on() {
            $crate::trace::$event::log($($argument),*);
        }
    };
}
pub(crate) use trace;

trace_events! {
    /// A command is being posted.
    send(
        host: u32, channel: u16, tag: u64, lun: u64, hw_queue: u16, hw_tag: u16, cdb_high: u64,
        cdb_low: u64, len: u32, direction: u8, way: u8, segments: u16);
    /// The target has responded, or its response is not needed.
    response(host: u32, channel: u16, tag: u64, result: u32);
    /// The invalidation of the command's memory is being posted.
    invalidate(host: u32, channel: u16, tag: u64);
    /// The midlayer gets the command back.
    done(host: u32, channel: u16, tag: u64, result: u32);
    /// A task management request is posted.
    task(host: u32, channel: u16, tag: u64, function: u8, lun: u64, task_tag: u64);
    /// A task management request has ended: with the target's status, or a negative error number.
    task_done(host: u32, channel: u16, tag: u64, status: i32);
    /// A channel has opened or closed.
    channel(host: u32, channel: u16, open: bool, credits: i32);
    /// A session has changed its state.
    session(host: u32, id_ext: u64, ioc_guid: u64, from: u8, to: u8);
    /// A session has lost its connection.
    lost(host: u32, why: &Text);
}
