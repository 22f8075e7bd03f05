// SPDX-License-Identifier: GPL-2.0

//! `StateCell`: its word hands the data over.

use loom::thread;
use srp_loom::{model, sync::StateCell};
use std::sync::Arc;

const FREE: u64 = 0;
const SENT: u64 = 1;

/// Of three threads that want the data, one has it at a time, and sees the data of the previous
/// one, which has released or dropped the guard.
#[test]
fn cell_hands_over() {
    model("cell_hands_over", 3, || {
        let cell = Arc::new(StateCell::new(FREE, 0u32));
        let take = |cell: &StateCell<u32>, release: bool| {
            if let Some(mut data) = cell.acquire(FREE, FREE) {
                *data += 1;
                if release {
                    data.release(FREE);
                }
            }
        };
        let others = [true, false].map(|release| {
            let cell = cell.clone();
            thread::spawn(move || take(&cell, release))
        });
        take(&cell, true);
        others.into_iter().for_each(|t| t.join().unwrap());
        let data = cell.acquire(FREE, FREE).expect("free");
        assert!((1..=3).contains(&*data));
    });
}

/// A dropped guard hands the data over like a released one.
#[test]
fn cell_hands_over_by_drop() {
    model("cell_hands_over_by_drop", 3, || {
        let cell = Arc::new(StateCell::new(FREE, 0u32));
        let other = {
            let cell = cell.clone();
            thread::spawn(move || {
                *cell.acquire(FREE, SENT).expect("free") = 7;
            })
        };
        if let Some(data) = cell.acquire(SENT, FREE) {
            assert_eq!(*data, 7);
        }
        other.join().unwrap();
    });
}

/// A transition between two holders does not hide the first one's data from the second, and fails
/// while a holder has the data.
#[test]
fn cell_transition() {
    model("cell_transition", 3, || {
        let cell = Arc::new(StateCell::new(FREE, 0u32));
        let writer = {
            let cell = cell.clone();
            thread::spawn(move || {
                let mut data = cell.acquire(FREE, FREE).expect("free");
                *data = 7;
                data.release(SENT);
            })
        };
        let mover = {
            let cell = cell.clone();
            thread::spawn(move || cell.transition(SENT, 2))
        };
        if let Some(data) = cell.acquire(2, 3) {
            assert_eq!(*data, 7);
        }
        writer.join().unwrap();
        if mover.join().unwrap() {
            assert!(matches!(cell.load(), (2 | 3, false)));
        } else {
            assert_eq!(cell.load(), (SENT, false));
        }
    });
}
