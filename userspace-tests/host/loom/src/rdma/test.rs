// SPDX-License-Identifier: GPL-2.0

//! What only a queue pair does, for tests without one.

use super::{
    mr::{Bound, Handle, Regions},
    pd::Pd,
};
use crate::{bindings, dma::ScatterList};
use kernel::prelude::*;

pub fn bind(regions: &Regions) -> Result {
    regions.bind()
}

pub fn unbind(regions: &Regions) {
    regions.unbind();
}

pub fn set_dead(regions: &Regions) {
    regions.set_dead();
}

pub fn invalidated(regions: &Regions, handle: usize) {
    regions.invalidated(handle);
}

/// The first region of the first handle, which must be reachable.
pub fn region(regions: &Regions) -> *mut bindings::ib_mr {
    let (region, _) = regions.reachable_of(0).expect("reachable");
    region.mr(Bound { regions })
}

pub fn expose<T: ScatterList>(handle: &mut Handle<T>) {
    handle.expose().expect("mapped");
}

pub fn begin(pd: &Pd) -> Result {
    pd.begin()
}

pub fn drained(pd: &Pd) {
    pd.drained();
}
