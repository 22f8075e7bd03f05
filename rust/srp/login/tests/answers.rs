// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of answer channels: a target that gets the commands, and another one, the cache, that answers them.

use super::{
    action,
    defaults,
    Connected, //
};
use crate::{
    random::random_u32,
    rdma::{
        ib_cm::tests::target::{
            Answer,
            Asked,
            Deed,
            Script,
            Target, //
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
    scsi::tests::unit::Unit,
    srp::{
        channel::Connection,
        channels::Channels,
        connect::{
            AnswersFrom,
            Destination,
            Service, //
        },
        front::scsi::Io,
        geometry::Geometry,
        ktime::ktime_get,
        logic::session::Life,
        proto::{
            guid::Gid,
            options::Options, //
        },
        session::Session,
        tests::{
            messages::{
                get,
                login_rsp,
                put,
                CMD,
                REQ_LIM, //
            },
            stand::Stand, //
        },
    },
    sync::{
        new_spinlock_irq,
        race::{
            self,
            race,
            Context, //
        },
        SpinLockIrq, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
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

/// Standard INQUIRY data of a processor device.
const INQUIRY_DATA: &[u8; 36] = b"\x03\x00\x05\x02\x1f\x00\x00\x00SRP-RS  ANSWERS         0001";
/// A list of LUN 0.
const LUNS: [u8; 16] = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// An operation of nobody, with a number behind it; its data begins with what the number says.
const READ: u8 = 0xc8;
/// The bytes of [`READ`] that are looked at.
const DATA: usize = 64;
/// As the midlayer has it.
const DID_RESET: i32 = 8 << 16;

/// A command, as far as it is of interest.
#[derive(Clone, Copy)]
struct Told([u8; 64]);

impl Told {
    fn new(message: &[u8]) -> Self {
        Self(get(message, 0))
    }

    fn tag(&self) -> u64 {
        u64::from_be_bytes(get(&self.0, 8))
    }

    /// A task, or a probe, which look like one.
    fn is_task(&self) -> bool {
        self.tag() & 0x8000 != 0
    }

    /// Address, key and length of what is to be written.
    fn room(&self) -> Option<(u64, u32, u32)> {
        let at = |at| u32::from_be_bytes(get(&self.0, at));
        let [formats] = get(&self.0, 5);
        (formats & 15 == 1).then(|| (u64::from_be_bytes(get(&self.0, 48)), at(56), at(60)))
    }

    /// The data, what it ends with.
    fn data(&self) -> ([u8; DATA], usize) {
        let mut data = [0; DATA];
        let [opcode, flag] = get(&self.0, 32);
        let from: &[u8] = match (opcode, flag) {
            (0x12, 0) => INQUIRY_DATA,
            (0xa0, _) => &LUNS,
            (READ, _) => return (pattern(u32::from_be_bytes(get(&self.0, 34))), DATA),
            _ => &[],
        };
        for (to, from) in data.iter_mut().zip(from) {
            *to = *from;
        }
        (data, from.len())
    }

    /// `SRP_RSP` with GOOD status.
    fn rsp(&self) -> [u8; 36] {
        let mut rsp = [0; 36];
        put(&mut rsp, 0, [0xc1]);
        put(&mut rsp, 4, 1u32.to_be_bytes());
        put(&mut rsp, 8, get::<8>(&self.0, 8));
        let [opcode] = get(&self.0, 32);
        if let (Some((_, _, room)), false) = (self.room(), opcode == READ) {
            let left = room.saturating_sub(self.data().1 as u32);
            put(&mut rsp, 18, [if left > 0 { 1 << 5 } else { 0 }]);
            put(&mut rsp, 24, left.to_be_bytes());
        }
        rsp
    }
}

/// What [`READ`] of a number begins with.
fn pattern(number: u32) -> [u8; DATA] {
    let mut data = [0; DATA];
    for (at, byte) in data.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9) >> (at % 4 * 8)) as u8 ^ at as u8;
    }
    data
}

/// Who gets the commands with data.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Way {
    Cache,
    Either,
    Both,
    Nobody,
}

