// SPDX-License-Identifier: GPL-2.0

//! The target's side of the InfiniBand CM, without datagrams.

use std::time::{Duration, Instant};

use odd_target::{
    orders::Order,
    requests::{for_rdma, Deed, Requests},
};
use srp_target::proto::{
    ids::PortId,
    login_iu::{LoginReq, LoginReqRdma, MultiChannel, Requested},
};
use verbs::ib_cm::{Kind, Mad};

/// Communication ID of the peer.
const PEER: u32 = 0x77;

struct Testbed {
    requests: Requests<u8>,
    now: Instant,
    /// The logged lines.
    said: Vec<String>,
}

impl Testbed {
    fn new() -> Self {
        Self {
            requests: Requests::default(),
            now: Instant::now(),
            said: Vec::new(),
        }
    }

    fn script(&mut self, line: &str) {
        match Order::parse(&format!("requests {line}")) {
            Some(Order::Requests { count, steps }) => self.requests.script(count, steps),
            other => panic!("{other:?}"),
        }
    }

    fn hear(&mut self, mad: Mad) -> Vec<Deed<u8>> {
        self.requests.heard("a", mad, 9, self.now);
        self.deeds()
    }

    /// The deeds, except what is logged.
    fn deeds(&mut self) -> Vec<Deed<u8>> {
        let mut deeds = self.requests.deeds();
        deeds.retain(|deed| match deed {
            Deed::Say(what) => {
                self.said.push(what.clone());
                false
            }
            _ => true,
        });
        deeds
    }

    /// Accepts the pending login.
    fn accept(&mut self, deeds: &[Deed<u8>]) -> Vec<Deed<u8>> {
        let [Deed::Login { channel, .. }] = deeds else {
            panic!("{deeds:?}");
        };
        self.requests.accepted(*channel, 0x55, &[0xc0], self.now);
        self.deeds()
    }

    fn wait(&mut self, ms: u64) -> Vec<Deed<u8>> {
        self.now += Duration::from_millis(ms);
        self.requests.attend(self.now);
        self.deeds()
    }
}

fn req(id: u32) -> Mad {
    let mut mad = Mad::new(Kind::Req, 5, id, 0);
    mad.put(32, &[0, 0x12, 0x34]);
    mad.put(140, &[0, 1, 2]);
    mad
}

fn message(kind: Kind, to: u32) -> Mad {
    Mad::new(kind, 5, PEER, to)
}

/// The kinds of the datagrams that are sent.
fn sent(deeds: &[Deed<u8>]) -> Vec<Kind> {
    let kind = |deed: &Deed<u8>| match deed {
        Deed::Send { to: 9, mad } => mad.kind(),
        _ => None,
    };
    deeds.iter().filter_map(kind).collect()
}

