// SPDX-License-Identifier: GPL-2.0

//! Operation codes: byte 0 of every information unit (byte 11 of the RDMA/CM login request).

/// Login request, initiator to target.
pub const LOGIN_REQ: u8 = 0x00;
/// Task management request, initiator to target.
pub const TSK_MGMT: u8 = 0x01;
/// SCSI command, initiator to target.
pub const CMD: u8 = 0x02;
/// Logout by the initiator.
pub const I_LOGOUT: u8 = 0x03;
/// Answer to [`CRED_REQ`].
pub const CRED_RSP: u8 = 0x41;
/// Answer to [`AER_REQ`].
pub const AER_RSP: u8 = 0x42;
/// Logout by the target.
pub const T_LOGOUT: u8 = 0x80;
/// Change of the request limit, target to initiator.
pub const CRED_REQ: u8 = 0x81;
/// Asynchronous event report, target to initiator.
pub const AER_REQ: u8 = 0x82;
/// Login accepted.
pub const LOGIN_RSP: u8 = 0xc0;
/// Answer to [`CMD`] and [`TSK_MGMT`].
pub const RSP: u8 = 0xc1;
/// Login refused.
pub const LOGIN_REJ: u8 = 0xc2;