/// Commands that wait for somebody.
type Waiting = Pin<KBox<SpinLockIrq<KVec<Told>>>>;

/// The target, and what it has told the others.
struct Engine {
    way: Atomic<u32>,
    /// For the target itself, the cache, and nobody.
    waiting: [Waiting; 3],
}

impl Engine {
    fn new() -> Result<Arc<Self>> {
        let list = || -> Result<Waiting> {
            let list = KVec::with_capacity(64, GFP_KERNEL)?;
            Ok(KBox::pin_init(new_spinlock_irq!(list), GFP_KERNEL)?)
        };
        let this = Self {
            way: Atomic::new(Way::Cache as u32),
            waiting: [list()?, list()?, list()?],
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn send(&self, way: Way) {
        self.way.store(way as u32, Relaxed);
    }

    fn take(&self, place: usize) -> Option<Told> {
        self.waiting.get(place)?.lock().pop()
    }

    fn put(&self, place: usize, told: Told) {
        if let Some(list) = self.waiting.get(place) {
            // There are never so many.
            let _ = list.lock().push_within_capacity(told);
        }
    }
}

impl Script for Arc<Engine> {
    fn asked(&self, _: usize, request: &Asked) -> Answer {
        Answer::accept(&login_rsp(request))
    }

    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        let [opcode] = get(message, 0);
        if usize::from(opcode) != CMD {
            return 0;
        }
        let told = Told::new(message);
        if told.is_task() || told.room().is_none() {
            let rsp = told.rsp();
            put(reply, 0, rsp);
            return rsp.len();
        }
        let [target, cache, nobody] = [0, 1, 2];
        match self.way.load(Relaxed) {
            way if way == Way::Cache as u32 => self.put(cache, told),
            way if way == Way::Either as u32 => self.put(random_u32() as usize % 2, told),
            way if way == Way::Both as u32 => {
                self.put(target, told);
                self.put(cache, told);
            }
            _ => self.put(nobody, told),
        }
        0
    }
}

/// The cache: the credits that it grants.
struct Cache(Atomic<u32>);

impl Script for Arc<Cache> {
    fn asked(&self, _: usize, request: &Asked) -> Answer {
        let mut rsp = login_rsp(request);
        put(&mut rsp, 4, self.0.load(Relaxed).to_be_bytes());
        Answer::accept(&rsp)
    }
}

/// Both, an initiator, and what is to happen.
struct Play {
    stand: Stand,
    target: Target,
    cache: Target,
    engine: Arc<Engine>,
    grant: Arc<Cache>,
    reading: Pin<KBox<Mutex<Option<Arc<Readers>>>>>,
    over: Atomic<bool>,
}

impl Play {
    fn act(soft: &Soft, body: fn(&Play) -> Result) -> Result {
        let engine = Engine::new()?;
        let grant = Arc::new(Cache(Atomic::new(0)), GFP_KERNEL)?;
        let play = Self {
            stand: Stand::new(soft)?,
            target: Target::new(&soft.device, engine.clone())?,
            cache: Target::new(&soft.device, grant.clone())?,
            engine,
            grant,
            reading: KBox::pin_init(new_mutex!(None), GFP_KERNEL)?,
            over: Atomic::new(false),
        };
        let play = Arc::new(play, GFP_KERNEL)?;
        let contexts: [Context<Play>; 3] = [Self::target, Self::cache, Self::reader];
        let others = race::begin(&play, &contexts)?;
        let result = body(&play);
        play.over.store(true, Release);
        others.wait()?;
        result
    }

    /// The target, where it answers commands with data.
    fn target(&self) {
        self.serve(0, &self.target);
    }

    fn cache(&self) {
        self.serve(1, &self.cache);
    }

    /// Reads, while the body does something else.
    fn reader(&self) {
        while !self.over.load(Acquire) {
            let readers = self.reading.lock().take();
            match readers {
                Some(readers) => readers.read(),
                None => fsleep(Delta::from_millis(1)),
            }
        }
    }

