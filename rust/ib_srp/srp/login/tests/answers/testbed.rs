// SPDX-License-Identifier: GPL-2.0

//! Target, cache and initiator of a test of answer channels.

use super::super::{
    defaults,
    HostParams, //
};
use super::readers::Readers;
use crate::{
    random::random_u32,
    rdma::{
        ib_cm::tests::target::{
            Answer,
            Asked,
            Script,
            Target, //
            Unsolicited,
        },
        tests::soft::Soft, //
    },
    scsi::tests::unit::Unit,
    srp::{
        channel::Connection,
        channels::Channels,
        connect::{
            AnswerNode,
            Destination,
            Service, //
        },
        front::host::Io,
        login,
        proto::{
            guid::Gid,
            options::Options, //
        },
        session::Session,
        sizes,
        tests::{
            messages::{
                get,
                login_rsp,
                put,
                CMD, //
            },
            stand::Stand, //
        },
    },
    sync::{
        new_spinlock_irq,
        race::{
            self,
            Context, //
        },
        SpinLockIrq, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
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

/// Standard INQUIRY data of a processor device.
pub(super) const INQUIRY_DATA: &[u8; 36] =
    b"\x03\x00\x05\x02\x1f\x00\x00\x00SRP-RS  ANSWERS         0001";
/// LUN list with LUN 0.
pub(super) const LUNS: [u8; 16] = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// A vendor-specific opcode, followed by a number that determines the start of its data.
pub(super) const READ: u8 = 0xc8;
/// Number of bytes of the data of [`READ`] that are checked.
pub(super) const DATA: usize = 64;
/// The midlayer's result for a reset.
pub(super) const DID_RESET: i32 = 8 << 16;

/// The relevant part of a command.
#[derive(Clone, Copy)]
pub(super) struct Told(pub(super) [u8; 64]);

impl Told {
    pub(super) fn new(message: &[u8]) -> Self {
        Self(get(message, 0))
    }

    pub(super) fn tag(&self) -> u64 {
        u64::from_be_bytes(get(&self.0, 8))
    }

    /// Whether this is a task management request or a probe, which have the same format.
    pub(super) fn is_task(&self) -> bool {
        self.tag() & 0x8000 != 0
    }

    /// Address, key and length of the memory for the data of a read.
    pub(super) fn room(&self) -> Option<(u64, u32, u32)> {
        let at = |at| u32::from_be_bytes(get(&self.0, at));
        let [formats] = get(&self.0, 5);
        (formats & 15 == 1).then(|| (u64::from_be_bytes(get(&self.0, 48)), at(56), at(60)))
    }

    /// The data to return, and its length.
    pub(super) fn data(&self) -> ([u8; DATA], usize) {
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
    pub(super) fn rsp(&self) -> [u8; 36] {
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

/// Start of the data of [`READ`] with this number.
pub(super) fn pattern(number: u32) -> [u8; DATA] {
    let mut data = [0; DATA];
    for (at, byte) in data.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9) >> (at % 4 * 8)) as u8 ^ at as u8;
    }
    data
}

/// The peer that gets the commands with data.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Recipient {
    Cache,
    Either,
    Both,
    Neither,
}

/// Commands that wait for an answer.
pub(super) type Waiting = Pin<KBox<SpinLockIrq<KVec<Told>>>>;

/// The target, and the commands that it has received.
pub(super) struct Engine {
    pub(super) recipient: Atomic<u32>,
    /// Commands to be answered by the target, by the cache, and by neither.
    pub(super) waiting: [Waiting; 3],
}

impl Engine {
    pub(super) fn new() -> Result<Arc<Self>> {
        let list = || -> Result<Waiting> {
            let list = KVec::with_capacity(64, GFP_KERNEL)?;
            Ok(KBox::pin_init(new_spinlock_irq!(list), GFP_KERNEL)?)
        };
        let this = Self {
            recipient: Atomic::new(Recipient::Cache as u32),
            waiting: [list()?, list()?, list()?],
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    pub(super) fn send(&self, recipient: Recipient) {
        self.recipient.store(recipient as u32, Relaxed);
    }

    pub(super) fn take(&self, place: usize) -> Option<Told> {
        self.waiting.get(place)?.lock().pop()
    }

    pub(super) fn put(&self, place: usize, told: Told) {
        if let Some(list) = self.waiting.get(place) {
            // The capacity is never exceeded.
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
        let [target, cache, neither] = [0, 1, 2];
        match self.recipient.load(Relaxed) {
            to if to == Recipient::Cache as u32 => self.put(cache, told),
            to if to == Recipient::Either as u32 => self.put(random_u32() as usize % 2, told),
            to if to == Recipient::Both as u32 => {
                self.put(target, told);
                self.put(cache, told);
            }
            _ => self.put(neither, told),
        }
        0
    }
}

/// The cache, with the number of credits that it grants.
pub(super) struct Cache(pub(super) Atomic<u32>);

impl Script for Arc<Cache> {
    fn asked(&self, _: usize, request: &Asked) -> Answer {
        let mut rsp = login_rsp(request);
        put(&mut rsp, 4, self.0.load(Relaxed).to_be_bytes());
        Answer::accept(&rsp)
    }
}

/// Both peers, an initiator, and the state of the test.
pub(super) struct Testbed {
    pub(super) stand: Stand,
    pub(super) target: Target,
    pub(super) cache: Target,
    pub(super) engine: Arc<Engine>,
    pub(super) grant: Arc<Cache>,
    pub(super) reading: Pin<KBox<Mutex<Option<Arc<Readers>>>>>,
    pub(super) over: Atomic<bool>,
}

impl Testbed {
    pub(super) fn run(soft: &Soft, body: fn(&Testbed) -> Result) -> Result {
        let engine = Engine::new()?;
        let grant = Arc::new(Cache(Atomic::new(0)), GFP_KERNEL)?;
        let testbed = Self {
            stand: Stand::new(soft)?,
            target: Target::new(&soft.device, engine.clone())?,
            cache: Target::new(&soft.device, grant.clone())?,
            engine,
            grant,
            reading: KBox::pin_init(new_mutex!(None), GFP_KERNEL)?,
            over: Atomic::new(false),
        };
        let testbed = Arc::new(testbed, GFP_KERNEL)?;
        let contexts: [Context<Testbed>; 3] = [Self::target, Self::cache, Self::reader];
        let others = race::begin(&testbed, &contexts)?;
        let result = body(&testbed);
        testbed.over.store(true, Release);
        others.wait()?;
        result
    }

    /// Answers commands with data on the target.
    pub(super) fn target(&self) {
        self.serve(0, &self.target);
    }

    pub(super) fn cache(&self) {
        self.serve(1, &self.cache);
    }

    /// Runs the readers while the test runs.
    pub(super) fn reader(&self) {
        while !self.over.load(Acquire) {
            let readers = self.reading.lock().take();
            match readers {
                Some(readers) => readers.read(),
                None => fsleep(Delta::from_millis(1)),
            }
        }
    }

    pub(super) fn serve(&self, place: usize, by: &Target) {
        while !self.over.load(Acquire) {
            match self.engine.take(place) {
                // The connection may be lost by then.
                Some(told) => {
                    let _ = answer(by, &told);
                }
                None => fsleep(Delta::from_micros(20)),
            }
        }
    }

    /// Logs in, with the cache as the answering peer.
    pub(super) fn log_in(&self, more: &str) -> Result<Arc<Session>> {
        let text = self.stand.text(&self.target, more)?;
        let mut options = Options::parse(text.to_bytes(), &defaults()).map_err(|_| EINVAL)?;
        // `answers_from` requires an RDMA/CM login; only the number of addresses matters.
        let other = b"id_ext=1,ioc_guid=2,dest=10.0.0.9:1,answers_from=10.0.0.9:2";
        let other = Options::parse(other, &defaults()).map_err(|_| EINVAL)?;
        let port = self.stand.sessions.port();
        let mut params = login::login_params(port, &options)?;
        options.answers_from = other.answers_from;
        let service = Service {
            dgid: Gid(port.device().gid(1, 0)?),
            pkey: 0xffff,
            service_id: self.cache.service_id(),
            topspin: false,
        };
        params
            .answers_from
            .push(AnswerNode::new(Destination::Ib(service))?, GFP_KERNEL)?;
        let geometry = sizes::geometry(&options, port.device().limits())?;
        let session = self.stand.sessions.begin(options.key(), params, geometry)?;
        let host = |params: &HostParams<'_>| Io::host(params, &options);
        let result = login::set_up(&self.stand.sessions, &session, &options, host);
        result.map(|()| session.clone()).map_err(|why| {
            pr_err!("{}\n", format_args!("{why:?}"));
            self.stand.end(&session);
            why.errno()
        })
    }
}

/// Writes the data of a command, and sends the response.
pub(super) fn answer(by: &Target, told: &Told) -> Result {
    let (data, len) = told.data();
    if let Some((addr, key, room)) = told.room() {
        let data = data.get(..len.min(room as usize)).unwrap_or(&[]);
        if !data.is_empty() {
            by.post(Unsolicited::Write(data, addr, key))?;
        }
    }
    by.post(Unsolicited::Say(&told.rsp()))
}

pub(super) fn channels(session: &Session) -> Result<Arc<Channels>> {
    session.parts().0.ok_or(ENOENT)
}

/// The only answer channel.
pub(super) fn answers(session: &Session) -> Result<Arc<Connection>> {
    channels(session)?
        .answer_channels()
        .first()
        .cloned()
        .ok_or(ENOENT)
}

pub(super) fn is_open(session: &Session) -> bool {
    answers(session).is_ok_and(|answers| answers.is_open())
}

pub(super) fn unit(session: &Session) -> Result<Unit> {
    Unit::find(session.status().host_number().ok_or(ENOENT)?, 0).ok_or(ENXIO)
}

pub(super) fn cdb(number: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    put(&mut cdb, 0, [READ]);
    put(&mut cdb, 2, number.to_be_bytes());
    cdb
}
