// SPDX-License-Identifier: GPL-2.0

//! A file-backed target, and an initiator with plain bytes as memory. The initiator builds and
//! checks messages with the driver's code.

use std::{
    collections::HashMap,
    fs::File,
    path::PathBuf,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
};

use srp_target::{
    disk::Disk,
    proto::{
        cmd::{Cmd, DirectBuf, Direction},
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, LoginRsp, MultiChannel, Requested},
        rsp::{Outcome, Rsp},
        sense::Sense,
        tmf::{Function, TmfStatus, TskMgmt},
    },
    scsi::Unit,
    store::Use,
    target::{Action, ChannelId, Remote, Settings, Target, TaskId, Work},
    workers::{execute, Job},
};

pub const TARGET: PortId = PortId([7; 16]);
pub const INITIATOR: PortId = PortId([1; 16]);
pub const BLOCKS: u64 = 16384;
pub const DEPTH: u32 = 8;

pub fn settings() -> Settings {
    Settings {
        id: TARGET.0,
        queue_depth: DEPTH,
        channels: 4,
    }
}

/// A temporary file of 8 MiB, removed on drop.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("srp-target-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(BLOCKS * 512).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

pub struct Testbed {
    pub target: Target<Vec<u8>>,
    pub files: Vec<Temporary>,
    /// The initiator's memory by rkey; addresses start at 0x1000.
    pub memory: HashMap<u32, Vec<u8>>,
    /// Messages sent, with their channel.
    pub sent: Vec<(ChannelId, Vec<u8>)>,
    pub accepted: Vec<(ChannelId, Vec<u8>)>,
    pub rejected: Vec<(ChannelId, Vec<u8>)>,
    /// Channels that the target ended, with the logout.
    pub left: Vec<(ChannelId, Option<Vec<u8>>)>,
    /// Number of receive buffers returned.
    pub received: usize,
    /// Collect work in `held` and `fetches` instead of doing it.
    pub hold: bool,
    pub held: Vec<(TaskId, Work<Vec<u8>>)>,
    pub fetches: Vec<(TaskId, Vec<DirectBuf>)>,
    /// Initiators without a remaining channel.
    pub gone: Vec<[u8; 16]>,
    /// Dispatched and cancelled commands.
    pub dispatched: Vec<(TaskId, Remote)>,
    pub cancelled: Vec<TaskId>,
    /// Do not report the end of channels that the target has ended.
    pub linger: bool,
    next_tag: u64,
}

/// A response as the driver parses it.
#[derive(Debug)]
pub struct Answer {
    pub status: u8,
    pub resid: u32,
    pub overrun: bool,
    pub sense: Option<(u8, u8, u8)>,
    pub credits: i32,
}

impl Testbed {
    pub fn new(settings: Settings, units: usize, read_only: bool) -> Self {
        let files: Vec<_> = (0..units).map(|_| Temporary::new()).collect();
        let how = if read_only { Use::Reading } else { Use::Shared };
        let unit = |f: &Temporary| Arc::new(Unit::new(Disk::open(&f.0, how).unwrap(), 5));
        Self {
            target: Target::new(settings, files.iter().map(unit).collect()),
            files,
            memory: HashMap::new(),
            sent: Vec::new(),
            accepted: Vec::new(),
            rejected: Vec::new(),
            left: Vec::new(),
            received: 0,
            hold: false,
            held: Vec::new(),
            fetches: Vec::new(),
            gone: Vec::new(),
            dispatched: Vec::new(),
            cancelled: Vec::new(),
            linger: false,
            next_tag: 100,
        }
    }

    /// Creates a target with one unit and one session. The first unit attention is cleared.
    pub fn logged_in() -> Self {
        let mut testbed = Self::new(settings(), 1, false);
        testbed.login(1, &requested());
        assert_eq!(testbed.accepted.len(), 1);
        let first = testbed.none(1, &[0; 6]);
        assert_eq!(first.sense, Some((6, 0x29, 0)));
        testbed
    }

