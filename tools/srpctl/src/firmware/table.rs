// SPDX-License-Identifier: GPL-2.0

//! The SRP boot firmware table (sBFT), in which the firmware describes its login.
//!
//! GIDs, GUIDs, port identifiers and the LUN are as on the wire, the other numbers little-endian:
//! every released iPXE writes them so. The offsets are those of the draft that it refers to.

use crate::{
    proto::guid::{Gid, Guid},
    target::Target,
};

/// The signature. Also the name of the table in sysfs; if there are several, a number follows.
pub const SIGNATURE: &str = "sBFT";

/// Length of the header of an ACPI table, without and with the offsets of the parts.
const ACPI: usize = 36;
const HEADER: usize = ACPI + 12;
/// The only revision.
const REVISION: u8 = 1;

/// A login that the firmware has made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    /// GID of this machine's port.
    pub source_gid: Gid,
    pub pkey: u16,
    /// GID of the target's port.
    pub dgid: Gid,
    pub service_id: u64,
    /// Halves of the initiator's port identifier.
    pub initiator_ext: Guid,
    pub initiator_guid: Guid,
    /// Halves of the target's port identifier.
    pub id_ext: Guid,
    pub ioc_guid: Guid,
    /// LUN of the disk, as the kernel numbers it.
    pub lun: u64,
}

/// What is wrong with a table: the field, and why.
pub type Wrong = (&'static str, String);

/// The bytes of a table. No read is beyond their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn get<const N: usize>(&self, field: &'static str, at: usize) -> Result<[u8; N], Wrong> {
        let end = at.checked_add(N);
        let found = end.and_then(|end| self.0.get(at..end)?.try_into().ok());
        found.ok_or_else(|| {
            let length = self.0.len();
            let why = format!("bytes {at} to {} of a table of {length}", at + N - 1);
            (field, why)
        })
    }

    fn le16(&self, field: &'static str, at: usize) -> Result<u16, Wrong> {
        self.get(field, at).map(u16::from_le_bytes)
    }

    fn be64(&self, field: &'static str, at: usize) -> Result<u64, Wrong> {
        self.get(field, at).map(u64::from_be_bytes)
    }

    /// Returns the offset of a part, which is after the header.
    fn part(&self, field: &'static str, at: usize) -> Result<usize, Wrong> {
        match usize::from(self.le16(field, at)?) {
            0 => Err((field, "0, so this is no login on InfiniBand".into())),
            offset if offset < HEADER => {
                let why = format!("{offset} is within the header of {HEADER} bytes");
                Err((field, why))
            }
            offset => Ok(offset),
        }
    }

    fn gid(&self, field: &'static str, at: usize) -> Result<Gid, Wrong> {
        let gid = Gid(self.get(field, at)?);
        // A link-local GID, last byte first.
        if gid.0.ends_with(&[0, 0, 0, 0, 0, 0, 0x80, 0xfe]) {
            let why = "the bytes are in reverse order, as an iPXE with the patch of ib_sbft \
                       (fix_sbft_endian) writes them; boot with an iPXE without it";
            return Err((field, why.into()));
        }
        if gid.0 == [0; 16] || gid.0[0] == 0xff {
            return Err((field, format!("{gid} is not the GID of a port")));
        }
        Ok(gid)
    }
}

