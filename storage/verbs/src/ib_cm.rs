// SPDX-License-Identifier: GPL-2.0

//! Messages of the InfiniBand CM (InfiniBand Architecture, volume 1, section 12.6), for the
//! target's side. Offsets are in bytes after the MAD header; fields are big-endian.

use std::fmt;

/// Length of a management datagram, in bytes.
pub const MAD: usize = 256;
const HEADER: usize = 24;
const CLASS: u8 = 7;
const VERSION: u8 = 2;
const SEND: u8 = 3;

/// Offset and length of the private data, and of the additional information of a REJ.
const REQ_DATA: usize = 140;
const REQ_DATA_LEN: usize = 92;
const REP_DATA: usize = 36;
const REP_DATA_LEN: usize = 196;
const REJ_INFO: usize = 12;
const REJ_DATA: usize = 84;
/// Maximum length of the additional information of a REJ, in bytes.
pub const REJ_INFO_LEN: usize = 72;
/// Maximum length of the private data of a REJ, in bytes.
pub const REJ_DATA_LEN: usize = 148;

/// Reason of a REJ: the private data has the reason.
pub const CONSUMER_DEFINED: u16 = 28;

/// The messages, by attribute ID.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Kind {
    /// Request for a connection.
    Req = 0x10,
    /// More time is needed.
    Mra = 0x11,
    /// Refusal.
    Rej = 0x12,
    /// Reply to a REQ.
    Rep = 0x13,
    /// Confirmation of a REP.
    Rtu = 0x14,
    /// Request to disconnect.
    Dreq = 0x15,
    /// Reply to a DREQ.
    Drep = 0x16,
}

/// A management datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mad(pub [u8; MAD]);

impl Mad {
    /// Creates a message between two communication IDs, with the transaction ID of the REQ.
    pub fn new(kind: Kind, tid: u64, from: u32, to: u32) -> Self {
        let mut this = Self([0; MAD]);
        this.0[..4].copy_from_slice(&[1, CLASS, VERSION, SEND]);
        this.0[8..16].copy_from_slice(&tid.to_be_bytes());
        this.0[16..18].copy_from_slice(&(kind as u16).to_be_bytes());
        this.put(0, &from.to_be_bytes());
        this.put(4, &to.to_be_bytes());
        this
    }

    /// Management class.
    pub fn class(&self) -> u8 {
        self.0[1]
    }

    /// Attribute ID.
    pub fn attribute(&self) -> u16 {
        u16::from_be_bytes([self.0[16], self.0[17]])
    }

    /// The kind of a message of the CM; `None` for every other datagram.
    pub fn kind(&self) -> Option<Kind> {
        use Kind::*;
        let all = [Req, Mra, Rej, Rep, Rtu, Dreq, Drep];
        let cm = self.class() == CLASS && self.0[3] == SEND;
        let found = all.into_iter().find(|k| *k as u16 == self.attribute());
        found.filter(|_| cm)
    }

    /// Transaction ID.
    pub fn tid(&self) -> u64 {
        u64::from_be_bytes(self.0[8..16].try_into().unwrap_or_default())
    }

    /// The message after the MAD header.
    pub fn message(&self) -> &[u8] {
        &self.0[HEADER..]
    }

