// SPDX-License-Identifier: GPL-2.0

//! KUnit tests: the effects of device events on the sessions of a port.

use crate::{
    bindings,
    rdma::{
        device_event::{
            self,
            DeviceEvent,
            DeviceEventHandler, //
        },
        ib_cm::tests::target::{
            Answer,
            Asked,
            Script,
            Target, //
        },
        tests::{
            check,
            check_eq,
            events::{
                call,
                report,
                settle, //
            },
            log::Log,
            peer::within,
            soft::Soft,
            suite, //
        },
    },
    srp::{
        connect::{
            Destination,
            LoginParams,
            Service, //
        },
        error::{
            Lost,
            Violation, //
        },
        logic::state::Life,
        proto::{
            guid::Gid,
            options::{
                Defaults,
                Options, //
            },
        },
        session::Session,
        sessions::Sessions,
        sizes,
        tests::{
            messages::{
                get,
                login_rej,
                Empty,
                CMD,
                CONSUMER, //
            },
            stand::Stand, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

suite!(
    srp_port,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        fatal_ends_all_sessions,
        fatal_is_for_its_port,
        changes_kick_a_session_that_recovers,
        kicks_are_for_their_port,
        changes_leave_a_live_session_alone,
        a_storm_is_few_tries,
        a_path_that_may_have_moved_is_tested,
    ]
);

/// Registers for device events, as the module does for its ports.
fn listen(
    soft: &Soft,
    stands: &[&Stand],
) -> Result<(
    Arc<KVec<Arc<Sessions>>>,
    Pin<KBox<device_event::Registration<KVec<Arc<Sessions>>>>>, //
)> {
    let mut ports = KVec::new();
    for stand in stands {
        ports.push(stand.sessions.clone(), GFP_KERNEL)?;
    }
    let events = Arc::new(ports, GFP_KERNEL)?;
    settle();
    let registration = device_event::Registration::new(soft.device.hold()?, events.clone());
    Ok((events, KBox::pin_init(registration, GFP_KERNEL)?))
}

/// A target that refuses logins on demand, so that each attempt is one request, or is silent.
struct Reluctant {
    empty: Arc<Empty>,
    refuses: Atomic<bool>,
    silent: Atomic<bool>,
}

impl Reluctant {
    fn new() -> Result<Arc<Self>> {
        let empty = Empty::new()?;
        let reluctant = Self {
            empty,
            refuses: Atomic::new(false),
            silent: Atomic::new(false),
        };
        Ok(Arc::new(reluctant, GFP_KERNEL)?)
    }
}

impl Script for Arc<Reluctant> {
    fn asked(&self, number: usize, request: &Asked) -> Answer {
        if self.refuses.load(Acquire) {
            return Answer::reject(CONSUMER, &[], &login_rej(0x0001_0001));
        }
        self.empty.asked(number, request)
    }

    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        match self.empty.told(message, reply) {
            _ if self.silent.load(Acquire) => 0,
            answer => answer,
        }
    }
}

fn live(stand: &Stand, target: &Target, more: &str) -> Result<Arc<Session>> {
    let session = stand.log_in(target, more)?.map_err(|why| why.errno())?;
    check_eq!(session.status().state().life, Life::Live);
    Ok(session)
}

const FATAL: &str = "connection lost: fatal error of the RDMA device";

fn fatal_ends_all_sessions(soft: &Soft) -> Result {
    let reluctant = Reluctant::new()?;
    let target = Target::new(&soft.device, reluctant.clone())?;
    let stand = Stand::new(soft)?;
    let (_, _registration) = listen(soft, &[&stand])?;
    let sessions = [
        live(&stand, &target, "")?,
        live(&stand, &target, "initiator_ext=1,")?,
    ];
    reluctant.refuses.store(true, Release);
    let log = Log::from_now();
    report(soft, bindings::ib_event_type_IB_EVENT_DEVICE_FATAL);
    settle();
    for session in &sessions {
        check!(session.status().state().is_lost());
        check_eq!(session.status().state().life, Life::Recovering);
    }
    check_eq!(log.count(FATAL), 2);
    target.has_heard(|heard| &heard.disconnected, 2)
}

/// Puts a session on the list of any port.
fn listed(stand: &Stand, soft: &Soft) -> Result<Arc<Session>> {
    let gid = Gid(soft.device.gid(1, 0)?);
    let text = b"id_ext=1,ioc_guid=2,dgid=fe800000000000000000000000000001,pkey=ffff,service_id=3";
    let options = Options::parse(text, &Defaults::default()).map_err(|_| EINVAL)?;
    let params = LoginParams {
        answers_from: KVec::new(),
        destination: Destination::Ib(Service {
            dgid: gid,
            pkey: 0xffff,
            service_id: 3,
            topspin: false,
        }),
        sgid: gid,
        initiator: options.initiator_port(gid.interface_id()),
        target: options.target_port(),
        retry_count: 7,
        ack_timeout: None,
        tos: None,
    };
    let geometry = sizes::geometry(&options, soft.device.limits())?;
    stand.sessions.begin(options.key(), params, geometry)
}

fn fatal_is_for_its_port(soft: &Soft) -> Result {
    let (one, other) = (Stand::new(soft)?, Stand::with_number(soft, 2)?);
    let (events, _registration) = listen(soft, &[&one, &other])?;
    let first = listed(&one, soft)?;
    let second = listed(&other, soft)?;
    let log = Log::from_now();
    events.device_event(DeviceEvent::Fatal, Some(3));
    check_eq!(
        (
            first.status().state().is_lost(),
            second.status().state().is_lost()
        ),
        (false, false)
    );
    events.device_event(DeviceEvent::Fatal, Some(1));
    check_eq!(
        (
            first.status().state().is_lost(),
            second.status().state().is_lost()
        ),
        (true, false)
    );
    check_eq!(log.count(FATAL), 1);
    events.device_event(DeviceEvent::Fatal, None);
    check!(second.status().state().is_lost());
    // The first loss is logged once.
    check_eq!(log.count(FATAL), 2);
    // Sessions that have not logged in yet end.
    one.sessions.wait_gone(&first);
    other.sessions.wait_gone(&second);
    check_eq!(
        (first.status().state().life, second.status().state().life),
        (Life::Gone, Life::Gone)
    );
    Ok(())
}

/// Device events after which the network may be back.
const CHANGES: [bindings::ib_event_type; 5] = [
    bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
    bindings::ib_event_type_IB_EVENT_LID_CHANGE,
    bindings::ib_event_type_IB_EVENT_PKEY_CHANGE,
    bindings::ib_event_type_IB_EVENT_SM_CHANGE,
    bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER,
];
/// The core reports this event itself, when it changes the GID table.
const GID_CHANGE: bindings::ib_event_type = bindings::ib_event_type_IB_EVENT_GID_CHANGE;

/// Makes a session lose its connection, and its target refuse another one.
fn lose(session: &Arc<Session>, reluctant: &Reluctant) -> Result {
    reluctant.refuses.store(true, Release);
    // After a violation there is no immediate reconnect.
    session.fail(Lost::Violation(Violation::Flags));
    check_eq!(session.status().state().life, Life::Recovering);
    check_eq!(session.status().statistics.violations.get(), 1);
    within(|| session.status().state().is_down())
}

/// Waits until the target has received `count` requests, and no more.
fn asked(target: &Target, count: usize) -> Result {
    within(|| target.requests() >= count)?;
    check_eq!(target.requests(), count);
    Ok(())
}

fn changes_kick_a_session_that_recovers(soft: &Soft) -> Result {
    let reluctant = Reluctant::new()?;
    let target = Target::new(&soft.device, reluctant.clone())?;
    let stand = Stand::new(soft)?;
    let (_, registration) = listen(soft, &[&stand])?;
    let session = live(&stand, &target, "")?;
    lose(&session, &reluctant)?;
    // The transport class retries after ten seconds. The events must be faster.
    let begin = Instant::<Monotonic>::now();
    report(soft, bindings::ib_event_type_IB_EVENT_PORT_ERR);
    settle();
    fsleep(Delta::from_millis(200));
    asked(&target, 1)?;
    let all = Iterator::chain(CHANGES.into_iter(), [GID_CHANGE]);
    for (number, kind) in all.enumerate() {
        if kind == GID_CHANGE {
            call(soft, &registration, kind, 1);
        } else {
            report(soft, kind);
            settle();
        }
        asked(&target, number + 2)?;
        // Wait for the end of the attempt: an earlier event would merge with it.
        within(|| session.recovery().backoff().attempts() as usize == number + 1)?;
        check_eq!(session.status().state().life, Life::Recovering);
    }
    check!(begin.elapsed().as_millis() < 9_000);
    reluctant.refuses.store(false, Release);
    report(soft, bindings::ib_event_type_IB_EVENT_PORT_ACTIVE);
    within(|| session.status().state().life == Life::Live && !session.status().state().is_lost())?;

    target.has_heard(|heard| &heard.confirmed, 2)?;
    // Each attempt has the same parameters and identifiers, and asks to end the previous channel.
    let first = target.request(0)?.data;
    check_eq!(get::<1>(&first, 26)[0] & 3, 0);
    for number in 1..target.requests() {
        let data = target.request(number)?.data;
        check_eq!(get::<48>(&data, 16), get::<48>(&first, 16));
    }
    Ok(())
}

fn kicks_are_for_their_port(soft: &Soft) -> Result {
    let reluctant = Reluctant::new()?;
    let target = Target::new(&soft.device, reluctant.clone())?;
    let stand = Stand::new(soft)?;
    let (events, _registration) = listen(soft, &[&stand])?;
    let session = live(&stand, &target, "")?;
    lose(&session, &reluctant)?;
    let begin = Instant::<Monotonic>::now();
    let active = DeviceEvent::PortActive;
    for port in [0, 2, u32::MAX] {
        events.device_event(active, Some(port));
    }
    events.device_event(DeviceEvent::PortError, Some(1));
    events.device_event(DeviceEvent::Other(19), None);
    fsleep(Delta::from_millis(200));
    asked(&target, 1)?;
    events.device_event(active, Some(1));
    within(|| session.recovery().backoff().attempts() == 1)?;
    asked(&target, 2)?;
    events.device_event(active, None);
    within(|| session.recovery().backoff().attempts() == 2)?;
    asked(&target, 3)?;
    // The transport class has not retried.
    check!(begin.elapsed().as_millis() < 9_000);
    Ok(())
}

fn changes_leave_a_live_session_alone(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, Empty::new()?)?;
    let stand = Stand::new(soft)?;
    let (_, registration) = listen(soft, &[&stand])?;
    let session = live(&stand, &target, "")?;
    let log = Log::from_now();
    for kind in CHANGES {
        report(soft, kind);
    }
    call(soft, &registration, GID_CHANGE, 1);
    report(soft, bindings::ib_event_type_IB_EVENT_PORT_ERR);
    settle();
    fsleep(Delta::from_millis(100));
    check_eq!(session.status().state().life, Life::Live);
    check!(!session.status().state().is_lost());
    check_eq!((target.requests(), log.count("connection lost")), (1, 0));
    Ok(())
}

