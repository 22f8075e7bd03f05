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
    reactor::{Event, LinkId, Reactor},
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

struct Client {
    reactor: Reactor<()>,
    connected: Vec<LinkId>,
    ended: Vec<LinkId>,
    received: usize,
}

impl Client {
    fn new() -> Self {
        Self {
            reactor: Reactor::calling().unwrap(),
            connected: Vec::new(),
            ended: Vec::new(),
            received: 0,
        }
    }

    fn login(&mut self, to: &str, initiator: u8, max_it_iu_len: u32) -> LinkId {
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
        self.reactor.connect(to, request.as_bytes(), 8, 64).unwrap()
    }

    fn turn(&mut self) {
        self.reactor.wait(&[], 1).unwrap();
        while let Some(event) = self.reactor.poll().unwrap() {
            match event {
                Event::Connected { id } => self.connected.push(id),
                Event::Ended { id, .. } => self.ended.push(id),
                Event::Received { id, buffer, .. } => {
                    self.received += 1;
                    self.reactor.receive(id, buffer).unwrap();
                }
                Event::Done { id, buffer, .. } => self.reactor.give(id, buffer),
                Event::Login { .. } => panic!("a login"),
            }
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < until, "{what}");
            self.turn();
        }
    }

    /// Sends TEST UNIT READY. Returns how long the response took.
    fn test(&mut self, id: LinkId) -> Duration {
        let (mut iu, lun) = ([0; 64], Lun::from_int(0));
        let (tag, cdb) = (self.received as u64, &[0; 6]);
        let n = Cmd { tag, lun, cdb }.build(&mut iu).unwrap();
        let (before, begin) = (self.received, Instant::now());
        self.reactor.send(id, None, &iu[..n]).unwrap();
        self.until("a response", |c| c.received > before);
        begin.elapsed()
    }
}

#[test]
fn a_session_with_a_channel_on_each_reactor() {
    let _alone = alone();
    let target = Running::new("0.0.0.0:5040", 3);
    let mut client = Client::new();
    let links: Vec<_> = (0..6)
        .map(|_| client.login("192.0.2.1:5040", 1, 260))
        .collect();
    client.until("the channels", |c| c.connected.len() == links.len());
    for id in &links {
        client.test(*id);
    }
    // Its logouts end them.
    drop(target);
    client.until("the ends", |c| c.ended.len() == links.len());
    drop(client);
    assert_eq!(misuse(), "");
}

/// The registration of large receive buffers takes long. A command waits for one before it is
/// received, and for one before its response is sent, not for those of all logins.
#[test]
fn many_logins_at_once_delay_no_session() {
    const WAIT: Duration = Duration::from_millis(300);
    const LOGINS: usize = 12;
    let _alone = alone();
    let target = Running::new("0.0.0.0:5041", 1);
    let mut client = Client::new();
    let id = client.login("192.0.2.1:5041", 1, 260);
    client.until("the session", |c| c.connected.contains(&id));
    client.test(id);
    slow(WAIT);
    let begin = Instant::now();
    for n in 0..LOGINS {
        client.login("192.0.2.1:5041", 2 + n as u8, MAX_IT_IU_LEN);
    }
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while client.connected.len() <= LOGINS {
        longest = longest.max(client.test(id));
        count += 1;
    }
    slow(Duration::ZERO);
    let took = begin.elapsed();
    println!("{count} commands in {took:?}, the slowest in {longest:?}");
    assert!(
        took >= WAIT * LOGINS as u32 && longest < 5 * WAIT,
        "{longest:?}"
    );
    drop(target);
    drop(client);
    assert_eq!(misuse(), "");
}
