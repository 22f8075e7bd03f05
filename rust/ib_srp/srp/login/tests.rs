// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of InfiniBand CM logins to a target implemented by the test.

mod answers;
mod busy;
mod lost;
mod redirect;
mod removed;

use super::HostParams;
use crate::{
    errno::{
        ECONNRESET,
        EOPNOTSUPP,
        EPROTO, //
    },
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
            peer::within,
            soft::Soft,
            suite, //
        },
    },
    srp::{
        channels::Channels,
        connect::Purpose,
        error::LoginFailure,
        front::{
            host::Io,
            sysfs::store_add_target, //
        },
        logic::{
            data_path::DataPath,
            state::Life, //
        },
        proto::{
            login_iu::LoginError,
            options::{
                Defaults,
                Options, //
            },
            reject::Reject,
        },
        session::{
            Session,
            SessionHost, //
        },
        sizes,
        tests::{
            messages::{
                get,
                login_rej,
                login_rsp,
                Empty,
                CMD,
                CONSUMER,
                I_LOGOUT,
                REQ_LIM, //
            },
            stand::{
                Hex,
                Stand, //
            },
        },
    },
};
use busy::target_asks_for_time;
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use lost::{
    lost_by_the_target,
    lost_while_it_scans, //
};
use redirect::{
    redirections_are_followed,
    redirections_come_to_an_end,
    redirections_lead_elsewhere,
    redirections_that_lead_nowhere,
    topspin_redirections, //
};
use removed::session_goes_meanwhile;

suite!(
    srp_login,
    rxe,
    crate::rdma::tests::soft::Kind::Rxe,
    [
        refused_before_any_request,
        no_route_takes_no_channel,
        request_is_as_srp_says,
        halves_of_port_ids,
        opens_a_channel,
        opens_two_channels,
        a_further_channel_is_left_out,
        target_refuses,
        responses_of_no_use,
        target_is_silent,
        target_asks_for_time,
        session_goes_meanwhile,
        lost_by_the_target,
        lost_while_it_scans,
        redirections_are_followed,
        redirections_come_to_an_end,
        redirections_lead_elsewhere,
        redirections_that_lead_nowhere,
        topspin_redirections,
    ]
);

suite!(
    srp_login_siw,
    siw,
    crate::rdma::tests::soft::Kind::Siw,
    [iwarp_has_no_ib_cm]
);

/// Defaults for the options that the string lacks.
fn defaults() -> Defaults {
    Defaults {
        sg_tablesize: 0,
        ..Defaults::default()
    }
}

/// Creates a session that has not started to log in.
pub(in crate::srp) fn begin(stand: &Stand, text: &[u8]) -> Result<Arc<Session>> {
    let options = Options::parse(text, &defaults()).map_err(|_| EINVAL)?;
    super::begin(&stand.sessions, &options)
}

/// Logs in. If the login fails, the session is gone when this returns.
pub(in crate::srp) fn log_in(
    stand: &Stand,
    text: &[u8],
) -> Result<Result<Arc<Session>, LoginFailure>> {
    let options = Options::parse(text, &defaults()).map_err(|_| EINVAL)?;
    log_in_with(stand, text, |connected| Io::host(connected, &options))
}

