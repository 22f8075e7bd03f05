// SPDX-License-Identifier: GPL-2.0

//! What devices, ports and queue pairs are like.

use crate::{
    bindings,
    compat,
    errno::EOPNOTSUPP, //
};
use kernel::prelude::*;

/// A protection domain, as a name: its address, and in the lowest bit whether a process has made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PdName(usize);

const _: () = assert!(align_of::<bindings::ib_pd>() > 1);

impl PdName {
    /// # Safety
    ///
    /// The domain is valid.
    pub(super) unsafe fn of(pd: *const bindings::ib_pd) -> Self {
        // SAFETY: By this function's contract; the field is constant.
        let process = !unsafe { (*pd).uobject }.is_null();
        Self(pd.addr() | usize::from(process))
    }

    /// Whether the key of all memory is good in it: not in that of a process.
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

/// The driver that a device says it is of: `enum rdma_driver_id`.
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
    /// By this and version 1 of the interface rdma-core's `ipathverbs` takes the device, and does
    /// everything by commands of ib_uverbs.
    pub const QIB: Self = Self(bindings::rdma_driver_id_RDMA_DRIVER_QIB);
}

/// What a device can do.
#[derive(Clone, Copy, Default)]
pub struct DeviceAttr {
    /// The driver that it is of.
    pub driver: Driver,
    /// Most completion vectors. There is one for each CPU at most.
    pub max_vectors: u32,
    /// Whether it drains queue pairs itself, by requests that it takes when it takes no others.
    pub drains: bool,
    /// GUID of the system.
    pub sys_image_guid: u64,
    /// Most queue pairs, completion queues, regions.
    pub max_qp: u32,
    /// Most requests of a queue.
    pub max_qp_wr: u32,
    /// Most pieces of a request of a send queue.
    pub send_sge: u32,
    /// Most pieces of a receive request.
    pub recv_sge: u32,
    /// Most pieces of a request that reads the peer's memory.
    pub read_sge: u32,
    /// Most completion queues.
    pub max_cq: u32,
    /// Most completions of a queue.
    pub max_cqe: u32,
    /// Most regions.
    pub max_mr: u32,
    /// Most pages, or pieces, of a region that requests register; 0 if there are no such regions.
    pub max_pages: u32,
    /// A bit for each size of a page.
    pub page_sizes: u64,
    /// Most bytes of a region.
    pub max_mr_size: u64,
    /// Whether a region may be of pieces of any size.
    pub gaps: bool,
    /// Whether all memory has a key without a region for it.
    pub local_dma_lkey: bool,
    /// Most reads of the peer's memory at once.
    pub max_reads: u32,
    /// Entries of the table of partitions.
    pub max_pkeys: u16,
    /// Most memberships of queue pairs in multicast groups, in as many groups.
    pub max_members: u32,
}

/// What a port is like now.
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    /// `enum ib_port_state`.
    pub state: u8,
    /// State of the link: 5 is up, 3 disabled, 2 polling.
    pub phys_state: u8,
    /// CapabilityMask.
    pub capabilities: u32,
    /// Its LID.
    pub lid: u16,
    /// That of the subnet manager.
    pub sm_lid: u16,
    /// Service level to reach that.
    pub sm_sl: u8,
    /// Timeout of the subnet.
    pub subnet_timeout: u8,
    /// Of its identifier of the subnet.
    pub prefix: u64,
    /// Entries of the table of partitions.
    pub pkeys: u16,
    /// Entries of the table of GIDs.
    pub gids: u32,
}

/// A way to another port: `struct rdma_ah_attr`.
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
    /// The global route, if there is to be one.
    pub grh: Option<Grh>,
}

/// A global route.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Grh {
    /// The other port's GID.
    pub dgid: [u8; 16],
    /// Index of our GID.
    pub sgid_index: u8,
    /// The flow.
    pub flow: u32,
    /// Most hops.
    pub hops: u8,
    /// The class of traffic.
    pub class: u8,
}

