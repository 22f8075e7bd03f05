// SPDX-License-Identifier: GPL-2.0

//! A target with rules, with plain bytes as memory. The initiator builds and checks messages with
//! the driver's code.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
};

use odd_target::{
    orders::Order,
    rules::{Port, Rules, Step},
};
use srp_target::{
    disk::Disk,
    proto::{
        cmd::{Cmd, DirectBuf, Direction},
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, MultiChannel, Requested},
        rsp::Rsp,
        tmf::{Function, TskMgmt},
    },
    scsi::Unit,
    store::Use,
    target::{Action, ChannelId},
    workers::{execute, Job},
};

/// Number of the channel for commands, and of the one for responses.
pub(super) const CHANNEL: ChannelId = 100;
pub(super) const ANSWERS: ChannelId = 200;

/// Address and rkey of the initiator's memory.
const VA: u64 = 0x1000;
const KEY: u32 = 9;

pub(super) struct Testbed {
    pub(super) rules: Rules<Vec<u8>>,
    pub(super) memory: Vec<u8>,
    /// Messages and responses to logins, with their channel.
    pub(super) sent: Vec<(ChannelId, Vec<u8>)>,
    pub(super) accepted: BTreeMap<ChannelId, Vec<u8>>,
    pub(super) rejected: HashMap<ChannelId, Vec<u8>>,
    /// Channels by which data was written or fetched.
    pub(super) moved: Vec<ChannelId>,
    /// Number of receive buffers returned.
    pub(super) received: usize,
    pub(super) left: Vec<ChannelId>,
    pub(super) said: Vec<String>,
    tags: u64,
}

fn unit(_: usize) -> Arc<Unit> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("odd-test-{}-{number}", std::process::id()));
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let disk = Disk::open(&path, Use::Alone).unwrap();
    fs::remove_file(&path).unwrap();
    Arc::new(Unit::new(disk, 0))
}

pub(super) fn requested(multichannel: MultiChannel) -> Requested {
    Requested {
        tag: 77,
        max_it_iu_len: 256,
        descriptors: 12,
        immediate: 0,
        multichannel,
        initiator: PortId([1; 16]),
        target: PortId([2; 16]),
    }
}

impl Testbed {
    /// A target that has not seen a login.
    pub(super) fn new() -> Self {
        Self {
            rules: Rules::new([7; 16], (0..3).map(unit).collect()),
            memory: vec![0xee; 8192],
            sent: Vec::new(),
            accepted: BTreeMap::new(),
            rejected: HashMap::new(),
            moved: Vec::new(),
            received: 0,
            left: Vec::new(),
            said: Vec::new(),
            tags: 0,
        }
    }

    /// A session with one channel, whose unit attention is cleared.
    pub(super) fn logged_in() -> Self {
        let mut testbed = Self::new();
        testbed.login(CHANNEL, MultiChannel::Single, Port::Commands);
        testbed.rules.established(CHANNEL);
        testbed.pump();
        testbed.none(0);
        testbed.sent.clear();
        testbed.said.clear();
        testbed.received = 0;
        testbed
    }

    pub(super) fn tell(&mut self, line: &str) -> bool {
        let order = Order::parse(line).unwrap_or_else(|| panic!("'{line}' is an order"));
        let done = self.rules.told(order);
        self.pump();
        done
    }

    pub(super) fn login(&mut self, id: ChannelId, multi: MultiChannel, port: Port) {
        let request = LoginReqRdma::new(&requested(multi));
        self.rules.login(id, request.as_bytes(), port);
        self.pump();
    }

    fn write(&mut self, channel: ChannelId, bytes: &[u8], descriptors: &[DirectBuf]) {
        self.moved.push(channel);
        let mut rest = bytes;
        for descriptor in descriptors {
            assert_eq!(descriptor.key(), KEY);
            let (part, behind) = rest.split_at(descriptor.len() as usize);
            let at = (descriptor.va() - VA) as usize;
            self.memory[at..at + part.len()].copy_from_slice(part);
            rest = behind;
        }
    }

