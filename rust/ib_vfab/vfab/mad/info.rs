// SPDX-License-Identifier: GPL-2.0

//! Attributes of subnet management: NodeInfo, SwitchInfo, PortInfo and Notice.

use super::{
    Data,
    DATA_LEN, //
};
use zerocopy::network_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// `struct ib_node_info`, padded with zeros.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeInfo {
    /// [`super::BASE_VERSION`].
    pub base_version: u8,
    /// [`super::CLASS_VERSION`].
    pub class_version: u8,
    /// Node type: 1 is a channel adapter, 2 a switch.
    pub node_type: u8,
    /// Number of ports, without port 0 of a switch.
    pub num_ports: u8,
    /// System image GUID.
    pub sys_guid: U64,
    /// GUID of the node.
    pub node_guid: U64,
    /// GUID of the port at which the SMP arrived, or of port 0.
    pub port_guid: U64,
    /// Number of entries in the P_Key table.
    pub partition_cap: U16,
    /// Device ID, assigned by the vendor.
    pub device_id: U16,
    /// Device revision, assigned by the vendor.
    pub revision: U32,
    /// Port at which the SMP arrived.
    pub local_port_num: u8,
    /// OUI of the vendor.
    pub vendor_id: [u8; 3],
    /// Zero.
    pub reserved: [u8; 24],
}

/// SwitchInfo (IBTA 14.2.5.4), padded with zeros.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SwitchInfo {
    /// Number of entries in the linear forwarding table.
    pub linear_fdb_cap: U16,
    /// Number of entries in the random forwarding table.
    pub random_fdb_cap: U16,
    /// Number of entries in the multicast forwarding table.
    pub multicast_fdb_cap: U16,
    /// The highest LID that is forwarded.
    pub linear_fdb_top: U16,
    /// Default output port of the random forwarding table.
    pub default_port: u8,
    /// Default output port for multicast LIDs without an entry.
    pub default_mcast_primary_port: u8,
    /// The default output port for a multicast packet that arrived at the primary port.
    pub default_mcast_not_primary_port: u8,
    /// LifeTimeValue, 5 bits; PortStateChange; OptimizedSLtoVLMappingProgramming, 2 bits.
    pub life_state: u8,
    /// LIDs per port of the random forwarding table.
    pub lids_per_port: U16,
    /// Number of P_Key table entries of ports other than port 0.
    pub enforcement_cap: U16,
    /// Five capability bits, the upper five.
    pub flags: u8,
    /// Zero.
    pub reserved1: u8,
    /// The highest multicast LID that the multicast table forwards.
    pub multicast_fdb_top: U16,
    /// Zero.
    pub reserved2: [u8; 44],
}

/// PortStateChange in [`SwitchInfo::life_state`].
pub const PORT_STATE_CHANGE: u8 = 0x04;

/// `struct ib_port_info`, followed by fields of later versions of the specification.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PortInfo {
    /// The M_Key.
    pub mkey: U64,
    /// Subnet prefix, the upper half of GIDs.
    pub gid_prefix: U64,
    /// LID of the port.
    pub lid: U16,
    /// LID of the subnet manager.
    pub sm_lid: U16,
    /// Bits of [`super::super::port::capability`].
    pub cap_mask: U32,
    /// Zero: no error.
    pub diag_code: U16,
    /// M_Key lease in seconds.
    pub mkey_lease_period: U16,
    /// Port at which the SMP arrived.
    pub local_port_num: u8,
    /// Enabled widths, as bits.
    pub link_width_enabled: u8,
    /// Supported widths, as bits.
    pub link_width_supported: u8,
    /// Active width, as a bit.
    pub link_width_active: u8,
    /// LinkSpeedSupported, PortState.
    pub speed_state: u8,
    /// PortPhysicalState, LinkDownDefaultState.
    pub physical_down: u8,
    /// M_KeyProtectBits, 2 bits; LMC, the last 3 bits.
    pub protect_lmc: u8,
    /// LinkSpeedActive, LinkSpeedEnabled.
    pub speeds: u8,
    /// NeighborMTU, MasterSMSL.
    pub mtu_sm_sl: u8,
    /// VLCap, InitType.
    pub vl_cap_init: u8,
    /// Amount of data that high-priority lanes may send at a time, in units of 4096 bytes.
    pub vl_high_limit: u8,
    /// Number of entries in the high-priority arbitration table.
    pub vl_arb_high_cap: u8,
    /// Number of entries in the low-priority arbitration table.
    pub vl_arb_low_cap: u8,
    /// InitTypeReply, MTUCap.
    pub init_reply_mtu_cap: u8,
    /// VLStallCount, 3 bits; HOQLife, 5 bits.
    pub stall_hoq: u8,
    /// OperationalVLs, and four enforcement bits of a switch port.
    pub vls_enforce: u8,
    /// Number of SMPs with a wrong M_Key.
    pub mkey_violations: U16,
    /// Number of packets with a wrong P_Key.
    pub pkey_violations: U16,
    /// Number of packets with a wrong Q_Key.
    pub qkey_violations: U16,
    /// Number of entries in GUIDInfo.
    pub guid_cap: u8,
    /// ClientReregister, 1 bit; SubnetTimeOut, the last 5 bits.
    pub reregister_timeout: u8,
    /// RespTimeValue, the last 5 bits.
    pub resp_time: u8,
    /// LocalPhyErrors, OverrunErrors.
    pub thresholds: u8,
    /// Zero.
    pub max_credit_hint: U16,
    /// Zero.
    pub reserved: u8,
    /// Zero: not measured.
    pub round_trip: [u8; 3],
    /// Zero: no second mask.
    pub cap_mask2: U16,
    /// Zero: no extended speeds.
    pub speed_ext: u8,
    /// Zero: no extended speeds.
    pub speed_ext_enabled: u8,
}

/// Notice (IBTA 13.4.8.2), the part that fits into an SMP.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Notice {
    /// IsGeneric, 1 bit; Type, 7 bits: `IB_NOTICE_TYPE_*`.
    pub kind: u8,
    /// ProducerType, as NodeType in NodeInfo.
    pub producer: [u8; 3],
    /// TrapNumber.
    pub number: U16,
    /// LID of the port that sends the notice.
    pub issuer: U16,
    /// NoticeToggle and NoticeCount, for polled notices.
    pub toggle_count: U16,
    /// The layout depends on the trap number.
    pub details: [u8; DETAILS_LEN],
}

/// Length of [`Notice::details`] in bytes.
pub const DETAILS_LEN: usize = 54;

const _: () = assert!(core::mem::size_of::<NodeInfo>() == DATA_LEN);
const _: () = assert!(core::mem::size_of::<SwitchInfo>() == DATA_LEN);
const _: () = assert!(core::mem::size_of::<PortInfo>() == DATA_LEN);
const _: () = assert!(core::mem::size_of::<Notice>() == DATA_LEN);

impl PortInfo {
    /// All zeros.
    pub const ZERO: Self = zerocopy::transmute!([0_u8; DATA_LEN]);

    /// The PortInfo in an attribute.
    pub fn of(data: &Data) -> &Self {
        zerocopy::transmute_ref!(data)
    }

    /// The PortInfo in an attribute, mutable.
    pub fn of_mut(data: &mut Data) -> &mut Self {
        zerocopy::transmute_mut!(data)
    }
}

impl SwitchInfo {
    /// The SwitchInfo in an attribute.
    pub fn of(data: &Data) -> &Self {
        zerocopy::transmute_ref!(data)
    }
}
