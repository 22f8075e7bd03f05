// SPDX-License-Identifier: GPL-2.0

//! A channel: commands in flight, the error handler, and the end of a connection, concurrently.

pub use srp_loom::stand::pd;

use crate::beside;
use loom::thread;
use srp_loom::{
    model,
    scsi::Cmnd,
    srp::logic::{credit::RESERVE_COMMAND, data_path::DataPath},
    stand::{is_reset, Stand},
};
use std::sync::atomic::Ordering::Relaxed;

/// A read with registered data, and another command in the same slot as soon as the slot is free.
#[test]
fn channel_answers() {
    model("channel_answers", 1, || {
        let stand = Stand::logged_in(1);
        // The messages of both commands, and the invalidation of the first.
        let device = beside(&stand, move |stand| stand.device(3));
        let first = Cmnd::read(0);
        assert!(stand.queue(&first));
        let second = Cmnd::none(0);
        // Refused until slot and credit are back.
        while !stand.queue(&second) {
            thread::yield_now();
        }
        device.join().unwrap();
        assert_eq!((first.ended(), second.ended()), (1, 1));
        assert_eq!(stand.channel().credits(), 2);
        assert_eq!(stand.told.failed.load(Relaxed), 0);
    });
}

/// The connection is lost while one command is being sent and may already have been answered. If it
/// was accepted, it ends once. No memory that the peer can reach is released, and the slot is free.
#[test]
fn channel_lost() {
    model("channel_lost", 2, || {
        let stand = Stand::logged_in(1);
        let device = beside(&stand, move |stand| stand.device(2));
        let sender = beside(&stand, move |stand| {
            let cmd = Cmnd::read(0);
            (stand.queue(&cmd), cmd)
        });
        stand.end();
        let (taken, cmd) = sender.join().unwrap();
        device.join().unwrap();
        assert_eq!(cmd.ended(), u32::from(taken));
        assert!(!stand.channel().has_any_out());
        assert!(!taken || !stand.channel().is_open());
        assert_eq!(stand.channel().regions().reachable(), 0);
        let _ = is_reset(&cmd);
        // The next connection has new regions, and accepts commands.
        stand.connect();
        stand.set_lost(false);
        stand.open(1).unwrap();
        let next = Cmnd::read(0);
        assert!(stand.queue(&next));
        stand.end();
        assert!(is_reset(&next));
    });
}

/// A login ends while the connection fails: the login or the failure tells the session.
#[test]
fn channel_open_fails() {
    model("channel_open_fails", 3, || {
        let stand = Stand::new();
        stand.connect();
        let fails = beside(&stand, move |stand| stand.fail());
        let opened = stand.open(1).is_ok();
        fails.join().unwrap();
        // If the channel is not open, the login itself has failed.
        if stand.channel().is_open() {
            assert!(stand.told.failed.load(Relaxed) > 0);
        }
        assert!(!opened || stand.told.failed.load(Relaxed) > 0);
        stand.end();
    });
}

/// A login ends while the connection is ended: the queue pair lives as long as the login uses it,
/// and afterwards no slot is in use.
#[test]
fn channel_open_lost() {
    model("channel_open_lost", 3, || {
        let stand = Stand::new();
        stand.connect();
        let login = beside(&stand, move |stand| stand.open(1).is_ok());
        stand.end();
        login.join().unwrap();
        assert!(!stand.channel().has_any_out());
    });
}

/// A sender that finds a channel open sees the grant of the target.
#[test]
fn channel_open_grants() {
    model("channel_open_grants", 3, || {
        let stand = Stand::new();
        stand.connect();
        let sender = beside(&stand, move |stand| {
            let cmd = Cmnd::write(0);
            (stand.channel().is_open() && stand.queue(&cmd), cmd)
        });
        stand.open(1).unwrap();
        let (taken, cmd) = sender.join().unwrap();
        if taken {
            stand.device(1);
            assert_eq!(cmd.ended(), 1);
            assert_eq!(stand.channel().counts().of(DataPath::Immediate), 1);
        }
        stand.end();
    });
}

