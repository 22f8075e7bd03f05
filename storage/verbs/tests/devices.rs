// SPDX-License-Identifier: GPL-2.0

//! Devices that go away, break or let a caller wait, on the made-up rdma-core of `fake.h`.

use std::{
    collections::HashSet,
    io,
    time::{Duration, Instant},
};

use srp_target::reactor::{Event, Reactor};
use verbs::{Arena, Buffer, Op, Piece};

use crate::pair::*;

/// Connects to both devices, removes the first, adds it again and connects to it.
fn comes_and_goes(tell_ids: bool) {
    let _alone = alone();
    let listen = ["0.0.0.0:5000", "192.0.2.1:5001"];
    let mut pair = Pair {
        server: Side::new(&listen),
        client: Side::new(&[]),
    };
    let [gone, bound] = ["192.0.2.1:5000", "192.0.2.1:5001"].map(|to| pair.connect(to));
    let stays = pair.connect("192.0.2.2:5000");
    [gone, bound, stays]
        .into_iter()
        .for_each(|id| pair.send(id));
    // A thread may still have the data of a command.
    let data: Buffer = pair.client.reactor.take(gone, 8192).unwrap();

    remove(0, tell_ids);
    pair.until("the ends", |server, client| {
        client.ended.len() == 2 && server.ended.len() == 2
    });
    for (id, why) in &pair.client.ended {
        assert!([gone, bound].contains(id), "{id}");
        assert!(why.as_ref().is_some_and(|w| w.contains("gone")), "{why:?}");
    }
    // A turn takes one event of the connection manager.
    pair.until("the sides to stop spinning", |server, client| {
        !server.busy() && !client.busy()
    });
    pair.send(stays);

    add(0);
    let back = pair.connect("192.0.2.1:5000");
    pair.send(back);
    pair.send(stays);
    assert_eq!(misuse(), "");
    drop(data);
    if tell_ids {
        pair.until("to listen again", |server, _| !server.reactor.leaving());
        let bound = pair.connect("192.0.2.1:5001");
        pair.send(bound);
    }
    drop(pair);
    assert_eq!(misuse(), "");
    // The removed one is closed; librdmacm keeps those of devices that are there.
    assert_eq!(open(), 2);
}

#[test]
fn a_removed_device_is_dropped_and_taken_again() {
    comes_and_goes(true);
}

/// Each peer has a key of its own to the arena, and each side uses only memory of the connection's
/// domain, which is released with a device that is gone.
#[test]
fn each_connection_has_a_domain() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5006"]),
        client: Side::new(&[]),
    };
    for side in [&mut pair.server, &mut pair.client] {
        side.reactor.share(Arena::new(4096).unwrap());
    }
    let to = ["192.0.2.1:5006", "192.0.2.1:5006", "192.0.2.2:5006"];
    let links = to.map(|to| pair.connect(to));
    let keys: HashSet<u32> = links.iter().map(|id| pair.offer(*id)).collect();
    assert_eq!(keys.len(), links.len());
    let piece = Piece {
        va: 0,
        key: 0,
        len: 512,
    };
    for id in links {
        let pieces = vec![(512, piece)];
        let reactor = &mut pair.client.reactor;
        reactor.queue_arena(id, Some(()), Op::Read, pieces).unwrap();
        pair.send(id);
    }
    for id in pair.server.connected.clone() {
        let pieces = vec![(512, piece)];
        let reactor = &mut pair.server.reactor;
        reactor
            .queue_arena(id, Some(()), Op::Write, pieces)
            .unwrap();
        let buffer = reactor.take(id, 512).unwrap();
        reactor
            .queue(id, Some(()), Op::Write, buffer, vec![piece])
            .unwrap();
    }
    pair.send(links[0]);
    assert_eq!(misuse(), "");

    remove(0, true);
    pair.until("the ends", |server, client| {
        client.ended.len() == 2 && server.ended.len() == 2
    });
    pair.send(links[2]);
    add(0);
    let back = pair.connect(to[0]);
    let key = pair.offer(back);
    assert!(!keys.contains(&key), "{key}");
    drop(pair);
    // Threads release the arenas of the connections that have ended.
    let until = Instant::now() + Duration::from_secs(10);
    while open() != 2 {
        assert!(Instant::now() < until, "{} contexts", open());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(misuse(), "");
}

