// SPDX-License-Identifier: GPL-2.0

//! Sense data (T10 SPC-4, section 4.5).

/// Sense keys.
pub mod key {
    #![allow(missing_docs)]
    pub const NO_SENSE: u8 = 0;
    pub const NOT_READY: u8 = 2;
    pub const MEDIUM_ERROR: u8 = 3;
    pub const HARDWARE_ERROR: u8 = 4;
    pub const ILLEGAL_REQUEST: u8 = 5;
    pub const UNIT_ATTENTION: u8 = 6;
    pub const DATA_PROTECT: u8 = 7;
    pub const MISCOMPARE: u8 = 14;
}

/// A sense condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code and its qualifier.
    pub code: (u8, u8),
    /// The block in error, or the byte offset of a miscompare.
    pub information: Option<u64>,
}

impl Sense {
    const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            code: (asc, ascq),
            information: None,
        }
    }

    /// No sense.
    pub const NONE: Self = Self::new(key::NO_SENSE, 0, 0);
    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY: initiators send the command again.
    pub const BECOMING_READY: Self = Self::new(key::NOT_READY, 0x04, 0x01);
    /// The unit is stopped: INITIALIZING COMMAND REQUIRED.
    pub const STOPPED: Self = Self::new(key::NOT_READY, 0x04, 0x02);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Self = Self::new(key::MEDIUM_ERROR, 0x0c, 0x00);
    /// WRITE ERROR of writes that were answered and are lost. Initiators retry MEDIUM ERROR, and a
    /// flush that is sent again would succeed.
    pub const LOST: Self = Self::new(key::HARDWARE_ERROR, 0x0c, 0x00);
    /// UNRECOVERED READ ERROR.
    pub const READ_ERROR: Self = Self::new(key::MEDIUM_ERROR, 0x11, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub const LIST_LENGTH: Self = Self::new(key::ILLEGAL_REQUEST, 0x1a, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub const OPCODE: Self = Self::new(key::ILLEGAL_REQUEST, 0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const RANGE: Self = Self::new(key::ILLEGAL_REQUEST, 0x21, 0x00);
    /// INVALID FIELD IN CDB.
    pub const FIELD: Self = Self::new(key::ILLEGAL_REQUEST, 0x24, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const NO_UNIT: Self = Self::new(key::ILLEGAL_REQUEST, 0x25, 0x00);
    /// INVALID FIELD IN PARAMETER LIST.
    pub const LIST_FIELD: Self = Self::new(key::ILLEGAL_REQUEST, 0x26, 0x00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const NO_SAVED: Self = Self::new(key::ILLEGAL_REQUEST, 0x39, 0x00);
    /// INVALID MESSAGE ERROR: unsupported task attribute.
    pub const ATTRIBUTE: Self = Self::new(key::ILLEGAL_REQUEST, 0x49, 0x00);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: a new session.
    pub const NEW_SESSION: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x00);
    /// POWER ON OCCURRED: of the storage below the unit.
    pub const POWER_ON: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x01);
    /// BUS DEVICE RESET FUNCTION OCCURRED: the unit was reset.
    pub const RESET: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x03);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const CLEARED: Self = Self::new(key::UNIT_ATTENTION, 0x2f, 0x00);
    /// WRITE PROTECTED.
    pub const READ_ONLY: Self = Self::new(key::DATA_PROTECT, 0x27, 0x00);
    /// SPACE ALLOCATION FAILED WRITE PROTECT: the file system of the file is full.
    pub const FULL: Self = Self::new(key::DATA_PROTECT, 0x27, 0x07);
    /// MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Self = Self::new(key::MISCOMPARE, 0x1d, 0x00);

    /// The same condition with this block or byte offset.
    pub const fn at(self, information: u64) -> Self {
        Self {
            information: Some(information),
            ..self
        }
    }

    /// Fixed format, 18 bytes. An offset beyond 32 bits is omitted.
    pub fn fixed(&self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        bytes[0] = 0x70;
        if let Some(place) = self.information.and_then(|at| u32::try_from(at).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&place.to_be_bytes());
        }
        bytes[2] = self.key;
        bytes[7] = 10;
        bytes[12] = self.code.0;
        bytes[13] = self.code.1;
        bytes
    }

    /// Descriptor format: 8 bytes, or 20 with an offset.
    pub fn descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key, self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(place) = self.information {
            bytes[7] = 12;
            bytes.extend_from_slice(&[0, 10, 0x80, 0]);
            bytes.extend_from_slice(&place.to_be_bytes());
        }
        bytes
    }
}
