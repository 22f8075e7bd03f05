// SPDX-License-Identifier: GPL-2.0

//! The login: the request (`SRP_LOGIN_REQ`), the target's response (`SRP_LOGIN_RSP`), or its reject
//! (`SRP_LOGIN_REJ`).

use zerocopy::{
    network_endian::{
        I32,
        U16,
        U32,
        U64, //
    },
    FromZeros,
    IntoBytes, //
};

use super::{
    cmd::{
        DirectBuf,
        IMM_DATA_OFFSET, //
    },
    guid::Gid,
    ids::PortId,
    message_error::{
        split,
        wire,
        ProtocolError, //
    },
    opcode,
    options::MIN_IT_IU_LEN,
    reject::Reject,
    texts::texts, //
};

/// Bit of `req_buf_fmt` and `buf_fmt`: direct descriptors.
pub const BUF_FMT_DIRECT: u16 = 1 << 1;
/// Bit of `req_buf_fmt` and `buf_fmt`: indirect descriptors.
pub const BUF_FMT_INDIRECT: u16 = 1 << 2;

/// Smallest `max_ti_iu_len` with which a target can report an error with sense data, in bytes.
pub const MIN_TI_IU_LEN: u32 = 56;
/// Minimum number of usable credits: one for commands, one for task management.
pub const MIN_REQ_LIM: u32 = 2;
/// Maximum number of credits that a target may grant.
pub const MAX_REQ_LIM: u32 = 65_535;

/// Minimum length of immediate data that is worth using, in bytes: one logical block.
const MIN_IMMEDIATE: u32 = 512;

/// Bit of `req_flags` and `rsp_flags`: immediate data.
const IMMEDIATE: u8 = 0x80;
/// Bits of `rsp_flags` that hold the multichannel result.
const MULTICHANNEL_RESULT: u8 = 0x03;
/// Multichannel result: the target has kept the other channels.
const MAINTAINED: u8 = 0x02;

/// Service IDs of TCP ports, without the low 16 bits (the port).
const TCP: u64 = 0x0106;

/// The multichannel action: the target closes or keeps existing channels of this initiator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum MultiChannel {
    /// Close them, at the login of the first channel.
    Single = 0,
    /// Keep them, at the login of a further channel.
    Multi = 1,
}

/// The contents of a login request. All forms of the request are built from it, and the response is
/// checked against it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Requested {
    /// Tag, random; the response must repeat it.
    pub tag: u64,
    /// Maximum length of a message to the target, in bytes; see [`it_iu_len`].
    pub max_it_iu_len: u32,
    /// Maximum number of data descriptors in one message.
    pub descriptors: u8,
    /// Maximum length of immediate data, in bytes; 0 for none.
    pub immediate: u32,
    /// Whether the channel is the first or a further one.
    pub multichannel: MultiChannel,
    /// Port identifier of the initiator.
    pub initiator: PortId,
    /// Port identifier of the target.
    pub target: PortId,
}

/// Length of the longest message, in bytes, with up to `descriptors` descriptors or `immediate`
/// bytes of immediate data, at most `cap` (0 for no cap).
pub fn it_iu_len(descriptors: u8, immediate: u32, cap: u32) -> u32 {
    let indirect = IMM_DATA_OFFSET as u32 + DirectBuf::LEN as u32 * u32::from(descriptors);
    let len = match immediate {
        0 => indirect,
        data => indirect.max(data.saturating_add(IMM_DATA_OFFSET as u32)),
    };
    match cap {
        0 => len,
        cap => len.min(cap),
    }
}

impl Requested {
    /// `req_flags` and `imm_data_offset` of the request.
    fn immediate(&self) -> (u8, U16) {
        match self.immediate {
            0 => (self.multichannel as u8, U16::ZERO),
            _ => (
                self.multichannel as u8 | IMMEDIATE,
                U16::new(IMM_DATA_OFFSET as u16),
            ),
        }
    }
}

wire! {
    /// Login request for the InfiniBand connection manager: `struct srp_login_req`, 64 bytes.
    pub struct LoginReq[64] {
        opcode: u8,
        reserved1: [u8; 7],
        tag: U64,
        req_it_iu_len: U32,
        reserved2: [u8; 4],
        req_buf_fmt: U16,
        req_flags: u8,
        reserved3: u8,
        imm_data_offset: U16,
        reserved4: [u8; 2],
        initiator_port_id: PortId,
        target_port_id: PortId,
    }
}

impl LoginReq {
    /// Builds the request.
    pub fn new(what: &Requested) -> Self {
        let (req_flags, imm_data_offset) = what.immediate();
        Self {
            opcode: opcode::LOGIN_REQ,
            tag: U64::new(what.tag),
            req_it_iu_len: U32::new(what.max_it_iu_len),
            req_buf_fmt: U16::new(BUF_FMT_DIRECT | BUF_FMT_INDIRECT),
            req_flags,
            imm_data_offset,
            initiator_port_id: what.initiator,
            target_port_id: what.target,
            ..Self::new_zeroed()
        }
    }

