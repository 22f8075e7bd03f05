// SPDX-License-Identifier: GPL-2.0

//! An end port of the subnet: of a channel adapter, or port 0 of a switch.

use super::{
    changes::Changes,
    link::{
        Link,
        State, //
    },
    mad::{
        info::PortInfo,
        Data,
        Refusal,
        Smp,
        DATA_LEN,
        FIRST_MULTICAST, //
    },
    mkey::MKey,
    traps::{
        Issuer,
        Traps, //
    },
};

/// Number of entries in the P_Key table.
pub const PKEYS: usize = 16;
/// Number of entries in GUIDInfo.
pub const GUIDS: usize = 8;

/// Bits of the capability mask, `enum ib_port_capability_mask_bits`.
pub mod capability {
    /// The port sends traps.
    pub const TRAP: u32 = 1 << 3;
    /// The port has a table that maps service levels to virtual lanes.
    pub const SL_MAP: u32 = 1 << 6;
    /// NodeInfo contains a system image GUID.
    pub const SYS_IMAGE_GUID: u32 = 1 << 11;
    /// The port reports changes of the mask.
    pub const CAP_MASK_NOTICE: u32 = 1 << 22;
    /// The port supports ClientReregister.
    pub const CLIENT_REREGISTER: u32 = 1 << 25;
}

/// The default partition, as a full member.
const DEFAULT_PKEY: u16 = 0xffff;
/// The subnet prefix until a subnet manager sets one.
const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000;
/// ClientReregister in PortInfo.
const REREGISTER: u8 = 0x80;
/// Mask of SubnetTimeOut and RespTimeValue.
const TIMEOUT: u8 = 0x1f;
/// Mask of LMC.
const LMC: u8 = 0x07;
/// The port responds within 4 us * 2^this.
const RESP_TIME: u8 = 16;

/// A port that has a LID.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Port {
    /// The port's end of the link.
    pub link: Link,
    /// The port's M_Key.
    pub mkey: MKey,
    /// Traps from the port to the subnet manager.
    pub traps: Traps,
    number: u8,
    node_type: u8,
    lid: u16,
    sm_lid: u16,
    sm_sl: u8,
    prefix: u64,
    capability: u32,
    init_type_reply: u8,
    subnet_timeout: u8,
    pkey_violations: u16,
    qkey_violations: u16,
    pkeys: [u16; PKEYS],
    guids: [u64; GUIDS],
    guid_cap: u8,
    lanes: [u8; LANES_LEN],
}

/// Length of a table from 16 service levels to virtual lanes, in bytes.
pub const LANES_LEN: usize = 8;

/// Maps service level n to virtual lane n modulo 8.
pub const LANES: [u8; LANES_LEN] = [0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67];

impl Port {
    /// Creates port `number` with `guid`, on a node of `node_type`, with `guid_cap` entries of
    /// GUIDInfo.
    pub const fn new(
        number: u8,
        guid: u64,
        node_type: u8,
        link: Link,
        capability: u32,
        guid_cap: u8,
    ) -> Self {
        let mut pkeys = [0; PKEYS];
        pkeys[0] = DEFAULT_PKEY;
        let mut guids = [0; GUIDS];
        guids[0] = guid;
        Self {
            link,
            mkey: MKey::OPEN,
            traps: Traps::NONE,
            number,
            node_type,
            lid: 0,
            sm_lid: 0,
            sm_sl: 0,
            prefix: LINK_LOCAL,
            capability,
            init_type_reply: 0,
            subnet_timeout: 0,
            pkey_violations: 0,
            qkey_violations: 0,
            pkeys,
            guids,
            guid_cap,
            lanes: LANES,
        }
    }

    /// The port's LID; 0 until the subnet manager sets one.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    /// The subnet manager's LID, or 0.
    pub fn sm_lid(&self) -> u16 {
        self.sm_lid
    }

    /// The service level to the subnet manager.
    pub fn sm_sl(&self) -> u8 {
        self.sm_sl
    }

    /// The subnet prefix, the upper half of GIDs.
    pub fn prefix(&self) -> u64 {
        self.prefix
    }

    /// The capability mask, `port_cap_flags`.
    pub fn capability(&self) -> u32 {
        self.capability
    }

    /// Returns the settings that the subnet manager has initialised, `init_type_reply`.
    pub fn init_type_reply(&self) -> u8 {
        self.init_type_reply
    }

