// SPDX-License-Identifier: GPL-2.0

//! Synthetic events of `rdma_cm` for tests of event handlers.

use super::{
    Event,
    EventHandler, //
};
use crate::bindings;

/// Passes an event to a handler, as the connection manager would.
pub(crate) fn bring<E: EventHandler>(
    handler: &E,
    kind: bindings::rdma_cm_event_type,
    status: i32,
    private_data: &[u8],
) {
    let mut event = bindings::rdma_cm_event {
        event: kind,
        status,
        ..Default::default()
    };
    // SAFETY: The whole union is initialised.
    *unsafe { event.param.conn.as_mut() } = bindings::rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        // CAST: Longer data is cut off.
        private_data_len: private_data.len().min(255) as u8,
        ..Default::default()
    };
    handler.event(Event { event: &event });
}
