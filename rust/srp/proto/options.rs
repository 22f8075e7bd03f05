// SPDX-License-Identifier: GPL-2.0

//! The string that is written to `add_target`.
//!
//! `name=value` pairs, separated by commas or line feeds. Empty ones are skipped. If a name is
//! repeated, the last value counts, except that each `answers_from` adds an address. A login needs
//! `id_ext`, `ioc_guid` and either `dgid`, `pkey`, `service_id` (InfiniBand) or `dest` (RDMA/CM).
//! The whole string is read and checked before it is used.

use super::{
    address::Address,
    guid::{
        Gid,
        Guid,
        IoClass, //
    },
    number::{
        self,
        hex, //
    },
    option_error::{
        Missing,
        OptionError,
        Token,
        Why, //
    },
};

/// Maximum length of a login string, in bytes: one page, the limit of sysfs.
pub const MAX_LEN: usize = 4096;

/// Default number of commands per channel.
pub const QUEUE_SIZE_DEFAULT: u32 = 62;
/// Maximum number of commands per channel.
pub const QUEUE_SIZE_MAX: i32 = 4096;
/// Maximum number of channels per login; the number of CPUs limits it further.
pub const CH_COUNT_MAX: i32 = 1024;
/// Minimum number of 512-byte sectors per command: one page. The block layer refuses less.
pub const MAX_SECT_MIN: i32 = 8;
/// Maximum number of 512-byte sectors per command: 64 MiB.
pub const MAX_SECT_MAX: i32 = 1 << 17;
/// Maximum number of scatter-gather entries per command (`SG_MAX_SEGMENTS`).
pub const SG_TABLESIZE_MAX: i32 = 2048;
/// Minimum of `max_it_iu_len` and `req_it_iu_len` in SRP, in bytes, and of `max_it_iu_size`.
pub const MIN_IT_IU_LEN: u32 = 64;
/// Maximum number of answer channels.
pub const MAX_ANSWERS: usize = 8;
/// Maximum of `max_cmd_per_lun`: `cmd_per_lun` in `struct Scsi_Host` is a `short`.
const CMD_PER_LUN_MAX: i32 = 32_767;

/// Defaults for options that a login string lacks, from module parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Defaults {
    /// Maximum number of descriptors in a message, 1 to 255.
    pub cmd_sg_entries: u8,
    /// Maximum number of scatter-gather entries per command.
    pub sg_tablesize: u32,
    /// Whether a message may hold only the first part of a descriptor table.
    pub allow_ext_sg: bool,
    /// Number of channels, 0 for automatic.
    pub ch_count: u32,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            cmd_sg_entries: 12,
            sg_tablesize: 12,
            allow_ext_sg: false,
            ch_count: 0,
        }
    }
}

/// Where the target is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target<'a> {
    /// On an InfiniBand subnet.
    Ib {
        /// GID of the port.
        dgid: Gid,
        /// Partition key.
        pkey: u16,
        /// Service identifier.
        service_id: u64,
    },
    /// At an internet address.
    Rdma {
        /// Local address, if given. Its port may be absent.
        src: Option<Address<'a>>,
        /// Address of the target. It always has a port.
        dest: Address<'a>,
    },
}

/// Addresses of answer channels, all different. Each has a port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AnswersFrom<'a>([Option<Address<'a>>; MAX_ANSWERS]);

impl<'a> AnswersFrom<'a> {
    /// The addresses, in the order of the login string.
    pub fn iter(&self) -> impl Iterator<Item = &Address<'a>> + '_ {
        self.0.iter().flatten()
    }

    /// Number of addresses.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    fn add(&mut self, address: Address<'a>) -> Result<(), Why> {
        if self.iter().any(|other| *other == address) {
            return Err(Why::Twice);
        }
        let place = self.0.iter_mut().find(|place| place.is_none());
        *place.ok_or(Why::TooMany(MAX_ANSWERS))? = Some(address);
        Ok(())
    }
}

