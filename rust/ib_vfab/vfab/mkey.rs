// SPDX-License-Identifier: GPL-2.0

//! The M_Key, which protects a port from other subnet managers (IBTA 14.2.4).

use super::mad::{
    Smp,
    GET, //
};

/// A port's M_Key and its protection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MKey {
    /// The key; 0 means no protection.
    pub key: u64,
    /// Below 2, a Get needs no key; with 1, a Get without the key does not return the key.
    pub protect: u8,
    /// Seconds from an access with a wrong key until the protection ends; 0 means never.
    pub lease: u16,
    /// Number of accesses with a wrong key.
    pub violations: u16,
    /// Seconds left of the running lease, or 0.
    left: u16,
}

impl MKey {
    /// No protection.
    pub const OPEN: Self = Self {
        key: 0,
        protect: 0,
        lease: 0,
        violations: 0,
        left: 0,
    };

    fn fits(&self, smp: &Smp) -> bool {
        self.key == 0 || smp.mkey.get() == self.key
    }

    /// Whether `smp`, a request or TrapRepress, is allowed. If not, it counts as a violation and
    /// starts the lease. An SMP with the right key stops the lease.
    pub fn admits(&mut self, smp: &Smp) -> bool {
        if self.fits(smp) {
            self.left = 0;
            return true;
        }
        if smp.method == GET && self.protect < 2 {
            return true;
        }
        self.violations = self.violations.saturating_add(1);
        if self.left == 0 {
            self.left = self.lease;
        }
        false
    }

    /// The key that the response to `smp` shows.
    pub fn shown(&self, smp: &Smp) -> u64 {
        if smp.method == GET && self.protect == 1 && !self.fits(smp) {
            0
        } else {
            self.key
        }
    }

    /// Called once per second.
    pub fn tick(&mut self) {
        if self.left == 1 {
            self.protect = 0;
        }
        self.left = self.left.saturating_sub(1);
    }
}