    pub(super) fn pump(&mut self) {
        loop {
            let steps = self.rules.steps();
            if steps.is_empty() {
                return;
            }
            for step in steps {
                match step {
                    Step::Act(action) => self.act(action),
                    Step::Answer {
                        channel,
                        data,
                        descriptors,
                        message,
                    } => {
                        self.write(channel, &data, &descriptors);
                        self.sent.push((channel, message));
                    }
                }
            }
        }
    }

    fn act(&mut self, action: Action<Vec<u8>>) {
        match action {
            Action::Accept {
                channel, response, ..
            } => {
                self.accepted.insert(channel, response);
            }
            Action::Reject { channel, response } => {
                self.rejected.insert(channel, response);
            }
            Action::Receive { .. } => self.received += 1,
            Action::Fetch {
                channel,
                task,
                from,
            } => {
                self.moved.push(channel);
                let part = |d: &DirectBuf| {
                    let at = (d.va() - VA) as usize;
                    self.memory[at..at + d.len() as usize].to_vec()
                };
                let bytes = from.iter().flat_map(part).collect();
                self.rules.fetched(task, bytes);
            }
            Action::Execute { task, work } => {
                let into = (work.into > 0).then(|| vec![0; work.into]);
                let (task, done) = execute(Job { task, work, into });
                self.rules.executed(task, done);
            }
            Action::Answer {
                channel,
                task,
                data,
                message,
            } => {
                if let Some((bytes, descriptors)) = data {
                    self.write(channel, &bytes, &descriptors);
                }
                self.sent.push((channel, message));
                if let Some(task) = task {
                    self.rules.sent(task);
                }
            }
            Action::Leave { channel, .. } => {
                self.left.push(channel);
                self.rules.ended(channel);
            }
            Action::Say(what) => self.said.push(what),
            _ => {}
        }
    }

    pub(super) fn message(&mut self, bytes: &[u8]) {
        self.rules.received(CHANNEL, bytes.to_vec(), bytes.len());
        self.pump();
    }

    /// Sends a command; returns its tag.
    pub(super) fn send(&mut self, cdb: &[u8], direction: Direction, len: u32) -> u64 {
        self.tags += 1;
        let cmd = Cmd {
            tag: self.tags,
            lun: Lun::from_int(0),
            cdb,
        };
        let mut iu = [0; 256];
        let n = match direction {
            Direction::None => cmd.build(&mut iu),
            _ => cmd.build_direct(&mut iu, direction, &DirectBuf::new(VA, KEY, len)),
        };
        self.message(&iu[..n.unwrap()]);
        self.tags
    }

    /// A command without data.
    pub(super) fn none(&mut self, code: u8) -> u64 {
        self.send(&[code, 0, 0, 0, 0, 0], Direction::None, 0)
    }

    /// A READ(10) or WRITE(10) of the first 4 KiB.
    pub(super) fn block(&mut self, code: u8) -> u64 {
        let direction = match code {
            0x2a => Direction::ToDevice,
            _ => Direction::FromDevice,
        };
        self.send(&[code, 0, 0, 0, 0, 0, 0, 0, 8, 0], direction, 4096)
    }

    /// Fills the initiator's memory.
    pub(super) fn fill(&mut self, with: u8) {
        self.memory.fill(with);
    }

    pub(super) fn manage(&mut self, function: Function, task_tag: u64) -> u64 {
        self.tags += 1;
        let request = TskMgmt {
            tag: self.tags,
            lun: Lun::from_int(0),
            function,
            task_tag,
        };
        let mut iu = [0; 48];
        let n = request.build(&mut iu).unwrap();
        self.message(&iu[..n]);
        self.tags
    }

    /// All responses with a tag: status, credits, and whether there is sense data.
    pub(super) fn answers(&self, tag: u64) -> Vec<(u8, i32, bool)> {
        let of_it = self.sent.iter().map(|(_, m)| (m, Rsp::parse(m)));
        let of_it = of_it.filter_map(|(m, r)| r.ok().filter(|r| r.tag == tag).map(|r| (m, r)));
        of_it
            .map(|(m, r)| (m[19], r.req_lim_delta, m[18] & 2 != 0))
            .collect()
    }

    pub(super) fn said(&self, what: &str) -> bool {
        self.said.iter().any(|line| line.contains(what))
    }
}