/// A login string that has been checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options<'a> {
    /// Extension of the target's port identifier.
    pub id_ext: Guid,
    /// GUID of the target's I/O controller.
    pub ioc_guid: Guid,
    /// Where the target is.
    pub target: Target<'a>,
    /// Addresses of the peers that respond in place of the target; only with [`Target::Rdma`].
    pub answers_from: AnswersFrom<'a>,
    /// Protocol revision of the target.
    pub io_class: IoClass,
    /// Extension of the initiator's port identifier.
    pub initiator_ext: Guid,
    /// Maximum number of 512-byte sectors per command; `None` for the default of the driver.
    pub max_sect: Option<u32>,
    /// Maximum number of commands per channel.
    pub queue_size: u32,
    /// Maximum number of commands per logical unit; `None` for as many as all channels take.
    pub cmd_per_lun: Option<u32>,
    /// Maximum number of commands per target, if limited.
    pub target_can_queue: Option<u32>,
    /// Maximum number of descriptors in a message.
    pub cmd_sg_entries: u8,
    /// Whether a message may hold only the first part of a descriptor table.
    pub allow_ext_sg: bool,
    /// Maximum number of scatter-gather entries per command.
    pub sg_tablesize: u32,
    /// Completion vector of the first channel, if given.
    pub comp_vector: Option<u32>,
    /// Retry count of the transport, 2 to 7.
    pub tl_retry_count: u8,
    /// ACK timeout of the transport, as n in 4.096 us * 2^n, 1 to 31; `None` for the default of the
    /// connection manager.
    pub ack_timeout: Option<u8>,
    /// Type of service of an RDMA/CM connection; `None` for the default of `rdma_cm`.
    pub tos: Option<u8>,
    /// Maximum length of a message to the target, in bytes; 0 for no cap, otherwise at least
    /// [`MIN_IT_IU_LEN`].
    pub max_it_iu_size: u32,
    /// Number of channels; `None` for automatic.
    pub ch_count: Option<u32>,
}