    /// An exponent: a packet takes at most 4 us * 2^this through the subnet.
    pub fn subnet_timeout(&self) -> u8 {
        self.subnet_timeout
    }

    /// The number of packets with a wrong P_Key.
    pub fn pkey_violations(&self) -> u16 {
        self.pkey_violations
    }

    /// The number of packets with a wrong Q_Key.
    pub fn qkey_violations(&self) -> u16 {
        self.qkey_violations
    }

    /// Entry `at` of the P_Key table.
    pub fn pkey(&self, at: usize) -> Option<u16> {
        self.pkeys.get(at).copied()
    }

    /// Returns entry `at` of GUIDInfo, the lower half of the port's GID `at`.
    pub fn guid(&self, at: usize) -> Option<u64> {
        self.guids
            .get(at)
            .copied()
            .filter(|_| at < usize::from(self.guid_cap))
    }

    /// Whether data packets pass.
    pub fn is_active(&self) -> bool {
        self.link.state() == State::Active
    }

    /// Counts a packet with a wrong P_Key.
    pub fn bad_pkey(&mut self) {
        self.pkey_violations = self.pkey_violations.saturating_add(1);
    }

    /// Counts a packet with a wrong Q_Key.
    pub fn bad_qkey(&mut self) {
        self.qkey_violations = self.qkey_violations.saturating_add(1);
    }

    /// Sets and clears bits of the capability mask.
    pub fn set_capability(&mut self, set: u32, clear: u32) {
        let mask = self.capability & !clear | set;
        if mask != self.capability {
            self.capability = mask;
            self.traps.capability(self.issuer(), mask);
        }
    }

    /// Queues a trap for a changed node description.
    pub fn described(&mut self) {
        self.traps.description(self.issuer(), self.capability);
    }

    /// The source and destination of the port's traps.
    pub fn issuer(&self) -> Issuer {
        Issuer {
            node_type: self.node_type,
            lid: self.lid,
            sm_lid: self.sm_lid,
            sm_sl: self.sm_sl,
        }
    }

    /// Called once per second.
    pub fn tick(&mut self) {
        self.mkey.tick();
        self.traps.tick();
    }

    /// Returns PortInfo of this port, as the response to `smp`, which arrived at port `inport`.
    pub fn info(&self, smp: &Smp, inport: u8) -> PortInfo {
        let mut info = PortInfo {
            mkey: self.mkey.shown(smp).into(),
            gid_prefix: self.prefix.into(),
            lid: self.lid.into(),
            sm_lid: self.sm_lid.into(),
            cap_mask: self.capability.into(),
            mkey_lease_period: self.mkey.lease.into(),
            local_port_num: inport,
            protect_lmc: self.mkey.protect << 6,
            mtu_sm_sl: self.sm_sl,
            init_reply_mtu_cap: self.init_type_reply << 4,
            mkey_violations: self.mkey.violations.into(),
            pkey_violations: self.pkey_violations.into(),
            qkey_violations: self.qkey_violations.into(),
            guid_cap: self.guid_cap,
            reregister_timeout: self.subnet_timeout,
            resp_time: RESP_TIME,
            ..PortInfo::ZERO
        };
        self.link.get(&mut info);
        info
    }

    /// Sets all of PortInfo. On error nothing changes.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if a field has a value that this port does not support.
    pub fn set_info(&mut self, info: &PortInfo) -> Result<Changes, Refusal> {
        let mut changes = Changes::none(self.number);
        let (lid, sm_lid, sm_sl) = (info.lid.get(), info.sm_lid.get(), info.mtu_sm_sl & 0x0f);
        if lid != self.lid && !is_unicast(lid)
            || sm_lid != self.sm_lid && !is_unicast(sm_lid)
            || info.protect_lmc & LMC != 0
        {
            return Err(Refusal::Value);
        }
        // Only setting the link can fail, so set a copy of the link first.
        let mut link = self.link.clone();
        link.set(info, &mut changes)?;
        self.link = link;

        changes.add(Changes::LID, lid != self.lid);
        changes.add(Changes::SM, (sm_lid, sm_sl) != (self.sm_lid, self.sm_sl));
        changes.add(Changes::GID, info.gid_prefix.get() != self.prefix);
        changes.add(
            Changes::REREGISTER,
            info.reregister_timeout & REREGISTER != 0,
        );
        self.lid = lid;
        self.sm_lid = sm_lid;
        self.sm_sl = sm_sl;
        self.prefix = info.gid_prefix.get();
        self.init_type_reply = info.init_reply_mtu_cap >> 4;
        self.subnet_timeout = info.reregister_timeout & TIMEOUT;
        self.mkey.key = info.mkey.get();
        self.mkey.protect = info.protect_lmc >> 6;
        self.mkey.lease = info.mkey_lease_period.get();
        // Writing 0 resets a count; any other value leaves the count unchanged.
        for (wanted, count) in [
            (info.mkey_violations, &mut self.mkey.violations),
            (info.pkey_violations, &mut self.pkey_violations),
            (info.qkey_violations, &mut self.qkey_violations),
        ] {
            if wanted.get() == 0 {
                *count = 0;
            }
        }
        Ok(changes)
    }

