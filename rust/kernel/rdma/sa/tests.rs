// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of queries to the subnet administrator. RoCE ports have none, so the core refuses
//! real queries, and the tests call the callback instead.

use super::{
    super::path::raw_gid,
    *, //
};
use crate::rdma::{
    device::Gid,
    tests::{
        check,
        check_eq,
        soft::Soft,
        suite, //
    }, //
};

suite!(
    srp_rdma_sa,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        is_refused_on_roce,
        asks_by_both_ends,
        answers,
        a_path_takes_seconds_at_most,
        the_first_answer_counts,
        waits_for_an_answer,
    ]
);

const DGID: Gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn path_rec(soft: &Soft) -> Result<PathRec> {
    Ok(PathRec {
        sgid: soft.device.gid(1, 0)?,
        dgid: DGID,
        pkey: 0xffff,
        service_id: 7,
    })
}

/// A refused query leaks nothing, whether or not there is such a port.
fn is_refused_on_roce(soft: &Soft) -> Result {
    let rec = path_rec(soft)?;
    for port in [0, 1, 2, u32::MAX] {
        for opa in [false, true] {
            let query = Query::start(&soft.device, port, &rec, opa, 1000);
            check_eq!(query.err(), Some(ENODEV));
        }
    }
    Ok(())
}

/// The core sends the mask in memory order.
fn asks_by_both_ends(_: &Soft) -> Result {
    check_eq!(ASKED.to_ne_bytes(), [0, 0, 0, 0, 0, 0, 0x30, 0x0f]);
    Ok(())
}

/// Creates a query that is unknown to the core.
fn query(soft: &Soft) -> Result<Pin<KBox<Query>>> {
    let record = path_rec(soft)?.to_raw(bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB);
    let device = soft.device.hold()?;
    KBox::pin_init(
        pin_init!(Query {
            // INVARIANT: `client` is registered here.
            client <- Opaque::ffi_init(|slot: *mut bindings::ib_sa_client| {
                // SAFETY: `slot` is valid for writing.
                unsafe { bindings::ib_sa_register_client(slot) }
            }),
            id: Atomic::new(-1),
            query: Atomic::new(null_mut()),
            record: UnsafeCell::new(record),
            result <- QueryResult::new(),
            port: 1,
            device,
            _pin: PhantomPinned,
        }),
        GFP_KERNEL,
    )
}

/// Calls the callback as the core would, with one record or none.
fn bring(query: &Query, status: i32, record: Option<bindings::sa_path_rec>) {
    let count = u32::from(record.is_some());
    bring_count(query, status, record, count);
}

/// Like [`bring`], but passes `count` as the number of records.
fn bring_count(query: &Query, status: i32, record: Option<bindings::sa_path_rec>, count: u32) {
    let mut record = record;
    let records = record
        .as_mut()
        .map_or(null_mut(), |record| &raw mut *record);
    let context = core::ptr::from_ref(query).cast_mut().cast();
    // SAFETY: The context is a query, and there are at least `count` records.
    unsafe { Query::answer_callback(status, records, count, context) };
}

fn record(soft: &Soft, last: u8) -> Result<bindings::sa_path_rec> {
    let mut record = path_rec(soft)?.to_raw(bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB);
    let mut dgid = DGID;
    dgid[15] = last;
    (record.dgid, record.pkey) = (raw_gid(dgid), 0x8001u16.to_be());
    Ok(record)
}

fn answers(soft: &Soft) -> Result {
    let found = query(soft)?;
    bring(&found, 0, Some(record(soft, 9)?));
    let path = found.wait(0)?.ok_or(ENOENT)??;
    check_eq!(path.dgid()[15], 9);
    check_eq!(path.sgid(), soft.device.gid(1, 0)?);
    check_eq!(path.pkey(), 0x8001);
    // The result can be taken only once.
    check!(found.wait(0)?.is_none());

    // An error, with or without a record; no record; a positive status, which is undefined.
    let failures = [
        (-110, None, ETIMEDOUT),
        (-4, Some(record(soft, 9)?), EINTR),
        (-22, None, EINVAL),
        (0, None, EIO),
        (5, Some(record(soft, 9)?), EIO),
    ];
    for (status, record, error) in failures {
        let failed = query(soft)?;
        bring(&failed, status, record);
        let answer = failed.wait(0)?.ok_or(ENOENT)?;
        check_eq!(answer.err(), Some(error));
    }
    let empty = query(soft)?;
    bring_count(&empty, 0, Some(record(soft, 9)?), 0);
    check_eq!(empty.wait(0)?.ok_or(ENOENT)?.err(), Some(EIO));
    Ok(())
}

/// The connection manager waits for twice the packet life time.
fn a_path_takes_seconds_at_most(soft: &Soft) -> Result {
    for (life, taken) in [
        (0, 0),
        (18, 18),
        (20, 20),
        (21, 20),
        (31, 20),
        (63, 20),
        (255, 20),
    ] {
        let found = query(soft)?;
        let mut record = record(soft, 1)?;
        record.packet_life_time = life;
        bring(&found, 0, Some(record));
        let mut path = found.wait(0)?.ok_or(ENOENT)??;
        // SAFETY: `as_raw()` points to the record of `path`.
        check_eq!(unsafe { (*path.as_raw()).packet_life_time }, taken);
    }
    Ok(())
}

/// A query that is cancelled just after its reply gets two callbacks.
fn the_first_answer_counts(soft: &Soft) -> Result {
    let twice = query(soft)?;
    bring(&twice, 0, Some(record(soft, 1)?));
    bring(&twice, -4, None);
    let path = twice.wait(0)?.ok_or(ENOENT)??;
    check_eq!(path.dgid()[15], 1);
    // The second callback is also ignored after the first result was taken.
    let late = query(soft)?;
    bring(&late, -110, None);
    check!(late.wait(0)?.is_some());
    bring(&late, 0, Some(record(soft, 2)?));
    check!(late.wait(0)?.is_none());
    Ok(())
}

fn waits_for_an_answer(soft: &Soft) -> Result {
    let query = query(soft)?;
    check!(query.wait(10)?.is_none());
    check!(query.wait(0)?.is_none());
    bring(&query, 0, Some(record(soft, 3)?));
    check!(query.wait(10)?.is_some());
    Ok(())
}
