// SPDX-License-Identifier: GPL-2.0

//! A session with one channel and one slot, for tests.

use crate::{
    bindings,
    rdma::{
        device::{Device, Health, Registered, DEVICE},
        pd::Pd,
    },
    scsi::{Cmnd, Command, ScsiResult},
    srp::{
        channel::{Channel, Connection},
        channels::Channels,
        error::Lost,
        logic::state::{Life, Link, State},
        port::Port,
        proto::{
            ids::{Lun, PortId},
            login_iu::Granted,
            options::{Defaults, Options},
        },
        sizes,
        status::{Owner, Status},
    },
    workqueue::WorkerPool,
};
use kernel::{
    prelude::*,
    sync::{rcu, Arc, ArcBorrow},
};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Creates a protection domain.
pub fn pd() -> Arc<Pd> {
    let device: &Device = &DEVICE;
    let device: Registered = device.hold().unwrap();
    Pd::new(device).unwrap()
}

/// Counts the reported failures of connections.
#[derive(Default)]
pub struct Told {
    pub failed: AtomicU32,
}

impl Owner for Told {
    fn fail(self: ArcBorrow<'_, Self>, _: Lost) {
        self.failed.fetch_add(1, Relaxed);
    }

    fn strike(&self, _: &Lost) {}

    fn answer_channel_lost(&self, _: usize, _: Option<&Lost>) {}

    fn credit_missing(self: ArcBorrow<'_, Self>) {}

    fn units_changed(self: ArcBorrow<'_, Self>) {}
}

/// A session.
pub struct Stand {
    pub status: Arc<Status>,
    pub told: Arc<Told>,
    pub channels: Channels,
}

fn live(lost: bool) -> State {
    let link = match lost {
        true => Link::Lost,
        false => Link::Up,
    };
    State {
        life: Life::Live,
        link,
        ..State::default()
    }
}

impl Stand {
    /// Creates a session that is not logged in.
    pub fn new() -> std::sync::Arc<Self> {
        let text = b"id_ext=0011223344556677,ioc_guid=8899aabbccddeeff,dest=192.0.2.1:5000,\
            queue_size=1,ch_count=1,cmd_sg_entries=1";
        let options = Options::parse(text, &Defaults::default()).unwrap();
        let geometry = sizes::geometry(&options, DEVICE.limits()).unwrap();
        let port = Port::new(&DEVICE, 1, Health::new().unwrap()).unwrap();
        let status = Status::new(port, PortId([0; 16]), geometry).unwrap();
        status.set_state(live(false));
        let told = Arc::new(Told::default(), GFP_KERNEL).unwrap();
        let owner: Arc<dyn Owner> = told.clone();
        let pd = pd();
        let channel = Channel::new(&status, &owner, 0, &pd, &[]).unwrap();
        let mut channels = Channels::default();
        channels.push(channel).unwrap();
        std::sync::Arc::new(Self {
            status,
            told,
            channels,
        })
    }

    /// Creates a session that is logged in and may send this many commands.
    pub fn logged_in(commands: u32) -> std::sync::Arc<Self> {
        let this = Self::new();
        this.connect();
        this.open(commands).unwrap();
        this
    }

    pub fn channel(&self) -> &Arc<Connection> {
        self.channels.first().unwrap()
    }

    /// Connects the channel.
    pub fn connect(&self) {
        self.channel().renew();
        self.channel().create().unwrap();
    }

    /// Completes the login. The target grants one more credit, for task management.
    pub fn open(&self, commands: u32) -> Result {
        self.channel().open(&Granted {
            req_lim: commands + 1,
            max_it_iu_len: 512,
            descriptors: 1,
            immediate: 512,
        })
    }

    /// Sets whether the session is lost. A lost session sends no commands.
    pub fn set_lost(&self, lost: bool) {
        self.status.set_state(live(lost));
    }

    /// Loses the connection and ends it.
    pub fn end(&self) {
        self.set_lost(true);
        self.channels.end(&WorkerPool);
    }

    /// Queues a command as the midlayer does, in an RCU read-side section. Returns whether it was
    /// accepted.
    pub fn queue(&self, cmd: &std::sync::Arc<Cmnd>) -> bool {
        let command = Command(cmd.clone());
        let tag = command.tag();
        let posting = rcu::read_lock();
        let Some(connection) = self.channels.for_hw_queue(0, &posting) else {
            command.release();
            return false;
        };
        match connection.queue(&posting, command, tag) {
            Ok(()) => true,
            Err(rejected) => {
                rejected.cmd.release();
                false
            }
        }
    }

    /// Reports that the connection has failed.
    pub fn fail(&self) {
        self.channel().fail(Lost::HostReset);
    }

    /// Aborts a command as the error handler does.
    pub fn abort(&self, cmd: &Cmnd) -> bool {
        self.channels.abort(cmd.tag, Lun::from_int(cmd.lun))
    }

    /// The target receives a command and does not respond.
    pub fn not_answered(&self) {
        let request = self.channel().take().expect("a command");
        self.channel().carry_out_only(request);
        self.channel().completed();
    }

    /// Executes up to this many requests as the device and the target. Stops when the connection
    /// ends.
    pub fn device(&self, requests: usize) {
        for _ in 0..requests {
            let request = loop {
                match self.channel().take() {
                    Some(request) => break request,
                    None if self.channel().is_over() => return,
                    None => loom::thread::yield_now(),
                }
            };
            self.channel().carry_out(request);
            self.channel().completed();
        }
    }
}

/// Whether the command ended with the result of a lost command, which is retried.
pub fn is_reset(cmd: &Cmnd) -> bool {
    cmd.result.load(Relaxed) == ScsiResult::DID_RESET.number()
}

/// Sets whether waits in this execution ignore their timeouts.
pub fn be_patient(patient: bool) {
    bindings::be_patient(patient);
}
