// SPDX-License-Identifier: GPL-2.0

//! A host name as the address of a target: each login looks it up.

use crate::{
    cli::OPTIONS,
    error::{Error, Result},
    patience,
    target::{End, Target},
};
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// Addresses that stand for a host name in checks, by the family of `src`.
const UNKNOWN: (&str, &str) = ("192.0.2.255", "[2001:db8::ffff]");

/// Returns the addresses of a host name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Asks the resolver of this machine.
pub fn system(name: &str) -> io::Result<Vec<SocketAddr>> {
    let ask = || (name, 0).to_socket_addrs();
    Ok(patience::waiting(&format!("the address of {name}"), ask)?.collect())
}

/// Splits `NAME:PORT` before the colon; `None` if the text does not begin with a host name.
pub fn split(dest: &str) -> Option<(&str, &str)> {
    let (name, port) = dest.split_at(dest.find(':').unwrap_or(dest.len()));
    is_name(name).then_some((name, port))
}

/// Returns whether the text is a host name, and no IPv4 address with a mistake.
fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let mut labels = text.strip_suffix('.').unwrap_or(text).split('.');
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && !label.starts_with('-') && label.chars().all(good)
    };
    let last = labels.clone().next_back().unwrap_or_default();
    text.len() <= 253 && labels.all(is_label) && !last.starts_with(|c: char| c.is_ascii_digit())
}

/// Formats the IP address for a login string.
pub fn text(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            format!("[{}%{}]", address.ip(), address.scope_id())
        }
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

impl Target {
    /// Returns the host name in `dest`, and the rest of `dest`; `None` for an address.
    pub fn host(&self) -> Option<(&str, &str)> {
        split(self.option("dest")?)
    }

    /// Returns the target once for each address of its host name, or itself.
    pub fn resolved(&self, lookup: Lookup<'_>) -> Result<Vec<Self>> {
        let Some((host, port)) = self.host() else {
            return Ok(vec![self.clone()]);
        };
        let mut found: Vec<SocketAddr> = lookup(host)
            .map_err(|e| Error::NoPort(format!("the host name {host} in dest: {e}")))?;
        let src = self.ends()?.and_then(|(src, _)| src);
        found.retain(|address| {
            src.as_ref()
                .is_none_or(|src| src.ip.is_ipv4() == address.is_ipv4())
        });
        let mut all: Vec<Self> = Vec::new();
        for address in found {
            let mut target = self.clone();
            target.set("dest", format!("{}{port}", text(&address)));
            if !all.contains(&target) {
                all.push(target);
            }
        }
        if all.is_empty() {
            let family = if src.is_some() {
                " of the family of src"
            } else {
                ""
            };
            return Err(Error::NoPort(format!(
                "the host name {host} in dest has no address{family}"
            )));
        }
        Ok(all)
    }

    /// Returns the login options that differ from those of `other`, as `NAME VALUE (file: VALUE)`.
    pub fn options_besides(&self, other: &Self, whose: &str) -> String {
        let values = |target: &Self, name: &str| -> Vec<String> {
            let all = target.options.iter().filter(|(known, _)| *known == name);
            all.map(|(_, value)| value.clone()).collect()
        };
        let text = |values: &[String]| match values {
            [] => "none".to_string(),
            values => values.join(" and "),
        };
        let differing = OPTIONS.iter().filter_map(|(name, ..)| {
            let (own, others) = (values(self, name), values(other, name));
            // One value may be written in several ways, and a default may be left out.
            let mut mixed = other.clone();
            mixed.options.retain(|(known, _)| known != name);
            for value in &own {
                mixed.set(name, value.clone());
            }
            (!mixed.is_login_of(other))
                .then(|| format!("{name} {} ({whose}: {})", text(&own), text(&others)))
        });
        differing.collect::<Vec<_>>().join(", ")
    }

    /// Returns the login string with an address in place of a host name.
    pub fn checked_string(&self) -> String {
        let mut target = self.clone();
        if let Some((_, port)) = self.host() {
            target.set("dest", format!("{}{port}", self.unknown()));
        }
        target.login_string()
    }

    /// Returns the address that stands for the host name.
    pub fn unknown(&self) -> &'static str {
        match self.option("src").and_then(End::parse) {
            Some(End { ip, .. }) if ip.is_ipv6() => UNKNOWN.1,
            _ => UNKNOWN.0,
        }
    }
}