    fn serve(&self, place: usize, by: &Target) {
        while !self.over.load(Acquire) {
            match self.engine.take(place) {
                // It may have been lost meanwhile.
                Some(told) => {
                    let _ = answer(by, &told);
                }
                None => fsleep(Delta::from_micros(20)),
            }
        }
    }

    /// Logs in, with the cache as who answers.
    fn log_in(&self, more: &str) -> Result<Arc<Session>> {
        let text = self.stand.text(&self.target, more)?;
        let mut options = Options::parse(text.to_bytes(), &defaults()).map_err(|_| EINVAL)?;
        // The option is for logins of another kind; it is the number that counts.
        let other = b"id_ext=1,ioc_guid=2,dest=10.0.0.9:1,answers_from=10.0.0.9:2";
        let other = Options::parse(other, &defaults()).map_err(|_| EINVAL)?;
        let port = self.stand.sessions.port();
        let mut plan = super::super::plan(port, &options)?;
        options.answers_from = other.answers_from;
        let gid = Gid(port.device().gid(1, 0)?);
        let service = Service::new(gid, 0xffff, self.cache.service_id(), false)?;
        plan.answers_from
            .push(AnswersFrom::new(Destination::Ib(service))?, GFP_KERNEL)?;
        let geometry = Geometry::new(&options, port.device().limits())?;
        let session = self.stand.sessions.begin(options.key(), plan, geometry)?;
        let host = |connected: &Connected<'_>| Io::host(connected, &options);
        let result = super::super::connect(&self.stand.sessions, &session, &options, host);
        result.map(|()| session.clone()).map_err(|why| {
            pr_err!("{}\n", format_args!("{why:?}"));
            self.stand.end(&session);
            why.errno()
        })
    }
}

/// Writes the data of a command and answers it.
fn answer(by: &Target, told: &Told) -> Result {
    let (data, len) = told.data();
    if let Some((addr, key, room)) = told.room() {
        let data = data.get(..len.min(room as usize)).unwrap_or(&[]);
        if !data.is_empty() {
            by.act(Deed::Write(data, addr, key))?;
        }
    }
    by.act(Deed::Say(&told.rsp()))
}

fn channels(session: &Session) -> Result<Arc<Channels>> {
    session.parts().0.ok_or(ENOENT)
}

/// The one answer channel.
fn answers(session: &Session) -> Result<Arc<Connection>> {
    channels(session)?.answers().first().cloned().ok_or(ENOENT)
}

fn is_open(session: &Session) -> bool {
    answers(session).is_ok_and(|answers| answers.is_open())
}

fn unit(session: &Session) -> Result<Unit> {
    Unit::find(session.host_number().ok_or(ENOENT)?, 0).ok_or(ENXIO)
}

fn cdb(number: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    put(&mut cdb, 0, [READ]);
    put(&mut cdb, 2, number.to_be_bytes());
    cdb
}

/// Readers of a device.
struct Readers {
    unit: Unit,
    /// Bytes of a read.
    len: usize,
    /// Reads of each.
    count: u32,
    next: Atomic<u32>,
    good: Atomic<u32>,
    wrong: Atomic<u32>,
    lost: Atomic<u32>,
    /// Written to after the end.
    touched: Atomic<u32>,
    done: Atomic<bool>,
}

impl Readers {
    fn new(session: &Session, len: usize, count: u32) -> Result<Arc<Self>> {
        let zero = || Atomic::new(0);
        let this = Self {
            unit: unit(session)?,
            len,
            count,
            next: zero(),
            good: zero(),
            wrong: zero(),
            lost: zero(),
            touched: zero(),
            done: Atomic::new(false),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn read_once(&self) -> Result {
        let number = self.next.fetch_add(1, Relaxed);
        let mut data = KVec::from_elem(0u8, self.len, GFP_KERNEL)?;
        let result = self.unit.read(cdb(number), &mut data)?;
        let count = match result {
            0 if data.starts_with(&pattern(number)) => &self.good,
            DID_RESET => &self.lost,
            _ => &self.wrong,
        };
        count.fetch_add(1, Relaxed);
        if result != 0 {
            // It is ours again.
            data.fill(0x5a);
            fsleep(Delta::from_millis(20));
            if data.iter().any(|&byte| byte != 0x5a) {
                self.touched.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    fn read(&self) {
        for _ in 0..self.count {
            if let Err(e) = self.read_once() {
                pr_err!("a read fails: {}\n", e.to_errno());
                self.wrong.fetch_add(1, Relaxed);
            }
        }
        self.done.store(true, Release);
    }

    /// Good, lost and wrong reads.
    fn ends(&self) -> (u32, u32, u32) {
        let read = |count: &Atomic<u32>| count.load(Relaxed);
        (read(&self.good), read(&self.lost), read(&self.wrong))
    }
}

/// Reads with four threads, and checks that all is well.
fn read_all(session: &Session, len: usize, count: u32) -> Result {
    let readers = Readers::new(session, len, count)?;
    let contexts: [Context<Readers>; 4] = [Readers::read; 4];
    race(&readers, &contexts)?;
    check_eq!(readers.ends(), (4 * count, 0, 0));
    Ok(())
}

fn another_one_answers(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        let session = play.log_in("ch_count=2,")?;
        check!(is_open(&session));
        // A further channel of the same session, as the target sees it; and nobody is asked for immediate data.
        check_eq!((play.target.requests(), play.cache.requests()), (2, 1));
        check_eq!(action(&play.cache, 0)?, 1);
        let (first, cache) = (play.target.request(0)?.data, play.cache.request(0)?.data);
        check_eq!(get::<32>(&first, 32), get::<32>(&cache, 32));
        check_eq!((first[26], cache[26]), (0, 1));
        check_eq!(session.geometry.immediate, 0);

        // Through the memory of the slots, and through regions.
        let scan = answers(&session)?.counts().commands();
        check!(scan > 0);
        read_all(&session, 512, 50)?;
        read_all(&session, 8192, 50)?;
        let counted = answers(&session)?;
        let counts = counted.counts();
        check_eq!(counts.commands(), scan + 400);
        check_eq!((counts.fixed(), counts.dynamic()), (scan + 200, 200));
        check!(counts.read_bytes() >= 200 * (512 + 8192));
        let all = channels(&session)?;
        let ended: i32 = all.iter().map(|c| c.ended()).sum();
        let own: u64 = all.iter().map(|c| c.counts().commands()).sum();
        // What the target has answered is counted there, and ended is all of it.
        check_eq!(ended as u64, own + scan + 400);
        // Each credit was given to the channel that it was taken from.
        for channel in all.iter() {
            check_eq!(channel.credits(), REQ_LIM as i32);
        }
        check_eq!((counted.credits(), counted.ended() as u64), (0, scan + 400));
        check_eq!(session.statistics.connections_lost.get(), 0);
        drop((all, counted));
        play.stand.end(&session);
        play.cache.has_heard(|heard| &heard.disconnected, 1)
    })
}

fn two_queue_pairs_answer(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        play.engine.send(Way::Either);
        let session = play.log_in("")?;
        let before = answers(&session)?.counts().commands();
        for len in [512, 8192] {
            read_all(&session, len, 500)?;
        }
        let (answers, all) = (answers(&session)?, channels(&session)?);
        let here = answers.counts().commands() - before;
        // Both had their part in it.
        check!((1000..=3000).contains(&here));
        let own: u64 = all.iter().map(|c| c.counts().commands()).sum();
        check!(own + here >= 4000);
        check_eq!(session.statistics.connections_lost.get(), 0);
        check_eq!(all.first().map(|c| c.credits()), Some(REQ_LIM as i32));
        drop((answers, all));
        play.stand.end(&session);
        Ok(())
    })
}

fn both_answer_the_same(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        for round in 0..12 {
            play.engine.send(Way::Cache);
            let session = play.log_in("")?;
            play.engine.send(Way::Both);
            let len = if round % 2 == 0 { 512 } else { 8192 };
            let readers = Readers::new(&session, len, 1)?;
            readers.read();
            // One of the two has ended it, once, and the other one the connection.
            let (good, lost, wrong) = readers.ends();
            check_eq!((good + lost, wrong), (1, 0));
            within(|| session.statistics.connections_lost.get() == 1)?;
            within(|| session.is_down())?;
            let counts: u64 = Iterator::chain(
                channels(&session)?.iter(),
                channels(&session)?.answers().iter(),
            )
            .map(|c| c.counts().dynamic())
            .sum();
            check_eq!(counts, if len == 512 { 0 } else { u64::from(good) });
            if len == 512 {
                // Nothing but the tag tells.
                check_eq!(session.statistics.violations.get(), 1);
            }
            play.engine.send(Way::Cache);
            drop(readers);
            play.stand.end(&session);
            while play.engine.take(0).is_some() {}
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

/// What a cache must not send, to a command that is out or that was answered.
type Lie = fn(&Target, &Told) -> Result;

const OUT: bool = true;
const ANSWERED: bool = false;

fn answers_that_are_none(soft: &Soft) -> Result {
    const UNKNOWN: &str = "is not outstanding";
    const LIES: [(bool, Lie, &str); 11] = [
        // Once more.
        (ANSWERED, |c, told| c.act(Deed::Say(&told.rsp())), UNKNOWN),
        // To somebody else: another generation, another slot, channels that there are not.
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 8, [!told.rsp()[8]]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 14, [0x7f, 0xff]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 12, [0, 1]))),
            UNKNOWN,
        ),
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 12, [0xff, 0xff]))),
            UNKNOWN,
        ),
        // To a task or a probe.
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 14, [0x80, 1]))),
            UNKNOWN,
        ),
        // With credits without end.
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 4, [0x7f, 0xff, 0xff, 0xff]))),
            "credit change 2147483647 out of range",
        ),
        // CRED_REQ, AER_REQ.
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 0, [0x81]))),
            "a request on an answer channel",
        ),
        (
            OUT,
            |c, told| c.act(Deed::Say(&changed(told, 0, [0x82]))),
            "a request on an answer channel",
        ),
        // Not a message.
        (
            OUT,
            |c, _| c.act(Deed::Say(&[0xc1])),
            "protocol violation: ",
        ),
        // With the key of memory that stays registered.
        (
            OUT,
            |c, told| {
                let (_, key, _) = told.room().ok_or(EINVAL)?;
                c.act(Deed::Invalidate(&told.rsp(), key))
            },
            "immediate data or invalidation in a message",
        ),
    ];
    Play::act(soft, |play| {
        for (out, lie, line) in LIES {
            let session = play.log_in("")?;
            play.engine.send(Way::Nobody);
            let readers = Readers::new(&session, 512, 1)?;
            let told = told_meanwhile(play, &readers)?;
            if !out {
                answer(&play.cache, &told)?;
                within(|| readers.done.load(Acquire))?;
            }
            let log = Log::from_now();
            lie(&play.cache, &told)?;
            within(|| session.statistics.violations.get() == 1)?;
            check_eq!(log.count("connection lost: "), 1);
            check_eq!(log.count(line), 1);
            within(|| readers.done.load(Acquire))?;
            let ends = if out { (0, 1, 0) } else { (1, 0, 0) };
            check_eq!(readers.ends(), ends);
            check_eq!(session.statistics.connections_lost.get(), 1);
            play.engine.send(Way::Cache);
            drop(readers);
            play.stand.end(&session);
        }
        // A log-out is none of these.
        let session = play.log_in("")?;
        let log = Log::from_now();
        let logout = changed(&Told([0; 64]), 0, [0x80]);
        play.cache.act(Deed::Say(&logout))?;
        within(|| session.statistics.connections_lost.get() == 1)?;
        check_eq!(log.count("connection lost: logged out by the target: "), 1);
        check_eq!(session.statistics.violations.get(), 0);
        play.stand.end(&session);
        Ok(())
    })
}

