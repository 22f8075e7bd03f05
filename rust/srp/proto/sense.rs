// SPDX-License-Identifier: GPL-2.0

//! SCSI sense data, as far as this driver reads it.
//!
//! The layouts are those of T10 SPC-5, section 4.4. C header:
//! [`include/scsi/scsi_common.h`](srctree/include/scsi/scsi_common.h).

/// The code in the low 7 bits of the first byte. Odd ones are deferred.
mod response_code {
    pub(super) const FIXED: u8 = 0x70;
    pub(super) const DESCRIPTOR: u8 = 0x72;
    pub(super) const DESCRIPTOR_DEFERRED: u8 = 0x73;
    /// Reserved, like the codes in between. The midlayer reads them as descriptor format.
    pub(super) const LAST: u8 = 0x7f;
}

/// In the first byte of fixed format: there is an INFORMATION field.
const VALID: u8 = 0x80;
/// Type and additional length of an information descriptor.
const INFORMATION: [u8; 2] = [0, 10];

/// In both formats the last byte of the header: the number of bytes behind the header.
const ADDITIONAL_LEN: usize = 7;

/// Sense keys.
mod key {
    pub(super) const RECOVERED_ERROR: u8 = 1;
    pub(super) const MEDIUM_ERROR: u8 = 3;
    pub(super) const HARDWARE_ERROR: u8 = 4;
    pub(super) const ILLEGAL_REQUEST: u8 = 5;
    pub(super) const ABORTED_COMMAND: u8 = 11;
}

/// The additional sense code of protection information that does not match.
const PROTECTION: u8 = 0x10;

/// A condition: additional sense code and its qualifier.
const REPORTED_LUNS_CHANGED: (u8, u8) = (0x3f, 0x0e);

/// What sense data says, in either format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sense {
    /// The condition belongs to an earlier command.
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
    /// Reads sense data of fixed or descriptor format. `bytes` must be what arrived.
    ///
    /// The data may be truncated anywhere, as senders cut it to the requested length. Fields behind
    /// its end, or behind the length that it gives itself, are 0. `None` if there is no sense key,
    /// or for any other format.
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

    /// The INFORMATION field, by the rules of the midlayer (`scsi_get_sense_info_fld()`): none with
    /// reserved codes, nor with the valid bit of fixed format set in descriptor format.
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

    /// True if the whole command was carried out in the end.
    pub const fn is_recovered(&self) -> bool {
        self.key == key::RECOVERED_ERROR && !self.deferred
    }

    /// The block that a command failed at, if the upper layer counts those before it as good
    /// (`sd_done()`).
    pub fn bad_block(&self) -> Option<u64> {
        let names_one = match self.key {
            key::MEDIUM_ERROR | key::HARDWARE_ERROR => true,
            key::ABORTED_COMMAND | key::ILLEGAL_REQUEST => self.asc == PROTECTION,
            _ => false,
        };
        self.information.filter(|_| names_one && !self.deferred)
    }

    /// True if the target's set of logical units has changed: REPORTED LUNS DATA HAS CHANGED.
    pub const fn is_reported_luns_changed(&self) -> bool {
        self.asc == REPORTED_LUNS_CHANGED.0 && self.ascq == REPORTED_LUNS_CHANGED.1
    }
}
