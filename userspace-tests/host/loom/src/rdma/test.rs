// SPDX-License-Identifier: GPL-2.0

//! Operations of a queue pair, for tests without a queue pair.

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

pub fn expose<T: ScatterList>(handle: &mut Handle<T>) {
    handle.expose().expect("mapped");
}

/// Registers a handle. Returns its first region, as the device sees it.
pub fn lend<T: ScatterList>(regions: &Regions, handle: &mut Handle<T>) -> *mut bindings::ib_mr {
    let bound = Bound { regions };
    let register = handle.register(bound).unwrap().expect("mapped");
    register.regions.first().mr(bound)
}

/// Posts a registration as a queue pair does, after handing the handle over. `post` posts the
/// registration, and then the invalidation if that was requested meanwhile.
pub fn register<T: ScatterList, R>(
    regions: &Regions,
    mut handle: Handle<T>,
    hand_over: impl FnOnce(Handle<T>) -> R,
    post: impl Fn(Posted),
) -> R {
    let register = handle.register(Bound { regions }).unwrap();
    let register = register.expect("mapped");
    let result = hand_over(handle);
    post(Posted::Registration);
    if register.regions.posted() {
        post(Posted::Invalidation);
    }
    result
}

/// Posts an invalidation as a queue pair does, unless the thread that registers will post it.
pub fn invalidate<T: ScatterList>(
    regions: &Regions,
    handle: &mut Handle<T>,
    post: impl Fn(Posted),
) {
    let exposed = handle.invalidation(Bound { regions }).unwrap();
    if exposed.expect("reachable").invalidate() {
        post(Posted::Invalidation);
    }
}

/// A request that [`register`] or [`invalidate`] posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    Registration,
    Invalidation,
}

pub fn begin(pd: &Pd) -> Result {
    pd.begin()
}

pub fn drained(pd: &Pd) {
    pd.drained();
}
