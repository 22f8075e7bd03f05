// SPDX-License-Identifier: GPL-2.0

//! Kinds of management datagrams of queue pair 1, identified by their headers (IBTA 13.4, 15,
//! `include/rdma/ib_cm.h`).

use super::mad::{
    Mad,
    Smp,
    RESPONSE, //
};

/// `IB_MGMT_CLASS_SUBN_ADM`.
const CLASS_SA: u8 = 0x03;
/// `IB_MGMT_CLASS_DEVICE_MGMT`.
const CLASS_DEVICE: u8 = 0x06;
/// `IB_MGMT_CLASS_CM`.
pub const CLASS_CM: u8 = 0x07;
/// `IB_SA_ATTR_PATH_REC`.
const PATH_RECORD: u16 = 0x0035;
/// `IB_MGMT_MAD_STATUS_BUSY`.
const BUSY: u16 = 0x0001;

/// Names of the kinds that [`kind`] returns.
pub const NAMES: [&str; 13] = [
    "other",
    "sa-path",
    "sa-request",
    "sa-answer",
    "device",
    "cm-other",
    "cm-req",
    "cm-mra",
    "cm-rej",
    "cm-rep",
    "cm-rtu",
    "cm-dreq",
    "cm-drep",
];

const OTHER: usize = 0;
const SA_PATH: usize = 1;
const SA_REQUEST: usize = 2;
const SA_ANSWER: usize = 3;
const DEVICE: usize = 4;
const CM_OTHER: usize = 5;

/// The kind of `mad`, an index into [`NAMES`].
pub fn kind(mad: &Mad) -> usize {
    let header = Smp::of(mad);
    let attr = header.attr_id.get();
    match header.mgmt_class {
        CLASS_SA if header.method & RESPONSE != 0 => SA_ANSWER,
        CLASS_SA if attr == PATH_RECORD => SA_PATH,
        CLASS_SA => SA_REQUEST,
        CLASS_DEVICE => DEVICE,
        CLASS_CM => match attr {
            // ConnectRequest to DisconnectReply.
            0x10..=0x16 => CM_OTHER + 1 + usize::from(attr & 7),
            _ => CM_OTHER,
        },
        _ => OTHER,
    }
}

/// Whether the kind is of subnet administration.
pub fn is_sa(kind: usize) -> bool {
    matches!(kind, SA_PATH | SA_REQUEST | SA_ANSWER)
}

/// Turns a subnet administration request into a BUSY response. Returns `false` for all other
/// datagrams.
pub fn refuse(mad: &mut Mad) -> bool {
    if !matches!(kind(mad), SA_PATH | SA_REQUEST) {
        return false;
    }
    let header = Smp::of_mut(mad);
    header.method |= RESPONSE;
    header.status = BUSY.into();
    true
}
