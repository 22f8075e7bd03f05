// SPDX-License-Identifier: GPL-2.0

//! Logins that the target redirects.

use super::{
    check_failure,
    failure, //
};
use crate::{
    errno::ECONNRESET,
    params,
    rdma::{
        ib_cm::tests::target::{
            Answer,
            Asked,
            Script,
            Target, //
        },
        tests::{
            check,
            check_eq,
            log::Log,
            soft::Soft, //
        },
    },
    srp::{
        connect::Purpose,
        error::LoginFailure,
        logic::state::Life,
        proto::reject::{
            RedirectError,
            Reject, //
        },
        tests::{
            messages::{
                class_port_info,
                get,
                Empty,
                PORT_CM_REDIRECT,
                PORT_REDIRECT, //
            },
            stand::Stand, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A target without disks, which answers the first requests differently.
struct Elsewhere<F>(Arc<Empty>, usize, F);

impl<F: Fn(&Asked) -> Answer + Send + Sync + 'static> Script for Elsewhere<F> {
    fn asked(&self, number: usize, request: &Asked) -> Answer {
        if number < self.1 {
            return self.2(request);
        }
        self.0.asked(number, request)
    }

    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        self.0.told(message, reply)
    }
}

/// Redirects the initiator to the same port.
fn here(request: &Asked) -> Answer {
    let info = class_port_info(request.dgid, 0, 0, 0);
    Answer::reject(PORT_CM_REDIRECT, &info, &[])
}

/// Logs in through `count` redirections, after each of which the same port gets a request.
fn follows(
    soft: &Soft,
    count: usize,
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    more: &str,
) -> Result<Target> {
    let target = Target::new(&soft.device, Elsewhere(Empty::new()?, count, answer))?;
    let stand = Stand::new(soft)?;
    let session = stand.log_in(&target, more)?.map_err(|why| why.errno())?;
    check_eq!(session.status().state().life, Life::Live);
    check_eq!(target.requests(), count + 1);
    let first = target.request(0)?;
    for number in 1..=count {
        let next = target.request(number)?;
        check_eq!((next.dgid, next.pkey), (first.dgid, first.pkey));
        // The request is the same, except for a new tag.
        check_eq!(get::<48>(&next.data, 16), get::<48>(&first.data, 16));
        check!(get::<8>(&next.data, 8) != get::<8>(&first.data, 8));
    }
    let reached = *session.logins.reached.lock();
    check_eq!(reached.map(|gid| gid.0), Some(first.dgid));
    target.has_heard(|heard| &heard.confirmed, 1)?;
    stand.end(&session);
    target.has_heard(|heard| &heard.disconnected, 1)?;
    target.has_heard(|heard| &heard.refused, 0)?;
    Ok(target)
}

pub(super) fn redirections_are_followed(soft: &Soft) -> Result {
    for count in 1..=3 {
        follows(soft, count, here, "")?;
    }
    // A redirection to a LID, which RoCE does not have, in the existing partition.
    let lid = |request: &Asked| {
        let info = class_port_info([0; 16], 5, request.pkey, 0);
        Answer::reject(PORT_CM_REDIRECT, &info, &[])
    };
    follows(soft, 1, lid, "")?;
    Ok(())
}

pub(super) fn redirections_come_to_an_end(soft: &Soft) -> Result {
    let always = |_: usize, request: &Asked| here(request);
    let log = Log::from_now();
    let (why, target) = failure(soft, always, "", ECONNRESET)?;
    check_failure!(why, LoginFailure::BadRedirect(RedirectError::TooMany));
    // Three logins, each with four requests.
    check_eq!(target.requests(), 12);
    check_eq!(
        log.count(
            "failed: redirect by the target not followed: more than 3 redirects in one login"
        ),
        2
    );
    target.has_heard(|heard| &heard.confirmed, 0)
}

/// Redirects all requests with this information.
fn to(info: impl Fn(&Asked) -> [u8; 72] + Send + Sync + 'static) -> impl Script {
    move |_: usize, request: &Asked| Answer::reject(PORT_CM_REDIRECT, &info(request), &[])
}

pub(super) fn redirections_that_lead_nowhere(soft: &Soft) -> Result {
    let subnet = |request: &Asked| {
        let mut gid = request.dgid;
        gid[7] ^= 0x55;
        class_port_info(gid, 0, 0, 0)
    };
    let log = Log::from_now();
    let (why, target) = failure(soft, to(subnet), "", ECONNRESET)?;
    let gid = target.request(0)?.dgid;
    let prefix = u64::from_be_bytes(get(&gid, 0)) ^ 0x55;
    check!(matches!(
        why,
        LoginFailure::BadRedirect(RedirectError::OtherSubnet(p)) if p == prefix
    ));
    check_eq!(log.count("which is not that of dgid"), 2);
    // The target got no request after the redirection.
    check_eq!(target.requests(), 3);

    let (why, target) = failure(
        soft,
        to(|_| class_port_info([0; 16], 0, 0, 0)),
        "",
        ECONNRESET,
    )?;
    check_failure!(why, LoginFailure::BadRedirect(RedirectError::Nowhere));
    check_eq!(target.requests(), 3);
    let multicast = to(|_| class_port_info([0xff; 16], 0, 0, 0));
    let (why, _) = failure(soft, multicast, "", ECONNRESET)?;
    check_failure!(why, LoginFailure::BadRedirect(RedirectError::Multicast));
    let short = |_: usize, request: &Asked| {
        let info = class_port_info(request.dgid, 0, 0, 0);
        Answer::reject(PORT_CM_REDIRECT, info.get(..71).unwrap_or(&[]), &[])
    };
    let (why, _) = failure(soft, short, "", ECONNRESET)?;
    check_failure!(
        why,
        LoginFailure::BadRedirect(RedirectError::Short { need: 72, got: 71 })
    );
    // A redirection to a partition that the port is not in.
    let partition = |request: &Asked| class_port_info(request.dgid, 0, 0x8001, 0);
    let (why, target) = failure(soft, to(partition), "", ECONNRESET)?;
    check_failure!(
        why,
        LoginFailure::BadRedirect(RedirectError::OtherPartition(0x8001))
    );
    check_eq!(target.requests(), 3);
    Ok(())
}

/// A redirected request goes to another port, or to another connection manager of this one. Neither
/// exists, so the login times out; queue pair 1 is the target itself.
pub(super) fn redirections_lead_elsewhere(soft: &Soft) -> Result {
    let port = |request: &Asked| {
        let mut gid = request.dgid;
        gid[15] ^= 1;
        class_port_info(gid, 0, 0, 0)
    };
    let manager = |request: &Asked| class_port_info(request.dgid, 0, 0, 0x00ff_fff0);
    let itself = |request: &Asked| class_port_info(request.dgid, 0, 0, 1);
    let cases: [(fn(&Asked) -> [u8; 72], usize); 3] = [(port, 1), (manager, 1), (itself, 4)];
    for (info, requests) in cases {
        let target = Target::new(&soft.device, to(info))?;
        let stand = Stand::new(soft)?;
        let session = stand.session(&target, "")?;
        let login = session
            .log_in(Purpose::First, 1000)
            .map_err(|why| why.errno())?;
        let why = login.first().err().ok_or(EINVAL)?;
        if requests == 1 {
            check_failure!(why, LoginFailure::Timeout("login response"));
        } else {
            check_failure!(why, LoginFailure::BadRedirect(RedirectError::TooMany));
        }
        drop(login);
        check_eq!(target.requests(), requests);
        stand.end(&session);
    }
    Ok(())
}

pub(super) fn topspin_redirections(soft: &Soft) -> Result {
    let gid = |request: &Asked| Answer::reject(PORT_REDIRECT, &request.dgid, &[]);
    let always = move |_: usize, request: &Asked| gid(request);
    let (why, target) = failure(soft, always, "", ECONNRESET)?;
    check_failure!(why, LoginFailure::Reject(Reject::Ib(PORT_REDIRECT)));
    check_eq!(target.requests(), 3);

    // GUIDs of Topspin and Cisco controllers.
    check!(params::topspin_workarounds());
    let node = soft.device.node_guid().to_be_bytes();
    for guid in ["ioc_guid=0005ad0000001234,", "ioc_guid=001b0d0000001234,"] {
        let target = follows(soft, 1, gid, guid)?;
        let data = target.request(0)?.data;
        check_eq!(get::<8>(&data, 32), [0; 8]);
        check_eq!(get::<8>(&data, 40), node);
    }
    Ok(())
}
