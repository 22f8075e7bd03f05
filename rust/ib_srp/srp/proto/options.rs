// SPDX-License-Identifier: GPL-2.0

//! The string that is written to `add_target`.
//!
//! `name=value` pairs, separated by commas or line feeds. Empty ones are skipped. If a name is
//! repeated, the last value counts, except that each `answers_from` adds an address. A login needs
//! `id_ext`, `ioc_guid` and either `dgid`, `pkey`, `service_id` (InfiniBand) or `dest` (RDMA/CM).
//! The whole string is read and checked before it is used.

use core::ops::RangeInclusive;

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
        OptionError,
        Why, //
    },
};

/// Maximum length of a login string, in bytes: one page, the limit of sysfs.
pub const MAX_LEN: usize = 4096;

/// Maximum number of scatter-gather entries per command (`SG_MAX_SEGMENTS`).
pub const SG_TABLESIZE_MAX: i32 = 2048;
/// Minimum of `max_it_iu_len` and `req_it_iu_len` in SRP, in bytes, and of `max_it_iu_size`.
pub const MIN_IT_IU_LEN: u32 = 64;
/// Maximum number of answer channels.
pub const MAX_ANSWERS: usize = 8;

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

/// The address of the target.
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

/// Defines [`Options`], and [`Draft`], which a login string fills.
///
/// A row has the name in the login string, the field with its type, and the expression that parses
/// a value. The `target` rows identify and locate the target; [`Draft::finish`] checks them
/// together. A `settings` row also has a default, and the same field in [`Options`].
macro_rules! options {
    (
        |$value:ident, $defaults:ident|
        target {
            $($part_name:literal => $part:ident: $part_type:ty, $part_parse:expr;)*
        }
        settings {
            $(
                $(#[$doc:meta])*
                $name:literal => $field:ident: $type:ty = $default:expr, $parse:expr;
            )*
        }
    ) => {
        /// A login string that has been checked.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct Options<'a> {
            /// Extension of the target's port identifier.
            pub id_ext: Guid,
            /// GUID of the target's I/O controller.
            pub ioc_guid: Guid,
            /// The address of the target.
            pub target: Target<'a>,
            /// Addresses of the peers that respond in place of the target, all different, in the
            /// order of the login string. Each has a port; only with [`Target::Rdma`].
            pub answers_from: [Option<Address<'a>>; MAX_ANSWERS],
            $($(#[$doc])* pub $field: $type,)*
        }

        /// Options during parsing.
        struct Draft<'a> {
            answers_from: [Option<Address<'a>>; MAX_ANSWERS],
            $($part: Option<$part_type>,)*
            $($field: $type,)*
        }

        impl<'a> Draft<'a> {
            fn new($defaults: &Defaults) -> Self {
                Self {
                    answers_from: [None; MAX_ANSWERS],
                    $($part: None,)*
                    $($field: $default,)*
                }
            }

            /// Sets one option; `value` is an error if the option has none.
            fn set(&mut self, name: &str, value: Result<&'a str, Why>) -> Result<(), Why> {
                match name {
                    "answers_from" => self.add_answers_from(peer(value?)?)?,
                    $($part_name => {
                        let $value = value?;
                        self.$part = Some($part_parse);
                    })*
                    $($name => {
                        let $value = value?;
                        self.$field = $parse;
                    })*
                    _ => return Err(Why::Unknown),
                }
                Ok(())
            }

            fn options(self, id_ext: Guid, ioc_guid: Guid, target: Target<'a>) -> Options<'a> {
                Options {
                    id_ext,
                    ioc_guid,
                    target,
                    answers_from: self.answers_from,
                    $($field: self.$field,)*
                }
            }
        }
    };
}

options! {
    |value, defaults|

    target {
        "id_ext" => id_ext: Guid, Guid(hex(value)?);
        "ioc_guid" => ioc_guid: Guid, Guid(hex(value)?);
        "dgid" => dgid: Gid, Gid(number::hex128(value)?);
        "pkey" => pkey: u16, pkey(value)?;
        "service_id" => service_id: u64, hex(value)?;
        "src" => src: Address<'a>, Address::parse(value)?;
        "dest" => dest: Address<'a>, peer(value)?;
    }

    settings {
        /// Protocol revision of the target.
        "io_class" => io_class: IoClass = IoClass::Rev16a, io_class(value)?;

        /// Extension of the initiator's port identifier.
        "initiator_ext" => initiator_ext: Guid = Guid(0), Guid(hex(value)?);

        /// Maximum number of 512-byte sectors per command, from one page (the block layer refuses
        /// less) to 64 MiB; `None` for the default of the driver.
        "max_sect" => max_sect: Option<u32> = None, Some(limited(value, 8..=1 << 17)?);

        /// Maximum number of commands per channel.
        "queue_size" => queue_size: u32 = 62, limited(value, 1..=4096)?;

        /// Maximum number of commands per logical unit, a `short` in `struct Scsi_Host`; `None` for
        /// as many as all channels take.
        "max_cmd_per_lun" => cmd_per_lun: Option<u32> = None, Some(limited(value, 1..=32_767)?);

        /// Maximum number of commands per target, if limited.
        "target_can_queue" => target_can_queue: Option<u32> = None,
            Some(limited(value, 1..=65_535)?);

        /// Maximum number of descriptors in a message.
        "cmd_sg_entries" => cmd_sg_entries: u8 = defaults.cmd_sg_entries,
            unsigned(value, 1..=255)?;

        /// Whether a message may hold only the first part of a descriptor table.
        "allow_ext_sg" => allow_ext_sg: bool = defaults.allow_ext_sg,
            unsigned::<i32>(value, 0..=i32::MAX)? != 0;

        /// Maximum number of scatter-gather entries per command.
        "sg_tablesize" => sg_tablesize: u32 = defaults.sg_tablesize,
            unsigned(value, 1..=SG_TABLESIZE_MAX)?;

        /// Completion vector of the first channel, if given.
        "comp_vector" => comp_vector: Option<u32> = None, Some(unsigned(value, 0..=65_535)?);

        /// Retry count of the transport, 2 to 7.
        "tl_retry_count" => tl_retry_count: u8 = 7, unsigned(value, 2..=7)?;

        /// ACK timeout of the transport, as n in 4.096 us * 2^n, 1 to 31; `None` for the default
        /// of the connection manager.
        "ack_timeout" => ack_timeout: Option<u8> = None, Some(unsigned(value, 1..=31)?);

        /// Type of service of an RDMA/CM connection; `None` for the default of `rdma_cm`.
        "tos" => tos: Option<u8> = None, Some(unsigned(value, 0..=255)?);

        /// Maximum length of a message to the target, in bytes; 0 for no cap, otherwise at least
        /// [`MIN_IT_IU_LEN`].
        "max_it_iu_size" => max_it_iu_size: u32 = 0, iu_size(value)?;

        /// Number of channels; `None` for automatic. The number of CPUs limits it further.
        "ch_count" => ch_count: Option<u32> = Some(defaults.ch_count).filter(|&count| count != 0),
            Some(unsigned(value, 1..=1024)?);
    }
}

impl<'a> Options<'a> {
    /// Reads and checks a login string.
    pub fn parse(text: &'a [u8], defaults: &Defaults) -> Result<Self, OptionError<'a>> {
        if text.len() > MAX_LEN {
            return Err(Why::TooLong.at(text));
        }
        let mut draft = Draft::new(defaults);
        for token in tokens(text) {
            draft.take(token).map_err(|why| why.at(token))?;
        }
        draft.finish(text)
    }

    /// Key of a login: a second login with the same key on a port is refused with `EEXIST`.
    pub const fn key(&self) -> (Guid, Guid, Guid) {
        (self.id_ext, self.ioc_guid, self.initiator_ext)
    }
}

impl<'a> Draft<'a> {
    fn take(&mut self, token: &'a [u8]) -> Result<(), Why> {
        let text = core::str::from_utf8(token).map_err(|_| Why::NotText)?;
        if token.contains(&0) {
            return Err(Why::NotText);
        }
        let (name, value) = number::split(text, b'=');
        let value = value.filter(|value| !value.is_empty());
        self.set(name, value.ok_or(Why::NoValue))?;
        if self.is_ib() && (self.src.is_some() || self.dest.is_some()) {
            return Err(Why::Mixed);
        }
        Ok(())
    }

    fn add_answers_from(&mut self, address: Address<'a>) -> Result<(), Why> {
        if self.answers_from.contains(&Some(address)) {
            return Err(Why::Twice);
        }
        let place = self.answers_from.iter_mut().find(|place| place.is_none());
        *place.ok_or(Why::TooMany(MAX_ANSWERS))? = Some(address);
        Ok(())
    }

    fn is_ib(&self) -> bool {
        self.dgid.is_some() || self.pkey.is_some() || self.service_id.is_some()
    }

    /// Checks the dependencies between options. `text` is the login string, for errors.
    fn finish(self, text: &'a [u8]) -> Result<Options<'a>, OptionError<'a>> {
        let target = match (self.dest, self.dgid, self.pkey, self.service_id) {
            (Some(dest), ..) => {
                self.check_families(dest, text)?;
                let src = self.src;
                Some(Target::Rdma { src, dest })
            }
            (None, Some(dgid), Some(pkey), Some(service_id)) => {
                let tos = named(text, &["tos"]).last();
                if let Some(token) = tos.or_else(|| named(text, &["answers_from"]).next()) {
                    return Err(Why::RdmaOnly.at(token));
                }
                Some(Target::Ib {
                    dgid,
                    pkey,
                    service_id,
                })
            }
            _ => None,
        };
        match (self.id_ext, self.ioc_guid, target) {
            (Some(id_ext), Some(ioc_guid), Some(target)) => {
                Ok(self.options(id_ext, ioc_guid, target))
            }
            _ => Err(self.missing().at(&[])),
        }
    }

    fn check_families(&self, dest: Address<'a>, text: &'a [u8]) -> Result<(), OptionError<'a>> {
        let other_family = |address: &Address<'_>| address.ip.is_ipv4() != dest.ip.is_ipv4();
        if self.src.as_ref().is_some_and(other_family) {
            let token = named(text, &["src", "dest"]).last();
            return Err(Why::Families.at(token.unwrap_or(&[])));
        }
        let given = self.answers_from.iter().flatten();
        for (address, token) in given.zip(named(text, &["answers_from"])) {
            if *address == dest {
                return Err(Why::IsDest.at(token));
            }
            if other_family(address) {
                return Err(Why::AnswersFamily.at(token));
            }
        }
        Ok(())
    }

    fn missing(&self) -> Why {
        let ib = self.is_ib();
        let required = [
            ("id_ext", self.id_ext.is_none()),
            ("ioc_guid", self.ioc_guid.is_none()),
            ("dgid", ib && self.dgid.is_none()),
            ("pkey", ib && self.pkey.is_none()),
            ("service_id", ib && self.service_id.is_none()),
            ("dest", !ib && self.dest.is_none()),
        ];
        Why::Missing(required.map(|(name, missing)| missing.then_some(name)))
    }
}

fn tokens(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = text.split(|&byte| byte == b',' || byte == b'\n');
    all.filter(|token| !token.is_empty())
}

/// The tokens that have a value and one of `names`, in the order of the login string.
fn named<'a>(text: &'a [u8], names: &'static [&str]) -> impl Iterator<Item = &'a [u8]> {
    tokens(text).filter(|token| {
        names.iter().any(|name| {
            let rest = token.strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"="))
        })
    })
}

/// Parses a number within `limits`.
fn limited<T: TryFrom<i32>>(value: &str, limits: RangeInclusive<i32>) -> Result<T, Why> {
    let number = number::int(value)?;
    T::try_from(number)
        .ok()
        .filter(|_| limits.contains(&number))
        .ok_or(Why::Limits(*limits.start(), *limits.end()))
}

/// Like [`limited`], with [`Why::Limits`] for any minus sign, even in `-0`.
fn unsigned<T: TryFrom<i32>>(value: &str, limits: RangeInclusive<i32>) -> Result<T, Why> {
    if value.starts_with('-') {
        return Err(Why::Limits(*limits.start(), *limits.end()));
    }
    limited(value, limits)
}

fn iu_size(value: &str) -> Result<u32, Why> {
    match number::int(value)? {
        0 => Ok(0),
        _ => limited(value, MIN_IT_IU_LEN as i32..=i32::MAX),
    }
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
    let number = u16::try_from(hex_int(value)?).ok();
    number.and_then(IoClass::new).ok_or(Why::IoClass)
}

/// Parses the address of a peer, which has a port.
fn peer(value: &str) -> Result<Address<'_>, Why> {
    let address = Address::parse(value)?;
    match address.port {
        None => Err(Why::PortMissing),
        Some(0) => Err(Why::PortRange),
        _ if address.ip.is_unspecified() || address.ip.is_multicast() => Err(Why::NotUnicast),
        _ => Ok(address),
    }
}
