// SPDX-License-Identifier: GPL-2.0

//! The queue pair attributes that a reply determines, and their limits.

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
        cm_id::CmId,
        ib_cm::establish,
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

/// The connection manager takes the larger of the packet life time and `target_ack_delay`, so a
/// packet life time of 17 s has the effect of such a delay.
pub(super) fn bounds_what_the_peer_says_of_time(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    let attempt = Attempt::new(soft)?;
    let mut slow = path(soft, &path_rec(soft, target.service_id()))?;
    // SAFETY: The record is valid for writing.
    unsafe { (*slow.as_raw()).packet_life_time = 22 };
    attempt.request_along(slow, target.service_id(), None)?;
    attempt.record.wait(&attempt.record.answers)?;
    let allowed = attempt.id.confirm(None)?;
    // 5 retries of four times 4.096 us * 2^20 each, plus one second; 2^21 would exceed 120 s.
    check_eq!(allowed, 86_899);
    let attr = attempt.query(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT)?;
    check_eq!(attr.timeout, 20);
    attempt.id.disconnect();
    target.has_heard(|heard| &heard.disconnected, 1)
}

/// A chosen timeout goes into the queue pair unchanged; a command still has at most 120 s.
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

/// The connection manager's ACK timeout for the `target_ack_delay` of a reply and a packet life
/// time: the larger one, plus one if they are about the same.
fn ack_timeout(delay: u8, life: u8) -> u8 {
    let life = life + 1;
    let timeout = if life >= delay {
        life + u8::from(delay >= life - 1)
    } else {
        delay + u8::from(life >= delay - 1)
    };
    timeout.min(31)
}

/// The connection manager sends the delay of its own device in replies, so this test replaces the
/// timeout of a real reply. The time for a command must match the timeout in the device.
pub(super) fn bounds_every_ack_delay(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, yes)?;
    for delay in 0..=31 {
        let attempt = Attempt::new(soft)?;
        attempt.request(soft, target.service_id(), None)?;
        attempt.record.wait(&attempt.record.answers)?;
        let said = Cell::new(0);
        let agreed = |attr: &mut bindings::ib_qp_attr, mask: &mut c_int| {
            attempt.id.agreed(attr, mask)?;
            // 15 is the delay of rxe, 16 the packet life time of RoCE.
            if delay == 0 && attr.qp_state == bindings::ib_qp_state_IB_QPS_RTS {
                check_eq!(attr.timeout, ack_timeout(15, 16));
            }
            attr.timeout = ack_timeout(delay, 16);
            said.set(attr.timeout);
            Ok(())
        };
        // SAFETY: `attempt` keeps its queue pair valid.
        let allowed = unsafe { establish(attempt.qp, 3, None, agreed) }?;
        let attr = attempt.query(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT)?;
        // 5 retries, as requested: 4.3 s each at most.
        check_eq!((delay, attr.timeout), (delay, said.get().min(20)));
        check_eq!(allowed, request_timeout_ms(attr.timeout, 5));
        check!(allowed <= 120_000);
    }
    Ok(())
}

/// A target that replies with larger RDMA read depths than requested gets the requested ones.
pub(super) fn bounds_rdma_depths(soft: &Soft) -> Result {
    for (said, reads) in [
        // The reply of LIO, as the InfiniBand specification says.
        ([4, 4], 3),
        ([3, 0], 3),
        ([2, 0], 2),
        ([0, 0], 0),
        // More than any device supports.
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
        // rxe rounds up to a power of two.
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