/// Like [`log_in`], with another host.
pub(in crate::srp) fn log_in_with(
    stand: &Stand,
    text: &[u8],
    host: impl FnOnce(&HostParams<'_>) -> Result<Arc<SessionHost>>,
) -> Result<Result<Arc<Session>, LoginFailure>> {
    let session = begin(stand, text)?;
    let options = Options::parse(text, &defaults()).map_err(|_| EINVAL)?;
    Ok(
        match super::set_up(&stand.sessions, &session, &options, host) {
            Ok(()) => Ok(session),
            Err(why) => {
                stand.end(&session);
                Err(why)
            }
        },
    )
}

/// Logs in to a target with this script. The login must fail, and writing to `add_target` must fail
/// with `errno`. Returns the failure and the target.
fn failure(
    soft: &Soft,
    script: impl Script,
    more: &str,
    errno: Error,
) -> Result<(LoginFailure, Target)> {
    let target = Target::new(&soft.device, script)?;
    let stand = Stand::new(soft)?;
    let Err(why) = stand.log_in(&target, more)? else {
        pr_err!("the login succeeds\n");
        return Err(EINVAL);
    };
    check_eq!(why.errno(), errno);
    let requests = target.requests();
    // Log in through `add_target` itself. A failed login must not affect the next one.
    for _ in 0..2 {
        let text = stand.text(&target, more)?;
        let log = Log::from_now();
        check_eq!(
            store_add_target(&stand.sessions, text.to_bytes()),
            Err(errno)
        );
        check_eq!(log.count(": login at "), 1);
    }
    check_eq!(target.requests(), 3 * requests);
    Ok((why, target))
}

/// Rejects all requests.
fn no(reason: u16, data: &'static [u8]) -> impl Script {
    move |_: usize, _: &Asked| Answer::reject(reason, &[], data)
}

/// Checks the kind of a failure.
macro_rules! check_failure {
    ($why:expr, $pattern:pat) => {
        let why = &$why;
        if !matches!(why, $pattern) {
            pr_err!(
                "{}:{}: {} is not {}\n",
                file!(),
                line!(),
                format_args!("{why:?}"),
                stringify!($pattern)
            );
            return Err(EINVAL);
        }
    };
}
use check_failure;

/// The option `dgid` with the port's own GID as an address of the other family: there is no path.
fn no_path(soft: &Soft) -> Result<CString> {
    let mapped = soft.address.to_ipv6_mapped().octets();
    Ok(CString::try_from_fmt(fmt!(
        "dgid={},",
        format_args!("{}", Hex(mapped))
    ))?)
}

fn refused_before_any_request(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, no(8, &[]))?;
    let stand = Stand::new(soft)?;
    let no_path = no_path(soft)?;
    let no_path = core::str::from_utf8(no_path.to_bytes()).map_err(|_| EINVAL)?;
    let cases = [
        ("bogus=1,", EINVAL, "login refused: "),
        ("pkey=8001,", ENOENT, "login refused: pkey=8001: "),
        (
            "tos=1,",
            EINVAL,
            "login refused: 'tos=1': only for a login with dest",
        ),
        (no_path, EINVAL, "failed: no path to the target's port"),
    ];
    for (more, errno, line) in cases {
        let log = Log::from_now();
        let text = stand.text(&target, more)?;
        check_eq!(
            store_add_target(&stand.sessions, text.to_bytes()),
            Err(errno)
        );
        check_eq!(log.count(line), 1);
    }
    check_eq!(target.requests(), 0);
    Ok(())
}

/// The first channel is created when the route to the target is known.
fn no_route_takes_no_channel(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, no(8, &[]))?;
    let stand = Stand::new(soft)?;
    let failure = |more: &str| -> Result<LoginFailure> {
        let text = stand.text(&target, more)?;
        let options = Options::parse(text.to_bytes(), &defaults()).map_err(|_| EINVAL)?;
        let params = super::login_params(stand.sessions.port(), &options)?;
        let mut geometry = sizes::geometry(&options, soft.device.limits())?;
        // No channel can be created.
        geometry.slots.regions = 0;
        let session = stand.sessions.begin(options.key(), params, geometry)?;
        let result = super::set_up(&stand.sessions, &session, &options, |connected| {
            Io::host(connected, &options)
        });
        stand.end(&session);
        result.err().ok_or(EINVAL)
    };
    check_failure!(failure("")?, LoginFailure::Step("channel", _));
    let no_path = no_path(soft)?;
    let no_path = core::str::from_utf8(no_path.to_bytes()).map_err(|_| EINVAL)?;
    check_failure!(failure(no_path)?, LoginFailure::Path(_));
    check_eq!(target.requests(), 0);
    Ok(())
}

fn iwarp_has_no_ib_cm(soft: &Soft) -> Result {
    let stand = Stand::new(soft)?;
    let log = Log::from_now();
    let text = stand.text_for(7, "")?;
    let result = store_add_target(&stand.sessions, text.to_bytes());
    check_eq!(result, Err(EOPNOTSUPP));
    check_eq!(
        log.count("the port has no InfiniBand connection manager"),
        1
    );
    let text = stand.text_for(7, "ack_timeout=14,")?;
    let result = store_add_target(&stand.sessions, text.to_bytes());
    check_eq!(result, Err(EOPNOTSUPP));
    check_eq!(log.count("login refused: 'ack_timeout=14': "), 1);
    Ok(())
}

