// SPDX-License-Identifier: GPL-2.0

//! Hops of a directed-route SMP through a switch (IBTA 14.2.2), outward and back.
//!
//! `drivers/infiniband/core/smi.c` handles the hops at a channel adapter.

use super::{
    Smp,
    PATH_LEN,
    PERMISSIVE, //
};

/// The next hop of a directed-route SMP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hop {
    /// Out of this port, which may not exist.
    Out(u8),
    /// To this node's agent.
    Here,
    /// To this LID; the directed part of the path has ended.
    Lid(u16),
    /// Nowhere; the path is invalid.
    Nowhere,
}

/// Moves `smp`, which arrived at port `inport`, one hop further. Port 0 is the switch itself.
pub fn hop(smp: &mut Smp, inport: u8) -> Hop {
    if usize::from(smp.hop_cnt) >= PATH_LEN {
        Hop::Nowhere
    } else if smp.is_returning() {
        back(smp)
    } else {
        onward(smp, inport)
    }
}

fn onward(smp: &mut Smp, inport: u8) -> Hop {
    let (at, last) = (smp.hop_ptr, smp.hop_cnt);
    let next = at.saturating_add(1);
    if at > last {
        return if at == last.saturating_add(1) {
            Hop::Here
        } else {
            Hop::Nowhere
        };
    }
    if at > 0 {
        if let Some(port) = smp.return_path.get_mut(usize::from(at)) {
            *port = inport;
        }
    }
    smp.hop_ptr = next;
    if at < last {
        return out(&smp.initial_path, next);
    }
    match smp.dr_dlid.get() {
        PERMISSIVE => Hop::Here,
        lid => Hop::Lid(lid),
    }
}

fn back(smp: &mut Smp) -> Hop {
    let at = smp.hop_ptr;
    if at == 0 {
        return Hop::Here;
    }
    if at > smp.hop_cnt.saturating_add(1) {
        return Hop::Nowhere;
    }
    let next = at.saturating_sub(1);
    smp.hop_ptr = next;
    if next > 0 {
        return out(&smp.return_path, next);
    }
    match smp.dr_slid.get() {
        PERMISSIVE => Hop::Here,
        lid => Hop::Lid(lid),
    }
}

fn out(path: &[u8; PATH_LEN], at: u8) -> Hop {
    path.get(usize::from(at))
        .map_or(Hop::Nowhere, |port| Hop::Out(*port))
}