fn a_storm_is_few_tries(soft: &Soft) -> Result {
    let reluctant = Reluctant::new()?;
    let target = Target::new(&soft.device, reluctant.clone())?;
    let stand = Stand::new(soft)?;
    let (events, _registration) = listen(soft, &[&stand])?;
    let session = live(&stand, &target, "")?;
    lose(&session, &reluctant)?;
    let log = Log::from_now();
    let begin = Instant::<Monotonic>::now();
    events.device_event(DeviceEvent::ClientReregister, Some(1));
    within(|| target.requests() >= 2)?;
    // 100 events per second.
    while begin.elapsed().as_millis() < 1_500 {
        events.device_event(DeviceEvent::ClientReregister, Some(1));
        fsleep(Delta::from_millis(10));
    }
    // The last event counts, too.
    fsleep(Delta::from_millis(300));
    let attempts = target.requests() - 1;
    let most = begin.elapsed().as_millis() as usize / 250 + 1;
    check!(attempts > 2 && attempts <= most);
    within(|| session.recovery().backoff().attempts() as usize >= attempts)?;
    check_eq!(log.count("reconnect failed"), attempts);
    Ok(())
}

fn a_path_that_may_have_moved_is_tested(soft: &Soft) -> Result {
    let reluctant = Reluctant::new()?;
    let target = Target::new(&soft.device, reluctant.clone())?;
    let stand = Stand::new(soft)?;
    let (events, _registration) = listen(soft, &[&stand])?;
    let session = live(&stand, &target, "")?;
    // The scan for disks sends one command.
    within(|| reluctant.empty.count(CMD) == 1)?;
    let tests = || reluctant.empty.count(CMD) - 1;
    // This port has no subnet manager that could move the target.
    events.device_event(DeviceEvent::LidChange, Some(1));
    stand.sessions.each(|session| session.port_changed(false));
    fsleep(Delta::from_millis(100));
    check_eq!(tests(), 0);
    stand.sessions.each(|session| session.port_changed(true));
    within(|| tests() == 1)?;

    reluctant.silent.store(true, Release);
    let log = Log::from_now();
    let begin = Instant::<Monotonic>::now();
    // Events after the first do not restart the test.
    while !session.status().state().is_lost() && begin.elapsed().as_millis() < 9_000 {
        stand.sessions.each(|session| session.port_changed(true));
        fsleep(Delta::from_millis(20));
    }
    let found = begin.elapsed().as_millis();
    check!((4_500..6_500).contains(&found));
    check_eq!(log.count("no response to a connection test"), 1);
    check_eq!(tests(), 2);
    reluctant.silent.store(false, Release);
    within(|| session.status().state().life == Life::Live && !session.status().state().is_lost())?;
    check_eq!(target.requests(), 2);
    Ok(())
}
