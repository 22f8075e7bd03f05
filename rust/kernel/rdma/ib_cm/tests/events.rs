// SPDX-License-Identifier: GPL-2.0

//! Synthetic events, passed to the callback of the connection manager.

use super::{
    Id,
    Record,
    PATTERN,
    PKEY, //
};
use crate::{
    bindings,
    errno::ENOTCONN,
    rdma::{
        ib_cm::{
            state::{
                self,
                Report,
                State, //
            },
            Raw, //
        },
        tests::{
            check_eq,
            soft::Soft, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed, //
        },
        Arc, //
    },
};

/// Index of each report in [`all_counts`].
const ANSWER: Option<usize> = Some(0);
const REFUSAL: Option<usize> = Some(1);
const SILENCE: Option<usize> = Some(2);
const END: Option<usize> = Some(3);
const EXIT: Option<usize> = Some(4);
const DELAY: Option<usize> = Some(5);

/// The index of the reported event in [`all_counts`], if any, and the next state.
type Effect = (Option<usize>, State);

/// No effect, in each state.
const NOTHING: [Effect; 5] = [
    (None, State::Idle),
    (None, State::ReqSent),
    (None, State::RepRcvd),
    (None, State::Established),
    (None, State::Over),
];

/// The effects of an event that ends the attempt or connection, by state.
const ENDS: [Effect; 5] = [
    (None, State::Idle),
    (END, State::Over),
    (END, State::Over),
    (END, State::Over),
    (None, State::Over),
];

/// Returns [`NOTHING`], except for `effect` in `state`.
const fn only(state: State, effect: Effect) -> [Effect; 5] {
    let mut effects = NOTHING;
    effects[state as usize] = effect;
    effects
}

/// Each kind of event, and its effect in each state.
const EFFECTS: [(bindings::ib_cm_event_type, [Effect; 5]); 14] = [
    (
        bindings::ib_cm_event_type_IB_CM_REP_RECEIVED,
        only(State::ReqSent, (ANSWER, State::RepRcvd)),
    ),
    (
        bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED,
        [
            (None, State::Idle),
            (REFUSAL, State::Over),
            (END, State::Over),
            (END, State::Over),
            (None, State::Over),
        ],
    ),
    (
        bindings::ib_cm_event_type_IB_CM_REQ_ERROR,
        only(State::ReqSent, (SILENCE, State::Over)),
    ),
    (bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED, ENDS),
    (bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED, ENDS),
    (bindings::ib_cm_event_type_IB_CM_DREQ_ERROR, ENDS),
    (
        bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT,
        [
            (None, State::Idle),
            (END, State::Over),
            (END, State::Over),
            (END, State::Over),
            (EXIT, State::Over),
        ],
    ),
    (
        bindings::ib_cm_event_type_IB_CM_MRA_RECEIVED,
        only(State::ReqSent, (DELAY, State::ReqSent)),
    ),
    // Events that an active side does not get.
    (bindings::ib_cm_event_type_IB_CM_REQ_RECEIVED, NOTHING),
    (bindings::ib_cm_event_type_IB_CM_REP_ERROR, NOTHING),
    (bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED, NOTHING),
    (bindings::ib_cm_event_type_IB_CM_USER_ESTABLISHED, NOTHING),
    (bindings::ib_cm_event_type_IB_CM_LAP_RECEIVED, NOTHING),
    (bindings::ib_cm_event_type_IB_CM_SIDR_REP_RECEIVED, NOTHING),
];

/// Creates an event as the connection manager does.
fn synthetic(kind: bindings::ib_cm_event_type, data: &[u8; 256]) -> bindings::ib_cm_event {
    bindings::ib_cm_event {
        event: kind,
        private_data: data.as_ptr().cast_mut().cast(),
        ..Default::default()
    }
}

/// Passes an event to the callback.
fn bring(id: &Id<Record>, event: &bindings::ib_cm_event) -> Result {
    // SAFETY: The identifier is ours, and the event has the private data of its kind.
    check_eq!(
        unsafe { Raw::<Record>::event_callback(id.as_raw(), event) },
        0
    );
    Ok(())
}

/// Creates an attempt in `state`, without a peer.
fn attempt(soft: &Soft, state: State) -> Result<(Arc<Record>, Arc<Id<Record>>)> {
    let record = Record::new()?;
    let id = Id::new(&soft.device, 1, PKEY, record.clone())?;
    let shared = &id.raw.shared;
    let steps: &[state::Input] = match state {
        State::Idle => &[],
        State::ReqSent => &[state::Input::SendReq],
        State::RepRcvd => &[state::Input::SendReq, state::Input::Rep],
        State::Established => &[
            state::Input::SendReq,
            state::Input::Rep,
            state::Input::SendRtu,
        ],
        State::Over => &[state::Input::SendReq, state::Input::Hangup],
    };
    for step in steps {
        let report = match step {
            state::Input::Rep => Report::Answer,
            _ => Report::Nothing,
        };
        check_eq!(shared.note(*step), Ok(report));
    }
    check_eq!(shared.state.load(Acquire), state as u32);
    Ok((record, id))
}

/// Returns [`Record::counts`], followed by the number of MRAs from the target.
fn all_counts(record: &Record) -> [u32; 6] {
    let [answers, refusals, silences, ends, exits] = record.counts();
    let delays = record.delays.load(Acquire);
    [answers, refusals, silences, ends, exits, delays]
}

/// Passes every sequence of three events in each initial state.
pub(super) fn in_every_order(soft: &Soft) -> Result {
    let data = [PATTERN; 256];
    for begin in State::ALL {
        for sequence in 0..EFFECTS.len().pow(3) {
            let (record, id) = attempt(soft, begin)?;
            let mut state = begin;
            let mut counts = [0; 6];
            let mut left = sequence;
            for _ in 0..3 {
                let (kind, effects) = EFFECTS.get(left % EFFECTS.len()).ok_or(EINVAL)?;
                left /= EFFECTS.len();
                let (told, after) = effects.get(state as usize).ok_or(EINVAL)?;
                bring(&id, &synthetic(*kind, &data))?;
                if let Some(count) = told.and_then(|place| counts.get_mut(place)) {
                    *count += 1;
                }
                state = *after;
                check_eq!(
                    (kind, all_counts(&record), id.raw.shared.state.load(Acquire)),
                    (kind, counts, state as u32)
                );
            }
            check_eq!(record.wrong.load(Relaxed), 0);
        }
    }
    Ok(())
}

/// Passes rejects with various reasons and claimed lengths of additional information.
pub(super) fn rejects(soft: &Soft) -> Result {
    let data = [PATTERN; 256];
    for reason in Iterator::chain(0..=40, [u16::MAX]) {
        for claimed in [0, 1, 16, 71, 72, 73, 127, 255] {
            let (record, id) = attempt(soft, State::ReqSent)?;
            let mut event = synthetic(bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED, &data);
            // SAFETY: The event is a reject, which has this field.
            *unsafe { event.param.rej_rcvd.as_mut() } = bindings::ib_cm_rej_event_param {
                reason: reason.into(),
                ari: data.as_ptr().cast_mut().cast(),
                ari_length: claimed,
            };
            bring(&id, &event)?;
            bring(&id, &event)?;
            check_eq!(record.counts(), [0, 1, 0, 0, 0]);
            check_eq!(record.reason.load(Relaxed), u32::from(reason));
            check_eq!(record.info.load(Relaxed), u32::from(claimed.min(72)));
            check_eq!(record.wrong.load(Relaxed), 0);
            check_eq!(id.confirm(None), Err(ENOTCONN));
        }
    }
    Ok(())
}
