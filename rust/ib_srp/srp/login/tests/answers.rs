// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of answer channels: a target gets the commands, and another one, the cache,
//! responds.

mod readers;
mod testbed;

use super::action;
use crate::{
    rdma::{
        ib_cm::tests::target::{
            Target, //
            Unsolicited,
        },
        tests::{
            check,
            check_eq,
            log::Log,
            peer::within,
            soft::Soft,
            suite, //
        },
    },
    srp::{
        ktime::ktime_get,
        logic::{
            data_path::DataPath,
            state::Life, //
        },
        session::Session,
        tests::messages::{
            get,
            put,
            REQ_LIM, //
        },
    },
};
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use readers::{
    read_all,
    Readers, //
};
use testbed::{
    answer,
    answers,
    channels,
    is_open,
    Recipient,
    Testbed,
    Told, //
};

suite!(
    srp_answers,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        another_one_answers,
        two_queue_pairs_answer,
        both_answer_the_same,
        answers_that_are_none,
        lost_with_a_command,
        nothing_is_written_after_the_end,
        one_that_grants_is_left_out,
    ]
);

fn another_one_answers(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        let session = testbed.log_in("ch_count=2,")?;
        check!(is_open(&session));
        // The cache sees a further channel of the same session. Immediate data is not requested.
        check_eq!(
            (testbed.target.requests(), testbed.cache.requests()),
            (2, 1)
        );
        check_eq!(action(&testbed.cache, 0)?, 1);
        let (first, cache) = (
            testbed.target.request(0)?.data,
            testbed.cache.request(0)?.data,
        );
        check_eq!(get::<32>(&first, 32), get::<32>(&cache, 32));
        check_eq!((first[26], cache[26]), (0, 1));
        check_eq!(session.status().geometry.immediate, 0);

        // All reads go through regions, even small ones.
        let scan = answers(&session)?.counts().commands();
        check!(scan > 0);
        read_all(&session, 512, 50)?;
        read_all(&session, 8192, 50)?;
        let counted = answers(&session)?;
        let counts = counted.counts();
        check_eq!(counts.commands(), scan + 400);
        check_eq!(
            (counts.of(DataPath::Static), counts.dynamic()),
            (0, scan + 400)
        );
        check!(counts.read_bytes() >= 200 * (512 + 8192));
        let all = channels(&session)?;
        let ended: i32 = all.iter().map(|c| c.ended()).sum();
        let own: u64 = all.iter().map(|c| c.counts().commands()).sum();
        // Responses of the target are counted on its channels. `ended` includes all responses.
        check_eq!(ended as u64, own + scan + 400);
        // Each credit returned to the channel that it was taken from.
        for channel in all.iter() {
            check_eq!(channel.credits(), REQ_LIM as i32);
        }
        check_eq!((counted.credits(), counted.ended() as u64), (0, scan + 400));
        check_eq!(session.status().statistics.connections_lost.get(), 0);
        drop((all, counted));
        testbed.stand.end(&session);
        testbed.cache.has_heard(|heard| &heard.disconnected, 1)
    })
}

fn two_queue_pairs_answer(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        testbed.engine.send(Recipient::Either);
        let session = testbed.log_in("")?;
        let before = answers(&session)?.counts().commands();
        for len in [512, 8192] {
            read_all(&session, len, 500)?;
        }
        let (answers, all) = (answers(&session)?, channels(&session)?);
        let here = answers.counts().commands() - before;
        // Both peers answered a part of the commands.
        check!((1000..=3000).contains(&here));
        let own: u64 = all.iter().map(|c| c.counts().commands()).sum();
        check!(own + here >= 4000);
        check_eq!(session.status().statistics.connections_lost.get(), 0);
        check_eq!(all.first().map(|c| c.credits()), Some(REQ_LIM as i32));
        drop((answers, all));
        testbed.stand.end(&session);
        Ok(())
    })
}

/// Number of answered commands with data, on all channels.
fn dynamic(session: &Session) -> Result<u64> {
    let all = channels(session)?;
    let both = Iterator::chain(all.iter(), all.answer_channels().iter());
    Ok(both.map(|c| c.counts().dynamic()).sum())
}