impl<'a> Options<'a> {
    /// Reads and checks a login string.
    pub fn parse(text: &'a [u8], defaults: &Defaults) -> Result<Self, OptionError<'a>> {
        if text.len() > MAX_LEN {
            return Err(OptionError {
                token: Token(text),
                why: Why::TooLong,
            });
        }
        let mut draft = Draft::default();
        for token in text.split(|&byte| byte == b',' || byte == b'\n') {
            if !token.is_empty() {
                draft.take(token).map_err(|why| OptionError {
                    token: Token(token),
                    why,
                })?;
            }
        }
        draft.finish(defaults)
    }

    /// Key of a login: a second one with the same key on a port is refused with `EEXIST`.
    pub const fn key(&self) -> (Guid, Guid, Guid) {
        (self.id_ext, self.ioc_guid, self.initiator_ext)
    }
}

/// Parses the value of one option.
type Setter<'a> = fn(&mut Draft<'a>, &'a str) -> Result<(), Why>;

/// Options during parsing.
#[derive(Default)]
struct Draft<'a> {
    id_ext: Option<u64>,
    ioc_guid: Option<u64>,
    dgid: Option<Gid>,
    pkey: Option<u16>,
    service_id: Option<u64>,
    src: Option<Address<'a>>,
    dest: Option<Address<'a>>,
    /// The last `src` or `dest` token, for errors.
    address_token: &'a [u8],
    answers_from: AnswersFrom<'a>,
    /// The `answers_from` tokens, for errors.
    answers_tokens: [&'a [u8]; MAX_ANSWERS],
    io_class: IoClass,
    initiator_ext: u64,
    max_sect: Option<u32>,
    queue_size: Option<u32>,
    max_cmd_per_lun: Option<u32>,
    target_can_queue: Option<u32>,
    cmd_sg_entries: Option<u8>,
    allow_ext_sg: Option<bool>,
    sg_tablesize: Option<u32>,
    comp_vector: Option<u32>,
    tl_retry_count: Option<u8>,
    ack_timeout: Option<u8>,
    tos: Option<u8>,
    /// The last `tos` token, for errors.
    tos_token: &'a [u8],
    max_it_iu_size: u32,
    ch_count: Option<u32>,
}

impl<'a> Draft<'a> {
    fn take(&mut self, token: &'a [u8]) -> Result<(), Why> {
        let text = core::str::from_utf8(token).map_err(|_| Why::NotText)?;
        if token.contains(&0) {
            return Err(Why::NotText);
        }
        let (name, value) = number::split(text, b'=');
        let value = value.filter(|value| !value.is_empty());
        let Some(set) = Self::setter(name) else {
            return Err(Why::Unknown);
        };
        set(self, value.ok_or(Why::NoValue)?)?;
        match name {
            "src" | "dest" => {
                self.address_token = token;
                self.refuse_mixed()
            }
            "dgid" | "pkey" | "service_id" => self.refuse_mixed(),
            "tos" => {
                self.tos_token = token;
                Ok(())
            }
            "answers_from" => {
                let place = self.answers_tokens.iter_mut();
                if let Some(place) = place.take(self.answers_from.count()).next_back() {
                    *place = token;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn refuse_mixed(&self) -> Result<(), Why> {
        if self.is_ib() && self.is_rdma() {
            return Err(Why::Mixed);
        }
        Ok(())
    }

    fn is_ib(&self) -> bool {
        self.dgid.is_some() || self.pkey.is_some() || self.service_id.is_some()
    }

    fn is_rdma(&self) -> bool {
        self.src.is_some() || self.dest.is_some()
    }

    fn setter(name: &str) -> Option<Setter<'a>> {
        Some(match name {
            "id_ext" => |draft, value| set(&mut draft.id_ext, hex(value)?),
            "ioc_guid" => |draft, value| set(&mut draft.ioc_guid, hex(value)?),
            "dgid" => |draft, value| set(&mut draft.dgid, Gid(number::hex128(value)?)),
            "pkey" => |draft, value| set(&mut draft.pkey, pkey(value)?),
            "service_id" => |draft, value| set(&mut draft.service_id, hex(value)?),
            "src" => |draft, value| set(&mut draft.src, Address::parse(value)?),
            "dest" => |draft, value| set(&mut draft.dest, dest(value)?),
            "answers_from" => |draft, value| draft.answers_from.add(dest(value)?),
            "io_class" => |draft, value| {
                draft.io_class = io_class(value)?;
                Ok(())
            },
            "initiator_ext" => |draft, value| {
                draft.initiator_ext = hex(value)?;
                Ok(())
            },
            "max_sect" => |draft, value| {
                set(
                    &mut draft.max_sect,
                    limited(value, MAX_SECT_MIN, MAX_SECT_MAX)?,
                )
            },
            "queue_size" => {
                |draft, value| set(&mut draft.queue_size, limited(value, 1, QUEUE_SIZE_MAX)?)
            }
            "max_cmd_per_lun" => |draft, value| {
                set(
                    &mut draft.max_cmd_per_lun,
                    limited(value, 1, CMD_PER_LUN_MAX)?,
                )
            },
            "target_can_queue" => {
                |draft, value| set(&mut draft.target_can_queue, limited(value, 1, 65_535)?)
            }
            "cmd_sg_entries" => {
                |draft, value| set(&mut draft.cmd_sg_entries, unsigned(value, 1, 255)?)
            }
            "allow_ext_sg" => |draft, value| {
                set(
                    &mut draft.allow_ext_sg,
                    unsigned::<i32>(value, 0, i32::MAX)? != 0,
                )
            },
            "sg_tablesize" => |draft, value| {
                set(
                    &mut draft.sg_tablesize,
                    unsigned(value, 1, SG_TABLESIZE_MAX)?,
                )
            },
            "comp_vector" => {
                |draft, value| set(&mut draft.comp_vector, unsigned(value, 0, 65_535)?)
            }
            "tl_retry_count" => {
                |draft, value| set(&mut draft.tl_retry_count, unsigned(value, 2, 7)?)
            }
            "ack_timeout" => |draft, value| set(&mut draft.ack_timeout, unsigned(value, 1, 31)?),
            "tos" => |draft, value| set(&mut draft.tos, unsigned(value, 0, 255)?),
            "max_it_iu_size" => |draft, value| {
                draft.max_it_iu_size = match number::int(value)? {
                    0 => 0,
                    _ => limited(value, MIN_IT_IU_LEN as i32, i32::MAX)?,
                };
                Ok(())
            },
            "ch_count" => {
                |draft, value| set(&mut draft.ch_count, unsigned(value, 1, CH_COUNT_MAX)?)
            }
            _ => return None,
        })
    }

    fn finish(self, defaults: &Defaults) -> Result<Options<'a>, OptionError<'a>> {
        let target = self.target()?;
        let (Some(id_ext), Some(ioc_guid)) = (self.id_ext, self.ioc_guid) else {
            return Err(missing(self.missing_ids()));
        };
        Ok(Options {
            id_ext: Guid(id_ext),
            ioc_guid: Guid(ioc_guid),
            target,
            answers_from: self.answers_from,
            io_class: self.io_class,
            initiator_ext: Guid(self.initiator_ext),
            max_sect: self.max_sect,
            queue_size: self.queue_size.unwrap_or(QUEUE_SIZE_DEFAULT),
            cmd_per_lun: self.max_cmd_per_lun,
            target_can_queue: self.target_can_queue,
            cmd_sg_entries: self.cmd_sg_entries.unwrap_or(defaults.cmd_sg_entries),
            allow_ext_sg: self.allow_ext_sg.unwrap_or(defaults.allow_ext_sg),
            sg_tablesize: self.sg_tablesize.unwrap_or(defaults.sg_tablesize),
            comp_vector: self.comp_vector,
            tl_retry_count: self.tl_retry_count.unwrap_or(7),
            ack_timeout: self.ack_timeout,
            tos: self.tos,
            max_it_iu_size: self.max_it_iu_size,
            ch_count: self
                .ch_count
                .or(Some(defaults.ch_count))
                .filter(|&count| count != 0),
        })
    }

    fn missing_ids(&self) -> Missing {
        Missing::default()
            .with(Missing::ID_EXT, self.id_ext.is_none())
            .with(Missing::IOC_GUID, self.ioc_guid.is_none())
    }

    fn target(&self) -> Result<Target<'a>, OptionError<'a>> {
        if let Some(dest) = self.dest {
            if self
                .src
                .is_some_and(|src| src.ip.is_ipv4() != dest.ip.is_ipv4())
            {
                return Err(OptionError {
                    token: Token(self.address_token),
                    why: Why::Families,
                });
            }
            for (address, token) in self.answers_from.iter().zip(self.answers_tokens) {
                let why = if *address == dest {
                    Why::IsDest
                } else if address.ip.is_ipv4() != dest.ip.is_ipv4() {
                    Why::AnswersFamily
                } else {
                    continue;
                };
                return Err(OptionError {
                    token: Token(token),
                    why,
                });
            }
            return Ok(Target::Rdma {
                src: self.src,
                dest,
            });
        }
        if let (Some(dgid), Some(pkey), Some(service_id)) = (self.dgid, self.pkey, self.service_id)
        {
            for (given, token) in [
                (self.tos.is_some(), self.tos_token),
                (self.answers_from.count() > 0, self.answers_tokens[0]),
            ] {
                if given {
                    return Err(OptionError {
                        token: Token(token),
                        why: Why::RdmaOnly,
                    });
                }
            }
            return Ok(Target::Ib {
                dgid,
                pkey,
                service_id,
            });
        }
        let ids = self.missing_ids();
        Err(missing(if self.is_ib() {
            ids.with(Missing::DGID, self.dgid.is_none())
                .with(Missing::PKEY, self.pkey.is_none())
                .with(Missing::SERVICE_ID, self.service_id.is_none())
        } else {
            ids.with(Missing::DEST, true)
        }))
    }
}

fn missing<'a>(options: Missing) -> OptionError<'a> {
    OptionError {
        token: Token(&[]),
        why: Why::Missing(options),
    }
}

fn set<T>(field: &mut Option<T>, value: T) -> Result<(), Why> {
    *field = Some(value);
    Ok(())
}

fn limited<T: TryFrom<i32>>(value: &str, min: i32, max: i32) -> Result<T, Why> {
    let number = number::int(value)?;
    if !(min..=max).contains(&number) {
        return Err(Why::Limits(min, max));
    }
    T::try_from(number).map_err(|_| Why::Limits(min, max))
}

/// Like [`limited`], but refuses a minus sign, even in `-0`.
fn unsigned<T: TryFrom<i32>>(value: &str, min: i32, max: i32) -> Result<T, Why> {
    if value.starts_with('-') {
        return Err(Why::Limits(min, max));
    }
    limited(value, min, max)
}

/// Parses a hexadecimal `int` without a sign.
fn hex_int(value: &str) -> Result<i32, Why> {
    if value.starts_with('+') {
        return Err(Why::NotHex);
    }
    i32::try_from(hex(value)?).map_err(|_| Why::TooLarge)
}

fn pkey(value: &str) -> Result<u16, Why> {
    u16::try_from(hex_int(value)?).map_err(|_| Why::Limits(0, 0xffff))
}

fn io_class(value: &str) -> Result<IoClass, Why> {
    u16::try_from(hex_int(value)?)
        .ok()
        .and_then(IoClass::new)
        .ok_or(Why::IoClass)
}

fn dest(value: &str) -> Result<Address<'_>, Why> {
    let address = Address::parse(value)?;
    match address.port {
        None => return Err(Why::PortMissing),
        Some(0) => return Err(Why::PortRange),
        Some(_) => {}
    }
    if address.ip.is_unspecified() || address.ip.is_multicast() {
        return Err(Why::NotUnicast);
    }
    Ok(address)
}
