// SPDX-License-Identifier: GPL-2.0

//! Errors in a login string, as text for the kernel log.

use super::texts::texts;
use core::fmt;

/// Maximum number of bytes of a token in a log message.
const SHOWN: usize = 64;

texts! {
    /// The reason why the driver refuses a login string.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Why {
        /// The string is longer than [`MAX_LEN`](super::options::MAX_LEN).
        TooLong => "the login string is too long";

        /// A NUL byte, or bytes that are not UTF-8.
        NotText => "contains a NUL byte or invalid UTF-8";

        /// No such option.
        Unknown => "no such option";

        /// The option needs a value.
        NoValue => "a value is missing";

        /// Not a decimal, octal or hexadecimal number.
        NotNumber => "not a number";

        /// Not a hexadecimal number.
        NotHex => "not a hexadecimal number";

        /// A number that does not fit into its type.
        TooLarge => "the number is too large";

        /// Not 32 hexadecimal digits.
        Gid => "a GID has exactly 32 hexadecimal digits and no colons";

        /// A number outside the given limits.
        Limits(min: i32, max: i32) => "must be {min} to {max}";

        /// Not 0100 or ff00.
        IoClass => "must be 0100 or ff00";

        /// Neither IPv4 nor IPv6 in brackets.
        NotAddress => "not an IPv4 address or an IPv6 address in brackets";

        /// The scope is empty or longer than an interface name can be.
        Scope => "invalid network interface name after '%'";

        /// The text after the colon is not a number.
        NotPort => "the port is not a number";

        /// The port is above 65535, or 0 where a peer must be reached.
        PortRange => "the port must be 1 to 65535, or 0 in src";

        /// `dest` and `answers_from` need a port.
        PortMissing => "a port is missing";

        /// `dest` and `answers_from` must be the address of one host.
        NotUnicast => "not a unicast address";

        /// `src` and `dest` are not both IPv4 or both IPv6.
        Families => "src and dest must both be IPv4 or both be IPv6";

        /// `dgid`, `pkey`, `service_id` and `src`, `dest` exclude each other.
        Mixed => "dgid, pkey, service_id cannot be used together with src, dest";

        /// The option is only for a login with `dest`, not with `dgid`.
        RdmaOnly => "only for a login with dest";

        /// The same address is given twice in `answers_from`.
        Twice => "address given twice";

        /// `answers_from` occurs more often than this limit.
        TooMany(most: usize) => "given more than {most} times";

        /// `answers_from` equals `dest`, which must grant credits.
        IsDest => "same address as dest";

        /// `answers_from` and `dest` are not both IPv4 or both IPv6.
        AnswersFamily => "answers_from and dest must both be IPv4 or both be IPv6";

        /// Names of the required options that are absent.
        Missing(_names: [Option<&'static str>; 6]) => "missing in the login string: ";
    }
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
    /// The reason for the refusal.
    pub why: Why,
}

impl OptionError<'_> {
    /// Whether the errno for user space is `ERANGE`, because a number does not fit into its type.
    /// Otherwise it is `EINVAL`.
    pub const fn is_range(&self) -> bool {
        matches!(self.why, Why::TooLarge)
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
        write!(f, "{}", self.why)?;
        if let Why::Missing(names) = self.why {
            let mut before = "";
            for name in names.iter().flatten() {
                write!(f, "{before}{name}")?;
                before = ", ";
            }
        }
        Ok(())
    }
}
