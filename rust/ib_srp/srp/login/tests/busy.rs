// SPDX-License-Identifier: GPL-2.0

//! A target that takes longer to answer than a login waits for a silent target.

use crate::{
    rdma::{
        ib_cm::tests::target::{
            Answer,
            Asked,
            Target, //
        },
        tests::{
            check,
            check_eq,
            peer::within,
            soft::Soft, //
        },
    },
    srp::{
        connect::Purpose,
        ktime::ktime_get,
        session::Session,
        tests::{
            messages::login_rsp,
            stand::Stand, //
        },
    },
    sync::race::race, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Msecs, //
    }, //
};

/// Milliseconds that the login waits for a silent target. The request and the MRA take less.
const PATIENCE_MS: Msecs = 4_000;

struct Scene {
    target: Target,
    session: Arc<Session>,
    /// Errno of the login, or 0.
    errno: Atomic<i32>,
    /// Milliseconds that the login took.
    took: Atomic<u32>,
    answered: Atomic<bool>,
}

impl Scene {
    fn log_in(&self) {
        let begun = ktime_get();
        let result = self
            .session
            .log_in(Purpose::First, PATIENCE_MS)
            .and_then(|login| login.first().map(|_| ()));
        let errno = result.map_or_else(|why| why.errno().to_errno(), |()| 0);
        self.errno.store(errno, Relaxed);
        self.took.store(ktime_get().ms_since(begun), Relaxed);
    }

    fn answer(&self) -> Result {
        within(|| self.target.requests() == 1)?;
        fsleep(Delta::from_millis(i64::from(PATIENCE_MS) * 2));
        let rsp = login_rsp(&self.target.request(0)?);
        self.target.answer(0, &Answer::accept(&rsp))?;
        self.answered.store(true, Relaxed);
        Ok(())
    }
}

/// The target's connection manager asks for time, and answers when a silent target would have been
/// given up.
pub(super) fn target_asks_for_time(soft: &Soft) -> Result {
    let stand = Stand::new(soft)?;
    let target = Target::new(&soft.device, |_: usize, _: &Asked| Answer::Later)?;
    let session = stand.session(&target, "")?;
    let scene = Arc::new(
        Scene {
            target,
            session: session.clone(),
            errno: Atomic::new(1),
            took: Atomic::new(0),
            answered: Atomic::new(false),
        },
        GFP_KERNEL,
    )?;
    race(
        &scene,
        &[
            |scene| scene.log_in(),
            |scene| {
                if let Err(e) = scene.answer() {
                    pr_err!("the target cannot answer: error {}\n", e.to_errno());
                }
            },
        ],
    )?;
    stand.end(&session);
    let took = scene.took.load(Relaxed);
    check_eq!(
        (scene.errno.load(Relaxed), scene.answered.load(Relaxed)),
        (0, true)
    );
    check!(took >= PATIENCE_MS * 2);
    check_eq!(scene.target.requests(), 1);
    Ok(())
}
