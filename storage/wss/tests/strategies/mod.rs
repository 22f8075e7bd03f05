// SPDX-License-Identifier: GPL-2.0

//! Strategy for any valid message.

use proptest::{collection::vec, prelude::*};
use srp_target::proto::cmd::DirectBuf;
use wss::message::*;

pub fn status() -> impl Strategy<Value = Status> {
    use Status::*;
    prop::sample::select(vec![
        Good, Answered, Lost, Stale, Invalid, ReadError, WriteError, Full,
    ])
}

pub fn scope() -> impl Strategy<Value = Scope> {
    prop::sample::select(vec![Scope::Session, Scope::Member, Scope::All])
}

pub fn transfer() -> impl Strategy<Value = Transfer> {
    let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), 1..u32::MAX);
    (numbers, any::<bool>(), any::<u64>(), any::<u32>()).prop_map(
        |((id, object, at, blocks), stable, va, key)| Transfer {
            id,
            object,
            at,
            blocks,
            stable,
            va,
            key,
        },
    )
}

pub fn extent() -> impl Strategy<Value = Extent> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), 1..u32::MAX);
    (numbers, any::<u64>()).prop_map(|((store, object, at, blocks), epoch)| Extent {
        store,
        object,
        at,
        blocks,
        epoch,
    })
}

pub fn descriptor() -> impl Strategy<Value = DirectBuf> {
    (any::<u64>(), any::<u32>(), any::<u32>())
        .prop_map(|(va, key, len)| DirectBuf::new(va, key, len))
}

pub fn zero() -> impl Strategy<Value = Zero> {
    prop::sample::select(vec![Zero::Write, Zero::Unmap])
}

pub fn exec() -> impl Strategy<Value = Exec> {
    let head = (
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        any::<i32>(),
    );
    let lists = (
        vec(extent(), 1..=EXTENTS),
        vec(descriptor(), 0..=DESCRIPTORS),
    );
    (head, any::<[bool; 4]>(), prop::option::of(zero()), lists).prop_map(
        |((id, session, tag, room, credits), [write, answer, stable, direct], zero, lists)| Exec {
            id,
            session,
            write: write || zero.is_some(),
            answer: answer && zero.is_none(),
            stable,
            direct: direct && answer && zero.is_none(),
            zero,
            tag,
            room,
            credits,
            extents: lists.0,
            descriptors: if zero.is_some() { Vec::new() } else { lists.1 },
        },
    )
}

pub fn message() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec![Role::Se, Role::Ce]);
    prop_oneof![
        (role, any::<u32>(), any::<u64>()).prop_map(|(role, member, epoch)| Message::Attach {
            role,
            member,
            epoch
        }),
        (status(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(status, number, epoch, boot)| Message::Attached {
                status,
                number,
                epoch,
                boot,
            }
        ),
        (any::<u64>(), any::<[u8; 16]>())
            .prop_map(|(id, initiator)| Message::Join { id, initiator }),
        (status(), any::<u64>(), any::<u64>()).prop_map(|(status, id, session)| Message::Joined {
            status,
            id,
            session
        }),
        (status(), any::<u64>(), any::<u64>()).prop_map(|(status, id, session)| Message::Left {
            status,
            id,
            session
        }),
        exec().prop_map(Message::Exec),
        (status(), any::<u64>(), any::<u64>()).prop_map(|(status, id, value)| Message::Done {
            status,
            id,
            value
        }),
        any::<u64>().prop_map(|id| Message::Cancel { id }),
        any::<u64>().prop_map(|id| Message::Cancelled { id }),
        (scope(), any::<u32>(), any::<u64>()).prop_map(|(scope, member, epoch)| Message::Fence {
            scope,
            member,
            epoch
        }),
        (scope(), any::<u32>(), any::<u64>()).prop_map(|(scope, member, epoch)| {
            Message::Fenced {
                scope,
                member,
                epoch,
            }
        }),
        transfer().prop_map(Message::Get),
        transfer().prop_map(Message::Put),
        (transfer(), zero())
            .prop_map(|(t, how)| Message::Zero(Transfer { va: 0, key: 0, ..t }, how)),
        (any::<u64>(), any::<u32>()).prop_map(|(id, object)| Message::Open { id, object }),
        (any::<u64>(), any::<u32>()).prop_map(|(id, object)| Message::Flush { id, object }),
        Just(Message::Alive),
        (1u32..).prop_map(|count| Message::Grant { count }),
    ]
}