/// A buffer of one connection does not get to the queue pair of another, whose domain forbids it.
#[test]
fn a_buffer_stays_in_its_domain() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5009"]),
        client: Side::new(&[]),
    };
    let [one, other] = ["192.0.2.1:5009"; 2].map(|to| pair.connect(to));
    let reactor = &mut pair.client.reactor;
    let len = 512;
    let pieces = vec![Piece {
        va: 0,
        key: 0,
        len: len as u32,
    }];

    let strange = reactor.take(one, len).unwrap();
    let queued = reactor.queue(other, None, Op::Write, strange, pieces.clone());
    assert_eq!(queued.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let strange = reactor.take(one, len).unwrap();
    let posted = reactor.receive(other, strange);
    assert_eq!(posted.unwrap_err().kind(), io::ErrorKind::InvalidInput);

    let mut strange = reactor.take(one, len).unwrap();
    strange[7] = 99;
    let own = reactor.adopt(other, strange).unwrap();
    assert_eq!(own[7], 99);
    let at = own.as_ptr();
    let own = reactor.adopt(other, own).unwrap();
    assert_eq!(own.as_ptr(), at);
    reactor.queue(other, None, Op::Write, own, pieces).unwrap();

    let strange = reactor.take(one, len).unwrap();
    reactor.give(other, Some(strange));
    pair.send(other);
    pair.send(one);
    assert_eq!(misuse(), "");
}

#[test]
fn a_fatal_event_ends_the_device() {
    comes_and_goes(false);
}

#[test]
fn an_event_ends_its_connection_only() {
    for what in [0, 1] {
        let _alone = alone();
        let mut pair = Pair {
            server: Side::new(&["0.0.0.0:5002", "0.0.0.0:5003"]),
            client: Side::new(&[]),
        };
        let [broken, whole] = ["192.0.2.1:5002", "192.0.2.1:5003"].map(|to| pair.connect(to));
        // A port that goes down ends nothing.
        event(2, 0);
        pair.send(broken);
        event(what, 5002);
        // Both sides are in this process, and so share the context. This event is the client's.
        let until = Instant::now() + Duration::from_secs(10);
        while !pair.client.ended.contains_key(&broken) {
            assert!(Instant::now() < until, "the end");
            pair.client.turn();
        }
        let why = pair.client.ended[&broken].clone().unwrap();
        assert!(why.starts_with("event "), "{why}");
        pair.send(whole);
        assert_eq!(pair.client.ended.len(), 1);
        drop(pair);
        assert_eq!(misuse(), "");
    }
}

#[test]
fn a_connect_that_waits_delays_no_other_connection() {
    const WAIT: Duration = Duration::from_millis(2000);
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5004", "0.0.0.0:9"]),
        client: Side::new(&[]),
    };
    let other = pair.connect("192.0.2.1:5004");
    delay(WAIT.as_millis() as u32);
    let begin = Instant::now();
    let slow = pair.client.connect("192.0.2.2:9");
    let closed = pair.client.connect("192.0.2.2:9");
    let done = |client: &Side| client.connected.contains(&slow);
    pair.send_beside(other, closed, begin, WAIT, done);
    pair.send(slow);
    std::thread::sleep(WAIT);
    pair.client.turn();

    // A host that never answers does not get a thread for each try.
    let tries = (0..99).map(|_| pair.client.connect("192.0.2.2:9"));
    let tries: Vec<_> = tries.collect();
    let refused = |client: &Side| {
        let why = tries.iter().filter_map(|id| client.ended.get(id)?.as_ref());
        why.filter(|w| w.contains("earlier tries")).count()
    };
    pair.until("refusals", |_, client| refused(client) == 99 - 16);
    drop(pair);
    std::thread::sleep(2 * WAIT);
    assert_eq!(misuse(), "");
}

