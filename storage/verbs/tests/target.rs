// SPDX-License-Identifier: GPL-2.0

//! A whole target, with its threads, on the made-up rdma-core of `fake.h`.

use std::{
    io::Write,
    net::SocketAddr,
    ops::Range,
    os::unix::net::UnixStream,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use srp_target::{
    disk::Disk,
    fabric::Fabric,
    proto::{
        cmd::{Cmd, DirectBuf, Direction},
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, MultiChannel, Requested},
    },
    reactor::LinkId,
    scsi::Unit,
    store::Use,
    target::{Settings, MAX_IT_IU_LEN},
};

use crate::pair::*;

pub(crate) const TARGET: PortId = PortId([7; 16]);

/// A thread until it is dropped.
pub(crate) struct Running {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// `run` gets what is readable when it is to end.
    pub(crate) fn start(run: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let (stop, stopped) = UnixStream::pair().unwrap();
        Self {
            stop,
            thread: Some(thread::spawn(|| run(stopped))),
        }
    }

    /// A target.
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
        Self::start(move |stop| fabric.run(&stop, None).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A thread may end by itself.
        let _ = self.stop.write_all(&[0]);
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn login(side: &mut Side, to: &str, initiator: u8, max_it_iu_len: u32) -> LinkId {
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

pub(crate) fn until(side: &mut Side, what: &str, done: impl Fn(&Side) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done(side) {
        assert!(Instant::now() < until, "{what}");
        side.turn();
        thread::sleep(Duration::from_millis(1));
    }
}

/// A target with a session of initiator 1 on the first device.
fn with_session(port: u16, reactors: usize) -> (Running, Side, LinkId) {
    let target = Running::new(&format!("0.0.0.0:{port}"), reactors);
    let mut side = Side::new(&[]);
    let id = login(&mut side, &format!("192.0.2.1:{port}"), 1, 260);
    until(&mut side, "the session", |s| s.connected.contains(&id));
    (target, side, id)
}

/// Sends TEST UNIT READY, and waits for the response.
pub(crate) fn test(side: &mut Side, id: LinkId) {
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

/// A large login takes long to register, and as long to release. Commands of another session go on
/// meanwhile. The reactors register one after the other.
#[test]
fn large_logins_delay_no_session() {
    for reactors in [1, 3] {
        large_logins(reactors);
    }
}

fn large_logins(reactors: usize) {
    const WAIT: Duration = Duration::from_millis(200);
    const LOGINS: usize = 8;
    let _alone = alone();
    let (target, mut side, id) = with_session(5041, reactors);
    test(&mut side, id);
    let before = registered();
    let commands = |side: &mut Side, what: &str, done: &dyn Fn(&Side) -> bool| {
        let mut count = 0;
        while !done(side) {
            test(side, id);
            count += 1;
        }
        println!("{count} commands beside {LOGINS} {what}, {reactors} reactors");
        assert!(count > 4 * LOGINS, "{count} commands");
    };
    // Those of other tests.
    at_once();
    slow(WAIT);
    let large = |n| login(&mut side, "192.0.2.1:5041", 2 + n, MAX_IT_IU_LEN);
    let links: Vec<_> = (0..LOGINS as u8).map(large).collect();
    commands(&mut side, "logins", &|s| s.connected.len() > LOGINS);
    links.iter().for_each(|id| side.reactor.close(*id));
    commands(&mut side, "ends", &|_| registered() < before + (1 << 20));
    slow(Duration::ZERO);
    assert_eq!(at_once(), 1);
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}

/// Begins READs and WRITEs of 1 MiB: WRITEs have odd tags.
pub(crate) fn transfer(side: &mut Side, id: LinkId, tags: Range<u64>) {
    const BLOCKS: u16 = 2048;
    let data = DirectBuf::new(0, 1, u32::from(BLOCKS) * 512);
    for tag in tags {
        let (code, direction) = match tag % 2 {
            0 => (0x28, Direction::FromDevice),
            _ => (0x2a, Direction::ToDevice),
        };
        let [high, low] = BLOCKS.to_be_bytes();
        let (lun, cdb) = (Lun::from_int(0), &[code, 0, 0, 0, 0, 0, 0, high, low, 0]);
        let mut iu = [0; LEN];
        let command = Cmd { tag, lun, cdb };
        let n = command.build_direct(&mut iu, direction, &data).unwrap();
        side.reactor.send(id, None, &iu[..n]).unwrap();
    }
}

/// Memory for the data of a command takes long to register. Commands of another session go on
/// meanwhile, also if the session of the data ends, whose memory is released.
pub(crate) fn large_data(side: &mut Side, to: &str, id: LinkId) {
    const WAIT: Duration = Duration::from_millis(200);
    const COUNT: u64 = 8;
    let other = login(side, to, 2, 260);
    until(side, "a session", |s| s.connected.contains(&other));
    let before = registered();
    slow(WAIT);
    transfer(side, other, 0..COUNT);
    let mut count = 0;
    while side.received.get(&other) != Some(&(COUNT as usize)) {
        test(side, id);
        count += 1;
    }
    println!("{count} commands beside {COUNT} with data");
    assert!(count > 4 * COUNT, "{count} commands");
    assert!(registered() > before);

    let last = login(side, to, 3, 260);
    until(side, "the session", |s| s.connected.contains(&last));
    transfer(side, last, 0..COUNT);
    test(side, id);
    [last, other].map(|id| side.reactor.close(id));
    let end = Instant::now() + Duration::from_secs(20);
    // Messages may have more buffers than before, but none is as large.
    while registered() >= before + (1 << 20) {
        let more = registered() - before;
        assert!(Instant::now() < end, "{more} bytes");
        test(side, id);
    }
    slow(Duration::ZERO);
    // No command of theirs is left that a login would wait for.
    for id in [2, 3].map(|initiator| login(side, to, initiator, 260)) {
        until(side, "a login", |s| s.connected.contains(&id));
        test(side, id);
    }
}

#[test]
fn large_data_delays_no_session() {
    let _alone = alone();
    let (target, mut side, id) = with_session(5044, 1);
    large_data(&mut side, "192.0.2.1:5044", id);
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}

/// A command without memory for its data is answered, and does not end the session.
pub(crate) fn too_large_data(side: &mut Side, id: LinkId) {
    let before = side.all_received();
    limit(1 << 19);
    transfer(side, id, 0..4);
    until(side, "the responses", |s| s.all_received() == before + 4);
    limit(-1);
    test(side, id);
    transfer(side, id, 0..4);
    until(side, "the responses", |s| s.all_received() == before + 9);
}

#[test]
fn a_command_without_memory_is_refused() {
    let _alone = alone();
    let (target, mut side, id) = with_session(5045, 1);
    too_large_data(&mut side, id);
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}

/// A login is refused if the kernel has no memory for it, and succeeds when it has.
#[test]
fn a_login_without_memory_is_refused() {
    let _alone = alone();
    let (target, mut side, id) = with_session(5042, 1);
    limit(1 << 20);
    let refused = login(&mut side, "192.0.2.1:5042", 2, MAX_IT_IU_LEN);
    until(&mut side, "the refusal", |s| s.ended.contains_key(&refused));
    test(&mut side, id);
    limit(-1);
    let again = login(&mut side, "192.0.2.1:5042", 2, MAX_IT_IU_LEN);
    until(&mut side, "a login", |s| s.connected.contains(&again));
    test(&mut side, again);
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}

/// While the buffers of a login are registered, its peer gives up, or its device goes.
#[test]
fn a_login_ends_while_it_is_registered() {
    const WAIT: Duration = Duration::from_millis(400);
    let _alone = alone();
    let target = Running::new("0.0.0.0:5043", 1);
    let mut side = Side::new(&[]);
    let id = login(&mut side, "192.0.2.2:5043", 1, 260);
    until(&mut side, "the session", |s| s.connected.contains(&id));
    for gone in [false, true] {
        let before = registered();
        slow(WAIT);
        let large = login(&mut side, "192.0.2.1:5043", 2, MAX_IT_IU_LEN);
        let begin = Instant::now();
        while begin.elapsed() < WAIT / 2 {
            test(&mut side, id);
        }
        assert!(!side.connected.contains(&large));
        match gone {
            true => remove(0, true),
            false => side.reactor.close(large),
        }
        while begin.elapsed() < 2 * WAIT || registered() > before + (1 << 20) {
            test(&mut side, id);
        }
        assert!(!side.connected.contains(&large));
        slow(Duration::ZERO);
    }
    add(0);
    let again = login(&mut side, "192.0.2.1:5043", 2, MAX_IT_IU_LEN);
    until(&mut side, "a login", |s| s.connected.contains(&again));
    drop(target);
    drop(side);
    assert_eq!(misuse(), "");
}
