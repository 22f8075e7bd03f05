// SPDX-License-Identifier: GPL-2.0

//! A target of several threads. The test delivers what one orders from another when it likes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
};

use crate::common::{cdb10, further, pattern, requested, settings, tsk_mgmt, Temporary};
use seeded::Rng;
use srp_target::{
    disk::Disk,
    proto::{
        cmd::{Cmd, Direction},
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, LoginRsp, MultiChannel, Requested},
        rsp::Rsp,
        sense::Sense,
        tmf::Function,
    },
    scsi::Unit,
    store::Use,
    target::{Action, ChannelId, Sessions, Target, TaskId, Wake, Work},
    workers::{execute, Job},
};

/// A command that a worker has.
struct Held {
    thread: usize,
    channel: ChannelId,
    task: TaskId,
    work: Work<Vec<u8>>,
}

#[derive(Default)]
struct Before {
    channels: BTreeSet<ChannelId>,
    /// Thread and task.
    commands: BTreeSet<(usize, TaskId)>,
}

struct Request {
    channel: ChannelId,
    tag: u64,
    /// The commands that it waits for, as thread and task.
    before: BTreeSet<(usize, TaskId)>,
}

struct Threads {
    targets: Vec<Target<Vec<u8>>>,
    sessions: Arc<Sessions>,
    woken: Arc<Vec<AtomicBool>>,
    file: Temporary,
    /// The thread of each channel that has not ended.
    channels: BTreeMap<ChannelId, usize>,
    initiators: BTreeMap<ChannelId, PortId>,
    logins: BTreeMap<ChannelId, Before>,
    /// The response of each channel that is accepted.
    accepted: BTreeMap<ChannelId, Vec<u8>>,
    refused: BTreeSet<ChannelId>,
    leaving: BTreeSet<ChannelId>,
    held: Vec<Held>,
    requests: Vec<Request>,
    answers: Vec<(ChannelId, Vec<u8>)>,
    gone: usize,
    next: u64,
}