fn request_is_as_srp_says(soft: &Soft) -> Result {
    let (_, target) = failure(soft, no(8, &[]), "initiator_ext=123,", ECONNRESET)?;
    let asked = target.request(0)?;
    let gid = soft.device.gid(1, 0)?;
    check!(asked.usual);
    check_eq!((asked.sgid, asked.dgid, asked.pkey), (gid, gid, 0xffff));
    check_eq!(asked.retry_count, 7);
    check_eq!(asked.reads, soft.device.limits().max_qp_rd_atom.min(16));

    // Offsets and values from the standard; 8260 bytes are 8 KiB of immediate data at offset 68.
    let data = &asked.data;
    check_eq!(get::<8>(data, 0), [0; 8]);
    let tag = get::<8>(data, 8);
    check_eq!(get::<4>(data, 16), 8260u32.to_be_bytes());
    check_eq!(get::<4>(data, 20), [0; 4]);
    check_eq!(get::<4>(data, 24), [0, 6, 0x80, 0]);
    check_eq!(get::<4>(data, 28), [0, 68, 0, 0]);
    check_eq!(get::<8>(data, 32), 0x123u64.to_be_bytes());
    check_eq!(get::<8>(data, 40), get::<8>(&gid, 8));
    check_eq!(get::<8>(data, 48), 0x0011_2233_4455_6677u64.to_be_bytes());
    check_eq!(get::<8>(data, 56), 0x8899_aabb_ccdd_eeffu64.to_be_bytes());
    check_eq!(get::<28>(data, 64), [0; 28]);

    // The tag of a request must not be predictable.
    let other = get::<8>(&target.request(1)?.data, 8);
    check!(tag != other && tag != [0; 8]);

    let more = "tl_retry_count=3,max_it_iu_size=500,";
    let (_, target) = failure(soft, no(8, &[]), more, ECONNRESET)?;
    let asked = target.request(0)?;
    check_eq!(asked.retry_count, 3);
    check_eq!(get::<4>(&asked.data, 16), 500u32.to_be_bytes());
    Ok(())
}

/// Targets of revision 10 have the GUID first.
fn halves_of_port_ids(soft: &Soft) -> Result {
    let more = "initiator_ext=123,io_class=ff00,";
    let (_, target) = failure(soft, no(8, &[]), more, ECONNRESET)?;
    let data = target.request(0)?.data;
    check_eq!(get::<8>(&data, 32), get::<8>(&soft.device.gid(1, 0)?, 8));
    check_eq!(get::<8>(&data, 40), 0x123u64.to_be_bytes());
    check_eq!(get::<8>(&data, 48), 0x8899_aabb_ccdd_eeffu64.to_be_bytes());
    check_eq!(get::<8>(&data, 56), 0x0011_2233_4455_6677u64.to_be_bytes());
    Ok(())
}

fn opens_a_channel(soft: &Soft) -> Result {
    let empty = Empty::new()?;
    let target = Target::new(&soft.device, empty.clone())?;
    let stand = Stand::new(soft)?;
    let session = stand.log_in(&target, "")?.map_err(|why| why.errno())?;
    check_eq!(session.status().state().life, Life::Live);
    target.has_heard(|heard| &heard.confirmed, 1)?;
    // The login has scanned for disks.
    check!(empty.count(CMD) > 0);
    let (channels, host) = session.parts();
    let channels = channels.ok_or(ENOENT)?;
    let channel = channels.first().ok_or(ENOENT)?;
    check!(channel.is_open() && channels.len() == 1);
    // Each response returned the credit of its command.
    check_eq!(channel.credits(), REQ_LIM as i32);
    // The target has refused all commands, without a residual.
    let counts = channel.counts();
    check_eq!(counts.commands(), u64::from(empty.count(CMD)));
    let ways = [
        counts.of(DataPath::None),
        counts.of(DataPath::Immediate),
        counts.of(DataPath::Static),
        counts.dynamic(),
    ];
    check_eq!(ways, [0, 0, counts.commands(), 0]);
    check!(counts.read_bytes() > 0 && counts.write_bytes() == 0);
    check_eq!((counts.credit_waits.get(), counts.busy.get()), (0, 0));
    // Computed from the response: 7 retries of at least 4.096 us * 2^17, times four, plus a second.
    check!(session.logins.time_allowed() >= 7 * 4 * 536 + 1000);
    let reached = *session.logins.reached.lock();
    check_eq!(reached.map(|gid| gid.0), Some(soft.device.gid(1, 0)?));
    drop((channels, host));

    // A second login at this target is refused before any request is sent.
    let text = stand.text(&target, "")?;
    check_eq!(
        store_add_target(&stand.sessions, text.to_bytes()),
        Err(EEXIST)
    );
    check_eq!((target.requests(), empty.count(I_LOGOUT)), (1, 0));

    stand.end(&session);
    within(|| empty.count(I_LOGOUT) == 1)?;
    target.has_heard(|heard| &heard.disconnected, 1)?;
    target.has_heard(|heard| &heard.refused, 0)?;
    check_eq!(session.status().state().life, Life::Gone);
    Ok(())
}

