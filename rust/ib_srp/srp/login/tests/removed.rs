// SPDX-License-Identifier: GPL-2.0

//! A session that is removed while it logs in.

use crate::{
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
            soft::Soft, //
        },
    },
    srp::{
        connect::Purpose,
        error::LoginFailure,
        logic::state::Life,
        session::Session,
        tests::stand::Stand, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// A silent target that removes the session.
#[pin_data]
struct Remover {
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
    removed: Atomic<u32>,
}

impl Script for Arc<Remover> {
    fn asked(&self, _: usize, _: &Asked) -> Answer {
        if let Some(session) = self.session.lock().take() {
            session.remove(1000);
            self.removed.fetch_add(1, Relaxed);
        }
        Answer::Silence
    }
}

pub(super) fn session_goes_meanwhile(soft: &Soft) -> Result {
    let remover = Arc::pin_init(
        pin_init!(Remover {
            session <- new_mutex!(None, "Remover::session"),
            removed: Atomic::new(0),
        }),
        GFP_KERNEL,
    )?;
    let target = Target::new(&soft.device, remover.clone())?;
    let stand = Stand::new(soft)?;
    let session = stand.session(&target, "")?;
    *remover.session.lock() = Some(session.clone());
    let login = session
        .log_in(Purpose::First, 10_000)
        .map_err(|why| why.errno())?;
    let why = login.first().err().ok_or(EINVAL)?;
    check!(matches!(why, LoginFailure::Removed));
    check_eq!(why.errno(), ENODEV);
    drop(login);
    check_eq!(remover.removed.load(Relaxed), 1);
    target.has_heard(|heard| &heard.refused, 1)?;
    stand.sessions.wait_gone(&session);
    check_eq!(session.status().state().life, Life::Gone);
    Ok(())
}