impl Threads {
    fn new(count: usize) -> Self {
        let woken: Arc<Vec<_>> = Arc::new((0..count).map(|_| AtomicBool::new(false)).collect());
        let wake = |n: usize| -> Wake {
            let woken = Arc::clone(&woken);
            Box::new(move || woken[n].store(true, Ordering::Relaxed))
        };
        let sessions = Sessions::new((0..count).map(wake).collect());
        let file = Temporary::new();
        let disk = Disk::open(&file.0, Use::Shared).unwrap();
        let units = vec![Arc::new(Unit::new(disk, 5))];
        let target = |n| Target::thread(settings(), units.clone(), Arc::clone(&sessions), n);
        Self {
            targets: (0..count).map(target).collect(),
            sessions,
            woken,
            file,
            channels: BTreeMap::new(),
            initiators: BTreeMap::new(),
            logins: BTreeMap::new(),
            accepted: BTreeMap::new(),
            refused: BTreeSet::new(),
            leaving: BTreeSet::new(),
            held: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            gone: 0,
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn login(&mut self, thread: usize, what: &Requested) -> ChannelId {
        let id = self.number();
        self.logins.insert(id, self.before(what));
        self.channels.insert(id, thread);
        self.initiators.insert(id, what.initiator);
        self.targets[thread].login(id, LoginReqRdma::new(what).as_bytes());
        self.pump(thread);
        id
    }

    fn of(&self, channel: ChannelId) -> PortId {
        self.initiators[&channel]
    }

    /// What a login waits for: of its initiator, the commands of channels that end or have ended,
    /// and these channels. If it ends the session, all of them.
    fn before(&self, what: &Requested) -> Before {
        let own = |c: &ChannelId| self.initiators.get(c) == Some(&what.initiator);
        let old = |c: &ChannelId| {
            let ends = !self.channels.contains_key(c) || self.leaving.contains(c);
            own(c) && (ends || matches!(what.multichannel, MultiChannel::Single))
        };
        let held = self.held.iter().filter(|h| old(&h.channel));
        Before {
            channels: self.accepted.keys().copied().filter(old).collect(),
            commands: held.map(|h| (h.thread, h.task)).collect(),
        }
    }

    fn accept(&mut self, id: ChannelId, response: Vec<u8>) {
        let Before { channels, commands } = &self.logins[&id];
        assert!(
            !self.accepted.keys().any(|c| channels.contains(c)),
            "old channels beside {id}"
        );
        let mut held = self.held.iter();
        assert!(
            !held.any(|h| commands.contains(&(h.thread, h.task))),
            "old commands beside {id}"
        );
        self.accepted.insert(id, response);
    }

    /// A task management request is answered after the commands that it aborts.
    fn answer(&mut self, thread: usize, channel: ChannelId, message: Vec<u8>) {
        assert_eq!(self.channels.get(&channel), Some(&thread));
        let tag = Rsp::parse(&message).unwrap().tag;
        let at = self
            .requests
            .iter()
            .position(|r| r.channel == channel && r.tag == tag);
        if let Some(at) = at {
            let request = self.requests.remove(at);
            let mut held = self.held.iter();
            assert!(held.all(|h| !request.before.contains(&(h.thread, h.task))));
        }
        self.answers.push((channel, message));
    }

    fn pump(&mut self, thread: usize) {
        loop {
            let actions = self.targets[thread].actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Accept {
                        channel, response, ..
                    } => {
                        if self.channels.contains_key(&channel) {
                            self.accept(channel, response);
                        }
                    }
                    Action::Reject { channel, .. } => {
                        self.channels.remove(&channel);
                        self.refused.insert(channel);
                    }
                    Action::Execute { task, work } => {
                        let channel = self.targets[thread].channel(task).unwrap();
                        self.held.push(Held {
                            thread,
                            channel,
                            task,
                            work,
                        });
                    }
                    Action::Answer {
                        channel,
                        task,
                        message,
                        ..
                    } => {
                        self.answer(thread, channel, message);
                        if let Some(task) = task {
                            self.targets[thread].sent(task);
                        }
                    }
                    Action::Leave { channel, .. } => {
                        // Its connection may have ended meanwhile.
                        if self.channels.contains_key(&channel) {
                            self.leaving.insert(channel);
                        }
                    }
                    Action::Gone { .. } => self.gone += 1,
                    Action::Receive { .. } | Action::Free { .. } | Action::Say(_) => {}
                    Action::Fetch { .. } | Action::Dispatch { .. } | Action::Cancel { .. } => {
                        panic!("not for these commands")
                    }
                }
            }
        }
    }

    /// Delivers the orders of a thread.
    fn obey(&mut self, thread: usize) {
        self.woken[thread].store(false, Ordering::Relaxed);
        self.targets[thread].obey();
        self.pump(thread);
    }

    fn obey_all(&mut self) {
        while let Some(n) = self.woken.iter().position(|w| w.load(Ordering::Relaxed)) {
            self.obey(n);
        }
    }

    fn message(&mut self, channel: ChannelId, bytes: &[u8]) {
        let thread = self.channels[&channel];
        self.targets[thread].received(channel, bytes.to_vec(), bytes.len());
        self.pump(thread);
    }

    fn command(&mut self, channel: ChannelId, cdb: &[u8]) -> u64 {
        let tag = self.number();
        let lun = Lun::from_int(0);
        let mut iu = [0; 68 + 512];
        let cmd = Cmd { tag, lun, cdb };
        let mut n = cmd.build(&mut iu).unwrap();
        if cdb[0] == 0x2a {
            cmd.build_immediate(&mut iu, 512).unwrap();
            iu[68..].copy_from_slice(&pattern(512, tag as u8));
            n = iu.len();
        }
        self.message(channel, &iu[..n]);
        tag
    }

