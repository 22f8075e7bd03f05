// SPDX-License-Identifier: GPL-2.0

//! The tests on the made-up rdma-core of `fake.h`, in one program: it has one set of devices.

mod devices;
mod pair;
mod reactors;
mod rs;
mod target;
mod xorset;