    /// Overwrites bytes of the message, as far as they fit.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.0[HEADER..].iter_mut().skip(at);
        room.zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// The `len` bytes of an unsigned field, at most 8.
    fn number(&self, at: usize, len: usize) -> u64 {
        let field = &self.message()[at..at + len];
        field.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// Communication ID of the sender.
    pub fn from(&self) -> u32 {
        self.number(0, 4) as u32
    }

    /// Communication ID of the receiver; 0 if the sender does not know it.
    pub fn to(&self) -> u32 {
        self.number(4, 4) as u32
    }

    /// The message that a REJ or MRA refers to: 0 REQ, 1 REP.
    pub fn of(&self) -> u8 {
        self.message()[8] >> 6
    }

    /// Reason of a REJ.
    pub fn reason(&self) -> u16 {
        self.number(10, 2) as u16
    }

    /// Service timeout of an MRA, as an exponent of 4.096 us.
    pub fn timeout(&self) -> u8 {
        self.message()[9] >> 3
    }

    /// Completes a REJ.
    pub fn rej(mut self, of: u8, reason: u16, info: &[u8], data: &[u8]) -> Self {
        self.put(8, &[of << 6, (info.len() << 1) as u8]);
        self.put(10, &reason.to_be_bytes());
        self.put(REJ_INFO, &info[..info.len().min(REJ_INFO_LEN)]);
        self.put(REJ_DATA, &data[..data.len().min(REJ_DATA_LEN)]);
        self
    }

    /// Completes an MRA to a REQ.
    pub fn mra(mut self, timeout: u8) -> Self {
        self.put(9, &[timeout << 3]);
        self
    }

    /// Completes a DREQ to this queue pair.
    pub fn dreq(mut self, qpn: u32) -> Self {
        self.put(8, &qpn.to_be_bytes()[1..]);
        self
    }

    /// Completes a REP: our queue pair, 0 as the PSN of the peer's first packet, `depth` concurrent
    /// RDMA READs by us and one by the peer, endless RNR retries.
    pub fn rep(mut self, qpn: u32, depth: u8, data: &[u8]) -> Self {
        self.put(12, &qpn.to_be_bytes()[1..]);
        self.put(24, &[1, depth, 0, 7 << 5]);
        self.put(REP_DATA, &data[..data.len().min(REP_DATA_LEN)]);
        self
    }

    /// Parses a REQ.
    pub fn request(&self) -> Request {
        let m = self.message();
        let gid = |at| u128::from(self.number(at, 8)) << 64 | u128::from(self.number(at + 8, 8));
        Request {
            service: self.number(8, 8),
            qpn: self.number(32, 3) as u32,
            reads: m[35],
            initiator_depth: m[39],
            remote_timeout: m[43] >> 3,
            psn: self.number(44, 3) as u32,
            local_timeout: m[47] >> 3,
            retries: m[47] & 7,
            pkey: self.number(48, 2) as u16,
            mtu: m[50] >> 4,
            rnr_retries: m[50] & 7,
            cm_retries: m[51] >> 4,
            slid: self.number(52, 2) as u16,
            dlid: self.number(54, 2) as u16,
            sgid: gid(56),
            dgid: gid(72),
            rate: m[91] & 63,
            sl: m[94] >> 4,
            same_subnet: m[94] & 8 != 0,
            ack_timeout: m[95] >> 3,
        }
    }

    /// Private data of a REQ.
    pub fn request_data(&self) -> &[u8] {
        &self.message()[REQ_DATA..REQ_DATA + REQ_DATA_LEN]
    }
}

/// The parameters of a REQ. Timeouts are exponents of 4.096 us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Request {
    pub service: u64,
    pub qpn: u32,
    /// Number of RDMA READs that the peer serves at once.
    pub reads: u8,
    /// Number of RDMA READs that the peer issues at once.
    pub initiator_depth: u8,
    pub remote_timeout: u8,
    /// PSN of our first packet.
    pub psn: u32,
    pub local_timeout: u8,
    pub retries: u8,
    pub pkey: u16,
    pub mtu: u8,
    pub rnr_retries: u8,
    pub cm_retries: u8,
    pub slid: u16,
    pub dlid: u16,
    pub sgid: u128,
    pub dgid: u128,
    pub rate: u8,
    pub sl: u8,
    pub same_subnet: bool,
    pub ack_timeout: u8,
}