/// A sender that finds the session live again sees the grant of the target, even if the channel was
/// closed earlier.
#[test]
fn channel_live_grants() {
    model("channel_live_grants", 3, || {
        let stand = Stand::new();
        stand.set_lost(true);
        stand.connect();
        let sender = beside(&stand, move |stand| {
            let cmd = Cmnd::write(0);
            (stand.queue(&cmd), cmd)
        });
        stand.open(1).unwrap();
        stand.set_lost(false);
        let (taken, cmd) = sender.join().unwrap();
        if taken {
            stand.device(1);
            assert_eq!(cmd.ended(), 1);
            assert_eq!(stand.channel().counts().of(DataPath::Immediate), 1);
        }
        stand.end();
    });
}

/// The error handler aborts a command while its response is in flight.
#[test]
fn channel_abort() {
    model("channel_abort", 2, || {
        let stand = Stand::logged_in(1);
        let cmd = Cmnd::read(0);
        assert!(stand.queue(&cmd));
        let device = beside(&stand, move |stand| {
            // The command, unless aborted first, the abort, and the invalidation.
            stand.device(3);
        });
        assert!(stand.abort(&cmd));
        stand.end();
        device.join().unwrap();
        assert_eq!(cmd.ended(), 1);
        assert_eq!(stand.told.failed.load(Relaxed), 0);
    });
}

/// The error handler aborts a command while the connection is lost.
#[test]
fn channel_abort_lost() {
    model("channel_abort_lost", 2, || {
        let stand = Stand::logged_in(1);
        let cmd = Cmnd::read(0);
        assert!(stand.queue(&cmd));
        let handler = {
            let (stand, cmd) = (stand.clone(), cmd.clone());
            thread::spawn(move || stand.abort(&cmd))
        };
        stand.end();
        handler.join().unwrap();
        assert_eq!(cmd.ended(), 1);
        assert!(!stand.channel().has_any_out());
    });
}

/// The connection is lost when the target has answered only the abort.
#[test]
fn channel_abort_answered_lost() {
    model("channel_abort_answered_lost", 2, || {
        let stand = Stand::logged_in(1);
        let cmd = Cmnd::read(0);
        assert!(stand.queue(&cmd));
        stand.not_answered();
        let handler = {
            let (stand, cmd) = (stand.clone(), cmd.clone());
            thread::spawn(move || stand.abort(&cmd))
        };
        stand.device(1);
        stand.end();
        handler.join().unwrap();
        assert_eq!(cmd.ended(), 1);
        assert!(!stand.channel().has_any_out());
    });
}

/// A probe or a logout while the connection is ended: neither is posted on a queue pair that is
/// gone.
#[test]
fn channel_asks_lost() {
    model("channel_asks_lost", 3, || asks_lost(false));
    model("channel_logs_out_lost", 3, || asks_lost(true));
}

fn asks_lost(log_out: bool) {
    let stand = Stand::logged_in(1);
    let asks = beside(&stand, move |stand| match log_out {
        true => stand.channel().begin_log_out(),
        false => drop(stand.channel().send_probe(RESERVE_COMMAND)),
    });
    stand.end();
    asks.join().unwrap();
    assert!(!stand.channel().is_probed());
}

/// The error handler waits for a slot that is just being freed. It checks again every 50 ms.
#[test]
fn channel_waits() {
    model("channel_waits", 2, || waits(false));
}

/// Without the check every 50 ms the error handler could wait forever: the count of waiters orders
/// nothing.
#[test]
#[should_panic(expected = "deadlock")]
fn channel_waits_in_slices() {
    model("channel_waits_in_slices", 3, || waits(true));
}

fn waits(patient: bool) {
    srp_loom::stand::be_patient(patient);
    let stand = Stand::logged_in(1);
    let cmd = Cmnd::read(0);
    assert!(stand.queue(&cmd));
    stand.device(1);
    let device = beside(&stand, move |stand| stand.device(1));
    assert!(stand.channel().wait_unit(Default::default()));
    device.join().unwrap();
    assert_eq!(cmd.ended(), 1);
}

/// Credits are neither lost nor created, and a channel does not count as starving after its command
/// has ended.
#[test]
fn channel_credits() {
    model("channel_credits", 3, || {
        let stand = Stand::logged_in(1);
        let cmd = Cmnd::none(0);
        assert!(stand.queue(&cmd));
        let device = beside(&stand, move |stand| stand.device(1));
        let taken = stand.channel().counts().take_credit(0);
        device.join().unwrap();
        assert_eq!(stand.channel().credits(), 2 - i32::from(taken));
    });
}
