// SPDX-License-Identifier: GPL-2.0

//! Traps to the subnet manager, repeated until it represses them (IBTA 13.4.9, 14.3).

use super::mad::{
    attribute,
    info::{
        Notice,
        DETAILS_LEN, //
    },
    Lrh,
    Mad,
    Smp,
    BASE_VERSION,
    CLASS_LID_ROUTED,
    CLASS_VERSION,
    LEN,
    TRAP, //
};

/// Trap number: the link state of a switch port has changed.
const LINK_STATE: u16 = 128;
/// `IB_NOTICE_TRAP_CAP_MASK_CHG`.
const CAPABILITY: u16 = 144;
/// `IB_NOTICE_TRAP_BAD_MKEY`.
const BAD_MKEY: u16 = 256;

/// `IB_NOTICE_TYPE_URGENT`.
const URGENT: u8 = 0x81;
/// `IB_NOTICE_TYPE_SECURITY`.
const SECURITY: u8 = 0x82;
/// `IB_NOTICE_TYPE_INFO`.
const INFO: u8 = 0x84;

/// `IB_NOTICE_TRAP_NODE_DESC_CHG`.
const NODE_DESC_CHANGED: u8 = 0x01;
/// The change is not of the capability mask.
const OTHER_CHANGES: u8 = 0x01;
/// `IB_NOTICE_TRAP_DR_NOTICE`: the SMP was directed-route.
const DIRECTED: u8 = 0x80;
/// `IB_NOTICE_TRAP_DR_TRUNC`: the path is truncated.
const TRUNCATED: u8 = 0x40;
/// Maximum number of hops of a path in a notice.
const HOPS: usize = 30;

/// Source and destination of traps.
#[derive(Clone, Copy, Debug)]
pub struct Issuer {
    /// NodeType in NodeInfo: 1 is a channel adapter, 2 a switch.
    pub node_type: u8,
    /// LID of the port.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
}

impl Issuer {
    /// Whether a subnet manager has set the port's LID and the manager's LID.
    fn is_managed(&self) -> bool {
        self.lid != 0 && self.sm_lid != 0
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Trap {
    number: u16,
    kind: u8,
    tid: u64,
    due: bool,
    details: [u8; DETAILS_LEN],
}

/// The traps of a port: at most one for its state, and one for a violation. A newer trap replaces
/// an older one of the same kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Traps {
    state: Option<Trap>,
    violation: Option<Trap>,
    tid: u64,
}

impl Traps {
    /// No traps.
    pub const NONE: Self = Self {
        state: None,
        violation: None,
        tid: 0,
    };

    fn trap(&mut self, number: u16, kind: u8, details: [u8; DETAILS_LEN]) -> Option<Trap> {
        self.tid = self.tid.wrapping_add(1);
        Some(Trap {
            number,
            kind,
            tid: self.tid,
            due: true,
            details,
        })
    }

    /// Queues trap 128: the link of a port of the switch `issuer` went up or down.
    pub fn link_state(&mut self, issuer: Issuer) {
        let mut details = [0; DETAILS_LEN];
        put(&mut details, 0, &issuer.lid.to_be_bytes());
        self.state(issuer, LINK_STATE, URGENT, details);
    }

    /// Queues trap 144: the capability mask of the port `issuer` is `mask`.
    pub fn capability(&mut self, issuer: Issuer, mask: u32) {
        let mut details = [0; DETAILS_LEN];
        put(&mut details, 2, &issuer.lid.to_be_bytes());
        put(&mut details, 6, &mask.to_be_bytes());
        self.state(issuer, CAPABILITY, INFO, details);
    }

    /// Queues trap 144 of the port `issuer`, with the capability mask `mask`: the node description
    /// has changed.
    pub fn description(&mut self, issuer: Issuer, mask: u32) {
        let mut details = [0; DETAILS_LEN];
        put(&mut details, 2, &issuer.lid.to_be_bytes());
        put(&mut details, 5, &[OTHER_CHANGES]);
        put(&mut details, 6, &mask.to_be_bytes());
        put(&mut details, 11, &[NODE_DESC_CHANGED]);
        self.state(issuer, CAPABILITY, INFO, details);
    }

    /// Queues a trap about the port's state if there is a manager. A later manager reads the state
    /// when it takes over the port.
    fn state(&mut self, issuer: Issuer, number: u16, kind: u8, details: [u8; DETAILS_LEN]) {
        if issuer.is_managed() {
            self.state = self.trap(number, kind, details);
        }
    }

    /// Queues trap 256: `smp` has arrived from `slid` with a wrong M_Key.
    pub fn bad_mkey(&mut self, smp: &Smp, slid: u16) {
        let mut details = [0; DETAILS_LEN];
        put(&mut details, 2, &slid.to_be_bytes());
        put(&mut details, 6, &[smp.method]);
        put(&mut details, 8, &smp.attr_id.get().to_be_bytes());
        put(&mut details, 10, &smp.attr_mod.get().to_be_bytes());
        put(&mut details, 14, &smp.mkey.get().to_be_bytes());
        if smp.is_directed() {
            let hops = usize::from(smp.hop_cnt);
            let path = smp.return_path.get(..hops.min(HOPS)).unwrap_or(&[]);
            let truncated = if hops > HOPS { TRUNCATED } else { 0 };
            put(&mut details, 4, &smp.dr_slid.get().to_be_bytes());
            // CAST: The path has at most 30 hops.
            put(&mut details, 23, &[DIRECTED | truncated | path.len() as u8]);
            put(&mut details, 24, path);
        }
        self.violation = self.trap(BAD_MKEY, SECURITY, details);
    }

    /// Ends the trap `tid`, which the subnet manager has seen.
    pub fn repress(&mut self, tid: u64) {
        for slot in [&mut self.state, &mut self.violation] {
            if slot.as_ref().is_some_and(|trap| trap.tid == tid) {
                *slot = None;
            }
        }
    }

    /// Called once per second. Traps that are not repressed become due again.
    pub fn tick(&mut self) {
        for trap in [&mut self.state, &mut self.violation].into_iter().flatten() {
            trap.due = true;
        }
    }

    /// Takes the next due trap, if `issuer` has a subnet manager.
    pub fn take(&mut self, issuer: Issuer) -> Option<(Lrh, Mad)> {
        if !issuer.is_managed() {
            return None;
        }
        let trap = [&mut self.state, &mut self.violation]
            .into_iter()
            .flatten()
            .find(|trap| trap.due)?;
        trap.due = false;
        let mut mad = [0; LEN];
        let smp = Smp::of_mut(&mut mad);
        smp.base_version = BASE_VERSION;
        smp.mgmt_class = CLASS_LID_ROUTED;
        smp.class_version = CLASS_VERSION;
        smp.method = TRAP;
        smp.tid = trap.tid.into();
        smp.attr_id = attribute::NOTICE.into();
        smp.data = zerocopy::transmute!(Notice {
            kind: trap.kind,
            producer: [0, 0, issuer.node_type],
            number: trap.number.into(),
            issuer: issuer.lid.into(),
            toggle_count: 0.into(),
            details: trap.details,
        });
        let lrh = Lrh {
            slid: issuer.lid,
            dlid: issuer.sm_lid,
            sl: issuer.sm_sl,
        };
        Some((lrh, mad))
    }
}

/// Copies `bytes` to offset `at` of `details`, as far as there is room.
fn put(details: &mut [u8; DETAILS_LEN], at: usize, bytes: &[u8]) {
    for (to, from) in details.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
