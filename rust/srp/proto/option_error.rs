// SPDX-License-Identifier: GPL-2.0

//! What is wrong with a login string, in words for the kernel log.

use core::fmt;

/// Maximum number of bytes of a token in a log message.
const SHOWN: usize = 64;

/// A piece of user input. Its `Display` is bounded and has no control characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Token<'a>(pub &'a [u8]);

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

/// The errno of a refused login string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Errno {
    /// `EINVAL`.
    Invalid,
    /// `ERANGE`: a number that does not fit into its type.
    Range,
}

/// Set of required options that are absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Missing(u8);

impl Missing {
    const NAMES: [&'static str; 6] = ["id_ext", "ioc_guid", "dgid", "pkey", "service_id", "dest"];

    /// `id_ext=`.
    pub const ID_EXT: Self = Self(1 << 0);
    /// `ioc_guid=`.
    pub const IOC_GUID: Self = Self(1 << 1);
    /// `dgid=`.
    pub const DGID: Self = Self(1 << 2);
    /// `pkey=`.
    pub const PKEY: Self = Self(1 << 3);
    /// `service_id=`.
    pub const SERVICE_ID: Self = Self(1 << 4);
    /// `dest=`.
    pub const DEST: Self = Self(1 << 5);

    /// Returns this set, with `option` added if `absent`.
    pub const fn with(self, option: Self, absent: bool) -> Self {
        Self(if absent { self.0 | option.0 } else { self.0 })
    }

    /// True if nothing is missing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in Self::NAMES.iter().enumerate() {
            if (self.0 >> bit) & 1 != 0 {
                write!(f, "{separator}{name}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// Why the driver refuses a login string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// The string is longer than [`MAX_LEN`](super::options::MAX_LEN).
    TooLong,
    /// A NUL byte, or bytes that are not UTF-8.
    NotText,
    /// No such option.
    Unknown,
    /// The option needs a value.
    NoValue,
    /// Not a decimal, octal or hexadecimal number.
    NotNumber,
    /// Not a hexadecimal number.
    NotHex,
    /// A number that does not fit into its type.
    TooLarge,
    /// Not 32 hexadecimal digits.
    Gid,
    /// A number outside the given limits.
    Limits(i32, i32),
    /// Not 0100 or ff00.
    IoClass,
    /// Neither IPv4 nor IPv6 in brackets.
    NotAddress,
    /// The scope is empty or longer than an interface name can be.
    Scope,
    /// The text after the colon is not a number.
    NotPort,
    /// The port is above 65535, or 0 where a peer must be reached.
    PortRange,
    /// `dest` and `answers_from` need a port.
    PortMissing,
    /// `dest` and `answers_from` must be the address of one host.
    NotUnicast,
    /// `src` and `dest` are not both IPv4 or both IPv6.
    Families,
    /// `dgid`, `pkey`, `service_id` and `src`, `dest` exclude each other.
    Mixed,
    /// The option is only for a login with `dest`, not with `dgid`.
    RdmaOnly,
    /// The same address is given twice in `answers_from`.
    Twice,
    /// `answers_from` occurs more often than this limit.
    TooMany(usize),
    /// `answers_from` equals `dest`, which must grant credits.
    IsDest,
    /// `answers_from` and `dest` are not both IPv4 or both IPv6.
    AnswersFamily,
    /// Required options that are absent.
    Missing(Missing),
}

/// A refused login string.
///
/// Its `Display` is one line that names the token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionError<'a> {
    /// The refused `name=value`; the whole string if it is too long; empty if an option is missing.
    pub token: Token<'a>,
    /// Why it is refused.
    pub why: Why,
}

impl OptionError<'_> {
    /// The errno for user space.
    pub const fn errno(&self) -> Errno {
        match self.why {
            Why::TooLarge => Errno::Range,
            _ => Errno::Invalid,
        }
    }
}

impl fmt::Display for OptionError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.token.0.is_empty() {
            write!(f, "'{}': ", self.token)?;
        }
        f.write_str(match self.why {
            Why::TooLong => "the login string is too long",
            Why::NotText => "a NUL byte or invalid UTF-8",
            Why::Unknown => "no such option",
            Why::NoValue => "a value is missing",
            Why::NotNumber => "not a number",
            Why::NotHex => "not a hexadecimal number",
            Why::TooLarge => "the number is too large",
            Why::Gid => "a GID has exactly 32 hexadecimal digits and no colons",
            Why::Limits(min, max) => return write!(f, "must be {min} to {max}"),
            Why::IoClass => "must be 0100 or ff00",
            Why::NotAddress => "not an IPv4 address or an IPv6 address in brackets",
            Why::Scope => "invalid network interface name after '%'",
            Why::NotPort => "the port is not a number",
            Why::PortRange => "the port must be 1 to 65535, or 0 in src",
            Why::PortMissing => "a port is missing",
            Why::NotUnicast => "not a unicast address",
            Why::Families => "src and dest must both be IPv4 or both be IPv6",
            Why::Mixed => "dgid, pkey, service_id cannot be used together with src, dest",
            Why::RdmaOnly => "only for a login with dest",
            Why::Twice => "address given twice",
            Why::TooMany(most) => return write!(f, "more than {most} of these"),
            Why::IsDest => "same address as dest",
            Why::AnswersFamily => "answers_from and dest must both be IPv4 or both be IPv6",
            Why::Missing(options) => return write!(f, "missing in the login string: {options}"),
        })
    }
}