    pub fn login(&mut self, channel: ChannelId, requested: &Requested) {
        let request = LoginReqRdma::new(requested);
        self.target.login(channel, request.as_bytes());
        self.pump();
    }

    pub fn granted(&self, requested: &Requested) -> srp_target::proto::login_iu::Granted {
        let (_, rsp) = self.accepted.last().unwrap();
        LoginRsp::parse(rsp).unwrap().check(requested).unwrap()
    }

    fn at(&mut self, d: &DirectBuf) -> &mut [u8] {
        let start = (d.va() - 0x1000) as usize;
        &mut self.memory.get_mut(&d.key()).expect("an rkey")[start..start + d.len() as usize]
    }

    pub fn pump(&mut self) {
        loop {
            let actions = self.target.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action<Vec<u8>>) {
        match action {
            Action::Accept {
                channel, response, ..
            } => self.accepted.push((channel, response)),
            Action::Reject { channel, response } => self.rejected.push((channel, response)),
            Action::Receive { .. } => self.received += 1,
            Action::Free { .. } | Action::Say(_) => {}
            Action::Gone { initiator } => self.gone.push(initiator),
            Action::Dispatch { task, remote } => self.dispatched.push((task, remote)),
            Action::Cancel { task } => self.cancelled.push(task),
            Action::Fetch { task, from, .. } => {
                if self.hold {
                    self.fetches.push((task, from));
                } else {
                    self.fetch(task, &from);
                }
            }
            Action::Execute { task, work } => {
                if self.hold {
                    self.held.push((task, work));
                } else {
                    self.execute(task, work);
                }
            }
            Action::Answer {
                channel,
                task,
                data,
                message,
            } => {
                if let Some((bytes, descriptors)) = data {
                    let mut rest = &bytes[..];
                    for descriptor in descriptors {
                        let (part, behind) = rest.split_at(descriptor.len() as usize);
                        self.at(&descriptor).copy_from_slice(part);
                        rest = behind;
                    }
                }
                self.sent.push((channel, message));
                if let Some(task) = task {
                    self.target.sent(task);
                }
            }
            Action::Leave { channel, message } => {
                self.left.push((channel, message));
                if !self.linger {
                    self.target.ended(channel);
                }
            }
        }
    }

    fn fetch(&mut self, task: TaskId, from: &[DirectBuf]) {
        let mut bytes = Vec::new();
        for d in from {
            let part = self.at(d).to_vec();
            bytes.extend(part);
        }
        self.target.fetched(task, bytes);
    }

    fn execute(&mut self, task: TaskId, work: Work<Vec<u8>>) {
        let into = (work.into > 0).then(|| vec![0; work.into]);
        let (task, done) = execute(Job { task, work, into });
        self.target.executed(task, done);
    }

    /// Executes all held work.
    pub fn let_go(&mut self) {
        self.hold = false;
        for (task, from) in std::mem::take(&mut self.fetches) {
            self.fetch(task, &from);
        }
        self.pump();
        for (task, work) in std::mem::take(&mut self.held) {
            self.execute(task, work);
        }
        self.pump();
    }

    pub fn message(&mut self, channel: ChannelId, bytes: &[u8]) {
        self.target.received(channel, bytes.to_vec(), bytes.len());
        self.pump();
    }

    pub fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// The response with this tag.
    pub fn answer(&self, tag: u64, len: u32, direction: Direction) -> Answer {
        let mut all = self.sent.iter().rev();
        let (_, bytes) = all
            .find(|(_, m)| Rsp::parse(m).unwrap().tag == tag)
            .expect("an answer");
        let rsp = Rsp::parse(bytes).unwrap();
        let Outcome {
            status,
            resid,
            overrun,
            sense,
        } = rsp.outcome(len, direction).unwrap();
        Answer {
            status,
            resid,
            overrun,
            sense: Sense::parse(sense).map(|s| (s.key, s.asc, s.ascq)),
            credits: rsp.req_lim_delta,
        }
    }

    pub fn answered(&self, tag: u64) -> bool {
        let mut all = self.sent.iter();
        all.any(|(_, m)| Rsp::parse(m).unwrap().tag == tag)
    }

    /// Sends a command with one data buffer, rkey 9.
    pub fn send(
        &mut self,
        channel: ChannelId,
        lun: u64,
        cdb: &[u8],
        direction: Direction,
        len: u32,
    ) -> u64 {
        let tag = self.tag();
        let cmd = Cmd {
            tag,
            lun: Lun::from_int(lun),
            cdb,
        };
        let mut iu = [0; 256];
        let n = match direction {
            Direction::None => cmd.build(&mut iu),
            _ => cmd.build_direct(&mut iu, direction, &DirectBuf::new(0x1000, 9, len)),
        };
        self.message(channel, &iu[..n.unwrap()]);
        tag
    }

    pub fn none(&mut self, channel: ChannelId, cdb: &[u8]) -> Answer {
        let tag = self.send(channel, 0, cdb, Direction::None, 0);
        self.answer(tag, 0, Direction::None)
    }

    /// Sends a read command with a buffer of `len` bytes; returns the response and the buffer.
    pub fn read_lun(&mut self, lun: u64, cdb: &[u8], len: u32) -> (Answer, Vec<u8>) {
        self.memory.insert(9, vec![0xee; len as usize]);
        let tag = self.send(1, lun, cdb, Direction::FromDevice, len);
        (
            self.answer(tag, len, Direction::FromDevice),
            self.memory[&9].clone(),
        )
    }

    pub fn read(&mut self, cdb: &[u8], len: u32) -> (Answer, Vec<u8>) {
        self.read_lun(0, cdb, len)
    }

    pub fn write(&mut self, cdb: &[u8], data: &[u8]) -> Answer {
        self.memory.insert(9, data.to_vec());
        let len = data.len() as u32;
        let tag = self.send(1, 0, cdb, Direction::ToDevice, len);
        self.answer(tag, len, Direction::ToDevice)
    }

    pub fn manage(&mut self, channel: ChannelId, function: Function, task_tag: u64) -> u64 {
        let tag = self.tag();
        self.message(channel, &tsk_mgmt(tag, function, task_tag));
        tag
    }

    pub fn managed(&self, tag: u64) -> TmfStatus {
        let mut all = self.sent.iter().rev();
        let (_, bytes) = all
            .find(|(_, m)| Rsp::parse(m).unwrap().tag == tag)
            .expect("an answer");
        Rsp::parse(bytes).unwrap().tmf_status()
    }

    /// Blocks of the first file.
    pub fn file(&self, block: u64, count: u64) -> Vec<u8> {
        let all = std::fs::read(&self.files[0].0).unwrap();
        all[(block * 512) as usize..((block + count) * 512) as usize].to_vec()
    }
}

/// A task management request for LUN 0.
pub fn tsk_mgmt(tag: u64, function: Function, task_tag: u64) -> Vec<u8> {
    let request = TskMgmt {
        tag,
        lun: Lun::from_int(0),
        function,
        task_tag,
    };
    let mut iu = vec![0; 48];
    let n = request.build(&mut iu).unwrap();
    iu.truncate(n);
    iu
}

pub fn requested() -> Requested {
    Requested {
        tag: 77,
        max_it_iu_len: 8260,
        descriptors: 12,
        immediate: 8192,
        multichannel: MultiChannel::Single,
        initiator: INITIATOR,
        target: TARGET,
    }
}

pub fn further() -> Requested {
    Requested {
        multichannel: MultiChannel::Multi,
        ..requested()
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ i as u8 ^ seed).collect()
}

/// CDB of a READ (10) or WRITE (10).
pub fn cdb10(opcode: u8, lba: u32, count: u16) -> [u8; 10] {
    let (l, c) = (lba.to_be_bytes(), count.to_be_bytes());
    [opcode, 0, l[0], l[1], l[2], l[3], 0, c[0], c[1], 0]
}