    /// Sends a task management request. All held commands of its unit that it affects count.
    fn manage(&mut self, channel: ChannelId, function: Function, task_tag: u64) -> u64 {
        let tag = self.number();
        let own = self.of(channel);
        let meant = |h: &&Held| match function {
            Function::AbortTask => false,
            Function::AbortTaskSet => self.of(h.channel) == own,
            _ => true,
        };
        let before = self.held.iter().filter(meant).map(|h| (h.thread, h.task));
        let before = before.collect();
        self.requests.push(Request {
            channel,
            tag,
            before,
        });
        self.message(channel, &tsk_mgmt(tag, function, task_tag));
        tag
    }

    fn execute(&mut self, at: usize) {
        let Held {
            thread, task, work, ..
        } = self.held.remove(at);
        let into = (work.into > 0).then(|| vec![0; work.into]);
        let (task, done) = execute(Job { task, work, into });
        self.targets[thread].executed(task, done);
        self.pump(thread);
    }

    fn end(&mut self, channel: ChannelId) {
        let thread = self.channels.remove(&channel).unwrap();
        self.accepted.remove(&channel);
        self.leaving.remove(&channel);
        self.requests.retain(|r| r.channel != channel);
        self.targets[thread].ended(channel);
        self.pump(thread);
    }

    /// Sense key and code of the response with this tag.
    fn sense(&self, tag: u64) -> Option<(u8, u8)> {
        let all = self.answers.iter().map(|(_, m)| Rsp::parse(m).unwrap());
        let rsp = all.into_iter().find(|r| r.tag == tag).expect("an answer");
        let outcome = rsp.outcome(0, Direction::None).unwrap();
        Sense::parse(outcome.sense).map(|s| (s.key, s.asc))
    }

    fn answered(&self, tag: u64) -> bool {
        let mut all = self.answers.iter();
        all.any(|(_, m)| Rsp::parse(m).unwrap().tag == tag)
    }

    fn idle(&self) -> bool {
        self.targets.iter().all(Target::idle)
    }
}

const WRITE: u8 = 0x2a;

fn other() -> Requested {
    Requested {
        initiator: PortId([2; 16]),
        ..requested()
    }
}

#[test]
fn a_login_waits_for_the_channels_and_commands_of_all_threads() {
    let mut threads = Threads::new(3);
    let first = threads.login(0, &requested());
    let second = threads.login(1, &further());
    let attention = threads.command(second, &[0; 6]);
    assert_eq!(threads.sense(attention), Some((6, 0x29)));
    let write = threads.command(second, &cdb10(WRITE, 4, 1));
    let status = threads.command(first, &[0; 6]);
    // The session, not the channel, has a unit attention.
    assert_eq!((threads.held.len(), threads.answered(status)), (2, false));

    let third = threads.login(2, &requested());
    assert!(threads.leaving.is_empty());
    threads.obey_all();
    assert_eq!(threads.leaving, BTreeSet::from([first, second]));
    threads.execute(1);
    threads.end(first);
    threads.end(second);
    threads.obey_all();
    assert!(!threads.accepted.contains_key(&third), "the write executes");
    threads.execute(0);
    threads.obey_all();
    assert!(!threads.answered(write));
    let (rsp, what) = (&threads.accepted[&third], requested());
    assert!(LoginRsp::parse(rsp).unwrap().check(&what).is_ok());
    // The flag "terminated".
    assert_eq!((rsp[26] & 3, threads.gone), (1, 1));
    let blocks = std::fs::read(&threads.file.0).unwrap();
    assert_eq!(blocks[2048..2560], pattern(512, write as u8));
}

