// SPDX-License-Identifier: GPL-2.0

//! Internet addresses in login strings: `1.2.3.4:5555`, `[fe80::1%eth0]:5555`.

use core::{
    fmt,
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    },
    str::FromStr, //
};

use super::{
    number::{
        base0,
        split, //
    },
    option_error::Why, //
};

/// Maximum length of a scope, in bytes: an interface name (`IFNAMSIZ` - 1).
const MAX_SCOPE_LEN: usize = 15;

/// Address of one end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Address<'a> {
    /// IP address of the host.
    pub ip: IpAddr,
    /// Port number in host order; `None` if the string has none.
    pub port: Option<u16>,
    /// Name or number of the interface that an IPv6 address belongs to.
    pub scope: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// Parses `IPv4[:port]` or `[IPv6[%scope]][:port]`. The port may be decimal, octal or
    /// hexadecimal.
    ///
    /// Errors: [`Why::NotAddress`], [`Why::Scope`], [`Why::NotPort`], and [`Why::PortRange`] for a
    /// port above 65535.
    pub fn parse(text: &'a str) -> Result<Self, Why> {
        match text.strip_prefix('[') {
            Some(rest) => Self::parse_v6(rest),
            None => Self::parse_v4(text),
        }
    }

    fn parse_v4(text: &'a str) -> Result<Self, Why> {
        let (host, port) = split(text, b':');
        Ok(Self {
            ip: IpAddr::V4(Ipv4Addr::from_str(host).map_err(|_| Why::NotAddress)?),
            port: port.map(parse_port).transpose()?,
            scope: None,
        })
    }

    fn parse_v6(text: &'a str) -> Result<Self, Why> {
        let (inside, Some(after)) = split(text, b']') else {
            return Err(Why::NotAddress);
        };
        let (host, scope) = split(inside, b'%');
        if scope.is_some_and(|scope| scope.is_empty() || scope.len() > MAX_SCOPE_LEN) {
            return Err(Why::Scope);
        }
        let port = match after.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if after.is_empty() => None,
            None => return Err(Why::NotAddress),
        };
        Ok(Self {
            ip: IpAddr::V6(Ipv6Addr::from_str(host).map_err(|_| Why::NotAddress)?),
            port,
            scope,
        })
    }
}

fn parse_port(text: &str) -> Result<u16, Why> {
    match base0(text) {
        Ok(port) => u16::try_from(port).map_err(|_| Why::PortRange),
        Err(Why::TooLarge) => Err(Why::PortRange),
        Err(_) => Err(Why::NotPort),
    }
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, self.scope) {
            (IpAddr::V4(ip), _) => write!(f, "{ip}")?,
            (IpAddr::V6(ip), None) => write!(f, "[{ip}]")?,
            (IpAddr::V6(ip), Some(scope)) => write!(f, "[{ip}%{scope}]")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
