// SPDX-License-Identifier: GPL-2.0

//! Replaces the kernel crate's `uaccess`: the names that `page` and the prelude use.

use crate::error::Result;
use core::mem::MaybeUninit;

/// Never instantiated.
pub enum UserPtr {}

/// Never instantiated.
pub enum UserSliceReader {}

impl UserSliceReader {
    /// Never called.
    pub fn read_raw(&mut self, _: &mut [MaybeUninit<u8>]) -> Result {
        match *self {}
    }
}