#[test]
fn channels_of_all_threads_count() {
    let mut threads = Threads::new(2);
    threads.login(0, &requested());
    for n in 1..4 {
        threads.login(n % 2, &further());
    }
    assert_eq!(threads.accepted.len(), 4);
    let fifth = threads.login(0, &further());
    assert!(threads.refused.contains(&fifth));
    for target in &threads.targets {
        target.tell();
    }
    let status = threads.sessions.status(&[]);
    assert_eq!(
        (&status["sessions"], &status["channels"]),
        (&1.into(), &4.into())
    );
    for reactor in status["reactors"].as_array().unwrap() {
        assert_eq!(reactor["channels"], 2);
    }
}

#[test]
fn task_management_waits_for_all_threads() {
    let mut threads = Threads::new(3);
    let own = threads.login(0, &requested());
    let others = [threads.login(1, &other()), threads.login(2, &further())];
    for channel in [own, others[0]] {
        threads.command(channel, &[0; 6]);
    }
    for channel in [own, others[0], others[1]] {
        threads.command(channel, &cdb10(WRITE, 4, 1));
    }
    let set = threads.manage(own, Function::AbortTaskSet, 0);
    threads.obey_all();
    threads.execute(0);
    assert!(!threads.answered(set), "thread 2 has one");
    threads.execute(1);
    threads.obey_all();
    assert!(threads.answered(set));
    // The other initiator has its command, and no unit attention.
    let reset = threads.manage(own, Function::LunReset, 0);
    threads.obey_all();
    assert!(!threads.answered(reset));
    threads.execute(0);
    threads.obey_all();
    assert!(threads.answered(reset));
    for channel in [others[0], own] {
        let status = threads.command(channel, &[0; 6]);
        assert_eq!(threads.sense(status), Some((6, 0x29)));
    }
}

#[test]
fn a_violation_ends_the_channels_of_all_threads() {
    let mut threads = Threads::new(3);
    let channels = [
        threads.login(0, &requested()),
        threads.login(1, &further()),
        threads.login(2, &further()),
    ];
    let stays = threads.login(1, &other());
    threads.message(channels[1], &[0xff; 64]);
    assert_eq!(threads.leaving, BTreeSet::from([channels[1]]));
    threads.obey_all();
    assert_eq!(threads.leaving, channels.into());
    assert!(!threads.leaving.contains(&stays));
}

/// A connection may end after another thread has admitted its login, and before it is accepted.
#[test]
fn a_login_may_end_when_it_is_admitted() {
    let mut threads = Threads::new(2);
    let old = threads.login(0, &requested());
    let new = threads.login(1, &requested());
    threads.obey(0);
    threads.end(old);
    assert!(!threads.accepted.contains_key(&new));
    threads.end(new);
    let again = threads.login(0, &requested());
    assert!(threads.accepted.contains_key(&again));
    assert_eq!(threads.gone, 2);
}

/// The channel of a login that another thread has admitted is ended as well.
#[test]
fn a_shutdown_ends_what_is_admitted() {
    let mut threads = Threads::new(2);
    let old = threads.login(0, &requested());
    let new = threads.login(1, &requested());
    threads.obey(0);
    threads.end(old);
    assert!(threads.woken[1].load(Ordering::Relaxed));
    threads.targets[1].shutdown();
    threads.pump(1);
    assert!(threads.leaving.contains(&new), "{:?}", threads.leaving);
    threads.end(new);
    assert!(threads.idle());
}

/// An initiator that gives up a login makes a new one, and has not closed the old connection.
#[test]
fn a_login_does_not_wait_for_one_that_waits() {
    let mut threads = Threads::new(2);
    let first = threads.login(0, &requested());
    let [second, third] = [1, 0].map(|n| threads.login(n, &requested()));
    threads.obey_all();
    assert_eq!(threads.leaving, BTreeSet::from([first, second]));
    threads.end(first);
    threads.obey_all();
    assert!(threads.accepted.contains_key(&third) && !threads.accepted.contains_key(&second));
}