/// Each source that is asked takes a system call.
#[test]
fn only_sources_with_events_are_asked() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5013"]),
        client: Side::new(&[]),
    };
    let id = pair.connect("192.0.2.1:5013");
    pair.send(id);
    pair.server.turn();
    pair.client.turn();
    let before = asked();
    pair.server.turn();
    assert_eq!(asked(), before, "no source has anything");
    pair.client.reactor.send(id, None, b"a message").unwrap();
    pair.server.turn();
    assert_eq!(pair.server.all_received(), 2);
    // The completion channel, until it is empty.
    assert_eq!(asked(), before + 2);
    assert_eq!(misuse(), "");
}

#[test]
fn data_and_response_take_one_doorbell() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5015"]),
        client: Side::new(&[]),
    };
    pair.connect("192.0.2.1:5015");
    let id = pair.server.connected[0];
    let piece = Piece {
        va: 0,
        key: 0,
        len: 4096,
    };
    let reactor = &mut pair.server.reactor;
    for (pieces, wanted) in [(1, 1), (16, 1), (40, 2)] {
        let before = doorbells();
        let data = reactor.take(id, pieces * 4096).unwrap();
        let list = vec![piece; pieces];
        reactor.queue(id, None, Op::Write, data, list).unwrap();
        assert_eq!(doorbells(), before);
        reactor.send(id, None, b"a response").unwrap();
        assert_eq!(doorbells(), before + wanted, "{pieces} pieces");
    }
    pair.until("the responses", |_, client| client.all_received() == 3);
    assert_eq!(misuse(), "");
}

/// A wait that finds more than a turn takes, or nothing because the events are the reactor's own.
#[test]
fn no_event_is_lost_between_waits() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5014"]),
        client: Side::new(&[]),
    };
    let links = ["192.0.2.1:5014", "192.0.2.1:5014", "192.0.2.2:5014"].map(|to| pair.connect(to));
    for _ in 0..3 {
        for id in links {
            pair.client.reactor.send(id, None, b"a message").unwrap();
        }
    }
    let reactor = &mut pair.server.reactor;
    let mut received = 0;
    for _ in 0..99 {
        reactor.wait(&[], 0).unwrap();
        if let Some(Event::Received { .. }) = reactor.poll().unwrap() {
            received += 1;
        }
    }
    assert_eq!(received, 9);

    // The reactor's own event, of a connection that has ended.
    let closed = pair.server.connected[0];
    reactor.close(closed);
    pair.until("the end", |_, client| client.ended.len() == 1);
    (0..9).for_each(|_| pair.server.turn());
    pair.server.reactor.disconnected(closed);
    let begin = Instant::now();
    pair.server.reactor.wait(&[], 3000).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(misuse(), "");
}

/// The receive buffers of a new connection are registered beside other connections.
#[test]
fn a_connection_is_made_beside_others() {
    const WAIT: Duration = Duration::from_millis(1500);
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5016"]),
        client: Side::new(&[]),
    };
    let [other, closed] = ["192.0.2.1:5016"; 2].map(|to| pair.connect(to));
    slow(WAIT);
    let begin = Instant::now();
    let to = "192.0.2.1:5016".parse().unwrap();
    let made = pair.client.reactor.connect(to, b"test", 48, 1 << 16);
    let made = made.unwrap();
    let done = |client: &Side| client.connected.contains(&made);
    pair.send_beside(other, closed, begin, WAIT, done);
    slow(Duration::ZERO);
    drop(pair);
    assert_eq!(misuse(), "");
}

