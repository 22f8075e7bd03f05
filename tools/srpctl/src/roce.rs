// SPDX-License-Identifier: GPL-2.0

//! The route of a MAD to an IP address on RoCE.
//!
//! The kernel matches a reply with its request by the destination GID of the IPv6 header
//! (`rcv_has_same_gid()` in `drivers/infiniband/core/mad.c`), so replies through IPv4 are lost.
//! For an IPv4 address of the same network, the MAD goes to the link-local GID that each RoCE port
//! derives from its MAC address.

use crate::{
    error::{Error, Result},
    port::{self, IpRoute, Port},
    program,
    sysfs::{self, Sysfs},
};
use serde::Deserialize;
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};
use umad::Route;

/// Port of the datagram that makes the kernel look for the MAC address: discard.
const DISCARD: u16 = 9;
/// Bound of that search.
const SEARCH: Duration = Duration::from_secs(3);

/// Returns the route from a port to an address.
pub fn route(sysfs: &Sysfs, port: &Port, dest: SocketAddr) -> Result<Route> {
    let route = port::ip_route(dest)
        .map_err(|e| Error::NoPort(format!("there is no route to {}: {e}", dest.ip())))?;
    if !port::interfaces(sysfs, port).contains(&route.interface) {
        return Err(port::astray(
            sysfs,
            &[port],
            dest.ip(),
            &route.interface,
            route.local,
        ));
    }
    let (source, dgid) = match (dest.ip(), route.local) {
        (IpAddr::V6(ip), IpAddr::V6(local)) => (Source::Is(local), ip),
        _ => (Source::LinkLocal, link_local(mac(sysfs, &route, dest)?)),
    };
    Ok(Route {
        gid_index: gid_index(sysfs, port, &route.interface, source)?,
        dgid: dgid.octets(),
    })
}

/// A source GID.
#[derive(Clone, Copy)]
enum Source {
    Is(Ipv6Addr),
    LinkLocal,
}

impl Source {
    fn is(self, gid: Ipv6Addr) -> bool {
        match self {
            Self::Is(wanted) => gid == wanted,
            Self::LinkLocal => gid.is_unicast_link_local(),
        }
    }
}

/// Returns the index of a GID of RoCE v2 on this network interface.
fn gid_index(sysfs: &Sysfs, port: &Port, interface: &str, source: Source) -> Result<u8> {
    let folder = format!(
        "/sys/class/infiniband/{}/ports/{}",
        port.device, port.number
    );
    let text = |what: String| sysfs::text(sysfs.path(format!("{folder}/{what}")));
    let all = sysfs.entries(format!("{folder}/gids"));
    let mut fit = all.iter().filter_map(|gid| {
        let name = sysfs::name(gid);
        let gid: Ipv6Addr = sysfs::text(gid)?.parse().ok()?;
        let is_v2 = text(format!("gid_attrs/types/{name}"))? == "RoCE v2";
        let is_here = text(format!("gid_attrs/ndevs/{name}"))? == interface;
        (is_v2 && is_here && source.is(gid)).then(|| name.parse().ok())?
    });
    fit.next().ok_or_else(|| {
        let wanted = match source {
            Source::Is(ip) => format!("with the address {ip}"),
            Source::LinkLocal => "that is link-local".into(),
        };
        Error::NoPort(format!(
            "{} has no GID of RoCE v2 {wanted} on {interface}",
            port.name()
        ))
    })
}

/// Returns the link-local address with the modified EUI-64 of a MAC address.
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let mut all = [0; 16];
    all[..2].copy_from_slice(&[0xfe, 0x80]);
    all[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    all.into()
}

