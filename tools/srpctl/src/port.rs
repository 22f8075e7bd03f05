// SPDX-License-Identifier: GPL-2.0

//! RDMA ports with an `add_target` file, and the choice of one for a target.

use crate::{
    error::{Error, Result},
    sysfs::{self, Sysfs},
};
use nix::ifaddrs::getifaddrs;
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

/// Returns the network interface and the local address of the route to `dest`. Sends nothing.
fn interface_to(dest: SocketAddr) -> std::io::Result<(String, IpAddr)> {
    let any: IpAddr = match dest {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(dest)?;
    let local = socket.local_addr()?.ip();
    let own = getifaddrs()?
        .filter(|entry| {
            entry.address.is_some_and(|address| {
                address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())) == Some(local)
                    || address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())) == Some(local)
            })
        })
        .map(|entry| entry.interface_name)
        .next();
    own.map(|name| (name, local))
        .ok_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())
}

/// Combines an address and a port; `scope` names or numbers the interface of a link-local address.
pub fn with_scope(sysfs: &Sysfs, ip: IpAddr, port: u16, scope: Option<&str>) -> Result<SocketAddr> {
    match (ip, scope) {
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
/// `device` and `number` restrict the choice, then the route to `dest`. Without `dest` there must
/// be only one such port.
pub fn choose(
    sysfs: &Sysfs,
    device: Option<&str>,
    number: Option<u32>,
    dest: Option<SocketAddr>,
) -> Result<Port> {
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
        .filter(|port| device.is_none_or(|device| port.device == device))
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
    if let ([_, _, ..], Some(dest)) = (&fit[..], dest) {
        let (interface, local) = interface_to(dest)
            .map_err(|e| Error::NoPort(format!("there is no route to {}: {e}", dest.ip())))?;
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