/// Begins a read that nobody answers, and returns the command.
fn told_meanwhile(play: &Play, readers: &Arc<Readers>) -> Result<Told> {
    *play.reading.lock() = Some(readers.clone());
    let mut told = None;
    for _ in 0..10_000 {
        told = play.engine.take(2);
        if told.is_some() {
            break;
        }
        fsleep(Delta::from_millis(1));
    }
    told.ok_or(ETIMEDOUT)
}

fn lost_with_a_command(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        let session = play.log_in("")?;
        play.cache.has_heard(|heard| &heard.confirmed, 1)?;
        play.engine.send(Way::Nobody);
        let readers = Readers::new(&session, 8192, 1)?;
        told_meanwhile(play, &readers)?;
        let log = Log::from_now();
        play.cache.disconnect(0)?;
        within(|| readers.done.load(Acquire))?;
        check_eq!(readers.ends(), (0, 1, 0));
        check_eq!(log.count("the answer channel to "), 1);
        check_eq!(
            log.count("connection lost: connection event Disconnected"),
            1
        );
        // The session comes back without, and has it again later.
        within(|| session.life() == Life::Live && !session.is_lost())?;
        play.target.has_heard(|heard| &heard.confirmed, 2)?;
        play.engine.send(Way::Either);
        within(|| is_open(&session))?;
        within(|| log.count("2 of 2 channels") == 1)?;
        check_eq!((play.target.requests(), play.cache.requests()), (2, 2));
        read_all(&session, 8192, 10)?;
        check_eq!(session.statistics.connections_lost.get(), 1);
        drop(readers);
        play.stand.end(&session);
        Ok(())
    })
}

