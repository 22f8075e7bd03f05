// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices, ports and queue pairs.

use crate::{
    bindings,
    compat,
    errno::EOPNOTSUPP, //
};
use kernel::prelude::*;

/// The name of a protection domain: its address, with the lowest bit set for a domain of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PdName(usize);

const _: () = assert!(align_of::<bindings::ib_pd>() > 1);

impl PdName {
    /// # Safety
    ///
    /// The domain is valid.
    pub(super) unsafe fn of(pd: *const bindings::ib_pd) -> Self {
        // SAFETY: `pd` is valid; the field is constant.
        let process = !unsafe { (*pd).uobject }.is_null();
        Self(pd.addr() | usize::from(process))
    }

    /// Whether the key of all memory is valid in this domain; it is not in a domain of a process.
    #[inline]
    pub fn has_all_memory(self) -> bool {
        self.0 & 1 == 0
    }
}

/// Rights of a region, or of a queue pair for its peer: bits of `enum ib_access_flags`.
pub mod access {
    use crate::bindings;

    /// The device may write for its own requests.
    pub const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// The peer may write.
    pub const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// The peer may read.
    pub const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
}

/// The driver that a device claims to have: `enum rdma_driver_id`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Driver(pub(super) bindings::rdma_driver_id);

#[allow(missing_docs)]
impl Driver {
    pub const MLX5: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_MLX5);
    pub const MLX4: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_MLX4);
    pub const IRDMA: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_IRDMA);
    pub const BNXT_RE: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE);
    pub const HNS: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_HNS);
    pub const ERDMA: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_ERDMA);
    pub const MANA: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_MANA);
    pub const IONIC: Self = Self(compat::RDMA_DRIVER_IONIC);
    pub const QEDR: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_QEDR);
    pub const CXGB4: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_CXGB4);
    pub const OCRDMA: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_OCRDMA);
    pub const VMW_PVRDMA: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA);
    pub const RXE: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_RXE);
    /// With this ID and version 1 of the interface, rdma-core's `ipathverbs` binds to the device,
    /// and uses only commands of ib_uverbs.
    pub const QIB: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_QIB);
}

/// Capabilities of a device.
#[derive(Clone, Copy, Default)]
pub struct DeviceAttr {
    /// The driver that the device claims to have.
    pub driver: Driver,
    /// Maximum number of completion vectors. There is at most one per CPU.
    pub max_vectors: u32,
    /// Whether the device drains queue pairs itself, and accepts drain requests while it refuses
    /// all others.
    pub drains: bool,
    /// Whether completion interrupts can be moderated. If so, `ib_core` adapts the moderation.
    pub moderates: bool,
    /// System image GUID.
    pub sys_image_guid: u64,
    /// Maximum number of queue pairs.
    pub max_qp: u32,
    /// Maximum number of requests in a queue.
    pub max_qp_wr: u32,
    /// Maximum number of SGEs in a send request.
    pub send_sge: u32,
    /// Maximum number of SGEs in a receive request.
    pub recv_sge: u32,
    /// Maximum number of SGEs in an RDMA read request.
    pub read_sge: u32,
    /// Maximum number of completion queues.
    pub max_cq: u32,
    /// Maximum number of completions in a queue.
    pub max_cqe: u32,
    /// Maximum number of regions.
    pub max_mr: u32,
    /// Maximum number of pages or pieces of a fast-registered region; 0 if not supported.
    pub max_pages: u32,
    /// One bit per supported page size.
    pub page_sizes: u64,
    /// Maximum size of a region in bytes.
    pub max_mr_size: u64,
    /// Whether a region may have pieces of any size.
    pub gaps: bool,
    /// Whether there is a key for all memory without a region.
    pub local_dma_lkey: bool,
    /// Maximum number of concurrent RDMA reads.
    pub max_reads: u32,
    /// Size of the P_Key table.
    pub max_pkeys: u16,
    /// Maximum number of multicast groups, of queue pairs in a group, and of memberships in total.
    pub max_members: u32,
}

/// Current attributes of a port.
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    /// `enum ib_port_state`.
    pub state: u8,
    /// Physical state: 5 is up, 3 disabled, 2 polling.
    pub phys_state: u8,
    /// CapabilityMask of the port.
    pub capabilities: u32,
    /// LID of the port.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// Service level to the subnet manager.
    pub sm_sl: u8,
    /// Subnet timeout, n in 4.096 us * 2^n.
    pub subnet_timeout: u8,
    /// GID prefix of the subnet.
    pub prefix: u64,
    /// Size of the P_Key table.
    pub pkeys: u16,
    /// Size of the GID table.
    pub gids: u32,
}

