// SPDX-License-Identifier: GPL-2.0

//! RDMA ports with an `add_target` file, and the choice of one for a target.

use crate::{
    adapter,
    error::{Error, Result},
    sysfs::{self, Sysfs},
    target::{End, Target},
};
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    path::PathBuf,
    process::Command,
};

/// A port of an RDMA device that ib_srp uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Port {
    /// Directory of the port in `/sys/class/infiniband_srp`.
    pub folder: PathBuf,
    /// Name of the RDMA device.
    pub device: String,
    /// Port number on the RDMA device, starting at 1.
    pub number: u32,
}

impl Port {
    /// Returns all ports.
    pub fn all(sysfs: &Sysfs) -> Vec<Self> {
        sysfs
            .entries("/sys/class/infiniband_srp")
            .into_iter()
            .filter(|folder| folder.join("add_target").exists())
            .filter_map(|folder| {
                let device = sysfs::text(folder.join("ibdev"))?;
                let number = sysfs::number(folder.join("port"))?;
                Some(Self {
                    folder,
                    device,
                    number,
                })
            })
            .collect()
    }

    /// Returns `DEVICE/NUMBER`, as the RDMA tools write it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.number)
    }

    /// Returns `InfiniBand` or `Ethernet`.
    pub fn link_layer(&self, sysfs: &Sysfs) -> Option<String> {
        sysfs::text(sysfs.path(format!(
            "/sys/class/infiniband/{}/ports/{}/link_layer",
            self.device, self.number
        )))
    }

    /// Returns the LID of the subnet manager, or `None` if the port knows none.
    pub fn subnet_manager(&self, sysfs: &Sysfs) -> Option<u32> {
        let lid = sysfs::text(sysfs.path(format!(
            "/sys/class/infiniband/{}/ports/{}/sm_lid",
            self.device, self.number
        )))?;
        u32::from_str_radix(lid.strip_prefix("0x")?, 16)
            .ok()
            .filter(|lid| *lid != 0)
    }

    /// Returns the network interfaces of the port's GIDs (RoCE). Unused GIDs cannot be read.
    fn interfaces_of_gids(&self, sysfs: &Sysfs) -> Vec<String> {
        let folder = format!(
            "/sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs",
            self.device, self.number
        );
        sysfs
            .entries(folder)
            .iter()
            .filter_map(sysfs::text)
            .collect()
    }

    /// Returns whether the port belongs to this network interface.
    fn has(&self, sysfs: &Sysfs, interface: &str, links: &[Link]) -> bool {
        let of_gids = self
            .interfaces_of_gids(sysfs)
            .iter()
            .any(|name| name == interface);
        // The GIDs of iWARP have no network interface.
        let of_links = links
            .iter()
            .any(|link| link.is(self) && link.netdev.as_deref() == Some(interface));
        // An IPoIB interface names its port.
        let net = format!("/sys/class/net/{interface}");
        let of_net = sysfs
            .path(format!("{net}/device/infiniband/{}", self.device))
            .exists()
            && sysfs::number::<u32>(sysfs.path(format!("{net}/dev_port")))
                .is_some_and(|port| port + 1 == self.number);
        of_gids || of_links || of_net && self.link_layer(sysfs).as_deref() == Some("InfiniBand")
    }
}

/// An entry of `rdma -j link`.
#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    port: Option<u32>,
    netdev: Option<String>,
}

impl Link {
    fn is(&self, port: &Port) -> bool {
        self.ifname == port.device && self.port == Some(port.number)
    }
}

/// Returns all links, or none if the rdma tool fails.
fn links() -> Vec<Link> {
    Command::new("rdma")
        .args(["-j", "link"])
        .output()
        .ok()
        .and_then(|out| serde_json::from_slice(&out.stdout).ok())
        .unwrap_or_default()
}

/// An address of a network interface of this machine.
struct Own {
    interface: String,
    address: IpAddr,
    mask: Option<IpAddr>,
}

impl Own {
    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Returns whether `other` is in the subnet of this address.
    fn is_near(&self, other: IpAddr) -> bool {
        match (self.address, self.mask, other) {
            (IpAddr::V4(own), Some(IpAddr::V4(mask)), IpAddr::V4(other)) => {
                own.to_bits() & mask.to_bits() == other.to_bits() & mask.to_bits()
            }
            (IpAddr::V6(own), Some(IpAddr::V6(mask)), IpAddr::V6(other)) => {
                own.to_bits() & mask.to_bits() == other.to_bits() & mask.to_bits()
            }
            _ => false,
        }
    }
}

