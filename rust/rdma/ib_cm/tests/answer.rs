// SPDX-License-Identifier: GPL-2.0

//! What an answer says of the queue pair, and how far it goes.

use super::{
    path,
    path_rec,
    target::{
        Answer,
        Asked,
        Target, //
    },
    yes,
    Attempt,
    PATTERN, //
};
use crate::{
    bindings,
    rdma::{
        ib_cm::establish,
        link::Link,
        tests::{
            check,
            check_eq,
            soft::Soft, //
        },
        timeout::request_timeout_ms, //
    },
};
use core::cell::Cell;
use kernel::prelude::*;

/// A path of 17 s is to the queue pair what a target with as large a `target_ack_delay` is: the connection manager takes the
/// larger one.
pub(super) fn bounds_what_the_peer_says_of_time(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    let mut slow = path(soft, &path_rec(soft, target.service_id()))?;
    // SAFETY: The record is valid for writing.
    unsafe { (*slow.as_raw()).packet_life_time = 22 };
    attempt.request_along(slow, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    let allowed = attempt.id.confirm(None)?;
    // 5 retries of 4.096 us * 2^20, four times as long, and a second; the next power of two is above 120 s.
    check_eq!(allowed, 86_899);
    let attr = attempt.query(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT)?;
    check_eq!(attr.timeout, 20);
    attempt.id.disconnect();
    target.has_heard(|heard| &heard.disconnected, 1)
}

/// What somebody chose goes into the queue pair as it is; a command has 120 s all the same.
pub(super) fn takes_a_chosen_ack_timeout(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    for (chosen, allowed) in [
        (1, 1000),
        (14, request_timeout_ms(14, 5)),
        (20, 86_899),
        (21, 120_000),
        (31, 120_000),
    ] {
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, target.service_id(), None)?;
        attempt.record.wait(&attempt.record.answers)?;
        check_eq!(
            (chosen, attempt.id.confirm(Some(chosen))?),
            (chosen, allowed)
        );
        let attr = attempt.query(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT)?;
        check_eq!(attr.timeout, chosen);
        attempt.id.disconnect();
    }
    Ok(())
}

/// What the connection manager makes of the `target_ack_delay` of an answer and of the life time of packets: the larger one,
/// and one more if they are about the same.
fn ack_timeout(delay: u8, life: u8) -> u8 {
    let life = life + 1;
    let timeout = if life >= delay {
        life + u8::from(delay >= life - 1)
    } else {
        delay + u8::from(life >= delay - 1)
    };
    timeout.min(31)
}

/// The connection manager takes the delay of its own device for its answers, so the attributes of a real answer get what
/// each other delay would make them. The device has what the time for a command is computed from.
pub(super) fn bounds_every_ack_delay(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    for delay in 0..=31 {
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, target.service_id(), None)?;
        attempt.record.wait(&attempt.record.answers)?;
        let said = Cell::new(0);
        let agreed = |attr: &mut bindings::ib_qp_attr, mask: &mut c_int| {
            attempt.id.agreed(attr, mask)?;
            // Of rxe, and of RoCE.
            if delay == 0 && attr.qp_state == bindings::ib_qp_state_IB_QPS_RTS {
                check_eq!(attr.timeout, ack_timeout(15, 16));
            }
            attr.timeout = ack_timeout(delay, 16);
            said.set(attr.timeout);
            Ok(())
        };
        // SAFETY: It is that of the attempt, which has an answer.
        let allowed = unsafe { establish(attempt.qp, 3, None, agreed) }?;
        let attr = attempt.query(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT)?;
        // 5 retries, as asked for: 4.3 s each are the most.
        check_eq!((delay, attr.timeout), (delay, said.get().min(20)));
        check_eq!(allowed, request_timeout_ms(attr.timeout, 5));
        check!(allowed <= 120_000);
    }
    Ok(())
}

/// A target that begins or answers more RDMA reads than it was asked to has as many as it was asked to.
pub(super) fn bounds_rdma_depths(soft: &Soft) -> Result {
    for (said, reads) in [
        // As LIO and the InfiniBand specification have it.
        ([4, 4], 3),
        ([3, 0], 3),
        ([2, 0], 2),
        ([0, 0], 0),
        // More than any device has.
        ([255, 0], 3),
        ([3, 255], 3),
        ([255, 255], 3),
    ] {
        let script = move |_: usize, _: &Asked| Answer::Accept([PATTERN; 196], 196, said);
        let target = Target::new(&soft.device, script)?;
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, target.service_id(), None)?;
        attempt.record.wait(&attempt.record.answers)?;
        check_eq!(
            (
                said,
                attempt.id.confirm(None).map_err(Error::to_errno).err()
            ),
            (said, None)
        );
        let attr = attempt.query(
            bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC
                | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
        )?;
        // rxe takes the next power of two.
        let reads = match reads {
            0 => 0,
            reads => u8::next_power_of_two(reads),
        };
        check_eq!(
            (said, attr.max_dest_rd_atomic, attr.max_rd_atomic),
            (said, reads, 0)
        );
    }
    Ok(())
}
