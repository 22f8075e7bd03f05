// SPDX-License-Identifier: GPL-2.0

//! In the place of the kernel crate's `uaccess`: what `page` and the prelude name.

use crate::error::Result;
use core::mem::MaybeUninit;

/// Nobody has one here.
pub enum UserPtr {}

/// Nobody has one here.
pub enum UserSliceReader {}

impl UserSliceReader {
    /// Never called.
    pub fn read_raw(&mut self, _: &mut [MaybeUninit<u8>]) -> Result {
        match *self {}
    }
}