/// The multichannel action of a request.
fn action(target: &Target, number: usize) -> Result<u8> {
    let [flags] = get(&target.request(number)?.data, 26);
    Ok(flags & 3)
}

fn opens_two_channels(soft: &Soft) -> Result {
    let empty = Empty::new()?;
    let target = Target::new(&soft.device, empty.clone())?;
    let stand = Stand::new(soft)?;
    let session = stand.log_in(&target, "ch_count=2,")?;
    let session = session.map_err(|why| why.errno())?;
    check_eq!(session.status().geometry.all_channels(), 2);
    check_eq!((action(&target, 0)?, action(&target, 1)?), (0, 1));
    check_eq!(target.requests(), 2);
    // The rest of the two requests is the same.
    let data = |number| target.request(number).map(|asked| asked.data);
    check_eq!(get::<38>(&data(0)?, 27), get::<38>(&data(1)?, 27));
    let (channels, _) = session.parts();
    let open = |channels: &Channels| channels.iter().filter(|c| c.is_open()).count();
    check_eq!(channels.map(|channels| open(&channels)), Some(2));
    target.has_heard(|heard| &heard.confirmed, 2)?;
    stand.end(&session);
    within(|| empty.count(I_LOGOUT) == 2)?;
    target.has_heard(|heard| &heard.disconnected, 2)
}

/// A target with one channel and no disks, which answers later requests differently.
struct Second(Arc<Empty>, fn(&Asked) -> Answer);

impl Script for Second {
    fn asked(&self, number: usize, request: &Asked) -> Answer {
        match number {
            0 => self.0.asked(number, request),
            _ => self.1(request),
        }
    }

    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        self.0.told(message, reply)
    }
}

fn a_further_channel_is_left_out(soft: &Soft) -> Result {
    let refused = |_: &Asked| Answer::reject(CONSUMER, &[], &login_rej(0x0001_0005));
    // The target says that it has ended the other channels.
    let terminated = |request: &Asked| {
        let mut rsp = login_rsp(request);
        rsp[26] = 1;
        Answer::accept(&rsp)
    };
    let cases: [(fn(&Asked) -> Answer, &str, u32); 2] = [
        (refused, "multiple channels not supported", 0),
        (terminated, "other channels not kept", 1),
    ];
    for (second, why, refusals) in cases {
        let target = Target::new(&soft.device, Second(Empty::new()?, second))?;
        let stand = Stand::new(soft)?;
        let log = Log::from_now();
        let session = stand.log_in(&target, "ch_count=2,")?;
        let session = session.map_err(|why| why.errno())?;
        check_eq!(session.status().state().life, Life::Live);
        check_eq!(log.count("only 1 of 2 channels connected: "), 1);
        check_eq!(log.count(why), 1);
        target.has_heard(|heard| &heard.confirmed, 1)?;
        target.has_heard(|heard| &heard.refused, refusals)?;
        stand.end(&session);
    }
    Ok(())
}

fn target_refuses(soft: &Soft) -> Result {
    const ACL: [u8; 8] = [0xc2, 0, 0, 0, 0, 1, 0, 6];
    const UNKNOWN: [u8; 8] = [0xc2, 0, 0, 0, 0, 1, 0, 7];
    let refused = |reason, data| failure(soft, no(reason, data), "", ECONNRESET);
    let (why, target) = refused(CONSUMER, &ACL)?;
    check_failure!(why, LoginFailure::Reject(Reject::CHANNEL_LIMIT_REACHED));
    let (why, _) = refused(CONSUMER, &UNKNOWN)?;
    check_failure!(why, LoginFailure::Reject(Reject::Srp(0x0001_0007)));
    // Not an SRP message.
    let (why, _) = refused(CONSUMER, &[0xc1, 0, 0, 0, 0, 1, 0, 6])?;
    check_failure!(why, LoginFailure::Reject(Reject::Ib(CONSUMER)));
    // The private data is not from the target's SRP layer.
    for reason in [3, 10, 30, 25] {
        let (why, _) = refused(reason, &ACL)?;
        check_failure!(why, LoginFailure::Reject(Reject::Ib(_)));
        check!(matches!(why, LoginFailure::Reject(Reject::Ib(r)) if r == reason));
    }
    target.has_heard(|heard| &heard.confirmed, 0)?;
    target.has_heard(|heard| &heard.refused, 0)?;

    // No service listens.
    let stand = Stand::new(soft)?;
    let text = stand.text(&target, "")?;
    drop(target);
    let why = log_in(&stand, text.to_bytes())?.err().ok_or(EINVAL)?;
    check_failure!(why, LoginFailure::Reject(Reject::Ib(8)));
    Ok(())
}