/// A path to another port: `struct rdma_ah_attr`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Address {
    /// The LID.
    pub dlid: u16,
    /// The service level.
    pub sl: u8,
    /// The port to send from.
    pub port: u32,
    /// The static rate.
    pub rate: u8,
    /// The global route, if any.
    pub grh: Option<Grh>,
}

/// A global route.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Grh {
    /// GID of the destination.
    pub dgid: [u8; 16],
    /// Index of the source GID.
    pub sgid_index: u8,
    /// The flow label.
    pub flow: u32,
    /// The hop limit.
    pub hops: u8,
    /// The traffic class.
    pub class: u8,
}

impl Address {
    pub(super) fn from_raw(raw: &bindings::rdma_ah_attr) -> Self {
        let place = (&raw const raw.__bindgen_anon_1).cast::<bindings::ib_ah_attr>();
        // SAFETY: Every bit pattern is valid for a union of numbers.
        let ib = unsafe { &*place };
        let global = u32::from(raw.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0;
        Self {
            dlid: ib.dlid,
            sl: raw.sl,
            port: raw.port_num,
            rate: raw.static_rate,
            grh: global.then(|| Grh {
                // SAFETY: Every bit pattern is a valid byte array.
                dgid: *unsafe { raw.grh.dgid.raw.as_ref() },
                sgid_index: raw.grh.sgid_index,
                flow: raw.grh.flow_label,
                hops: raw.grh.hop_limit,
                class: raw.grh.traffic_class,
            }),
        }
    }

    pub(super) fn to_raw(self) -> bindings::rdma_ah_attr {
        let mut raw = bindings::rdma_ah_attr {
            sl: self.sl,
            port_num: self.port,
            static_rate: self.rate,
            type_: bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB,
            ..Default::default()
        };
        let place = (&raw mut raw.__bindgen_anon_1).cast::<bindings::ib_ah_attr>();
        let ib = bindings::ib_ah_attr {
            dlid: self.dlid,
            ..Default::default()
        };
        // SAFETY: The union has room for an `ib_ah_attr`.
        unsafe { place.write(ib) };
        if let Some(grh) = self.grh {
            // CAST: The flag fits into a byte.
            raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            // SAFETY: Every bit pattern is a valid byte array.
            *unsafe { raw.grh.dgid.raw.as_mut() } = grh.dgid;
            raw.grh.sgid_index = grh.sgid_index;
            raw.grh.flow_label = grh.flow;
            raw.grh.hop_limit = grh.hops;
            raw.grh.traffic_class = grh.class;
        }
        raw
    }
}

/// State of a queue pair: `enum ib_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[allow(missing_docs)]
#[repr(u32)]
pub enum State {
    #[default]
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl State {
    pub(super) fn from_raw(raw: bindings::ib_qp_state) -> Result<Self> {
        Ok(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Err,
            _ => return Err(EINVAL),
        })
    }
}

/// The type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Subnet management packets: queue pair 0.
    Smi,
    /// General services: queue pair 1.
    Gsi,
    /// A reliable connection.
    Rc,
    /// Datagrams.
    Ud,
}

impl Kind {
    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Result<Self> {
        Ok(match raw {
            bindings::ib_qp_type_IB_QPT_SMI => Self::Smi,
            bindings::ib_qp_type_IB_QPT_GSI => Self::Gsi,
            bindings::ib_qp_type_IB_QPT_RC => Self::Rc,
            bindings::ib_qp_type_IB_QPT_UD => Self::Ud,
            _ => return Err(EOPNOTSUPP),
        })
    }

    pub(super) fn raw(self) -> bindings::ib_qp_type {
        match self {
            Self::Smi => bindings::ib_qp_type_IB_QPT_SMI,
            Self::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
            Self::Rc => bindings::ib_qp_type_IB_QPT_RC,
            Self::Ud => bindings::ib_qp_type_IB_QPT_UD,
        }
    }
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy, Default)]
pub struct Sizes {
    /// Number of send queue entries.
    pub send: u32,
    /// Number of receive queue entries.
    pub recv: u32,
    /// Maximum number of SGEs per send request.
    pub send_sge: u32,
    /// Maximum number of SGEs per receive request.
    pub recv_sge: u32,
}

/// The attributes of a queue pair to modify: bits of `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mask(pub(super) u32);

