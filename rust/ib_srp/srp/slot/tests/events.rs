// SPDX-License-Identifier: GPL-2.0

//! The events of a slot, for the KUnit tests and for those on the host.

use super::Event;

/// All events.
pub(super) const ALL: [Event; 9] = [
    Event::Claim,
    Event::Cancel,
    Event::Post,
    Event::Respond,
    Event::Invalidate,
    Event::Finish,
    Event::Abort,
    Event::Fail,
    Event::Drained,
];