/// Answers with a response in which one byte differs.
fn odd(at: usize, byte: u8) -> impl Script {
    move |_: usize, request: &Asked| {
        let mut rsp = login_rsp(request);
        if let Some(place) = rsp.get_mut(at) {
            *place = byte;
        }
        Answer::accept(&rsp)
    }
}

fn responses_of_no_use(soft: &Soft) -> Result {
    // The initiator rejected the target's response, and did not confirm it.
    let refused = |target: &Target| -> Result {
        target.has_heard(|heard| &heard.refused, 3)?;
        check_eq!(target.heard().reason.load(Relaxed), u32::from(CONSUMER));
        target.has_heard(|heard| &heard.confirmed, 0)
    };
    type Expected = fn(&LoginError) -> bool;
    let cases: [(usize, u8, Expected); 8] = [
        (15, 0xff, |e| matches!(e, LoginError::Tag(_))),
        (25, 2, |e| matches!(e, LoginError::BufferFormats(2))),
        (25, 4, |e| matches!(e, LoginError::BufferFormats(4))),
        (7, 1, |e| matches!(e, LoginError::RequestLimit(1))),
        (4, 0x80, |e| matches!(e, LoginError::RequestLimit(..0))),
        (4, 1, |e| matches!(e, LoginError::RequestLimit(65_536..))),
        (18, 0, |e| matches!(e, LoginError::MaxItIuLen(0))),
        (23, 55, |e| matches!(e, LoginError::MaxTiIuLen(55))),
    ];
    for (at, byte, expected) in cases {
        // A fixed byte can equal that of the tag, in one of 256 runs.
        let (why, target) = match at {
            15 => failure(soft, other_tag(), "", EPROTO)?,
            _ => failure(soft, odd(at, byte), "", EPROTO)?,
        };
        check!(matches!(&why, LoginFailure::Response(e) if expected(e)));
        refused(&target)?;
    }
    // The missing bytes are zero.
    let short = |_: usize, request: &Asked| {
        let rsp = login_rsp(request);
        Answer::accept(rsp.get(..24).unwrap_or(&[]))
    };
    let (why, target) = failure(soft, short, "", EPROTO)?;
    check_failure!(why, LoginFailure::Response(LoginError::BufferFormats(0)));
    refused(&target)?;
    for opcode in [0, 0xc1, 0xc2] {
        let (why, target) = failure(soft, odd(0, opcode), "", EPROTO)?;
        check_failure!(why, LoginFailure::NotLoginRsp(_));
        refused(&target)?;
    }
    let nothing = |_: usize, _: &Asked| Answer::accept(&[]);
    let (why, target) = failure(soft, nothing, "", EPROTO)?;
    check_failure!(why, LoginFailure::NotLoginRsp(_));
    refused(&target)
}

/// Answers with another tag.
fn other_tag() -> impl Script {
    |_: usize, request: &Asked| {
        let mut rsp = login_rsp(request);
        rsp[15] ^= 1;
        Answer::accept(&rsp)
    }
}

fn target_is_silent(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, |_: usize, _: &Asked| Answer::Silence)?;
    let stand = Stand::new(soft)?;
    let session = stand.session(&target, "")?;
    let login = session
        .log_in(Purpose::First, 500)
        .map_err(|why| why.errno())?;
    let why = login.first().err().ok_or(EINVAL)?;
    check_failure!(why, LoginFailure::Timeout("login response"));
    check_eq!(why.errno(), ETIMEDOUT);
    drop(login);
    check_eq!(target.requests(), 1);
    // Reason 4: timeout.
    target.has_heard(|heard| &heard.refused, 1)?;
    check_eq!(target.heard().reason.load(Relaxed), 4);
    stand.end(&session);
    Ok(())
}