/// The only datagram.
fn only(deeds: &[Deed<u8>]) -> Mad {
    match deeds {
        [Deed::Send { to: 9, mad }] => **mad,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_login_without_a_script() {
    let mut testbed = Testbed::new();
    let deeds = testbed.hear(req(PEER));
    assert!(matches!(&deeds[..], [Deed::Login { channel: 1, data }] if data[..3] == [0, 1, 2]));
    assert_eq!(
        testbed.requests.request(1).map(|(r, _)| r.qpn),
        Some(0x1234)
    );
    let rep = only(&testbed.accept(&deeds));
    let ids = (rep.kind(), rep.from(), rep.to(), rep.tid());
    assert_eq!(ids, (Some(Kind::Rep), 1, PEER, 5));
    assert_eq!(
        (&rep.message()[12..15], rep.message()[36]),
        (&[0, 0, 0x55][..], 0xc0)
    );

    assert_eq!(testbed.hear(message(Kind::Rtu, 1)), [Deed::Established(1)]);
    assert_eq!(testbed.hear(message(Kind::Rtu, 1)), []);
    let end = testbed.hear(message(Kind::Dreq, 1));
    assert_eq!(sent(&end), [Kind::Drep]);
    assert_eq!(end.last(), Some(&Deed::Ended(1)));
    assert!(
        testbed.said[0].starts_with("req at=a service="),
        "{:?}",
        testbed.said
    );
    assert_eq!(testbed.said[1..], ["rtu", "rtu again", "dreq"]);
}

#[test]
fn a_refused_login() {
    let mut testbed = Testbed::new();
    testbed.hear(req(PEER));
    testbed.requests.refused(1, &[0xc2]);
    let rej = only(&testbed.deeds());
    assert_eq!(
        (rej.kind(), rej.reason(), rej.of()),
        (Some(Kind::Rej), 28, 0)
    );
    assert_eq!(rej.message()[84], 0xc2);
    assert!(testbed.requests.request(1).is_none());
}

#[test]
fn scripts_are_for_requests_in_order() {
    let mut testbed = Testbed::new();
    testbed.script("2 rej:24:0102:03");
    testbed.script("rej:3");
    for reason in [24, 24, 3] {
        let rej = only(&testbed.hear(req(PEER)));
        assert_eq!((rej.kind(), rej.reason()), (Some(Kind::Rej), reason));
        let info = if reason == 24 { [4, 1, 2, 3] } else { [0; 4] };
        let m = rej.message();
        assert_eq!([m[9], m[12], m[13], m[84]], info);
    }
    assert!(matches!(testbed.hear(req(PEER))[..], [Deed::Login { .. }]));
    testbed.script("5 nothing");
    testbed.requests.forget();
    assert!(matches!(
        testbed.hear(req(PEER + 1))[..],
        [Deed::Login { .. }]
    ));
}

#[test]
fn a_retransmission_without_a_reply_is_a_new_request() {
    let mut testbed = Testbed::new();
    testbed.script("nothing");
    assert_eq!(testbed.hear(req(PEER)), []);
    let deeds = testbed.hear(req(PEER));
    assert_eq!(testbed.said[1..], ["req again"]);
    // While the decision about a login is pending, a retransmission asks for no second one.
    assert_eq!(testbed.hear(req(PEER)), []);
    assert_eq!(sent(&testbed.accept(&deeds)), [Kind::Rep]);
    assert_eq!(sent(&testbed.hear(req(PEER))), [Kind::Rep]);
    assert_eq!(testbed.said[3], "req again after the answer");
}

#[test]
fn steps_wait() {
    let mut testbed = Testbed::new();
    testbed.script("mra:20 wait:1000 rep wait:300 dreq");
    let mra = only(&testbed.hear(req(PEER)));
    assert_eq!((mra.kind(), mra.timeout()), (Some(Kind::Mra), 20));
    assert_eq!(testbed.hear(req(PEER)), []);
    assert_eq!(testbed.wait(999), []);
    let deeds = testbed.wait(1);
    assert_eq!(sent(&testbed.accept(&deeds)), [Kind::Rep]);
    let due = testbed.requests.attend(testbed.now);
    assert_eq!(due, Some(testbed.now + Duration::from_millis(300)));
    let dreq = only(&testbed.wait(300));
    assert_eq!(dreq.kind(), Some(Kind::Dreq));
    assert_eq!(dreq.message()[8..11], [0, 0x12, 0x34]);
    assert_eq!(testbed.hear(message(Kind::Drep, 1)), [Deed::Ended(1)]);
}

#[test]
fn a_reply_with_changed_bytes() {
    let mut testbed = Testbed::new();
    testbed.script("rep:4:deadbeef rep");
    let deeds = testbed.hear(req(PEER));
    let replies = testbed.accept(&deeds);
    let [Deed::Send { mad: wrong, .. }, Deed::Send { mad: right, .. }] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!((wrong.to(), right.to()), (0xdead_beef, PEER));
}

#[test]
fn a_rej_after_the_reply_refers_to_it() {
    let mut testbed = Testbed::new();
    testbed.script("rep rej:4");
    let deeds = testbed.hear(req(PEER));
    let deeds = testbed.accept(&deeds);
    assert_eq!(sent(&deeds), [Kind::Rep, Kind::Rej]);
    let Deed::Send { mad, .. } = &deeds[1] else {
        panic!();
    };
    assert_eq!((mad.of(), mad.reason()), (1, 4));
    assert_eq!(deeds[2], Deed::Ended(1));
}

#[test]
fn the_peer_gives_up() {
    let mut testbed = Testbed::new();
    // Before a reply the peer does not know our ID.
    testbed.hear(req(PEER));
    assert_eq!(testbed.hear(message(Kind::Rej, 0)), [Deed::Ended(1)]);
    // Afterwards it does.
    let deeds = testbed.hear(req(PEER));
    testbed.accept(&deeds);
    assert_eq!(testbed.hear(message(Kind::Rej, 2)), [Deed::Ended(2)]);
    // A channel that has ended here ends only once.
    let deeds = testbed.hear(req(PEER));
    testbed.accept(&deeds);
    testbed.requests.disconnect(3);
    testbed.requests.closed(3);
    assert_eq!(sent(&testbed.deeds()), [Kind::Dreq]);
    assert_eq!(testbed.hear(message(Kind::Drep, 3)), []);
}

#[test]
fn a_dreq_for_an_unknown_channel_is_confirmed() {
    let mut testbed = Testbed::new();
    let drep = only(&testbed.hear(message(Kind::Dreq, 4)));
    let ids = (drep.kind(), drep.from(), drep.to());
    assert_eq!(ids, (Some(Kind::Drep), 4, PEER));
    assert_eq!(testbed.said, ["message 15 for no channel"]);
    let mut other = req(PEER);
    other.0[1] = 3;
    assert_eq!(testbed.hear(other), []);
    assert!(testbed.said[1].starts_with("FAILED"));
}

#[test]
fn a_login_has_the_fields_of_one_by_rdma_cm() {
    let what = Requested {
        tag: 0x0102_0304_0506_0708,
        max_it_iu_len: 8260,
        descriptors: 12,
        immediate: 8192,
        multichannel: MultiChannel::Multi,
        initiator: PortId([1; 16]),
        target: PortId([2; 16]),
    };
    let mut data = LoginReq::new(&what).as_bytes().to_vec();
    data.resize(92, 0);
    assert_eq!(for_rdma(&data), LoginReqRdma::new(&what).as_bytes());
}
