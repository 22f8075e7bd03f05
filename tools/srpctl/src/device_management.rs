// SPDX-License-Identifier: GPL-2.0

//! The SRP targets of an I/O unit, as its device management agent reports them (InfiniBand
//! Architecture volume 1, chapter 16.3; SRP, annex B).

use std::fmt;

/// Management class of the requests.
pub const CLASS: u8 = 0x06;

/// Attributes.
const IO_UNIT_INFO: u16 = 0x10;
const IO_CONTROLLER_PROFILE: u16 = 0x11;
const SERVICE_ENTRIES: u16 = 0x12;

const GET: u8 = 0x01;
const GET_RESP: u8 = 0x81;
/// Offset of the attribute in a MAD.
const DATA: usize = 64;
/// Bytes of a service entry: 40 of the name, 8 of the ID.
const ENTRY: usize = 48;
/// Entries of an attribute.
const ENTRIES: u32 = 4;
/// Name of the service of an SRP target, before its 16 digits of `id_ext`.
const SERVICE: &[u8] = b"SRP.T10:";

/// Why the targets of an I/O unit are not known.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The agent rejects the request for this attribute, with this status.
    #[error("{0} is rejected with status 0x{1:04x}")]
    Status(&'static str, u16),
    /// The reply does not belong to the request.
    #[error("the reply to {0} is invalid")]
    Invalid(&'static str),
}

/// A target of an I/O unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    pub id_ext: String,
    pub ioc_guid: String,
    /// What the I/O controller calls itself, in printable characters.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id_ext, ioc_guid) = (&self.id_ext, &self.ioc_guid);
        write!(f, "--id-ext {id_ext} --ioc-guid {ioc_guid}")
    }
}

/// Returns all targets of an I/O unit. `ask` sends a request and returns the reply.
pub fn targets(
    ask: &mut dyn FnMut(umad::Mad) -> std::io::Result<umad::Mad>,
) -> Result<Vec<Target>, Failure> {
    let mut get = |attribute, modifier| get(ask, attribute, modifier);
    let unit = get(IO_UNIT_INFO, 0)?;
    let mut found = Vec::new();
    for slot in (1..=unit[2]).filter(|slot| is_present(&unit, *slot)) {
        let profile = get(IO_CONTROLLER_PROFILE, slot.into())?;
        let (ioc_guid, services) = (hex(&profile[..8]), u32::from(profile[54]));
        let name = printable(&profile[64..128]);
        for first in (0..services).step_by(ENTRIES as usize) {
            let last = (first + ENTRIES).min(services) - 1;
            let entries = get(
                SERVICE_ENTRIES,
                (u32::from(slot) << 16) | (last << 8) | first,
            )?;
            let entries = entries
                .chunks_exact(ENTRY)
                .take((last - first) as usize + 1);
            found.extend(entries.filter_map(id_ext).map(|id_ext| Target {
                id_ext,
                ioc_guid: ioc_guid.clone(),
                name: name.clone(),
            }));
        }
    }
    Ok(found)
}

/// Sends a Get of an attribute, and returns the attribute.
fn get(
    ask: &mut dyn FnMut(umad::Mad) -> std::io::Result<umad::Mad>,
    attribute: u16,
    modifier: u32,
) -> Result<[u8; umad::LEN - DATA], Failure> {
    let name = match attribute {
        IO_UNIT_INFO => "IOUnitInfo",
        IO_CONTROLLER_PROFILE => "IOControllerProfile",
        _ => "ServiceEntries",
    };
    let mut request = [0; umad::LEN];
    request[..4].copy_from_slice(&[1, CLASS, 1, GET]);
    request[16..18].copy_from_slice(&attribute.to_be_bytes());
    request[20..24].copy_from_slice(&modifier.to_be_bytes());
    let reply = ask(request)?;
    if reply[..4] != [1, CLASS, 1, GET_RESP] || reply[16..18] != request[16..18] {
        return Err(Failure::Invalid(name));
    }
    match u16::from_be_bytes([reply[4], reply[5]]) {
        0 => {}
        status => return Err(Failure::Status(name, status)),
    }
    let mut data = [0; umad::LEN - DATA];
    data.copy_from_slice(&reply[DATA..]);
    Ok(data)
}

/// Returns whether a slot of the I/O unit has a controller. The list has four bits a slot, the
/// first slot in the high ones.
fn is_present(unit: &[u8], slot: u8) -> bool {
    let at = usize::from(slot - 1);
    let both = unit[4 + at / 2];
    (if at % 2 == 0 { both >> 4 } else { both & 0xf }) == 1
}

/// Returns the `id_ext` of a service entry, unless it is of another protocol.
fn id_ext(entry: &[u8]) -> Option<String> {
    let digits = entry[..40].strip_prefix(SERVICE)?.get(..16)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| digits.to_lowercase())
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|b| format!("{b:02x}"));
    digits.collect::<Vec<_>>().concat()
}

