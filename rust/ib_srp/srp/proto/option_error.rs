// SPDX-License-Identifier: GPL-2.0

//! What is wrong with a login string, in words for the kernel log.

use core::fmt;

/// Maximum number of bytes of a token in a log message.
const SHOWN: usize = 64;

/// The errno of a refused login string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Errno {
    /// `EINVAL`.
    Invalid,
    /// `ERANGE`: a number that does not fit into its type.
    Range,
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
    /// Names of the required options that are absent.
    Missing([Option<&'static str>; 6]),
}

impl Why {
    /// The error that names `token`.
    pub const fn at(self, token: &[u8]) -> OptionError<'_> {
        OptionError { token, why: self }
    }
}

/// A refused login string.
///
/// Its `Display` is one line that names the token. It is bounded and has no control characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionError<'a> {
    /// The refused `name=value`; the whole string if it is too long; empty if an option is missing.
    pub token: &'a [u8],
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
        if !self.token.is_empty() {
            let shown = self.token.get(..SHOWN).unwrap_or(self.token);
            write!(f, "'{}", shown.escape_ascii())?;
            if shown.len() < self.token.len() {
                f.write_str("...")?;
            }
            f.write_str("': ")?;
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
            Why::Missing(names) => {
                let mut before = "missing in the login string: ";
                for name in names.iter().flatten() {
                    write!(f, "{before}{name}")?;
                    before = ", ";
                }
                return Ok(());
            }
        })
    }
}
