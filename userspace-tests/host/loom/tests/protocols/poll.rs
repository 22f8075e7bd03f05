// SPDX-License-Identifier: GPL-2.0

//! The lock of a polled queue pair: one thread polls at a time, and sees the effects of the
//! callbacks of earlier polls.

use crate::channel::pd;
use loom::thread;
use srp_loom::{
    dma::DataDirection,
    model,
    rdma::{
        dma::Pool,
        mr::Regions,
        qp::{Failure, Handler, Memory, PollContext, Qp, Sizes},
        wc::Flags,
    },
    scsi::Command,
};

struct Nothing;

impl Handler for Nothing {
    fn received(_: &Qp<Self>, _: &[u8], _: Flags) {}
    fn invalidated(_: &Qp<Self>, _: usize) {}
    fn control_sent(_: &Qp<Self>) {}
    fn last_sent(_: &Qp<Self>) {}
    fn failed(_: &Qp<Self>, _: Failure) {}
}

/// Three threads poll at once.
#[test]
fn poll_lock() {
    model("poll_lock", 3, || {
        let pd = pd();
        let (receives, messages) = (
            Default::default(),
            Pool::new(&pd, 0, 1, DataDirection::ToDevice),
        );
        let (regions, _) = Regions::new::<Command>(&pd, 0, 1).unwrap();
        let sizes = Sizes {
            send: 1,
            send_sge: 1,
            receive: 1,
            vector: 0,
            context: PollContext::Direct,
            handles: 0,
        };
        let memory = Memory {
            receives,
            messages: messages.unwrap().0,
            data: None,
            regions,
            fixed: None,
        };
        let qp = Qp::new(&pd, sizes, memory, Nothing).unwrap();
        let others = [(); 2].map(|()| {
            let qp = qp.clone();
            thread::spawn(move || qp.poll())
        });
        let mut polls = vec![qp.poll()];
        polls.extend(others.into_iter().map(|t| t.join().unwrap()));
        // Each poll has a number; 0 means no poll.
        polls.retain(|&n| n > 0);
        polls.sort();
        assert_eq!(polls, (1..=polls.len() as u32).collect::<Vec<_>>());
        assert!(!polls.is_empty());
    });
}
