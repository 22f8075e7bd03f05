// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of connection events, which end a login step or the connection.

use super::Events;
use crate::{
    bindings::{
        rdma_cm_event_type,
        rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE as ADDR_CHANGE,
        rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR as ADDR_ERROR,
        rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED as ADDR_RESOLVED,
        rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR as CONNECT_ERROR,
        rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST as CONNECT_REQUEST,
        rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_RESPONSE as CONNECT_RESPONSE,
        rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL as DEVICE_REMOVAL,
        rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED as DISCONNECTED,
        rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED as ESTABLISHED,
        rdma_cm_event_type_RDMA_CM_EVENT_MULTICAST_ERROR as MULTICAST_ERROR,
        rdma_cm_event_type_RDMA_CM_EVENT_MULTICAST_JOIN as MULTICAST_JOIN,
        rdma_cm_event_type_RDMA_CM_EVENT_REJECTED as REJECTED,
        rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR as ROUTE_ERROR,
        rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED as ROUTE_RESOLVED,
        rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT as TIMEWAIT_EXIT,
        rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE as UNREACHABLE, //
    },
    errno::ENOTCONN,
    rdma::{
        cm::{
            self,
            EventKind, //
        },
        ib_cm::{
            self,
            tests::target::{
                Answer,
                Asked,
                Target, //
            },
        },
        tests::{
            check,
            check_eq,
            log::Log,
            soft::Soft,
            suite, //
        },
    },
    srp::{
        connect::Destination,
        error::{
            LoginFailure,
            Lost,
            Violation, //
        },
        ktime::{
            ktime_get,
            Ktime, //
        },
        logic::{
            recovery::{
                BeginAttempt,
                Recovery,
                Returned, //
            },
            state::{
                Attempt,
                Life,
                Reset, //
            },
            window::Window, //
        },
        proto::{
            login_iu::LoginRsp,
            opcode, //
        },
        session::Session,
        tests::{
            messages::{
                class_port_info,
                login_rej, //
            },
            stand::Stand, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use zerocopy::IntoBytes;

suite!(
    srp_connection_events,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        events_of_rdma_cm,
        events_of_ib_cm,
        redirections_of_topspin,
        the_first_failure_counts,
        an_end_before_it_is_live,
        an_end_after_it_is_dead,
        a_target_that_asks_for_time,
        a_late_waiter,
        the_first_report,
        violations_of_a_new_connection,
        a_live_session_recovers,
    ]
);

/// A port, and a target that gets no requests.
struct Scene {
    stand: Stand,
    target: Target,
}

impl Scene {
    fn new(soft: &Soft) -> Result<Self> {
        Ok(Self {
            stand: Stand::new(soft)?,
            target: Target::new(&soft.device, |_: usize, _: &Asked| Answer::Silence)?,
        })
    }

    /// Runs `act` in a session that is connecting, then ends the session.
    fn with(&self, more: &str, act: impl FnOnce(&Arc<Session>, &Events) -> Result) -> Result {
        let session = self.stand.session(&self.target, more)?;
        let logins = &session.logins;
        let topspin =
            matches!(&logins.params.destination, Destination::Ib(service) if service.topspin);
        let events = Events::new(session.clone(), logins.throttle.clone(), topspin)?;
        let result = act(&session, &events);
        self.stand.end(&session);
        result
    }

    /// Checks that an event ends a step with `end` while the channel is connecting, and causes the
    /// loss `lost`, if any, once it is live.
    fn check(
        &self,
        more: &str,
        bring: &dyn Fn(&Events),
        end: &str,
        lost: Option<EventKind>,
    ) -> Result {
        self.with(more, |session, events| {
            bring(events);
            ends(events, end)?;
            check!(!session.status().state().is_lost());
            check_eq!(session.status().state().life, Life::Connecting);
            Ok(())
        })?;
        self.with(more, |session, events| {
            events.set_in_use(true)?;
            let log = Log::from_now();
            bring(events);
            check_eq!(session.status().state().is_lost(), lost.is_some());
            let any = log.count("connection lost:");
            check_eq!(any, usize::from(lost.is_some()));
            if let Some(kind) = lost {
                let line = CString::try_from_fmt(fmt!(
                    "connection lost: {}\n",
                    format_args!("{}", Lost::Cm(kind))
                ))?;
                check_eq!(log.count(line.to_bytes()), 1);
                // Only the first loss is logged.
                bring(events);
                check_eq!(log.count("connection lost:"), 1);
            }
            Ok(())
        })
    }
}

/// Checks the result of the step, as `Debug` shows it, and that it is returned once.
fn ends(events: &Events, expected: &str) -> Result {
    let progress = events.wait(0);
    check!(matches!(events.wait(0), None));
    let text = match &progress {
        None => CString::try_from_fmt(fmt!("nothing"))?,
        Some(Ok(None)) => CString::try_from_fmt(fmt!("step"))?,
        Some(Ok(Some(Ok(response)))) => {
            let bytes = response.as_bytes();
            let first = bytes.first().copied().unwrap_or(0);
            let last = bytes.last().copied().unwrap_or(0);
            CString::try_from_fmt(fmt!("response {first} to {last}, {}", bytes.len()))?
        }
        Some(Ok(Some(Err(e)))) => CString::try_from_fmt(fmt!("{}", format_args!("{e:?}")))?,
        Some(Err(why)) => CString::try_from_fmt(fmt!("{}", format_args!("{why:?}")))?,
    };
    let text = core::str::from_utf8(text.to_bytes()).map_err(|_| EINVAL)?;
    check_eq!(text, expected);
    Ok(())
}

/// An event of `rdma_cm`, its meaning for a step, and the loss that it causes.
type Case<'a> = (
    rdma_cm_event_type,
    i32,
    &'a [u8],
    &'a str,
    Option<EventKind>,
);

fn events_of_rdma_cm(soft: &Soft) -> Result {
    use EventKind as E;
    let scene = Scene::new(soft)?;
    let rej = login_rej(0x0001_0006);
    let mut long = [1; 100];
    (long[0], long[LoginRsp::LEN - 1]) = (opcode::LOGIN_RSP, 9);
    let (nothing, step) = ("nothing", "step");
    let acl = "Reject(Srp(65542))";
    let cases: [Case<'_>; 27] = [
        (ADDR_RESOLVED, 0, &[], step, None),
        (ADDR_ERROR, -19, &[], "Address(-19)", Some(E::AddrError)),
        (ROUTE_RESOLVED, 0, &[], step, None),
        (ROUTE_ERROR, -113, &[], "Route(-113)", Some(E::RouteError)),
        (CONNECT_REQUEST, 0, &[], nothing, None),
        (CONNECT_RESPONSE, 0, &[], nothing, None),
        (CONNECT_ERROR, -22, &[], "Setup(-22)", Some(E::ConnectError)),
        (
            UNREACHABLE,
            -110,
            &[],
            "Unreachable(-110)",
            Some(E::Unreachable),
        ),
        // Rejected by the target's SRP layer, with an InfiniBand reason and with the errors of
        // iWARP.
        (REJECTED, 28, &rej, acl, Some(E::Rejected)),
        (REJECTED, -111, &rej, acl, Some(E::Rejected)),
        (REJECTED, -104, &rej, acl, Some(E::Rejected)),
        // Rejected by another layer, or with unknown contents.
        (REJECTED, 8, &rej, "Reject(Ib(8))", Some(E::Rejected)),
        (REJECTED, 24, &[], "Reject(Ib(24))", Some(E::Rejected)),
        (
            REJECTED,
            28,
            &rej[..31],
            "Reject(Ib(28))",
            Some(E::Rejected),
        ),
        (REJECTED, 28, &[], "Reject(Ib(28))", Some(E::Rejected)),
        (REJECTED, -111, &[], "Reject(Errno(111))", Some(E::Rejected)),
        (
            REJECTED,
            1 << 17,
            &[],
            "Reject(Ib(65535))",
            Some(E::Rejected),
        ),
        (ESTABLISHED, 0, &long, "response 192 to 9, 52", None),
        (
            ESTABLISHED,
            0,
            &[opcode::LOGIN_RSP, 6],
            "Short { need: 52, got: 2 }",
            None,
        ),
        (ESTABLISHED, 0, &[], "Short { need: 1, got: 0 }", None),
        (DISCONNECTED, 0, &[], "Disconnected", Some(E::Disconnected)),
        (
            DEVICE_REMOVAL,
            0,
            &[],
            "DeviceRemoval",
            Some(E::DeviceRemoval),
        ),
        (MULTICAST_JOIN, 0, &[], nothing, None),
        (MULTICAST_ERROR, -5, &[], nothing, None),
        (ADDR_CHANGE, 0, &[], "AddressChanged", Some(E::AddrChange)),
        (TIMEWAIT_EXIT, 0, &[], nothing, None),
        (0xff, -1, &[], nothing, None),
    ];
    for (kind, status, data, end, lost) in cases {
        let bring = |events: &Events| cm::tests::bring(events, kind, status, data);
        scene
            .check("", &bring, end, lost)
            .inspect_err(|_| pr_err!("event {kind}, status {status}\n"))?;
    }
    Ok(())
}

/// Hands an event of `ib_cm` to the handler.
fn told(events: &Events, event: ib_cm::Event<'_>) {
    ib_cm::EventHandler::event(events, event);
}

fn events_of_ib_cm(soft: &Soft) -> Result {
    use {
        ib_cm::Event,
        EventKind as E, //
    };
    let scene = Scene::new(soft)?;
    let gid = soft.device.gid(1, 0)?;
    let (rej, info) = (login_rej(0x0001_0006), class_port_info(gid, 5, 0xffff, 1));
    let mut long = [1; 196];
    (long[0], long[LoginRsp::LEN - 1]) = (opcode::LOGIN_RSP, 9);
    let rejected = |reason, info, private_data| Event::Rejected {
        reason,
        info,
        private_data,
    };
    let redirected = CString::try_from_fmt(fmt!(
        "Redirected(Redirect {{ gid: Some(Gid({})), lid: Some(5), \
         pkey: Some(65535), qpn: Some(1) }})",
        format_args!("{gid:?}")
    ))?;
    let redirected = core::str::from_utf8(redirected.to_bytes()).map_err(|_| EINVAL)?;
    let acl = "Reject(Srp(65542))";
    let short = "BadRedirect(Short { need: 72, got: 71 })";
    let cases: [(Event<'_>, &str, Option<EventKind>); 15] = [
        (Event::Later(1), "nothing", None),
        (Event::Replied(&long), "response 192 to 9, 52", None),
        (Event::Replied(&[5]), "Opcode(5)", None),
        (rejected(28, &[], &rej), acl, Some(E::Rejected)),
        (rejected(28, &info, &rej), acl, Some(E::Rejected)),
        (rejected(28, &[], &[]), "Reject(Ib(28))", Some(E::Rejected)),
        (rejected(8, &[], &rej), "Reject(Ib(8))", Some(E::Rejected)),
        (rejected(10, &[], &[]), "Reject(Ib(10))", Some(E::Rejected)),
        (
            rejected(u16::MAX, &[], &rej),
            "Reject(Ib(65535))",
            Some(E::Rejected),
        ),
        (rejected(24, &info, &rej), redirected, Some(E::Rejected)),
        (rejected(24, &info[..71], &[]), short, Some(E::Rejected)),
        // Only Topspin and Cisco targets use reason 25 for a redirection.
        (rejected(25, &gid, &[]), "Reject(Ib(25))", Some(E::Rejected)),
        (
            Event::Unreachable,
            "Unreachable(-110)",
            Some(E::Unreachable),
        ),
        (Event::Disconnected, "Disconnected", Some(E::Disconnected)),
        (Event::TimewaitExit, "nothing", None),
    ];
    for (event, end, lost) in cases {
        let bring = |events: &Events| told(events, event);
        scene
            .check("", &bring, end, lost)
            .inspect_err(|_| pr_err!("event {}\n", format_args!("{event:?}")))?;
    }
    Ok(())
}

fn redirections_of_topspin(soft: &Soft) -> Result {
    let scene = Scene::new(soft)?;
    let gid = soft.device.gid(1, 0)?;
    let redirected = CString::try_from_fmt(fmt!(
        "Redirected(Redirect {{ gid: Some(Gid({})), lid: None, pkey: None, qpn: None }})",
        format_args!("{gid:?}")
    ))?;
    let redirected = core::str::from_utf8(redirected.to_bytes()).map_err(|_| EINVAL)?;
    let short = "BadRedirect(Short { need: 16, got: 15 })";
    for (info, end) in [(&gid[..], redirected), (&gid[..15], short)] {
        let event = ib_cm::Event::Rejected {
            reason: 25,
            info,
            private_data: &[],
        };
        let bring = |events: &Events| told(events, event);
        let rejected = Some(EventKind::Rejected);
        scene.check("ioc_guid=0005ad0000000001,", &bring, end, rejected)?;
    }
    Ok(())
}

fn the_first_failure_counts(soft: &Soft) -> Result {
    let scene = Scene::new(soft)?;
    scene.with("", |_, events| {
        told(events, ib_cm::Event::Unreachable);
        told(events, ib_cm::Event::Disconnected);
        told(events, ib_cm::Event::Replied(&[1]));
        let progress = events.wait(0);
        check!(matches!(progress, Some(Err(LoginFailure::Unreachable(_)))));
        Ok(())
    })?;
    // The end of the connection replaces an unread response.
    scene.with("", |_, events| {
        told(events, ib_cm::Event::Replied(&[1]));
        told(events, ib_cm::Event::Disconnected);
        let progress = events.wait(0);
        check!(matches!(progress, Some(Err(LoginFailure::Disconnected))));
        Ok(())
    })
}

fn an_end_before_it_is_live(soft: &Soft) -> Result {
    let scene = Scene::new(soft)?;
    scene.with("", |session, events| {
        told(events, ib_cm::Event::Replied(&[1]));
        ends(events, "Opcode(1)")?;
        told(events, ib_cm::Event::Disconnected);
        // The login sees the failure; the session is not lost.
        check_eq!(events.set_in_use(true), Err(ENOTCONN));
        check!(!session.status().state().is_lost());
        told(events, ib_cm::Event::Disconnected);
        check!(!session.status().state().is_lost());
        Ok(())
    })?;
    // An unread response does not prevent going live.
    scene.with("", |session, events| {
        told(events, ib_cm::Event::Replied(&[1]));
        events.set_in_use(true)?;
        told(events, ib_cm::Event::Disconnected);
        check!(session.status().state().is_lost());
        Ok(())
    })
}

fn an_end_after_it_is_dead(soft: &Soft) -> Result {
    Scene::new(soft)?.with("", |session, events| {
        events.set_in_use(true)?;
        events.set_in_use(false)?;
        told(events, ib_cm::Event::Disconnected);
        check!(!session.status().state().is_lost());
        Ok(())
    })
}

/// The target gets the time of its first request only.
fn a_target_that_asks_for_time(soft: &Soft) -> Result {
    Scene::new(soft)?.with("", |session, events| {
        let begun = ktime_get();
        let passed = || ktime_get().ms_since(begun);
        check!(!events.is_deferred());
        told(events, ib_cm::Event::Later(200));
        check!(events.is_deferred());
        // The request counts as a sign of life, once.
        check!(session.logins.throttle.silence(Ktime::MIN) < 200);
        while events.is_deferred() {
            told(events, ib_cm::Event::Later(70_000));
            fsleep(Delta::from_millis(10));
            check!(passed() < 10_000);
        }
        check!(passed() >= 200);
        check!(session.logins.throttle.silence(Ktime::MIN) >= 200);
        told(events, ib_cm::Event::Later(70_000));
        check!(!events.is_deferred());
        Ok(())
    })
}

fn violations_of_a_new_connection(soft: &Soft) -> Result {
    Scene::new(soft)?.with("", |session, _| {
        session.scan().map_err(|why| why.errno())?;
        session.fail(Lost::HostReset);
        session.wait_down();
        check_eq!(session.on(|r| r.begin_attempt(true)), BeginAttempt::Connect);
        // A host reset concerns the lost connection, not the one in progress.
        session.fail(Lost::HostReset);
        let broken = |broken| session.recovery().state().attempt == Attempt::Connecting { broken };
        check!(broken(false));
        let log = Log::from_now();
        let strikes = || session.recovery().strikes();
        check_eq!(strikes(), Window::default());
        session.fail(Lost::Violation(Violation::Flags));
        check_eq!(log.count("connection lost: protocol violation"), 1);
        let one = strikes();
        check!(one != Window::default());
        // Another violation on the same connection.
        session.fail(Lost::Violation(Violation::Flags));
        check_eq!(log.count("connection lost:"), 1);
        check_eq!(strikes(), one);
        check!(broken(true));
        Ok(())
    })
}

/// A thread that waits for the end of a connection may run only after the next one is up.
fn a_late_waiter(soft: &Soft) -> Result {
    Scene::new(soft)?.with("", |session, _| {
        session.scan().map_err(|why| why.errno())?;
        session.wait_down();
        session.fail(Lost::HostReset);
        session.wait_down();
        // Failing commands do not end the wait for the attempt.
        session.fail_fast();
        check_eq!(session.recovery().state().reset, Reset::Wanted);
        check_eq!(
            session.on(|r| r.begin_attempt(false)),
            BeginAttempt::Connect
        );
        check_eq!(session.recovery().state().reset, Reset::Tried);
        session.on(Recovery::connected);
        check_eq!(session.commit(), Ok(()));
        check_eq!(session.on(Recovery::returned), Returned::StartTimers);
        check_eq!(session.recovery().state().reset, Reset::None);
        check!(!session.status().state().is_lost());
        session.wait_down();
        Ok(())
    })
}

/// The first scan for disks starts at once, even if the uptime is below the scan interval.
fn the_first_report(soft: &Soft) -> Result {
    Scene::new(soft)?.with("", |session, _| {
        session.scan().map_err(|why| why.errno())?;
        let never = session.last_scan();
        session.begin_rescan();
        for _ in 0..100 {
            if session.last_scan() != never {
                return Ok(());
            }
            fsleep(Delta::from_millis(10));
        }
        Err(ETIMEDOUT)
    })
}

fn a_live_session_recovers(soft: &Soft) -> Result {
    let scene = Scene::new(soft)?;
    scene.with("", |session, events| {
        // Without a host there are no disks to scan for.
        session.scan().map_err(|why| why.errno())?;
        check_eq!(session.status().state().life, Life::Live);
        events.set_in_use(true)?;
        told(events, ib_cm::Event::TimewaitExit);
        check_eq!(
            (
                session.status().state().life,
                session.status().state().is_lost()
            ),
            (Life::Live, false)
        );
        told(events, ib_cm::Event::Disconnected);
        check_eq!(
            (
                session.status().state().life,
                session.status().state().is_lost()
            ),
            (Life::Recovering, true)
        );
        Ok(())
    })?;
    // A session that is connecting does not recover.
    scene.with("", |session, events| {
        events.set_in_use(true)?;
        told(events, ib_cm::Event::Disconnected);
        check!(session.status().state().is_ending());
        scene.stand.sessions.wait_gone(session);
        check_eq!(session.status().state().life, Life::Gone);
        Ok(())
    })
}