impl Request {
    /// Number of RDMA READs that we issue at once.
    pub fn depth(&self) -> u8 {
        self.reads.min(4)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "service={:016x} pkey={:04x} slid={} dlid={} sgid={:032x} dgid={:032x} sl={} mtu={} \
             rate={} ack={} retries={} rnr_retries={} cm_retries={} remote_timeout={} \
             local_timeout={} reads={} depth={} same_subnet={}",
            self.service,
            self.pkey,
            self.slid,
            self.dlid,
            self.sgid,
            self.dgid,
            self.sl,
            self.mtu,
            self.rate,
            self.ack_timeout,
            self.retries,
            self.rnr_retries,
            self.cm_retries,
            self.remote_timeout,
            self.local_timeout,
            self.reads,
            self.initiator_depth,
            u8::from(self.same_subnet),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_ids() {
        let mad = Mad::new(Kind::Rej, 0x0102_0304_0506_0708, 0x11, 0x22).rej(1, 28, &[9; 72], &[7]);
        assert_eq!(mad.0[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
        assert_eq!(mad.0[8..18], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0x12]);
        let (kind, tid) = (mad.kind(), mad.tid());
        assert_eq!((kind, tid), (Some(Kind::Rej), 0x0102_0304_0506_0708));
        assert_eq!((mad.from(), mad.to(), mad.of()), (0x11, 0x22, 1));
        assert_eq!((mad.reason(), mad.message()[9]), (28, 72 << 1));
        assert_eq!(mad.message()[12..84], [9; 72]);
        assert_eq!(mad.message()[84..86], [7, 0]);
    }

    #[test]
    fn only_messages_of_the_cm_have_a_kind() {
        let mut mad = Mad::new(Kind::Dreq, 0, 1, 2).dreq(0x12_3456);
        assert_eq!(mad.message()[8..11], [0x12, 0x34, 0x56]);
        mad.0[1] = 3;
        assert_eq!(mad.kind(), None);
        mad.0[1] = 7;
        mad.0[17] = 0x17;
        assert_eq!(mad.kind(), None);
    }

    #[test]
    fn reply() {
        let mad = Mad::new(Kind::Rep, 0, 1, 2).rep(0x8001, 4, &[5; 300]);
        assert_eq!(mad.message()[12..15], [0, 0x80, 1]);
        assert_eq!(mad.message()[20..28], [0, 0, 0, 0, 1, 4, 0, 7 << 5]);
        assert_eq!(mad.message()[36..232], [5; 196]);
    }

    #[test]
    fn bytes_beyond_the_message_are_dropped() {
        let mut mad = Mad::new(Kind::Mra, 0, 1, 2).mra(20);
        assert_eq!(mad.timeout(), 20);
        mad.put(230, &[1, 2, 3, 4]);
        assert_eq!(mad.message()[230..], [1, 2]);
    }

    #[test]
    fn request() {
        let mut mad = Mad::new(Kind::Req, 0, 1, 0);
        let bytes: Vec<u8> = (0..232).map(|i| i as u8).collect();
        mad.put(8, &bytes[8..]);
        let r = mad.request();
        assert_eq!(r.service, 0x0809_0a0b_0c0d_0e0f);
        assert_eq!((r.qpn, r.reads, r.depth()), (0x20_2122, 35, 4));
        assert_eq!((r.psn, r.pkey, r.retries), (0x2c_2d2e, 0x3031, 47 & 7));
        assert_eq!((r.mtu, r.rnr_retries, r.cm_retries), (3, 50 & 7, 3));
        assert_eq!((r.slid, r.dlid), (0x3435, 0x3637));
        assert_eq!(r.sgid, 0x3839_3a3b_3c3d_3e3f_4041_4243_4445_4647);
        assert_eq!((r.sl, r.same_subnet, r.ack_timeout), (5, true, 95 >> 3));
        assert_eq!(mad.request_data(), &bytes[140..232]);
        assert!(r
            .to_string()
            .starts_with("service=08090a0b0c0d0e0f pkey=3031 slid=13365 dlid="));
    }
}