    /// The private data to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

wire! {
    /// Login request for RDMA/CM: `struct srp_login_req_rdma`, 56 bytes: the fields of
    /// [`LoginReq`] in another order, with fewer reserved bytes.
    pub struct LoginReqRdma[56] {
        tag: U64,
        req_buf_fmt: U16,
        req_flags: u8,
        opcode: u8,
        req_it_iu_len: U32,
        initiator_port_id: PortId,
        target_port_id: PortId,
        imm_data_offset: U16,
        reserved: [u8; 6],
    }
}

impl LoginReqRdma {
    /// Builds the request.
    pub fn new(what: &Requested) -> Self {
        let (req_flags, imm_data_offset) = what.immediate();
        Self {
            tag: U64::new(what.tag),
            req_buf_fmt: U16::new(BUF_FMT_DIRECT | BUF_FMT_INDIRECT),
            req_flags,
            opcode: opcode::LOGIN_REQ,
            req_it_iu_len: U32::new(what.max_it_iu_len),
            initiator_port_id: what.initiator,
            target_port_id: what.target,
            imm_data_offset,
            ..Self::new_zeroed()
        }
    }

    /// The private data to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Whether `service_id` is a service of the RDMA IP CM for a TCP port.
pub const fn is_ip_cm(service_id: u64) -> bool {
    service_id >> 16 == TCP
}

wire! {
    /// Login request for a service of the RDMA IP CM (IBTA, annex A11): 36 bytes of addresses, then
    /// the RDMA/CM login request.
    ///
    /// `rdma_cm` listens on such services. Their service IDs contain an IP port number, and
    /// requests to them carry the IP addresses of both ends. Here the addresses are derived from
    /// the GIDs.
    pub struct LoginReqIpCm[92] {
        version: u8,
        /// 4 or 6, in the upper four bits.
        ip_version: u8,
        source_port: U16,
        source: [u8; 16],
        destination: [u8; 16],
        login: LoginReqRdma,
    }
}

impl LoginReqIpCm {
    /// Builds the request.
    pub fn new(source: &Gid, destination: &Gid, what: &Requested) -> Self {
        let (ip_version, source, destination) = match (ipv4(source), ipv4(destination)) {
            (Some(source), Some(destination)) => (4, source, destination),
            _ => (6, source.0, destination.0),
        };
        Self {
            version: 0,
            ip_version: ip_version << 4,
            source_port: U16::ZERO,
            source,
            destination,
            login: LoginReqRdma::new(what),
        }
    }

    /// The private data to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// The IPv4 address of an IPv4-mapped GID, in the last four of 16 bytes.
fn ipv4(gid: &Gid) -> Option<[u8; 16]> {
    let number = u128::from_be_bytes(gid.0);
    (number >> 32 == 0xffff).then_some((number & 0xffff_ffff).to_be_bytes())
}

wire! {
    /// Login response: `struct srp_login_rsp`, 52 bytes.
    #[derive(Clone, Copy)]
    pub struct LoginRsp[LoginRsp::LEN] {
        opcode: u8,
        reserved1: [u8; 3],
        req_lim_delta: I32,
        tag: U64,
        max_it_iu_len: U32,
        max_ti_iu_len: U32,
        buf_fmt: U16,
        rsp_flags: u8,
        reserved2: [u8; 25],
    }

    /// Refused login: `struct srp_login_rej`, 32 bytes.
    pub struct LoginRej[32] {
        opcode: u8,
        reserved1: [u8; 3],
        reason: U32,
        /// Tag of the login request.
        pub tag: U64,
        reserved2: [u8; 8],
        /// Buffer formats that the target supports; meaningful with
        /// [`Reject::UNSUPPORTED_DESCRIPTOR_FORMAT`].
        pub buf_fmt: U16,
        reserved3: [u8; 6],
    }
}

impl LoginRej {
    /// Reads a refusal from private data, which may be longer. Checks only length and opcode.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtocolError> {
        split(bytes, opcode::LOGIN_REJ).map(|(rej, _)| rej)
    }

