// SPDX-License-Identifier: GPL-2.0

//! SCSI sense data, as far as this driver reads it.
//!
//! The layouts are those of T10 SPC-5, section 4.4. C header:
//! [`include/scsi/scsi_common.h`](srctree/include/scsi/scsi_common.h).

/// Response codes, in the low 7 bits of the first byte. Odd codes are deferred errors.
mod response_code {
    pub(super) const FIXED: u8 = 0x70;
    pub(super) const DESCRIPTOR: u8 = 0x72;
    pub(super) const DESCRIPTOR_DEFERRED: u8 = 0x73;
    /// The last code. 0x74 to 0x7e are reserved and 0x7f is vendor-specific; the midlayer parses
    /// all of them as descriptor format.
    pub(super) const LAST: u8 = 0x7f;
}

/// Bit of the first byte in fixed format: the INFORMATION field is valid.
const VALID: u8 = 0x80;
/// Type and additional length of an information descriptor.
const INFORMATION: [u8; 2] = [0, 10];

/// Index of the last byte of the header in both formats: the number of bytes after the header.
const ADDITIONAL_LEN: usize = 7;

/// Sense keys.
mod key {
    pub(super) const RECOVERED_ERROR: u8 = 1;
    pub(super) const MEDIUM_ERROR: u8 = 3;
    pub(super) const HARDWARE_ERROR: u8 = 4;
    pub(super) const ILLEGAL_REQUEST: u8 = 5;
    pub(super) const ABORTED_COMMAND: u8 = 11;
}

/// Additional sense code: protection information does not match.
const PROTECTION: u8 = 0x10;

/// Additional sense code and qualifier.
const REPORTED_LUNS_CHANGED: (u8, u8) = (0x3f, 0x0e);

/// Parsed sense data of either format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sense {
    /// Whether the condition belongs to an earlier command.
    pub deferred: bool,
    /// Sense key, 0 to 15.
    pub key: u8,
    /// Additional sense code; 0 if there is none.
    pub asc: u8,
    /// Additional sense code qualifier; 0 if there is none.
    pub ascq: u8,
    /// The INFORMATION field, if it is valid.
    pub information: Option<u64>,
}

impl Sense {
    /// Reads sense data of fixed or descriptor format. `bytes` must hold what was received.
    ///
    /// The data may be truncated anywhere, because senders cut it to the requested length. Fields
    /// past its end, or past the length in its header, are 0. Returns `None` if there is no sense
    /// key, or for any other format.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let code = bytes.first()? & 0x7f;
        let fixed = match code {
            response_code::FIXED..response_code::DESCRIPTOR => true,
            response_code::DESCRIPTOR..=response_code::LAST => false,
            _ => return None,
        };
        let (key, asc, ascq) = if fixed { (2, 12, 13) } else { (1, 2, 3) };
        let counted = match bytes.get(ADDITIONAL_LEN) {
            Some(more) => ADDITIONAL_LEN + 1 + usize::from(*more),
            None => bytes.len(),
        };
        let at = |index: usize| bytes.get(index).filter(|_| index < counted).copied();
        Some(Self {
            deferred: code & 1 != 0,
            key: at(key)? & 0x0f,
            asc: at(asc).unwrap_or(0),
            ascq: at(ascq).unwrap_or(0),
            information: Self::information(bytes),
        })
    }

    /// The INFORMATION field, by the rules of the midlayer (`scsi_get_sense_info_fld()`): `None`
    /// for reserved codes, and for descriptor format with the VALID bit of fixed format set.
    fn information(bytes: &[u8]) -> Option<u64> {
        const FIXED: u8 = VALID | response_code::FIXED;
        const FIXED_DEFERRED: u8 = FIXED | 1;

        match *bytes.first()? {
            FIXED | FIXED_DEFERRED => {
                let field = bytes.get(3..)?.first_chunk()?;
                Some(u32::from_be_bytes(*field).into())
            }
            response_code::DESCRIPTOR | response_code::DESCRIPTOR_DEFERRED => {
                let more = usize::from(*bytes.get(ADDITIONAL_LEN)?);
                let rest = bytes.get(ADDITIONAL_LEN + 1..)?;
                let mut rest = rest.get(..more).unwrap_or(rest);
                loop {
                    rest = match rest {
                        [kind, len, _, _, field @ ..] if [*kind, *len] == INFORMATION => {
                            return field.first_chunk().copied().map(u64::from_be_bytes);
                        }
                        [_, len, rest @ ..] => rest.get(usize::from(*len)..)?,
                        _ => return None,
                    }
                }
            }
            _ => None,
        }
    }

    /// Whether the whole command was carried out, with a recovered error.
    pub const fn is_recovered(&self) -> bool {
        self.key == key::RECOVERED_ERROR && !self.deferred
    }

    /// The block at which the command failed, if the upper layer treats the blocks before it as
    /// good (`sd_done()`).
    pub fn bad_block(&self) -> Option<u64> {
        let names_one = match self.key {
            key::MEDIUM_ERROR | key::HARDWARE_ERROR => true,
            key::ABORTED_COMMAND | key::ILLEGAL_REQUEST => self.asc == PROTECTION,
            _ => false,
        };
        self.information.filter(|_| names_one && !self.deferred)
    }

    /// Whether the target's set of logical units has changed: REPORTED LUNS DATA HAS CHANGED.
    pub const fn is_reported_luns_changed(&self) -> bool {
        self.asc == REPORTED_LUNS_CHANGED.0 && self.ascq == REPORTED_LUNS_CHANGED.1
    }
}