/// Returns the numbers of sessions at the end, of commands and of responses.
fn schedule(seed: u64) -> [u64; 3] {
    const THREADS: u64 = 3;
    let mut rng = Rng(seed);
    let mut threads = Threads::new(THREADS as usize);
    let mut counts = [0; 3];
    let mut credits: BTreeMap<ChannelId, u32> = BTreeMap::new();
    for _ in 0..200 {
        let live: Vec<_> = threads.accepted.keys().copied().collect();
        let usable =
            |c: &&ChannelId| !threads.leaving.contains(c) && credits.get(c).is_none_or(|n| *n < 6);
        let usable: Vec<_> = live.iter().filter(usable).copied().collect();
        let any = |rng: &mut Rng, all: &[ChannelId]| {
            let n = all.len() as u64;
            (n > 0).then(|| all[rng.below(n) as usize])
        };
        match rng.below(12) {
            0 | 1 => {
                let multichannel = match rng.one_in(3) {
                    true => MultiChannel::Single,
                    false => MultiChannel::Multi,
                };
                let what = Requested {
                    initiator: PortId([rng.below(2) as u8; 16]),
                    multichannel,
                    ..requested()
                };
                threads.login(rng.below(THREADS) as usize, &what);
            }
            2..=4 => {
                if let Some(channel) = any(&mut rng, &usable) {
                    *credits.entry(channel).or_default() += 1;
                    threads.command(channel, &cdb10(WRITE, rng.below(64) as u32, 1));
                    counts[1] += 1;
                }
            }
            5 => {
                if let Some(channel) = any(&mut rng, &usable) {
                    *credits.entry(channel).or_default() += 1;
                    let all = [
                        Function::LunReset,
                        Function::AbortTaskSet,
                        Function::ClearTaskSet,
                    ];
                    threads.manage(channel, all[rng.below(3) as usize], 0);
                }
            }
            6 | 7 => {
                let n = threads.held.len() as u64;
                if n > 0 {
                    threads.execute(rng.below(n) as usize);
                }
            }
            8 => {
                let all: Vec<_> = threads.channels.keys().copied().collect();
                if let Some(channel) = any(&mut rng, &all).filter(|_| rng.one_in(3)) {
                    threads.end(channel);
                }
            }
            9 => {
                let all: Vec<_> = threads.leaving.iter().copied().collect();
                if let Some(channel) = any(&mut rng, &all) {
                    threads.end(channel);
                }
            }
            _ => threads.obey(rng.below(THREADS) as usize),
        }
        let answers = std::mem::take(&mut threads.answers);
        counts[2] += answers.len() as u64;
        for (channel, message) in answers {
            let n = credits.entry(channel).or_default();
            let delta = Rsp::parse(&message).unwrap().req_lim_delta;
            *n = n.checked_sub(delta as u32).expect("credits that were used");
        }
    }
    // Everything ends.
    loop {
        threads.obey_all();
        if let Some(at) = threads.leaving.first().copied() {
            threads.end(at);
        } else if !threads.held.is_empty() {
            threads.execute(0);
        } else {
            break;
        }
    }
    assert!(threads.requests.is_empty(), "a request without an answer");
    counts[0] = threads.accepted.len() as u64;
    assert_eq!(
        threads.channels.len(),
        threads.accepted.len(),
        "a login waits for nothing"
    );
    for channel in threads.channels.keys().copied().collect::<Vec<_>>() {
        threads.end(channel);
    }
    threads.obey_all();
    assert!(threads.idle());
    assert_eq!(threads.sessions.status(&[])["sessions"], 0);
    assert_eq!(threads.sessions.status(&[])["channels"], 0);
    counts
}

#[test]
fn schedules_of_threads() {
    let names = ["channels at the end", "commands", "responses"];
    if let Some((seeds, [channels, commands, responses])) = seeded::schedules(1000, names, schedule)
    {
        assert!(channels > seeds && commands > 10 * seeds && responses > 5 * seeds);
    }
}