    /// The reason for the refusal.
    pub const fn reason(&self) -> Reject {
        Reject::Srp(u32::from_be_bytes(self.reason.to_bytes()))
    }
}

/// The granted limits: the smaller of the request and the target's offer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Granted {
    /// Initial credits, [`MIN_REQ_LIM`] to [`MAX_REQ_LIM`]. On an answer channel, all fields are 0.
    pub req_lim: u32,
    /// Maximum length of a message to the target, in bytes; never more than requested.
    pub max_it_iu_len: u32,
    /// Maximum number of descriptors in one message; 0 if only the direct format can be used.
    pub descriptors: u8,
    /// Maximum length of immediate data, in bytes; 0 if it must not be used.
    pub immediate: u32,
}

texts! {
    /// A login response that cannot be accepted. The driver maps all of them to `EPROTO`.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum LoginError {
        /// The tag differs from that of the request.
        Tag(tag: u64) => "tag {tag:#x} is not ours";

        /// The target lacks the direct or the indirect buffer format. The value is its format mask.
        BufferFormats(formats: u16) => "buffer formats {formats:#06x} lack direct or indirect";

        /// The number of granted credits is out of range.
        RequestLimit(n: i32) =>
            "request limit {n} is out of range ({MIN_REQ_LIM} to {MAX_REQ_LIM})";

        /// The peer of an answer channel grants credits.
        Grants(n: i32) => "request limit {n} on an answer channel, where it must be 0";

        /// The target accepts only messages that are too short for any command.
        MaxItIuLen(len: u32) => "max_it_iu_len {len} is less than {MIN_IT_IU_LEN}";

        /// The target sends only messages that are too short for sense data.
        MaxTiIuLen(len: u32) => "max_ti_iu_len {len} is less than {MIN_TI_IU_LEN}";

        /// Immediate data was granted but not requested.
        UnwantedImmediate => "immediate data granted but not requested";

        /// The target did not keep the existing channels at a further login; the multichannel
        /// result.
        NotMaintained(result: u8) => "multichannel result {result}: other channels not kept";
    }
}

impl LoginRsp {
    /// Length of the message in bytes.
    pub const LEN: usize = 52;

    /// Reads a response from private data, which may be longer. Checks only length and opcode.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtocolError> {
        split(bytes, opcode::LOGIN_RSP).map(|(rsp, _)| rsp)
    }

    /// Checks the response against the request.
    pub fn check(&self, requested: &Requested) -> Result<Granted, LoginError> {
        self.check_tag(requested)?;
        let needed = BUF_FMT_DIRECT | BUF_FMT_INDIRECT;
        let formats = self.buf_fmt.get();
        if formats & needed != needed {
            return Err(LoginError::BufferFormats(formats));
        }
        let delta = self.req_lim_delta.get();
        let req_lim = u32::try_from(delta)
            .ok()
            .filter(|lim| (MIN_REQ_LIM..=MAX_REQ_LIM).contains(lim))
            .ok_or(LoginError::RequestLimit(delta))?;
        let offered = self.max_it_iu_len.get();
        if offered < MIN_IT_IU_LEN {
            return Err(LoginError::MaxItIuLen(offered));
        }
        self.check_ti(requested)?;
        let immediate_granted = self.rsp_flags & IMMEDIATE != 0;
        let max_it_iu_len = offered.min(requested.max_it_iu_len);
        let room = max_it_iu_len.saturating_sub(IMM_DATA_OFFSET as u32);
        let descriptors = u8::try_from(room / DirectBuf::LEN as u32).unwrap_or(u8::MAX);
        let immediate = requested.immediate.min(room);
        let worthwhile = immediate_granted && immediate >= MIN_IMMEDIATE;
        Ok(Granted {
            req_lim,
            max_it_iu_len,
            descriptors: requested.descriptors.min(descriptors),
            immediate: if worthwhile { immediate } else { 0 },
        })
    }

    /// Checks the response of the peer of an answer channel. It must grant no credits, because the
    /// driver sends nothing to it.
    pub fn check_answer_channel(&self, requested: &Requested) -> Result<Granted, LoginError> {
        self.check_tag(requested)?;
        match self.req_lim_delta.get() {
            0 => self.check_ti(requested).map(|()| Granted::default()),
            delta => Err(LoginError::Grants(delta)),
        }
    }

    fn check_tag(&self, requested: &Requested) -> Result<(), LoginError> {
        match self.tag.get() {
            tag if tag == requested.tag => Ok(()),
            tag => Err(LoginError::Tag(tag)),
        }
    }

    /// Checks what all channels require: room for sense data, no unrequested immediate data, the
    /// multichannel result.
    fn check_ti(&self, requested: &Requested) -> Result<(), LoginError> {
        let max_ti_iu_len = self.max_ti_iu_len.get();
        if max_ti_iu_len < MIN_TI_IU_LEN {
            return Err(LoginError::MaxTiIuLen(max_ti_iu_len));
        }
        if self.rsp_flags & IMMEDIATE != 0 && requested.immediate == 0 {
            return Err(LoginError::UnwantedImmediate);
        }
        let result = self.rsp_flags & MULTICHANNEL_RESULT;
        if requested.multichannel == MultiChannel::Multi && result != MAINTAINED {
            return Err(LoginError::NotMaintained(result));
        }
        Ok(())
    }
}