fn ip(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// Returns the addresses of all network interfaces.
fn own_addresses() -> std::io::Result<Vec<Own>> {
    let all = getifaddrs()?.filter_map(|entry| {
        Some(Own {
            address: ip(entry.address?)?,
            mask: entry.netmask.and_then(ip),
            interface: entry.interface_name,
        })
    });
    Ok(all.collect())
}

/// Returns the network interface and the local address of the route to `dest`. Sends nothing.
fn interface_to(dest: SocketAddr) -> std::io::Result<(String, IpAddr)> {
    let any: IpAddr = match dest {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(dest)?;
    let local = socket.local_addr()?.ip();
    let own = own_addresses()?
        .into_iter()
        .find(|own| own.address == local);
    own.map(|own| (own.interface, local))
        .ok_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())
}

/// Returns the network interface that has the address `src`; `scope` names or numbers it.
fn interface_of(sysfs: &Sysfs, src: IpAddr, scope: Option<&str>) -> Result<String> {
    let index = scope.and_then(|scope| {
        sysfs::text(sysfs.path(format!("/sys/class/net/{scope}/ifindex")))
            .or_else(|| Some(scope.to_string()))
    });
    let has_scope = |name: &str| {
        index.is_none()
            || sysfs::text(sysfs.path(format!("/sys/class/net/{name}/ifindex"))) == index
    };
    let all = own_addresses().map_err(|e| Error::NoPort(format!("no addresses: {e}")))?;
    let own = all
        .into_iter()
        .find(|own| own.address == src && has_scope(&own.interface));
    own.map(|own| own.interface)
        .ok_or_else(|| Error::NoPort(format!("no network interface has the address {src}")))
}

/// Returns the address to log in from if the route to `dest` does not go through `port`: one of the
/// port's, preferably in the subnet of `dest`. With `None` the route selects the address.
pub fn source(sysfs: &Sysfs, port: &Port, dest: SocketAddr) -> Option<IpAddr> {
    let links = links();
    let routed = interface_to(dest).ok();
    if routed.is_some_and(|(interface, _)| port.has(sysfs, &interface, &links)) {
        return None;
    }
    let mut own = own_addresses().ok()?;
    own.retain(|own| {
        own.address.is_ipv4() == dest.is_ipv4()
            && !own.is_link_local()
            && port.has(sysfs, &own.interface, &links)
    });
    nearest(own, dest.ip())
}

/// Returns the first address in the subnet of `dest`, or the first of all.
fn nearest(own: Vec<Own>, dest: IpAddr) -> Option<IpAddr> {
    let near = own.iter().find(|own| own.is_near(dest));
    near.or(own.first()).map(|own| own.address)
}

/// Returns the address for a socket; the scope names or numbers the interface of a link-local one.
pub fn with_scope(sysfs: &Sysfs, end: End) -> Result<SocketAddr> {
    let (ip, port) = (end.ip, end.port.unwrap_or(0));
    match (ip, end.scope.as_deref()) {
        (IpAddr::V6(ip), Some(scope)) => {
            let index = sysfs::number(sysfs.path(format!("/sys/class/net/{scope}/ifindex")))
                .or_else(|| scope.parse().ok())
                .ok_or_else(|| Error::NoPort(format!("there is no network interface {scope}")))?;
            Ok(SocketAddrV6::new(ip, port, 0, index).into())
        }
        _ => Ok((ip, port).into()),
    }
}

/// Chooses the port of a login.
///
/// The device and port number of the target restrict the choice, then the interface of `src`, or
/// the route to `dest`. Without these there must be only one such port.
pub fn choose(sysfs: &Sysfs, target: &Target) -> Result<Port> {
    let (device, number) = (target.device.as_deref(), target.port);
    if !sysfs.path("/sys/class/infiniband_srp").exists() {
        return Err(Error::NoModule(String::new()));
    }
    let all = Port::all(sysfs);
    if all.is_empty() {
        return Err(Error::NoPort(
            "no RDMA port found; `rdma link` lists the devices".into(),
        ));
    }
    let mut fit: Vec<&Port> = all
        .iter()
        .filter(|port| device.is_none_or(|device| adapter::is(sysfs, device, &port.device)))
        .filter(|port| number.is_none_or(|number| port.number == number))
        .collect();
    let names = |ports: &[&Port]| {
        ports
            .iter()
            .map(|p| p.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if fit.is_empty() {
        let wanted = match (device, number) {
            (Some(device), Some(number)) => format!("{device}/{number}"),
            (Some(device), None) => device.to_string(),
            (None, Some(number)) => format!("number {number}"),
            (None, None) => String::new(),
        };
        return Err(Error::NoPort(format!(
            "no RDMA port {wanted}; available: {}",
            names(&all.iter().collect::<Vec<_>>())
        )));
    }
    let ends = target.ends()?;
    if let ([_, _, ..], Some((src, dest))) = (&fit[..], ends) {
        let dest = with_scope(sysfs, dest)?;
        let (interface, local) = match src {
            Some(src) => (interface_of(sysfs, src.ip, src.scope.as_deref())?, src.ip),
            None => interface_to(dest)
                .map_err(|e| Error::NoPort(format!("there is no route to {}: {e}", dest.ip())))?,
        };
        let links = links();
        let through: Vec<&Port> = fit
            .iter()
            .copied()
            .filter(|port| port.has(sysfs, &interface, &links))
            .collect();
        if through.is_empty() {
            return Err(Error::NoPort(format!(
                "{} is reached through {interface} ({local}), which belongs to no RDMA port; \
                 available: {}",
                dest.ip(),
                names(&fit)
            )));
        }
        fit = through;
    }
    match fit[..] {
        [port] => Ok(port.clone()),
        _ => Err(Error::NoPort(format!(
            "several RDMA ports reach the target: {}; choose one with --device and --port",
            names(&fit)
        ))),
    }
}

/// Checks that a login can begin: that there is a port for it, and the addresses are those of this
/// machine and its networks.
pub fn check(sysfs: &Sysfs, target: &Target) -> Result {
    if let Some((src, dest)) = target.ends()? {
        with_scope(sysfs, dest)?;
        if let Some(src) = src {
            interface_of(sysfs, src.ip.to_canonical(), src.scope.as_deref())?;
        }
    }
    choose(sysfs, target).map(drop)
}

/// Returns the network interfaces of a port.
pub fn interfaces(sysfs: &Sysfs, port: &Port) -> BTreeSet<String> {
    let links = links();
    let of_gids = port.interfaces_of_gids(sysfs);
    let of_links = links
        .iter()
        .filter(|link| link.is(port))
        .filter_map(|link| link.netdev.clone());
    let of_net = sysfs.entries("/sys/class/net").into_iter().map(sysfs::name);
    let of_net = of_net.filter(|name| port.has(sysfs, name, &links));
    of_gids.into_iter().chain(of_links).chain(of_net).collect()
}

/// Returns the addresses of these network interfaces that other machines can name.
pub fn addresses(interfaces: &BTreeSet<String>) -> Vec<IpAddr> {
    let own = own_addresses().unwrap_or_default().into_iter();
    let own = own.filter(|own| interfaces.contains(&own.interface) && !own.is_link_local());
    own.map(|own| own.address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_in_the_subnet_is_taken() {
        let own = |address: &str, mask: &str| Own {
            interface: "eth0".into(),
            address: address.parse().unwrap(),
            mask: mask.parse().ok(),
        };
        let all = || {
            vec![
                own("192.0.2.2", "255.255.255.0"),
                own("10.1.2.3", "255.255.0.0"),
                own("fd00::2", "ffff:ffff:ffff:ffff::"),
            ]
        };
        let from = |dest: &str| nearest(all(), dest.parse().unwrap()).map(|ip| ip.to_string());
        assert_eq!(from("10.1.9.9").as_deref(), Some("10.1.2.3"));
        assert_eq!(from("fd00::1").as_deref(), Some("fd00::2"));
        // Through a router.
        assert_eq!(from("10.2.9.9").as_deref(), Some("192.0.2.2"));
        assert_eq!(nearest(Vec::new(), "10.1.9.9".parse().unwrap()), None);
    }
}