/// The thread that registers the buffers of a connection ends after the device.
#[test]
fn a_device_goes_while_a_connection_is_made() {
    const WAIT: Duration = Duration::from_millis(1500);
    let _alone = alone();
    for tell_ids in [false, true] {
        let mut pair = Pair {
            server: Side::new(&["0.0.0.0:5017"]),
            client: Side::new(&[]),
        };
        let stays = pair.connect("192.0.2.2:5017");
        slow(WAIT);
        let to = "192.0.2.1:5017".parse().unwrap();
        let made = pair.client.reactor.connect(to, b"test", 48, 1 << 16);
        let made = made.unwrap();
        // The address, then the route.
        pair.client.turn();
        pair.client.turn();
        let begin = Instant::now();
        remove(0, tell_ids);
        pair.until("the end", |_, client| client.ended.contains_key(&made));
        assert!(begin.elapsed() < WAIT / 2);
        pair.send(stays);
        // The thread's connection is dropped.
        while begin.elapsed() < 2 * WAIT {
            pair.client.turn();
        }
        slow(Duration::ZERO);
        add(0);
        let back = pair.connect("192.0.2.1:5017");
        pair.send(back);
        drop(pair);
        assert_eq!(misuse(), "");
        assert_eq!(open(), 2);
    }
}

/// The next connection may have the identifier of one whose end is not told yet.
#[test]
fn a_connect_that_fails_is_told() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5010"]),
        client: Side::new(&[]),
    };
    refuse(true);
    delay(300);
    let failed = pair.client.connect("192.0.2.1:9");
    // The address, then the route.
    pair.client.turn();
    pair.client.turn();
    let woken = verbs::os::wait(&pair.client.reactor.fds(), 5000).unwrap();
    assert!(woken.contains(&true), "the thread");
    again();
    let next = pair.client.connect("192.0.2.1:5010");
    pair.until("the end", |_, client| client.ended.contains_key(&failed));
    refuse(false);
    let why = pair.client.ended[&failed].clone().unwrap();
    assert!(why.contains("refused"), "{why}");
    pair.until("the other", |server, client| {
        client.connected.contains(&next) && server.connected.len() == 1
    });
    pair.send(next);
    assert_eq!(pair.client.ended.len(), 1);
    assert!(!pair.client.reactor.has(failed));
    assert_eq!(misuse(), "");
}

/// Free buffers are released when the kernel's limit of locked memory is reached.
#[test]
fn a_limit_of_the_kernel_takes_free_buffers() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5011"]),
        client: Side::new(&[]),
    };
    let [one, other] = ["192.0.2.1:5011"; 2].map(|to| pair.connect(to));
    let reactor = &mut pair.client.reactor;
    let buffer = reactor.take(one, 1 << 16).unwrap();
    reactor.give(one, Some(buffer));
    limit(0);
    let buffer = reactor.take(other, 1 << 16);
    let none = reactor.take(one, 1 << 16).map(|_| ());
    limit(-1);
    assert!(buffer.is_ok(), "{:?}", buffer.err());
    assert_eq!(none.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(misuse(), "");
}

/// The rest of the memory is for those that this side connects to.
#[test]
fn data_of_others_leaves_memory_to_roles() {
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5019"]),
        client: Side::new(&["0.0.0.0:5020"]),
    };
    pair.connect("192.0.2.1:5019");
    let other = pair.server.connected[0];
    let role = pair.server.connect("192.0.2.1:5020");
    pair.until("the role", |server, _| server.connected.contains(&role));
    let reactor = &mut pair.server.reactor;
    let (len, large) = (1 << 17, 4 << 20);
    let own = reactor.take(role, len).unwrap();
    reactor.give(role, Some(own));
    let mut all: Vec<_> = std::iter::from_fn(|| reactor.take(other, large).ok()).collect();
    assert!(all.len() > 99, "{}", all.len());
    let before = registered();
    let own = reactor.take(role, len).unwrap();
    assert_eq!(registered(), before, "the free buffer");
    let more: Vec<_> = std::iter::from_fn(|| reactor.take(role, large).ok()).collect();
    assert!(more.len() > 9, "{}", more.len());

    // A thread releases what comes back when the connection has ended.
    all.truncate(8);
    let begin = Instant::now();
    slow(Duration::from_millis(200));
    reactor.close(other);
    for buffer in all {
        reactor.give(other, Some(buffer));
    }
    assert!(begin.elapsed() < Duration::from_millis(200));
    slow(Duration::ZERO);
    drop((own, more));
    drop(pair);
    assert_eq!(misuse(), "");
}

