// SPDX-License-Identifier: GPL-2.0

//! RDMA ports with an `add_target` file, and the choice of one for a target.

use crate::{
    adapter,
    error::{Error, Result},
    program,
    sysfs::{self, Sysfs},
    target::{End, Target},
};
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    path::{Path, PathBuf},
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

    /// Returns all ports, of which there is at least one.
    pub fn some(sysfs: &Sysfs) -> Result<Vec<Self>> {
        if !sysfs.path("/sys/class/infiniband_srp").exists() {
            return Err(Error::NoModule("; `modprobe ib_srp` loads it".into()));
        }
        let all = Self::all(sysfs);
        if all.is_empty() {
            let why = "no RDMA port found; `rdma link` lists the devices";
            return Err(Error::NoPort(why.into()));
        }
        Ok(all)
    }

    /// Writes a login string to the port's `add_target`.
    pub fn add_target(&self, login: &str) -> Result {
        let path = self.folder.join("add_target");
        let io = |e| Error::io(&path, e);
        let mut file = OpenOptions::new().write(true).open(&path).map_err(io)?;
        // A login string must be written with a single write().
        file.write(login.as_bytes()).map_err(io)?;
        Ok(())
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

    /// Returns GID 0, which a login by the InfiniBand connection manager comes from.
    pub fn gid(&self, sysfs: &Sysfs) -> Option<String> {
        sysfs::text(sysfs.path(format!(
            "/sys/class/infiniband/{}/ports/{}/gids/0",
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

    /// Returns the network interfaces of the port.
    pub fn interfaces(&self, sysfs: &Sysfs, links: &[Link]) -> BTreeSet<String> {
        // The GIDs of RoCE have them. Unused GIDs cannot be read.
        let gids = sysfs.entries(format!(
            "/sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs",
            self.device, self.number
        ));
        let mut found: BTreeSet<_> = gids.iter().filter_map(sysfs::text).collect();
        // The GIDs of iWARP have no network interface.
        let own = links
            .iter()
            .filter(|link| link.ifname == self.device && link.port == Some(self.number));
        found.extend(own.filter_map(|link| link.netdev.clone()));
        // An IPoIB interface names its port.
        if self.link_layer(sysfs).as_deref() == Some("InfiniBand") {
            let mut nets = sysfs.entries("/sys/class/net");
            let device = Path::new("device/infiniband").join(&self.device);
            nets.retain(|net| net.join(&device).exists());
            nets.retain(|net| {
                let port = sysfs::number::<u32>(net.join("dev_port"));
                port.and_then(|port| port.checked_add(1)) == Some(self.number)
            });
            found.extend(nets.into_iter().map(sysfs::name));
        }
        found
    }
}

/// An entry of `rdma -j link`.
#[derive(Debug, Deserialize)]
pub struct Link {
    ifname: String,
    port: Option<u32>,
    netdev: Option<String>,
}

/// The command that prints the RDMA links.
pub const LINKS: [&str; 3] = ["rdma", "-j", "link"];

/// Returns all links, or none if the rdma tool fails.
fn links() -> Vec<Link> {
    let text = program::run(&LINKS).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok())
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

/// The route to an IP address.
pub struct IpRoute {
    pub interface: String,
    /// Local address.
    pub local: IpAddr,
    /// Whether the address is in a network of the interface.
    pub is_near: bool,
}

/// Returns the route to `dest`. Sends nothing.
pub fn ip_route(dest: SocketAddr) -> std::io::Result<IpRoute> {
    let (interface, local) = interface_to(dest)?;
    let own = own_addresses()?;
    let mut own = own.iter().filter(|own| own.interface == interface);
    Ok(IpRoute {
        is_near: own.any(|own| own.is_near(dest.ip())),
        interface,
        local,
    })
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
    let interfaces = interfaces(sysfs, port);
    let routed = interface_to(dest).ok();
    if routed.is_some_and(|(interface, _)| interfaces.contains(&interface)) {
        return None;
    }
    let mut own = own_addresses().ok()?;
    own.retain(|own| {
        own.address.is_ipv4() == dest.is_ipv4()
            && !own.is_link_local()
            && interfaces.contains(&own.interface)
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

fn names(ports: &[&Port]) -> String {
    let all: Vec<_> = ports.iter().map(|port| port.name()).collect();
    all.join(", ")
}

/// Returns the error of an address whose route leads through none of the ports `wanted`.
pub fn astray(
    sysfs: &Sysfs,
    wanted: &[&Port],
    dest: IpAddr,
    interface: &str,
    local: IpAddr,
) -> Error {
    let links = links();
    let mut all = Port::all(sysfs).into_iter();
    let owner = all.find(|port| port.interfaces(sysfs, &links).contains(interface));
    let wanted = names(wanted);
    let why = match owner {
        Some(owner) => format!(
            "which belongs to {}, not to {wanted}; leave out --device, or change the route \
             (`ip route get {dest}` shows it); `srpctl connect` also goes by --device and --port \
             against the route",
            owner.name()
        ),
        None => format!(
            "which belongs to no RDMA port; available: {wanted}; `rdma link` shows their \
             interfaces, `ip route get {dest}` the route"
        ),
    };
    Error::NoPort(format!(
        "{dest} is reached through {interface} ({local}), {why}"
    ))
}

/// Chooses the port of a login.
///
/// The device and port number of the target restrict the choice, then the interface of `src`, or
/// the route to `dest`. Without these there must be only one such port.
pub fn choose(sysfs: &Sysfs, target: &Target) -> Result<Port> {
    let (device, number) = (target.device.as_deref(), target.port);
    let all = Port::some(sysfs)?;
    let mut fit: Vec<&Port> = all
        .iter()
        .filter(|port| device.is_none_or(|device| adapter::is(sysfs, device, &port.device)))
        .filter(|port| number.is_none_or(|number| port.number == number))
        .filter(|port| target.source_gid.is_none() || port.gid(sysfs) == target.source_gid)
        .collect();
    if fit.is_empty() {
        let wanted = match (device, number) {
            (Some(device), Some(number)) => format!("{device}/{number}"),
            (Some(device), None) => device.to_string(),
            (None, Some(number)) => format!("number {number}"),
            (None, None) => {
                let gid = target.source_gid.as_deref().unwrap_or_default();
                format!("with the GID {gid}")
            }
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
            .filter(|port| port.interfaces(sysfs, &links).contains(&interface))
            .collect();
        if through.is_empty() {
            return Err(astray(sysfs, &fit, dest.ip(), &interface, local));
        }
        fit = through;
    }
    match fit[..] {
        [port] => Ok(port.clone()),
        _ => Err(Error::NoPort(format!(
            "several RDMA ports may reach the target: {}; choose one with --device and --port",
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
    port.interfaces(sysfs, &links())
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
    use std::fs;

    #[test]
    fn a_port_has_network_interfaces() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let put = |path: &str, text: &str| {
            let path = sysfs.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let layer = "/sys/class/infiniband/mlx5_0/ports/2/link_layer";
        put(layer, "Ethernet\n");
        let gid = "/sys/class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0";
        put(gid, "eth2\n");
        for (net, port) in [("ib0", "0"), ("ib1", "1"), ("ibx", "4294967295")] {
            let folder = format!("/sys/class/net/{net}");
            put(&format!("{folder}/device/infiniband/mlx5_0/x"), "");
            put(&format!("{folder}/dev_port"), &format!("{port}\n"));
        }
        let link = |port| Link {
            ifname: "mlx5_0".into(),
            port: Some(port),
            netdev: Some(format!("link{port}")),
        };
        let names = |number| -> Vec<String> {
            let port = Port {
                folder: PathBuf::new(),
                device: "mlx5_0".into(),
                number,
            };
            let found = port.interfaces(&sysfs, &[link(1), link(2)]);
            found.into_iter().collect()
        };
        assert_eq!(names(2), ["eth2", "link2"]);
        put(layer, "InfiniBand\n");
        fs::remove_file(sysfs.path(gid)).unwrap();
        assert_eq!(names(2), ["ib1", "link2"]);
        // The port of a switch.
        put(&layer.replace("ports/2", "ports/0"), "InfiniBand\n");
        assert_eq!(names(0), [""; 0]);
    }

    /// The route to this machine goes through `lo`.
    #[test]
    fn a_route_through_another_device_is_named() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let put = |path: String, text: &str| {
            let path = sysfs.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (device, number, net) in [("rxe1", 1, "eth8"), ("rxe1", 2, "eth9"), ("rxe2", 1, "lo")] {
            let folder = format!("/sys/class/infiniband_srp/srp-{device}-{number}");
            put(format!("{folder}/add_target"), "");
            put(format!("{folder}/ibdev"), device);
            put(format!("{folder}/port"), &number.to_string());
            let gids = format!("/sys/class/infiniband/{device}/ports/{number}/gid_attrs");
            put(format!("{gids}/ndevs/0"), net);
        }
        let mut target = Target::of_login("id_ext=1,ioc_guid=2,dest=127.0.0.1:5555").unwrap();
        assert_eq!(choose(&sysfs, &target).unwrap().name(), "rxe2/1");
        target.device = Some("rxe1".into());
        let error = choose(&sysfs, &target).unwrap_err();
        assert_eq!(error.status(), 3);
        let said = error.to_string();
        let cause = "127.0.0.1 is reached through lo (127.0.0.1), which belongs to rxe2/1, not to \
                     rxe1/1, rxe1/2; leave out --device";
        assert!(said.starts_with(cause), "{said}");
        let one = Port::all(&sysfs).remove(0);
        let dest = "127.0.0.1:5555".parse().unwrap();
        let said = crate::roce::route(&sysfs, &one, dest).unwrap_err();
        let cause = "which belongs to rxe2/1, not to rxe1/1; leave out --device";
        assert!(said.to_string().contains(cause), "{said}");
        fs::remove_dir_all(sysfs.path("/sys/class/infiniband_srp/srp-rxe2-1")).unwrap();
        let said = crate::roce::route(&sysfs, &one, dest).unwrap_err();
        let cause = "which belongs to no RDMA port; available: rxe1/1; `rdma link`";
        assert!(said.to_string().contains(cause), "{said}");
        target.device = Some("rxe9".into());
        let said = choose(&sysfs, &target).unwrap_err().to_string();
        assert_eq!(said, "no RDMA port rxe9; available: rxe1/1, rxe1/2");
    }

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