/// Calls `attempt` for each of `resolved`, which have the addresses of `host`, until it succeeds.
/// Another address does not help against an error of this machine, so that is returned at once.
///
/// # Errors
///
/// One error that names the host and has the reason of each address.
pub fn first<T>(
    host: Option<&str>,
    resolved: &[Target],
    mut attempt: impl FnMut(&Target) -> Result<T>,
) -> Result<T> {
    let mut failed: Vec<(&str, Error)> = Vec::new();
    for target in resolved {
        match (attempt(target), host) {
            (Err(error), Some(_)) if error.may_pass() || matches!(error, Error::Usage(_)) => {
                failed.push((target.option("dest").unwrap_or_default(), error));
            }
            (result, _) => return result,
        }
    }
    let why = |(address, error): &(&str, Error)| match error {
        Error::Login(why) => format!("{address}: {why}"),
        error => format!("{address}: {error}"),
    };
    let why: Vec<String> = failed.iter().map(why).collect();
    let why = format!("{}: {}", host.unwrap_or_default(), why.join("; "));
    let kinds = || failed.iter().map(|(_, error)| error);
    // Retries would hide a permanent error.
    if kinds().any(|error| !error.may_pass()) {
        return Err(Error::Usage(why));
    }
    match kinds().any(|error| matches!(error, Error::Login(_))) {
        true => Err(Error::Login(why)),
        false => Err(Error::NoPort(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_from_an_address() {
        for (dest, name) in [
            ("storage.example.com:5555", Some("storage.example.com")),
            ("storage:5555", Some("storage")),
            ("storage", Some("storage")),
            ("10gb.storage-1.example:1", Some("10gb.storage-1.example")),
            ("storage.example.com.:5555", Some("storage.example.com.")),
            ("192.0.2.1:5555", None),
            ("192.0.2.256:5555", None),
            ("192.0.2:5555", None),
            ("[2001:db8::1]:5555", None),
            ("2001:db8::1", None),
            ("a..b:5555", None),
            ("-a:5555", None),
            ("a b:5555", None),
            (":5555", None),
        ] {
            assert_eq!(split(dest).map(|(name, _)| name), name, "{dest}");
        }
        assert_eq!(split("storage:5555"), Some(("storage", ":5555")));
    }

    /// The target at an address.
    fn at(dest: &str) -> Target {
        let mut target = Target::default();
        target.set("dest", dest.into());
        target
    }

    #[test]
    fn each_address_is_tried() {
        let resolved = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(at);
        let all = |fail: &dyn Fn(usize) -> Option<Error>| {
            let mut tried = Vec::new();
            let result = first(Some("storage"), &resolved, |target| {
                let i = resolved.iter().position(|one| one == target).unwrap();
                tried.push(i);
                fail(i).map_or(Ok(i), Err)
            });
            (result, tried)
        };
        let login = |why: &str| Some(Error::Login(why.into()));
        let (result, tried) = all(&|i| if i < 1 { login("rejected") } else { None });
        assert_eq!((result.unwrap(), tried), (1, vec![0, 1]));
        let (result, tried) = all(&|i| match i {
            1 => Some(Error::NoPort("no route".into())),
            _ => login("rejected"),
        });
        let error = result.unwrap_err();
        assert_eq!(
            error.to_string(),
            "login failed: storage: 192.0.2.1:1: rejected; 192.0.2.2:1: no route; \
             192.0.2.3:1: rejected"
        );
        assert!(error.may_pass() && tried.len() == 3);
        // The session may lead to another of the addresses; if to none, no retry helps.
        let other = |i| (i == 0).then(|| Error::Usage("leads elsewhere".into()));
        assert_eq!(all(&other).0.unwrap(), 1);
        let (result, _) = all(&|i| other(i).or(login("away")));
        assert_eq!(result.unwrap_err().status(), 2);
        let (result, tried) = all(&|_| Some(Error::NotRoot("x".into())));
        assert_eq!((result.unwrap_err().status(), tried.len()), (4, 1));
    }

    #[test]
    fn an_address_has_the_error_of_its_login() {
        let failed: Result = first(None, &[at("192.0.2.1:1")], |_| {
            Err(Error::Login("rejected".into()))
        });
        assert_eq!(failed.unwrap_err().to_string(), "login failed: rejected");
    }

    #[test]
    fn a_host_name_is_looked_up_at_each_login() {
        let file = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"storage.example.com:5555\"\n";
        let mut target = Target::parse("x", file).unwrap();
        assert_eq!(Target::parse("x", &target.to_file()).unwrap(), target);
        assert_eq!(target.key().unwrap().1, "0x0000000000000002");
        let found = |name: &str| -> io::Result<Vec<SocketAddr>> {
            assert_eq!(name, "storage.example.com");
            // The resolver returns an address for each type of socket.
            let all = [
                "192.0.2.1:0",
                "192.0.2.1:0",
                "[2001:db8::1]:0",
                "192.0.2.2:0",
            ];
            Ok(all.map(|address| address.parse().unwrap()).into())
        };
        let dests = |target: &Target| -> Vec<String> {
            let all = target.resolved(&found).unwrap();
            let all = all
                .iter()
                .map(|one| one.option("dest").unwrap().to_string());
            all.collect()
        };
        assert_eq!(
            dests(&target),
            ["192.0.2.1:5555", "[2001:db8::1]:5555", "192.0.2.2:5555"]
        );
        target.set("src", "[2001:db8::9]".into());
        target.check().unwrap();
        assert_eq!(dests(&target), ["[2001:db8::1]:5555"]);
        let none = |_: &str| Ok(Vec::new());
        let error = target.resolved(&none).unwrap_err();
        assert!(error.may_pass(), "{error}");
        let away = |_: &str| Err(io::ErrorKind::TimedOut.into());
        let error = target.resolved(&away).unwrap_err();
        assert!(error.may_pass());
        assert_eq!(
            error.to_string(),
            "the host name storage.example.com in dest: timed out"
        );
        let address =
            Target::parse("x", &file.replace("storage.example.com", "192.0.2.1")).unwrap();
        assert_eq!(address.resolved(&away).unwrap(), [address]);
    }

    #[test]
    fn an_address_is_written_as_in_a_login_string() {
        for (address, written) in [
            ("192.0.2.1:0", "192.0.2.1"),
            ("[2001:db8::1]:0", "[2001:db8::1]"),
            ("[fe80::1%7]:0", "[fe80::1%7]"),
        ] {
            assert_eq!(text(&address.parse().unwrap()), written);
        }
    }
}