/// Returns the MAC address of an IPv4 address in the network of the interface.
fn mac(sysfs: &Sysfs, route: &IpRoute, dest: SocketAddr) -> Result<[u8; 6]> {
    let (ip, interface) = (dest.ip(), &route.interface);
    let none = || Error::NoPort(format!("{ip} does not answer on {interface}"));
    if ip == route.local {
        let own = sysfs::text(sysfs.path(format!("/sys/class/net/{interface}/address")));
        return own.and_then(|mac| parse(&mac)).ok_or_else(none);
    }
    if !route.is_near {
        return Err(Error::NoPort(format!(
            "{ip} is behind a router: the kernel takes replies of a management agent from the \
             same network or through IPv6 only; give the target's IPv6 address, or \
             run `srpctl target-info` on it"
        )));
    }
    let end = Instant::now() + SEARCH;
    loop {
        if let Some(mac) = neighbour(interface, ip)? {
            return Ok(mac);
        }
        if Instant::now() > end {
            return Err(none());
        }
        // An error belongs to an earlier datagram, so ignore it.
        let _ = UdpSocket::bind((route.local, 0)).map(|s| s.send_to(&[], (ip, DISCARD)));
        thread::sleep(Duration::from_millis(100));
    }
}

/// An entry of `ip -j neigh`.
#[derive(Deserialize)]
struct Neighbour {
    lladdr: Option<String>,
}

/// Returns the MAC address of a neighbour, if the kernel knows it.
fn neighbour(interface: &str, ip: IpAddr) -> Result<Option<[u8; 6]>> {
    let ip = ip.to_string();
    let said = program::run(&["ip", "-j", "neigh", "show", "to", &ip, "dev", interface])
        .map_err(|why| Error::Program(why.to_string()))?;
    let found: Vec<Neighbour> = serde_json::from_slice(&said).unwrap_or_default();
    let mac = found.first().and_then(|one| one.lladdr.as_deref());
    Ok(mac.and_then(parse))
}

/// Parses a MAC address.
fn parse(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<std::result::Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    #[test]
    fn the_gid_is_that_of_the_interface_and_version() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let put = |path: String, text: &str| {
            let path = sysfs.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        let gids = [
            ("fe80::1", "IB/RoCE v1", "eth1"),
            ("fe80::1", "RoCE v2", "eth1"),
            ("::ffff:192.0.2.1", "RoCE v2", "eth1"),
            ("fe80::1", "RoCE v2", "eth1.7"),
            ("2001:db8::7", "RoCE v2", "eth1"),
        ];
        let at = "/sys/class/infiniband/mlx5_0/ports/1";
        for (n, (gid, kind, ndev)) in gids.into_iter().enumerate() {
            put(format!("{at}/gids/{n}"), gid);
            put(format!("{at}/gid_attrs/types/{n}"), kind);
            put(format!("{at}/gid_attrs/ndevs/{n}"), ndev);
        }
        let port = Port {
            folder: PathBuf::new(),
            device: "mlx5_0".into(),
            number: 1,
        };
        let index = |interface: &str, source| gid_index(&sysfs, &port, interface, source);
        assert_eq!(index("eth1", Source::LinkLocal).unwrap(), 1);
        assert_eq!(index("eth1.7", Source::LinkLocal).unwrap(), 3);
        let global = Source::Is("2001:db8::7".parse().unwrap());
        assert_eq!(index("eth1", global).unwrap(), 4);
        assert_eq!(
            index("eth1.7", global).unwrap_err().to_string(),
            "mlx5_0/1 has no GID of RoCE v2 with the address 2001:db8::7 on eth1.7"
        );
        assert_eq!(
            index("eth2", Source::LinkLocal).unwrap_err().to_string(),
            "mlx5_0/1 has no GID of RoCE v2 that is link-local on eth2"
        );
    }

    #[test]
    fn a_gid_is_derived_from_the_mac_address() {
        let mac = parse("50:6b:4b:0a:1b:2c").unwrap();
        assert_eq!(link_local(mac).to_string(), "fe80::526b:4bff:fe0a:1b2c");
        for bad in [
            "",
            "50:6b:4b:0a:1b",
            "50:6b:4b:0a:1b:2c:00",
            "50:6b:4b:0a:1b:zz",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
