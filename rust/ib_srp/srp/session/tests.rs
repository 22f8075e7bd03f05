// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of a session with a host of the test, which has no disks and no commands.

use super::{
    Session,
    SessionHost, //
};
use crate::{
    rdma::{
        ib_cm::tests::target::Target,
        tests::{
            check,
            check_eq,
            peer::within,
            soft::Soft,
            suite, //
        }, //
    },
    scsi::{
        tests::no_disks::NoDisks,
        transport::srp::{
            AnyHost,
            Rport,
            Transport, //
        },
        Host, //
    },
    srp::{
        error::{
            LoginFailure,
            Lost,
            Violation, //
        },
        logic::state::Life,
        login::{
            tests::log_in_with,
            HostParams, //
        },
        tests::{
            messages::{
                Empty,
                CMD, //
            },
            stand::Stand, //
        },
    },
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Msecs, //
};

suite!(
    srp_session,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        a_host_is_called_as_it_should,
        a_host_that_cannot_be_made,
        a_host_that_cannot_be_added,
    ]
);

/// Counts calls to the test's host.
struct Asked {
    scans: Atomic<u32>,
    rescans: Atomic<u32>,
    timeouts: Atomic<u32>,
    removals: Atomic<u32>,
    drops: Atomic<u32>,
}

impl Asked {
    fn new() -> Result<Arc<Self>> {
        let asked = Self {
            scans: Atomic::new(0),
            rescans: Atomic::new(0),
            timeouts: Atomic::new(0),
            removals: Atomic::new(0),
            drops: Atomic::new(0),
        };
        Ok(Arc::new(asked, GFP_KERNEL)?)
    }

    /// Returns the numbers of scans, rescans and drops.
    fn counts(&self) -> (u32, u32, u32) {
        let read = |count: &Atomic<u32>| count.load(Relaxed);
        (read(&self.scans), read(&self.rescans), read(&self.drops))
    }
}

struct Made {
    asked: Arc<Asked>,
    host: Arc<Host<NoDisks<Transport<Session>>>>,
    /// Whether adding the host succeeds.
    addable: bool,
}

impl Made {
    fn new(
        connected: &HostParams<'_>,
        asked: &Arc<Asked>,
        addable: bool,
    ) -> Result<Arc<SessionHost>> {
        let transport = connected.transport.clone();
        let made = Self {
            asked: asked.clone(),
            host: NoDisks::host(&connected.limits, transport)?,
            addable,
        };
        Ok(Arc::new(made, GFP_KERNEL)?)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.asked.drops.add(1, Relaxed);
    }
}

impl AnyHost<Session> for Made {
    fn number(&self) -> u32 {
        self.host.number()
    }

    fn add_with_rport(
        self: Arc<Self>,
        parent: Option<&Device>,
        port_id: &[u8; 16],
        session: Arc<Session>,
    ) -> Result<Rport<Session>> {
        // A report of the target has no effect before the session is live.
        session.begin_rescan();
        match self.addable {
            true => AnyHost::add_with_rport(self.host.clone(), parent, port_id, session),
            false => Err(E2BIG),
        }
    }

    fn scan(&self) {
        self.asked.scans.add(1, Relaxed);
    }

    fn rescan(&self) {
        self.asked.rescans.add(1, Relaxed);
    }

    fn request_timeout(&self) -> Msecs {
        self.asked.timeouts.add(1, Relaxed);
        0
    }

    fn remove(&self) {
        self.asked.removals.add(1, Relaxed);
        self.host.remove();
    }
}

fn a_host_is_called_as_it_should(soft: &Soft) -> Result {
    let empty = Empty::new()?;
    let target = Target::new(&soft.device, empty.clone())?;
    let stand = Stand::new(soft)?;
    let asked = Asked::new()?;
    let text = stand.text(&target, "")?;
    let session = log_in_with(&stand, text.to_bytes(), |connected| {
        Made::new(connected, &asked, true)
    })?
    .map_err(|why| why.errno())?;
    check_eq!(session.status().state().life, Life::Live);
    check_eq!(asked.counts(), (1, 0, 0));
    check!(session.status().host_number().is_some());
    let rport = session.rport().ok_or(ENOENT)?;
    check!(rport.is_running());

    session.fail(Lost::Violation(Violation::Flags));
    within(|| session.status().state().is_down())?;
    check_eq!(session.status().state().life, Life::Recovering);
    check!(!rport.is_running());
    drop(rport);
    session.port_changed(false);
    within(|| session.status().state().life == Life::Live && !session.status().state().is_lost())?;
    target.has_heard(|heard| &heard.confirmed, 2)?;
    // The class sets the state when the reconnect has returned.
    within(|| session.rport().is_some_and(|rport| rport.is_running()))?;

    session.begin_rescan();
    within(|| asked.counts() == (1, 1, 0))?;

    stand.end(&session);
    check_eq!(session.status().state().life, Life::Gone);
    check_eq!(asked.timeouts.load(Relaxed), 1);
    check!(asked.removals.load(Relaxed) > 0);
    // The last reference to the host is gone, and nothing else sends commands.
    check_eq!(asked.counts(), (1, 1, 1));
    check_eq!(empty.count(CMD), 0);
    Ok(())
}

/// Makes the login fail at the host, and checks that nothing is left.
fn fails_at_the_host(
    soft: &Soft,
    asked: &Asked,
    errno: Error,
    host: impl FnOnce(&HostParams<'_>) -> Result<Arc<SessionHost>>,
) -> Result {
    let target = Target::new(&soft.device, Empty::new()?)?;
    let stand = Stand::new(soft)?;
    let text = stand.text(&target, "")?;
    let why = log_in_with(&stand, text.to_bytes(), host)?
        .err()
        .ok_or(EINVAL)?;
    check!(matches!(why, LoginFailure::Step("SCSI host", e) if e == errno));
    check_eq!(asked.scans.load(Relaxed), 0);
    target.has_heard(|heard| &heard.disconnected, 1)
}

fn a_host_that_cannot_be_made(soft: &Soft) -> Result {
    let asked = Asked::new()?;
    fails_at_the_host(soft, &asked, ENOSPC, |_| Err(ENOSPC))
}

fn a_host_that_cannot_be_added(soft: &Soft) -> Result {
    let asked = Asked::new()?;
    fails_at_the_host(soft, &asked, E2BIG, |connected| {
        Made::new(connected, &asked, false)
    })?;
    check_eq!(asked.counts(), (0, 0, 1));
    Ok(())
}