    /// Block `block` of P_KeyTable.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn pkey_table(&self, block: u32, data: &mut Data) -> Result<(), Refusal> {
        first_block(block)?;
        *data = [0; DATA_LEN];
        for (to, pkey) in data.chunks_exact_mut(2).zip(&self.pkeys) {
            to.copy_from_slice(&pkey.to_be_bytes());
        }
        Ok(())
    }

    /// Sets block `block` of P_KeyTable. Entries beyond the table are ignored.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn set_pkey_table(&mut self, block: u32, data: &Data) -> Result<Changes, Refusal> {
        first_block(block)?;
        let mut changes = Changes::none(self.number);
        for (pkey, from) in self.pkeys.iter_mut().zip(data.chunks_exact(2)) {
            let new = from.try_into().map_or(0, u16::from_be_bytes);
            changes.add(Changes::PKEY, new != *pkey);
            *pkey = new;
        }
        Ok(changes)
    }

    /// Block `block` of GUIDInfo.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn guid_info(&self, block: u32, data: &mut Data) -> Result<(), Refusal> {
        first_block(block)?;
        for (to, guid) in data.chunks_exact_mut(8).zip(&self.guids) {
            to.copy_from_slice(&guid.to_be_bytes());
        }
        Ok(())
    }

    /// Sets block `block` of GUIDInfo, except for the first entry, which is the port's own GUID,
    /// and for entries that the port does not have.
    ///
    /// # Errors
    ///
    /// `Refusal::Value` if there is no such block.
    pub fn set_guid_info(&mut self, block: u32, data: &Data) -> Result<Changes, Refusal> {
        first_block(block)?;
        let mut changes = Changes::none(self.number);
        let entries = self.guids.iter_mut().zip(data.chunks_exact(8));
        for (guid, from) in entries.take(self.guid_cap.into()).skip(1) {
            let new = from.try_into().map_or(0, u64::from_be_bytes);
            changes.add(Changes::GID, new != *guid);
            *guid = new;
        }
        Ok(changes)
    }

    /// Reads SLtoVLMappingTable.
    pub fn lanes(&self, data: &mut Data) {
        get_lanes(&self.lanes, data);
    }

    /// Sets SLtoVLMappingTable.
    pub fn set_lanes(&mut self, data: &Data) {
        set_lanes(&mut self.lanes, data);
    }
}

/// Writes a table from service levels to virtual lanes to an attribute.
pub fn get_lanes(lanes: &[u8; LANES_LEN], data: &mut Data) {
    *data = [0; DATA_LEN];
    for (to, from) in data.iter_mut().zip(lanes) {
        *to = *from;
    }
}

/// Reads a table from service levels to virtual lanes from an attribute.
pub fn set_lanes(lanes: &mut [u8; LANES_LEN], data: &Data) {
    for (to, from) in lanes.iter_mut().zip(data) {
        *to = *from;
    }
}

/// Sets ClientReregister. Only the response to a Set of that bit reports it.
pub fn reregistering(data: &mut Data) {
    PortInfo::of_mut(data).reregister_timeout |= REREGISTER;
}

/// Each table of a port has one block, number 0.
fn first_block(block: u32) -> Result<(), Refusal> {
    if block == 0 {
        Ok(())
    } else {
        Err(Refusal::Value)
    }
}

fn is_unicast(lid: u16) -> bool {
    lid != 0 && lid < FIRST_MULTICAST
}