fn both_answer_the_same(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        for round in 0..12 {
            testbed.engine.send(Recipient::Cache);
            let session = testbed.log_in("")?;
            testbed.engine.send(Recipient::Both);
            let before = dynamic(&session)?;
            let len = if round % 2 == 0 { 512 } else { 8192 };
            let readers = Readers::new(&session, len, 1)?;
            readers.read();
            // One answer ended the command, once, and the other one ended the connection.
            let (good, lost, wrong) = readers.ends();
            check_eq!((good + lost, wrong), (1, 0));
            within(|| session.status().statistics.connections_lost.get() == 1)?;
            within(|| session.status().state().is_down())?;
            check_eq!(dynamic(&session)? - before, u64::from(good));
            testbed.engine.send(Recipient::Cache);
            drop(readers);
            testbed.stand.end(&session);
            while testbed.engine.take(0).is_some() {}
        }
        Ok(())
    })
}

/// Changes a response.
fn changed<const N: usize>(told: &Told, at: usize, bytes: [u8; N]) -> [u8; 36] {
    let mut rsp = told.rsp();
    put(&mut rsp, at, bytes);
    rsp
}

/// A message that a cache must not send, for a command that is outstanding or answered.
type Lie = fn(&Target, &Told) -> Result;

const OUT: bool = true;
const ANSWERED: bool = false;

fn answers_that_are_none(soft: &Soft) -> Result {
    const UNKNOWN: &str = "is not outstanding";
    const LIES: [(bool, Lie, &str); 11] = [
        // A second response to a command.
        (
            ANSWERED,
            |c, told| c.post(Unsolicited::Say(&told.rsp())),
            UNKNOWN,
        ),
        // A response to another command: another generation, another slot, channels that do not
        // exist.
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 8, [!told.rsp()[8]]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 14, [0x7f, 0xff]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 12, [0, 1]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 12, [0xff, 0xff]))),
            UNKNOWN,
        ),
        // A response to a task management request or a probe.
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 14, [0x80, 1]))),
            UNKNOWN,
        ),
        // A response with too many credits.
        (
            OUT,
            |c, told| {
                c.post(Unsolicited::Say(&changed(
                    told,
                    4,
                    [0x7f, 0xff, 0xff, 0xff],
                )))
            },
            "credit change 2147483647 out of range",
        ),
        // CRED_REQ, AER_REQ.
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 0, [0x81]))),
            "a request on an answer channel",
        ),
        (
            OUT,
            |c, told| c.post(Unsolicited::Say(&changed(told, 0, [0x82]))),
            "a request on an answer channel",
        ),
        // Bytes that are not a message.
        (
            OUT,
            |c, _| c.post(Unsolicited::Say(&[0xc1])),
            "protocol violation: ",
        ),
        // A SEND that invalidates the key of the command.
        (
            OUT,
            |c, told| {
                let (_, key, _) = told.room().ok_or(EINVAL)?;
                c.post(Unsolicited::Invalidate(&told.rsp(), key))
            },
            "immediate data or invalidation in a message",
        ),
    ];
    Testbed::run(soft, |testbed| {
        for (out, lie, line) in LIES {
            let session = testbed.log_in("")?;
            testbed.engine.send(Recipient::Neither);
            let readers = Readers::new(&session, 512, 1)?;
            let told = told_meanwhile(testbed, &readers)?;
            if !out {
                answer(&testbed.cache, &told)?;
                within(|| readers.done.load(Acquire))?;
            }
            let log = Log::from_now();
            lie(&testbed.cache, &told)?;
            within(|| session.status().statistics.violations.get() == 1)?;
            check_eq!(log.count("connection lost: "), 1);
            check_eq!(log.count(line), 1);
            within(|| readers.done.load(Acquire))?;
            let ends = if out { (0, 1, 0) } else { (1, 0, 0) };
            check_eq!(readers.ends(), ends);
            check_eq!(session.status().statistics.connections_lost.get(), 1);
            testbed.engine.send(Recipient::Cache);
            drop(readers);
            testbed.stand.end(&session);
        }
        // A logout is not a violation.
        let session = testbed.log_in("")?;
        let log = Log::from_now();
        let logout = changed(&Told([0; 64]), 0, [0x80]);
        testbed.cache.post(Unsolicited::Say(&logout))?;
        within(|| session.status().statistics.connections_lost.get() == 1)?;
        check_eq!(log.count("connection lost: logged out by the target: "), 1);
        check_eq!(session.status().statistics.violations.get(), 0);
        testbed.stand.end(&session);
        Ok(())
    })
}

