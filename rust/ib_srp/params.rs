// SPDX-License-Identifier: GPL-2.0

//! The module parameters that `params.c` declares.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::{
    module_param::module_param,
    scsi::{
        transport::srp::Defaults,
        SG_MAX_SEGMENTS, //
    }, //
};
use kernel::prelude::*;

/// The default number of descriptors in a command.
const DEFAULT_CMD_SG_ENTRIES: u32 = 12;
/// The descriptor count of a command is one byte on the wire.
const MAX_CMD_SG_ENTRIES: u32 = 255;

/// The descriptor limits of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SgEntries {
    /// Maximum number of descriptors in the SRP command, 1 to 255.
    pub cmd: u32,
    /// Maximum number of segments of an I/O, at least `cmd` and at most `SG_MAX_SEGMENTS`.
    pub indirect: u32,
}

/// Faults of the parameters that an [`SgEntries`] is computed from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Complaints {
    deprecated: bool,
    cmd_too_large: bool,
    indirect_too_small: bool,
    indirect_too_large: bool,
}

impl SgEntries {
    fn new(tablesize: u32, cmd: u32, indirect: u32) -> (Self, Complaints) {
        let mut bad = Complaints {
            deprecated: tablesize != 0,
            ..Complaints::default()
        };
        let cmd = match (cmd, tablesize) {
            (0, 0) => DEFAULT_CMD_SG_ENTRIES,
            (0, old) => old,
            (new, _) => new,
        };
        bad.cmd_too_large = cmd > MAX_CMD_SG_ENTRIES;
        let cmd = cmd.min(MAX_CMD_SG_ENTRIES);
        bad.indirect_too_small = indirect != 0 && indirect < cmd;
        bad.indirect_too_large = indirect > SG_MAX_SEGMENTS;
        let indirect = indirect.max(cmd).min(SG_MAX_SEGMENTS);
        (Self { cmd, indirect }, bad)
    }
}

fn raw_sg_entries() -> (SgEntries, Complaints) {
    SgEntries::new(
        module_param!(sg_tablesize).get(),
        module_param!(cmd_sg_entries).get(),
        module_param!(indirect_sg_entries).get(),
    )
}

/// Logs bad parameters, and sets those out of range to the values in use, so that
/// `/sys/module/ib_srp/parameters` shows them. Called once, while the module is being loaded.
pub fn check() {
    let (entries, bad) = raw_sg_entries();
    if bad.deprecated {
        pr_warn!("srp_sg_tablesize is deprecated, use cmd_sg_entries\n");
    }
    if bad.cmd_too_large {
        pr_warn!("cmd_sg_entries is limited to {MAX_CMD_SG_ENTRIES}\n");
    }
    if bad.indirect_too_small {
        pr_warn!(
            "indirect_sg_entries raised to cmd_sg_entries, {}\n",
            entries.cmd
        );
    }
    if bad.indirect_too_large {
        pr_warn!("indirect_sg_entries is limited to {}\n", SG_MAX_SEGMENTS);
    }
    module_param!(cmd_sg_entries).set(entries.cmd);
    module_param!(indirect_sg_entries).set(entries.indirect);
}

/// Returns `cmd_sg_entries` and `indirect_sg_entries`, within their ranges.
pub fn sg_entries() -> SgEntries {
    raw_sg_entries().0
}

/// `allow_ext_sg`: default of whether an I/O may need more descriptors than fit in the command.
pub fn allow_ext_sg() -> bool {
    module_param!(allow_ext_sg).get()
}

/// `topspin_workarounds`: whether to work around the bugs of Topspin and Cisco targets.
pub fn topspin_workarounds() -> bool {
    module_param!(topspin_workarounds).get() != 0
}

/// `register_always`: has no effect.
pub fn register_always() -> bool {
    module_param!(register_always).get()
}

/// `never_register`: has no effect.
pub fn never_register() -> bool {
    module_param!(never_register).get()
}

/// `keep_alive`: after how many seconds an idle connection is tested, 0 (never) to 86400. May
/// change at any time.
pub fn keep_alive() -> u32 {
    module_param!(keep_alive).get()
}

/// `static_read_max`: the maximum length of a read through static memory, in bytes, 0 for none. May
/// change at any time, to any value.
pub fn static_read_max() -> u32 {
    module_param!(static_read_max).get()
}

/// `poll_queues`: the number of polled channels per target. May change at any time, to any value.
pub fn poll_queues() -> u32 {
    module_param!(poll_queues).get()
}

/// `use_imm_data`: whether to request immediate data at login. May change at any time.
pub fn use_imm_data() -> bool {
    module_param!(use_imm_data).get()
}

/// `max_imm_data`: the largest amount of immediate data, in bytes. May change at any time, to any
/// value.
pub fn max_imm_data() -> u32 {
    module_param!(max_imm_data).get()
}

/// `reconnect_delay`, `fast_io_fail_tmo` and `dev_loss_tmo`, in seconds, -1 for off. May change at
/// any time.
pub fn timeouts() -> Defaults {
    Defaults {
        reconnect_delay: module_param!(reconnect_delay).as_atomic(),
        fast_io_fail_tmo: module_param!(fast_io_fail_tmo).as_atomic(),
        dev_loss_tmo: module_param!(dev_loss_tmo).as_atomic(),
    }
}

/// `ch_count`: the number of channels per target, 0 to derive it from the machine.
pub fn ch_count() -> u32 {
    module_param!(ch_count).get()
}

#[cfg(SRP_KUNIT)]
#[kunit_tests(srp_params)]
mod tests {
    use super::*;

    #[test]
    fn sg_entries_ranges() {
        const MAX: u32 = SG_MAX_SEGMENTS;
        let fine = Complaints::default();
        let (mut old, mut cmd, mut small, mut large) = (fine, fine, fine, fine);
        old.deprecated = true;
        cmd.cmd_too_large = true;
        small.indirect_too_small = true;
        large.indirect_too_large = true;
        // (srp_sg_tablesize, cmd_sg_entries, indirect_sg_entries) -> (cmd, indirect), complaints
        let table = [
            ((0, 0, 0), (12, 12), fine),
            ((0, 1, 0), (1, 1), fine),
            ((0, 255, 0), (255, 255), fine),
            ((0, 12, MAX), (12, MAX), fine),
            ((30, 0, 0), (30, 30), old),
            ((30, 20, 0), (20, 20), old),
            ((0, 256, 0), (255, 255), cmd),
            ((0, u32::MAX, 300), (255, 300), cmd),
            ((0, 20, 19), (20, 20), small),
            ((0, 0, MAX + 1), (12, MAX), large),
        ];
        for ((old, cmd, indirect), want, complaints) in table {
            let (got, bad) = SgEntries::new(old, cmd, indirect);
            assert_eq!((got.cmd, got.indirect), want);
            assert_eq!(bad, complaints);
        }
    }
}