macro_rules! attributes {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $raw:ty = $mask:ident;)*) => {
        /// Attributes of a queue pair: `struct ib_qp_attr`.
        #[derive(Clone, Copy, Default)]
        pub struct QpAttr {
            /// The state.
            pub state: State,
            /// The state that the caller assumes.
            pub current: State,
            /// The path to the peer.
            pub address: Address,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl QpAttr {
            pub(super) fn from_raw(raw: &bindings::ib_qp_attr, mask: Mask) -> Result<Self> {
                let mut this = Self::default();
                if mask.has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
                    this.state = State::from_raw(raw.qp_state)?;
                }
                if mask.has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) {
                    this.current = State::from_raw(raw.cur_qp_state)?;
                }
                if mask.has(bindings::ib_qp_attr_mask_IB_QP_AV) {
                    this.address = Address::from_raw(&raw.ah_attr);
                }
                $(if mask.has(bindings::$mask) {
                    // CAST: A small number, or a set of bits.
                    this.$field = raw.$field as $type;
                })*
                Ok(this)
            }

            pub(super) fn to_raw(self) -> bindings::ib_qp_attr {
                let mut raw = bindings::ib_qp_attr {
                    qp_state: self.state as u32,
                    cur_qp_state: self.state as u32,
                    ah_attr: self.address.to_raw(),
                    ..Default::default()
                };
                // CAST: A small number, or a set of bits.
                $(raw.$field = self.$field as $raw;)*
                raw
            }

            /// Copies the attributes in `mask`, except the states.
            pub fn update(&mut self, from: &Self, mask: Mask) {
                if mask.has(bindings::ib_qp_attr_mask_IB_QP_AV) {
                    self.address = from.address;
                }
                $(if mask.has(bindings::$mask) {
                    self.$field = from.$field;
                })*
            }
        }
    };
}

attributes! {
    /// `enum ib_mtu`.
    path_mtu: u32, u32 = ib_qp_attr_mask_IB_QP_PATH_MTU;
    /// Q_Key of datagrams.
    qkey: u32, u32 = ib_qp_attr_mask_IB_QP_QKEY;
    /// PSN of the first packet from the peer.
    rq_psn: u32, u32 = ib_qp_attr_mask_IB_QP_RQ_PSN;
    /// PSN of the first packet to the peer.
    sq_psn: u32, u32 = ib_qp_attr_mask_IB_QP_SQ_PSN;
    /// QP number of the peer.
    dest_qp_num: u32, u32 = ib_qp_attr_mask_IB_QP_DEST_QPN;
    /// Access rights of the peer.
    qp_access_flags: u32, i32 = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
    /// Index of the P_Key.
    pkey_index: u16, u16 = ib_qp_attr_mask_IB_QP_PKEY_INDEX;
    /// Maximum number of RDMA reads that we start concurrently.
    max_rd_atomic: u8, u8 = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
    /// Maximum number of RDMA reads of the peer that we serve concurrently.
    max_dest_rd_atomic: u8, u8 = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    /// RNR NAK timer for the peer, encoded.
    min_rnr_timer: u8, u8 = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
    /// ACK timeout, n in 4.096 us * 2^n.
    timeout: u8, u8 = ib_qp_attr_mask_IB_QP_TIMEOUT;
    /// Number of retries of an unacknowledged packet.
    retry_cnt: u8, u8 = ib_qp_attr_mask_IB_QP_RETRY_CNT;
    /// Number of retries while the peer has no receive posted; 7 means forever.
    rnr_retry: u8, u8 = ib_qp_attr_mask_IB_QP_RNR_RETRY;
    /// The port number.
    port_num: u32, u32 = ib_qp_attr_mask_IB_QP_PORT;
    /// Whether to report the end of a drain.
    en_sqd_async_notify: u8, u8 = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;
}

impl Mask {
    #[inline]
    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// Returns whether the mask includes the state.
    pub fn state(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_STATE)
    }

    /// Returns whether the mask includes the state that the caller assumes.
    pub fn current(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE)
    }

    /// Returns whether the mask includes the port.
    pub fn port(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PORT)
    }

    /// Returns whether the mask includes the path to the peer.
    pub fn address(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_AV)
    }

    /// Returns whether the mask includes the index of the P_Key.
    pub fn pkey_index(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX)
    }

    /// Returns whether the mask includes the path MTU.
    pub fn path_mtu(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU)
    }

    /// Whether a queue pair of this kind may move from state `from` to `to` with the attributes in
    /// this mask.
    pub fn fits(self, from: State, to: State, kind: Kind) -> bool {
        // SAFETY: No precondition.
        unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, kind.raw(), self.0) }
    }
}