#[test]
fn an_arena_is_registered_beside_other_connections() {
    const WAIT: Duration = Duration::from_millis(1500);
    let _alone = alone();
    let mut pair = Pair {
        server: Side::new(&["0.0.0.0:5012"]),
        client: Side::new(&[]),
    };
    pair.client.reactor.share(Arena::new(2 << 20).unwrap());
    let [other, shared, closed] = ["192.0.2.1:5012"; 3].map(|to| pair.connect(to));
    slow(WAIT);
    let begin = Instant::now();
    for id in [shared, closed] {
        pair.client.reactor.offer(id, ()).unwrap();
    }
    assert!(begin.elapsed() < WAIT / 2, "{:?}", begin.elapsed());
    let done = |client: &Side| client.reactor.arena(shared).is_some();
    pair.send_beside(other, closed, begin, WAIT, done);
    assert_eq!(pair.client.reactor.arena(closed), None);
    // Its end takes as long.
    let before = Instant::now();
    pair.client.reactor.close(shared);
    assert!(before.elapsed() < WAIT / 2, "{:?}", before.elapsed());
    pair.send(other);

    // A peer that comes again and again does not get a thread each time. Those that release what
    // `shared` and `closed` had count.
    let offer = |pair: &mut Pair| pair.client.reactor.offer(other, ());
    let all: Vec<_> = (0..99).map(|_| offer(&mut pair).is_ok()).collect();
    assert!(all.iter().filter(|ok| **ok).count() < 16);
    std::thread::sleep(2 * WAIT);
    slow(Duration::ZERO);
    drop(pair);
    assert_eq!(misuse(), "");
}

/// siw completes a SEND before an RDMA READ that is posted earlier.
#[test]
fn an_rdma_read_may_complete_late() {
    let _alone = alone();
    let mut server = Side::new(&["0.0.0.0:5018"]);
    let mut client = Reactor::<u32>::calling().unwrap();
    let to = "192.0.2.1:5018".parse().unwrap();
    let id = client.connect(to, b"test", 4, LEN).unwrap();
    let mut turn = |client: &mut Reactor<u32>| {
        server.turn();
        client.wait(&[], 1).unwrap();
        client.poll().unwrap()
    };
    let mut next = |client: &mut Reactor<u32>| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            assert!(Instant::now() < until, "an event");
            match turn(client) {
                Some(Event::Done { token, buffer, .. }) => return Some((token, buffer)),
                Some(Event::Connected { .. }) => return None,
                Some(Event::Ended { why, .. }) => panic!("ended: {why:?}"),
                _ => {}
            }
        }
    };
    assert!(next(&mut client).is_none());
    late_reads(true);
    let buffer = client.take(id, 8192).unwrap();
    let piece = Piece {
        va: 0,
        key: 0,
        len: 8192,
    };
    client
        .queue(id, Some(1), Op::Read, buffer, vec![piece])
        .unwrap();
    for token in [2, 3] {
        client.send(id, Some(token), b"a message").unwrap();
        let (done, buffer) = next(&mut client).unwrap();
        assert_eq!((done, buffer.unwrap().len()), (token, 4096));
    }
    late_reads(false);
    let (done, buffer) = next(&mut client).unwrap();
    assert_eq!((done, buffer.unwrap().len()), (1, 8192));
    assert_eq!(misuse(), "");
}