impl Address {
    pub(super) fn from_raw(raw: &bindings::rdma_ah_attr) -> Self {
        let place = (&raw const raw.__bindgen_anon_1).cast::<bindings::ib_ah_attr>();
        // SAFETY: The union has numbers only.
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
        // SAFETY: The union has room for it.
        unsafe { place.write(ib) };
        if let Some(grh) = self.grh {
            // CAST: A bit of a byte.
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

/// What kind a queue pair is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of subnet management packets: queue pair 0.
    Smi,
    /// Of general services: queue pair 1.
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
    /// Requests of the send queue.
    pub send: u32,
    /// Requests of the receive queue.
    pub recv: u32,
    /// Pieces of a send request.
    pub send_sge: u32,
    /// Pieces of a receive request.
    pub recv_sge: u32,
}

/// What is changed of a queue pair: bits of `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mask(pub(super) u32);

macro_rules! attributes {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $raw:ty = $mask:ident;)*) => {
        /// Attributes of a queue pair: `struct ib_qp_attr`.
        #[derive(Clone, Copy, Default)]
        pub struct QpAttr {
            /// Its state.
            pub state: State,
            /// The state that it is thought to be in.
            pub current: State,
            /// The way to the peer.
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

            /// Takes over what `mask` names.
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
    /// Key of datagrams.
    qkey: u32, u32 = ib_qp_attr_mask_IB_QP_QKEY;
    /// First number of a packet from the peer.
    rq_psn: u32, u32 = ib_qp_attr_mask_IB_QP_RQ_PSN;
    /// First number of a packet to the peer.
    sq_psn: u32, u32 = ib_qp_attr_mask_IB_QP_SQ_PSN;
    /// The peer's number.
    dest_qp_num: u32, u32 = ib_qp_attr_mask_IB_QP_DEST_QPN;
    /// What the peer may do.
    qp_access_flags: u32, i32 = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
    /// The partition, as an index.
    pkey_index: u16, u16 = ib_qp_attr_mask_IB_QP_PKEY_INDEX;
    /// Most reads of ours at once.
    max_rd_atomic: u8, u8 = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
    /// Most reads of the peer at once.
    max_dest_rd_atomic: u8, u8 = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    /// How long the peer is to wait for a receive request, as a code.
    min_rnr_timer: u8, u8 = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
    /// How long to wait for an acknowledgement, as a power of two of 4.096 us.
    timeout: u8, u8 = ib_qp_attr_mask_IB_QP_TIMEOUT;
    /// Retries without an acknowledgement.
    retry_cnt: u8, u8 = ib_qp_attr_mask_IB_QP_RETRY_CNT;
    /// Retries without a receive request; 7 is for ever.
    rnr_retry: u8, u8 = ib_qp_attr_mask_IB_QP_RNR_RETRY;
    /// The port.
    port_num: u32, u32 = ib_qp_attr_mask_IB_QP_PORT;
    /// Whether the end of a drain is told.
    en_sqd_async_notify: u8, u8 = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;
}

impl Mask {
    #[inline]
    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// Whether the state is given.
    pub fn state(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_STATE)
    }

    /// Whether the state is given that it is thought to be in.
    pub fn current(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE)
    }

    /// Whether the port is given.
    pub fn port(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PORT)
    }

    /// Whether the way to the peer is given.
    pub fn address(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_AV)
    }

    /// Whether the partition is given.
    pub fn pkey_index(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX)
    }

    /// Whether the size of packets is given.
    pub fn path_mtu(self) -> bool {
        self.has(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU)
    }

    /// Whether a queue pair of this kind may go so from one state to the other, and has what that takes.
    pub fn fits(self, from: State, to: State, kind: Kind) -> bool {
        // SAFETY: No precondition.
        unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, kind.raw(), self.0) }
    }
}