/// Starts a read that gets no response, and returns the command.
fn told_meanwhile(testbed: &Testbed, readers: &Arc<Readers>) -> Result<Told> {
    *testbed.reading.lock() = Some(readers.clone());
    let mut told = None;
    for _ in 0..10_000 {
        told = testbed.engine.take(2);
        if told.is_some() {
            break;
        }
        fsleep(Delta::from_millis(1));
    }
    told.ok_or(ETIMEDOUT)
}

fn lost_with_a_command(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        let session = testbed.log_in("")?;
        testbed.cache.has_heard(|heard| &heard.confirmed, 1)?;
        testbed.engine.send(Recipient::Neither);
        let readers = Readers::new(&session, 8192, 1)?;
        told_meanwhile(testbed, &readers)?;
        let log = Log::from_now();
        testbed.cache.disconnect(0)?;
        within(|| readers.done.load(Acquire))?;
        check_eq!(readers.ends(), (0, 1, 0));
        check_eq!(log.count("the answer channel to "), 1);
        check_eq!(
            log.count("connection lost: connection event: disconnected"),
            1
        );
        // The session reconnects without the answer channel, which follows later.
        within(|| {
            session.status().state().life == Life::Live && !session.status().state().is_lost()
        })?;
        testbed.target.has_heard(|heard| &heard.confirmed, 2)?;
        testbed.engine.send(Recipient::Either);
        within(|| is_open(&session))?;
        within(|| log.count("2 of 2 channels") == 1)?;
        check_eq!(
            (testbed.target.requests(), testbed.cache.requests()),
            (2, 2)
        );
        read_all(&session, 8192, 10)?;
        check_eq!(session.status().statistics.connections_lost.get(), 1);
        drop(readers);
        testbed.stand.end(&session);
        Ok(())
    })
}

/// The cache keeps writing to a command's memory while the target ends the connection.
fn nothing_is_written_after_the_end(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        for _ in 0..8 {
            let session = testbed.log_in("")?;
            let number = testbed.target.requests();
            within(|| testbed.target.heard().confirmed.load(Acquire) as usize == number)?;
            testbed.engine.send(Recipient::Neither);
            let readers = Readers::new(&session, 8192, 1)?;
            let (addr, key, _) = told_meanwhile(testbed, &readers)?.room().ok_or(EINVAL)?;
            let write = || {
                testbed
                    .cache
                    .post(Unsolicited::Write(&[0xa5; 64], addr, key))
            };
            for _ in 0..10 {
                let _ = write();
            }
            testbed.target.disconnect(number - 1)?;
            // Write without a pause, until the cache is disconnected, too.
            let since = ktime_get();
            while !readers.done.load(Acquire) && ktime_get().ms_since(since) < 20_000 {
                let _ = write();
                cpu_relax();
            }
            check_eq!(readers.ends(), (0, 1, 0));
            check_eq!(readers.touched.load(Relaxed), 0);
            testbed.engine.send(Recipient::Cache);
            drop(readers);
            testbed.stand.end(&session);
        }
        Ok(())
    })
}

fn one_that_grants_is_left_out(soft: &Soft) -> Result {
    Testbed::run(soft, |testbed| {
        testbed.grant.0.store(REQ_LIM, Relaxed);
        let log = Log::from_now();
        // The answer channel is refused, so only the target can answer.
        testbed.engine.send(Recipient::Both);
        let session = testbed.log_in("")?;
        check_eq!(session.status().state().life, Life::Live);
        check_eq!(
            log.count(
                "only 0 of 1 answer channels connected: bad login response: \
                 request limit 9 on an answer channel"
            ),
            1
        );
        testbed.cache.has_heard(|heard| &heard.refused, 1)?;
        check!(!is_open(&session));
        // A cache that stops granting credits is accepted.
        testbed.engine.send(Recipient::Neither);
        testbed.grant.0.store(0, Relaxed);
        within(|| is_open(&session))?;
        within(|| log.count("2 of 2 channels") == 1)?;
        testbed.engine.send(Recipient::Cache);
        read_all(&session, 8192, 5)?;
        check_eq!(session.status().statistics.connections_lost.get(), 0);
        testbed.stand.end(&session);
        Ok(())
    })
}