impl Table {
    /// Parses a table, which may have any content.
    pub fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        let table = Bytes(bytes);
        let signature = table.get::<4>("signature", 0)?;
        if signature != SIGNATURE.as_bytes() {
            let found = signature.escape_ascii();
            return Err(("signature", format!("'{found}' is not {SIGNATURE}")));
        }
        let length = u32::from_le_bytes(table.get("length", 4)?);
        if u32::try_from(bytes.len()) != Ok(length) {
            let why = format!("{length}, and the table has {} bytes", bytes.len());
            return Err(("length", why));
        }
        let [revision] = table.get("revision", 8)?;
        if revision != REVISION {
            return Err(("revision", format!("{revision} is not {REVISION}")));
        }
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        if sum != 0 {
            return Err(("checksum", format!("the sum of all bytes is {sum}, not 0")));
        }
        let scsi = table.part("SCSI offset", ACPI)?;
        let srp = table.part("SRP offset", ACPI + 2)?;
        let ib = table.part("InfiniBand offset", ACPI + 4)?;
        let pkey = table.le16("P_Key", ib + 40)?;
        // The highest bit marks a full member.
        if pkey & 0x7fff == 0 {
            return Err(("P_Key", format!("{pkey:04x} names no partition")));
        }
        Ok(Self {
            source_gid: table.gid("source GID", ib)?,
            dgid: table.gid("destination GID", ib + 16)?,
            service_id: table.be64("service ID", ib + 32)?,
            pkey,
            initiator_ext: Guid(table.be64("initiator port identifier", srp)?),
            initiator_guid: Guid(table.be64("initiator port identifier", srp + 8)?),
            id_ext: Guid(table.be64("target port identifier", srp + 16)?),
            ioc_guid: Guid(table.be64("target port identifier", srp + 24)?),
            lun: lun(table.get("LUN", scsi)?),
        })
    }

    /// Returns the login.
    pub fn target(&self) -> Target {
        let mut target = Target {
            source_gid: Some(self.source_gid.to_string()),
            ..Target::default()
        };
        let hex = |guid: Guid| format!("{:016x}", guid.0);
        target.set("id_ext", hex(self.id_ext));
        target.set("ioc_guid", hex(self.ioc_guid));
        target.set("dgid", self.dgid.to_string().replace(':', ""));
        target.set("pkey", format!("{:04x}", self.pkey));
        target.set("service_id", format!("{:016x}", self.service_id));
        if self.initiator_ext.0 != 0 {
            target.set("initiator_ext", hex(self.initiator_ext));
        }
        target
    }

    /// Returns what to say if the firmware has logged in with another GUID than the driver, which
    /// always uses the port's.
    pub fn other_initiator(&self) -> Option<String> {
        let port = Guid(self.source_gid.interface_id());
        (self.initiator_guid != port).then(|| {
            format!(
                "the firmware has logged in with the initiator GUID {}; ib_srp always uses the \
                 port's, {port}: the target must admit that one, too",
                self.initiator_guid
            )
        })
    }
}

