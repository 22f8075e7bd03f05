// SPDX-License-Identifier: GPL-2.0

//! Management datagrams (MADs): the wire format, the SMP header and its values.
//!
//! The layouts are those of `include/rdma/ib_mad.h` and `ib_smi.h`, the rules those of the
//! InfiniBand Architecture Specification, volume 1, chapters 13 and 14. All fields are big-endian.
//! This module uses no kernel types, allocates nothing and cannot panic.

pub mod info;
pub mod route;

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

/// Length of a MAD in bytes.
pub const LEN: usize = 256;
/// Length of a subnet management attribute, in bytes.
pub const DATA_LEN: usize = 64;
/// Number of entries in a path; entry 0 is not used.
pub const PATH_LEN: usize = 64;

/// A MAD as it is on the wire.
pub type Mad = [u8; LEN];
/// The attribute in an SMP.
pub type Data = [u8; DATA_LEN];

/// The permissive LID: the other end of the link.
pub const PERMISSIVE: u16 = 0xffff;
/// The first LID of a multicast group.
pub const FIRST_MULTICAST: u16 = 0xc000;

/// `IB_MGMT_BASE_VERSION`.
pub const BASE_VERSION: u8 = 1;
/// The class version of both SMP classes.
pub const CLASS_VERSION: u8 = 1;

/// `IB_MGMT_CLASS_SUBN_LID_ROUTED`.
pub const CLASS_LID_ROUTED: u8 = 0x01;
/// `IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE`.
pub const CLASS_DIRECTED: u8 = 0x81;

/// `IB_MGMT_METHOD_GET`.
pub const GET: u8 = 0x01;
/// `IB_MGMT_METHOD_SET`.
pub const SET: u8 = 0x02;
/// `IB_MGMT_METHOD_SEND`.
pub const SEND: u8 = 0x03;
/// `IB_MGMT_METHOD_TRAP`.
pub const TRAP: u8 = 0x05;
/// `IB_MGMT_METHOD_REPORT`.
pub const REPORT: u8 = 0x06;
/// `IB_MGMT_METHOD_TRAP_REPRESS`.
pub const TRAP_REPRESS: u8 = 0x07;
/// `IB_MGMT_METHOD_GET_RESP`.
pub const GET_RESP: u8 = 0x81;
/// `IB_MGMT_METHOD_RESP`, the bit in the method of every response.
pub const RESPONSE: u8 = 0x80;

/// The attributes of subnet management, `IB_SMP_ATTR_*`.
pub mod attribute {
    /// A trap's content.
    pub const NOTICE: u16 = 0x0002;
    /// Name of the node.
    pub const NODE_DESC: u16 = 0x0010;
    /// Kind, GUIDs and ports of the node.
    pub const NODE_INFO: u16 = 0x0011;
    /// Table sizes of a switch.
    pub const SWITCH_INFO: u16 = 0x0012;
    /// GUIDs of a port.
    pub const GUID_INFO: u16 = 0x0014;
    /// State of a port.
    pub const PORT_INFO: u16 = 0x0015;
    /// Partitions of a port.
    pub const PKEY_TABLE: u16 = 0x0016;
    /// Virtual lane for each service level.
    pub const SL_TO_VL_TABLE: u16 = 0x0017;
    /// Weights of the virtual lanes.
    pub const VL_ARB_TABLE: u16 = 0x0018;
    /// Output port for each unicast LID.
    pub const LINEAR_FORWARD_TABLE: u16 = 0x0019;
    /// Output ports for each multicast LID.
    pub const MCAST_FORWARD_TABLE: u16 = 0x001b;
    /// State of a subnet manager.
    pub const SM_INFO: u16 = 0x0020;
}

/// The reason for the refusal of an SMP: the status of the response, `IB_MGMT_MAD_STATUS_*`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Refusal {
    /// A class version that the agent does not support.
    Version = 0x0004,
    /// A method that the class does not have.
    Method = 0x0008,
    /// An attribute that this node does not have, or does not support with this method.
    Attribute = 0x000c,
    /// A bad field of the attribute, or a bad attribute modifier.
    Value = 0x001c,
}

/// The bit in the status of a returning directed-route SMP, `IB_SMP_DIRECTION`.
pub const DIRECTION: u16 = 0x8000;

/// The local route header fields that determine a packet's path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lrh {
    /// LID of the source port.
    pub slid: u16,
    /// LID of the destination port.
    pub dlid: u16,
    /// Service level, 0 to 15.
    pub sl: u8,
}

impl Lrh {
    /// A packet to the other end of the link.
    pub const PERMISSIVE: Self = Self {
        slid: PERMISSIVE,
        dlid: PERMISSIVE,
        sl: 0,
    };
}

/// A subnet management packet, `struct ib_smp`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Smp {
    /// [`BASE_VERSION`].
    pub base_version: u8,
    /// [`CLASS_LID_ROUTED`] or [`CLASS_DIRECTED`].
    pub mgmt_class: u8,
    /// [`CLASS_VERSION`].
    pub class_version: u8,
    /// The method, for example [`GET`].
    pub method: u8,
    /// Status of a response; includes [`DIRECTION`] in a directed-route SMP.
    pub status: U16,
    /// Position of a directed-route SMP on its path.
    pub hop_ptr: u8,
    /// Length of the path, 0 to 63.
    pub hop_cnt: u8,
    /// Transaction ID: opaque, the same in request and response.
    pub tid: U64,
    /// One of [`attribute`].
    pub attr_id: U16,
    /// Zero.
    pub reserved1: U16,
    /// Attribute modifier: the port or block.
    pub attr_mod: U32,
    /// The M_Key.
    pub mkey: U64,
    /// LID at which the directed part of the path begins, or [`PERMISSIVE`].
    pub dr_slid: U16,
    /// LID at which the path ends after its directed part, or [`PERMISSIVE`].
    pub dr_dlid: U16,
    /// Zero.
    pub reserved2: [u8; 28],
    /// The attribute.
    pub data: Data,
    /// Output ports of a directed-route SMP, from entry 1.
    pub initial_path: [u8; PATH_LEN],
    /// Input ports of a directed-route SMP, from entry 1.
    pub return_path: [u8; PATH_LEN],
}

impl Smp {
    /// The header fields of `mad`.
    pub fn of(mad: &Mad) -> &Self {
        zerocopy::transmute_ref!(mad)
    }

    /// The header fields of `mad`, mutable.
    pub fn of_mut(mad: &mut Mad) -> &mut Self {
        zerocopy::transmute_mut!(mad)
    }

    /// Whether this is an SMP.
    pub fn is_smp(&self) -> bool {
        self.base_version == BASE_VERSION
            && matches!(self.mgmt_class, CLASS_LID_ROUTED | CLASS_DIRECTED)
    }

    /// Whether this is a directed-route SMP.
    pub fn is_directed(&self) -> bool {
        self.mgmt_class == CLASS_DIRECTED
    }

    /// Whether this is a returning directed-route SMP.
    pub fn is_returning(&self) -> bool {
        self.status.get() & DIRECTION != 0
    }

    /// Turns a request into its response, successful or refused.
    pub fn respond(&mut self, refusal: Option<Refusal>) {
        let direction = if self.is_directed() { DIRECTION } else { 0 };
        self.method = GET_RESP;
        self.status = (direction | refusal.map_or(0, |refusal| refusal as u16)).into();
    }
}

const _: () = assert!(core::mem::size_of::<Smp>() == LEN);
