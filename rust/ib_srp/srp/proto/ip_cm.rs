// SPDX-License-Identifier: GPL-2.0

//! Login requests to a service of the RDMA IP CM (IBTA, annex A11).
//!
//! `rdma_cm` listens on such services. Their service IDs contain an IP port number, and requests to
//! them carry the IP addresses of both ends. Here the addresses are derived from the GIDs.

use zerocopy::{
    network_endian::U16,
    IntoBytes, //
};
use zerocopy_derive::{
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    guid::Gid,
    login_iu::{
        LoginReqRdma,
        Requested, //
    },
};

/// Service IDs of TCP ports, without the low 16 bits (the port).
const TCP: u64 = 0x0106;

/// Whether `service_id` is a service of the RDMA IP CM for a TCP port.
pub const fn is_ip_cm(service_id: u64) -> bool {
    service_id >> 16 == TCP
}

/// Login request: 36 bytes of addresses, then the RDMA/CM login request.
#[derive(Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LoginReqIpCm {
    version: u8,
    /// 4 or 6, in the upper four bits.
    ip_version: u8,
    source_port: U16,
    source: [u8; 16],
    destination: [u8; 16],
    login: LoginReqRdma,
}

const _: () = assert!(core::mem::size_of::<LoginReqIpCm>() == 92);

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