/// Returns the number of a LUN: four levels of two bytes, the first one is the lowest.
fn lun(bytes: [u8; 8]) -> u64 {
    let levels = bytes.chunks_exact(2).rev();
    levels.fold(0, |lun, level| {
        (lun << 16) | (u64::from(level[0]) << 8) | u64::from(level[1])
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What iPXE writes: its header, and the parts in its order.
    pub fn made() -> Vec<u8> {
        let mut bytes = b"sBFT\x88\0\0\0\x01\0FENSYSiPXE\0\0\0\0".to_vec();
        bytes.resize(ACPI, 0);
        for offset in [48_u16, 56, 88, 0, 0, 0] {
            bytes.extend(offset.to_le_bytes());
        }
        // LUN 1; initiator; target.
        bytes.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        for half in [0_u64, 0x5eed_0000_0000_0201, 0xa1, 0xa2] {
            bytes.extend(half.to_be_bytes());
        }
        let prefix = 0xfe80_u128 << 112;
        for gid in [0x5eed_0000_0000_0201, 0x5eed_0000_0000_0101] {
            bytes.extend((prefix | gid).to_be_bytes());
        }
        bytes.extend(0xa3_u64.to_be_bytes());
        bytes.extend(0xffff_u16.to_le_bytes());
        bytes.extend([0; 6]);
        sum(&mut bytes);
        bytes
    }

    /// Corrects length and checksum.
    pub fn sum(bytes: &mut [u8]) {
        let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        if let Some(field) = bytes.get_mut(4..8) {
            field.copy_from_slice(&length);
        }
        if bytes.len() > 9 {
            bytes[9] = 0;
            let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
            bytes[9] = 0_u8.wrapping_sub(sum);
        }
    }

    fn wrong(bytes: &[u8]) -> String {
        let (field, why) = Table::parse(bytes).unwrap_err();
        format!("{field}: {why}")
    }

    /// Returns what is wrong with a table that has these bytes at `at`.
    fn with(at: usize, bytes: &[u8]) -> String {
        let mut table = made();
        table[at..at + bytes.len()].copy_from_slice(bytes);
        sum(&mut table);
        wrong(&table)
    }

    #[test]
    fn a_table_of_ipxe_is_a_login() {
        let bytes = made();
        assert_eq!(bytes.len(), 136);
        let table = Table::parse(&bytes).unwrap();
        let target = table.target();
        target.check().unwrap();
        assert_eq!(
            target.login_string(),
            "id_ext=00000000000000a1,ioc_guid=00000000000000a2,\
             dgid=fe800000000000005eed000000000101,pkey=ffff,service_id=00000000000000a3"
        );
        let port = "fe80:0000:0000:0000:5eed:0000:0000:0201";
        assert_eq!(target.source_gid.as_deref(), Some(port));
        assert_eq!(table.lun, 1);
        assert_eq!(table.other_initiator(), None);
    }

    #[test]
    fn byte_orders() {
        let mut bytes = made();
        bytes[48..56].copy_from_slice(&[0x40, 2, 0, 3, 0, 0, 0, 0]);
        bytes[56..64].copy_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]);
        bytes[64..72].copy_from_slice(&[9; 8]);
        bytes[128..130].copy_from_slice(&[1, 0x80]);
        sum(&mut bytes);
        let table = Table::parse(&bytes).unwrap();
        assert_eq!(table.lun, 0x0003_4002);
        assert_eq!(table.pkey, 0x8001);
        assert_eq!(
            table.target().option("initiator_ext"),
            Some("0000000000000102")
        );
        let other = table.other_initiator().unwrap();
        assert!(
            other.contains(
                "GUID 0x0909090909090909; ib_srp always uses the port's, 0x5eed000000000201"
            ),
            "{other}"
        );
    }

    #[test]
    fn the_bad_field_is_named() {
        let mut bytes = made();
        bytes[100] ^= 1;
        assert_eq!(wrong(&bytes), "checksum: the sum of all bytes is 1, not 0");
        assert_eq!(with(0, b"iBFT"), "signature: 'iBFT' is not sBFT");
        assert_eq!(with(8, &[2]), "revision: 2 is not 1");
        bytes.pop();
        assert_eq!(wrong(&bytes), "length: 136, and the table has 135 bytes");
        assert_eq!(wrong(b"sBF"), "signature: bytes 0 to 3 of a table of 3");
        for (at, field) in [(36, "SCSI"), (38, "SRP"), (40, "InfiniBand")] {
            let within = format!("{field} offset: 47 is within the header of 48 bytes");
            assert_eq!(with(at, &[47, 0]), within);
            let none = format!("{field} offset: 0, so this is no login on InfiniBand");
            assert_eq!(with(at, &[0, 0]), none);
        }
        assert_eq!(
            with(36, &[129, 0]),
            "LUN: bytes 129 to 136 of a table of 136"
        );
        assert_eq!(
            with(38, &[105, 0]),
            "target port identifier: bytes 129 to 136 of a table of 136"
        );
        assert_eq!(
            with(40, &[255, 255]),
            "P_Key: bytes 65575 to 65576 of a table of 136"
        );
        assert_eq!(with(128, &[0, 0x80]), "P_Key: 8000 names no partition");
        let zero = with(88, &[0; 16]);
        assert!(zero.starts_with("source GID: 0000:"), "{zero}");
        let group = with(104, &[0xff]);
        assert!(group.starts_with("destination GID: ff80:0000:"), "{group}");
    }

    #[test]
    fn a_table_in_reverse_is_refused() {
        let mut bytes = made();
        bytes[88..104].reverse();
        sum(&mut bytes);
        let said = wrong(&bytes);
        assert!(
            said.starts_with("source GID: the bytes are in reverse order"),
            "{said}"
        );
    }

    /// A generator of numbers, from a seed (splitmix64).
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[test]
    fn any_bytes_are_refused_or_a_login() {
        let mut state = 1;
        let mut below = move |limit: usize| random(&mut state) as usize % limit;
        let (mut good, mut bad) = (0, 0);
        for round in 0..50_000 {
            let mut bytes = made();
            bytes.truncate(if round % 4 == 0 { below(137) } else { 136 });
            for _ in 0..below(4) {
                if !bytes.is_empty() {
                    let at = below(bytes.len());
                    bytes[at] = [0, 1, 47, 48, 0x7f, 0x80, 0xff, below(256) as u8][below(8)];
                }
            }
            // Most have a valid length and checksum, so that the rest is read.
            if round % 8 != 0 {
                sum(&mut bytes);
            }
            match Table::parse(&bytes) {
                Ok(table) => {
                    good += 1;
                    let target = table.target();
                    target.check().unwrap();
                    let dgid = target.dgid().unwrap().unwrap();
                    assert_eq!(dgid, table.dgid.to_string());
                }
                Err((field, why)) => {
                    bad += 1;
                    assert!(!field.is_empty() && !why.is_empty());
                }
            }
        }
        assert!(good > 1_000 && bad > 10_000, "{good} good, {bad} bad");
    }
}
