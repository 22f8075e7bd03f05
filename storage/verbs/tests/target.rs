// SPDX-License-Identifier: GPL-2.0

//! A whole target, with its threads, on the made-up rdma-core of `fake.h`.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use srp_target::{
    disk::Disk,
    fabric::Fabric,
    proto::{
        cmd::Cmd,
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, MultiChannel, Requested},
    },
    reactor::LinkId,
    scsi::Unit,
    store::Use,
    target::{Settings, MAX_IT_IU_LEN},
};

use crate::pair::*;

const TARGET: PortId = PortId([7; 16]);

/// A target until it is dropped.
struct Running {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(listen: &str, reactors: usize) -> Self {
        let path = std::env::temp_dir().join(format!("verbs-target-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let disk = Disk::open(&path, Use::Alone).unwrap();
        std::fs::remove_file(&path).unwrap();
        let settings = Settings {
            id: TARGET.0,
            queue_depth: 64,
            channels: 16,
        };
        let units = vec![Arc::new(Unit::new(disk, 1))];
        let listen = listen.parse().unwrap();
        let mut fabric = Fabric::new(settings, units, listen, [reactors, 1]).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let run = move || fabric.run(&stopped, None).unwrap();
        Self {
            stop,
            thread: Some(thread::spawn(run)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.write_all(&[0]).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn login(side: &mut Side, to: &str, initiator: u8, max_it_iu_len: u32) -> LinkId {
    let request = LoginReqRdma::new(&Requested {
        tag: 1,
        max_it_iu_len,
        descriptors: 12,
        immediate: 0,
        multichannel: MultiChannel::Multi,
        initiator: PortId([initiator; 16]),
        target: TARGET,
    });
    let to: SocketAddr = to.parse().unwrap();
    side.reactor
        .connect(to, request.as_bytes(), 8, LEN)
        .unwrap()
}

fn until(side: &mut Side, what: &str, done: impl Fn(&Side) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done(side) {
        assert!(Instant::now() < until, "{what}");
        side.turn();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends TEST UNIT READY, and waits for the response.
fn test(side: &mut Side, id: LinkId) {
    let before = side.all_received();
    let (mut iu, lun) = ([0; LEN], Lun::from_int(0));
    let (tag, cdb) = (before as u64, &[0; 6]);
    let n = Cmd { tag, lun, cdb }.build(&mut iu).unwrap();
    side.reactor.send(id, None, &iu[..n]).unwrap();
    until(side, "a response", |s| s.all_received() > before);
}

#[test]
fn a_session_with_a_channel_on_each_reactor() {
    let _alone = alone();
    let target = Running::new("0.0.0.0:5040", 3);
    let mut side = Side::new(&[]);
    let links: Vec<_> = (0..6)
        .map(|_| login(&mut side, "192.0.2.1:5040", 1, 260))
        .collect();
    until(&mut side, "the channels", |s| {
        s.connected.len() == links.len()
    });
    for id in &links {
        test(&mut side, *id);
    }
    // Its logouts end them.
    drop(target);
    until(&mut side, "the ends", |s| s.ended.len() == links.len());
    drop(side);
    assert_eq!(misuse(), "");
}

/// The registration of large receive buffers takes long. A command waits for one before it is
/// received, and for one before its response is sent, not for those of all logins.
#[test]
fn many_logins_at_once_delay_no_session() {
    const WAIT: Duration = Duration::from_millis(200);
    const LOGINS: usize = 16;
    let _alone = alone();
    let target = Running::new("0.0.0.0:5041", 1);
    let mut side = Side::new(&[]);
    let id = login(&mut side, "192.0.2.1:5041", 1, 260);
    until(&mut side, "the session", |s| s.connected.contains(&id));
    test(&mut side, id);
    slow(WAIT);
    for n in 0..LOGINS {
        login(&mut side, "192.0.2.1:5041", 2 + n as u8, MAX_IT_IU_LEN);
    }
    let (mut most, mut count) = (0, 0);
    while side.connected.len() <= LOGINS {
        let before = side.connected.len();
        test(&mut side, id);
        most = most.max(side.connected.len() - before);
        count += 1;
    }
    slow(Duration::ZERO);
    println!("{count} commands, {most} logins during one");
    assert!(most <= LOGINS / 2, "{most} logins during a command");
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}