/// The cache writes to the memory of a command, again and again, while the target ends the connection.
fn nothing_is_written_after_the_end(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        for _ in 0..8 {
            let session = play.log_in("")?;
            let number = play.target.requests();
            within(|| play.target.heard().confirmed.load(Acquire) as usize == number)?;
            play.engine.send(Way::Nobody);
            let readers = Readers::new(&session, 8192, 1)?;
            let (addr, key, _) = told_meanwhile(play, &readers)?.room().ok_or(EINVAL)?;
            let write = || play.cache.act(Deed::Write(&[0xa5; 64], addr, key));
            for _ in 0..10 {
                let _ = write();
            }
            play.target.disconnect(number - 1)?;
            // Without a pause, until it is disconnected, too.
            let since = ktime_get();
            while !readers.done.load(Acquire) && ktime_get().ms_since(since) < 20_000 {
                let _ = write();
                cpu_relax();
            }
            check_eq!(readers.ends(), (0, 1, 0));
            check_eq!(readers.touched.load(Relaxed), 0);
            play.engine.send(Way::Cache);
            drop(readers);
            play.stand.end(&session);
        }
        Ok(())
    })
}

fn one_that_grants_is_left_out(soft: &Soft) -> Result {
    Play::act(soft, |play| {
        play.grant.0.store(REQ_LIM, Relaxed);
        let log = Log::from_now();
        // Of the two only the target can.
        play.engine.send(Way::Both);
        let session = play.log_in("")?;
        check_eq!(session.life(), Life::Live);
        check_eq!(
            log.count(
                "0 of 1 answer channels: login response: request limit 9 on an answer channel"
            ),
            1
        );
        play.cache.has_heard(|heard| &heard.refused, 1)?;
        check!(!is_open(&session));
        // One that has learnt it is let in.
        play.engine.send(Way::Nobody);
        play.grant.0.store(0, Relaxed);
        within(|| is_open(&session))?;
        within(|| log.count("2 of 2 channels") == 1)?;
        play.engine.send(Way::Cache);
        read_all(&session, 8192, 5)?;
        check_eq!(session.statistics.connections_lost.get(), 0);
        play.stand.end(&session);
        Ok(())
    })
}