/// Returns the text of a field that is padded with zeros.
fn printable(field: &[u8]) -> String {
    let text = field.iter().take_while(|b| **b != 0);
    let text: String = text
        .map(|b| match b {
            b' '..=b'~' => *b as char,
            _ => '?',
        })
        .collect();
    text.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    type Spoil = fn(&mut umad::Mad);

    /// An I/O unit with services in each of its slots.
    struct Unit {
        slots: Vec<Option<Vec<&'static str>>>,
        asked: Vec<(u16, u32)>,
        /// Changes each reply.
        spoils: Spoil,
    }

    impl Unit {
        fn new(slots: Vec<Option<Vec<&'static str>>>) -> Self {
            Self {
                slots,
                asked: Vec::new(),
                spoils: |_| {},
            }
        }

        fn reply(&mut self, mut mad: umad::Mad) -> io::Result<umad::Mad> {
            let attribute = u16::from_be_bytes([mad[16], mad[17]]);
            let modifier = u32::from_be_bytes(mad[20..24].try_into().unwrap());
            self.asked.push((attribute, modifier));
            mad[3] = GET_RESP;
            let data = &mut mad[DATA..];
            match attribute {
                IO_UNIT_INFO => {
                    data[2] = self.slots.len() as u8;
                    for (at, _) in self.slots.iter().enumerate().filter(|(_, s)| s.is_some()) {
                        data[4 + at / 2] |= if at % 2 == 0 { 0x10 } else { 0x01 };
                    }
                }
                IO_CONTROLLER_PROFILE => {
                    let services = self.slots[modifier as usize - 1].as_ref().unwrap();
                    data[..8].copy_from_slice(&(0xabc0 + u64::from(modifier)).to_be_bytes());
                    data[54] = services.len() as u8;
                    data[64..74].copy_from_slice(b"a target\n\0");
                }
                SERVICE_ENTRIES => {
                    let services = self.slots[(modifier >> 16) as usize - 1].as_ref().unwrap();
                    let (last, first) = (modifier as usize >> 8 & 0xff, modifier as usize & 0xff);
                    for (at, name) in services[first..=last].iter().enumerate() {
                        data[at * ENTRY..][..name.len()].copy_from_slice(name.as_bytes());
                    }
                }
                _ => panic!("attribute {attribute}"),
            }
            (self.spoils)(&mut mad);
            Ok(mad)
        }

        fn targets(&mut self) -> Result<Vec<Target>, Failure> {
            targets(&mut |mad| self.reply(mad))
        }
    }

    #[test]
    fn all_services_of_all_controllers_are_found() {
        let many = vec![
            "SRP.T10:00000000000000A1",
            "NVME:0000000000000001",
            "SRP.T10:00000000000000a2",
            "SRP.T10:short",
            "SRP.T10:00000000000000a3",
        ];
        let mut unit = Unit::new(vec![None, Some(many), Some(vec![]), None, None]);
        let found = unit.targets().unwrap();
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        let wanted = |n| format!("--id-ext 00000000000000a{n} --ioc-guid 000000000000abc2");
        assert_eq!(shown, [wanted(1), wanted(2), wanted(3)]);
        assert_eq!(found[0].name, "a target?");
        assert_eq!(
            unit.asked,
            [
                (IO_UNIT_INFO, 0),
                (IO_CONTROLLER_PROFILE, 2),
                (SERVICE_ENTRIES, 0x2_0300),
                (SERVICE_ENTRIES, 0x2_0404),
                (IO_CONTROLLER_PROFILE, 3),
            ]
        );
    }

    #[test]
    fn a_reply_that_does_not_fit_is_an_error() {
        let spoilt: [(Spoil, &str); 4] = [
            (|mad| mad[1] = 7, "the reply to IOUnitInfo is invalid"),
            (|mad| mad[3] = GET, "the reply to IOUnitInfo is invalid"),
            (|mad| mad[17] = 0x12, "the reply to IOUnitInfo is invalid"),
            (
                |mad| mad[4] = 0x1,
                "IOUnitInfo is rejected with status 0x0100",
            ),
        ];
        for (spoils, wanted) in spoilt {
            let mut unit = Unit::new(vec![Some(vec![])]);
            unit.spoils = spoils;
            assert_eq!(unit.targets().unwrap_err().to_string(), wanted);
        }
    }

    /// Whatever the agent answers, there is a result after a bounded number of requests.
    #[test]
    fn any_bytes_are_survived() {
        for filler in 0..=u8::MAX {
            let mut count = 0;
            let found = targets(&mut |mut mad| {
                count += 1;
                mad[3] = GET_RESP;
                mad[DATA..].fill(filler);
                Ok(mad)
            });
            assert!(found.is_ok_and(|found| found.is_empty()), "{filler}");
            assert!(count <= 1 + 255 * 65, "{filler}: {count}");
        }
        // As many controllers and services as there can be.
        let mut count = 0;
        let found = targets(&mut |mut mad| {
            count += 1;
            mad[3] = GET_RESP;
            let filler = if mad[17] == 0x10 { 0x11 } else { 0xff };
            mad[DATA..].fill(filler);
            mad[DATA + 2] = 0xff;
            Ok(mad)
        });
        assert!(found.is_ok_and(|found| found.is_empty()));
        assert_eq!(count, 1 + 255 * 65);
    }
}
