// SPDX-License-Identifier: GPL-2.0

//! Stable names of RDMA adapters. rdma-core renames adapters (`rocep1s0`), except in the initramfs,
//! so the node GUID identifies an adapter.

use crate::sysfs::{self, Sysfs};

/// Returns the node GUID of the adapter `name`, `0x` and 16 digits; `None` if it has none.
fn guid(sysfs: &Sysfs, name: &str) -> Option<String> {
    let path = sysfs.path(format!("/sys/class/infiniband/{name}/node_guid"));
    parse(&sysfs::text(path)?).filter(|guid| guid.bytes().any(|b| !b"0x".contains(&b)))
}

/// Parses a node GUID as the RDMA tools write it: 16 hexadecimal digits, possibly after `0x` or
/// with colons.
fn parse(text: &str) -> Option<String> {
    let digits = text.strip_prefix("0x").unwrap_or(text).replace(':', "");
    let is_guid = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_guid.then(|| format!("0x{}", digits.to_lowercase()))
}

/// Returns whether `wanted`, a name or a node GUID, is the adapter `name`.
pub fn is(sysfs: &Sysfs, wanted: &str, name: &str) -> bool {
    wanted == name || parse(wanted).is_some_and(|wanted| guid(sysfs, name) == Some(wanted))
}

/// Returns whether the network interface of an adapter has a random MAC address. A soft adapter
/// takes its GUID from that, so it has another one after the next boot.
fn is_random(sysfs: &Sysfs, name: &str) -> bool {
    let file = format!("/sys/class/infiniband/{name}/ports/1/gid_attrs/ndevs/0");
    let kind =
        |netdev| sysfs::text(sysfs.path(format!("/sys/class/net/{netdev}/addr_assign_type")));
    // `NET_ADDR_RANDOM`
    sysfs::text(sysfs.path(file)).and_then(kind).as_deref() == Some("1")
}

/// Returns the node GUID of the adapter that `wanted` names, or `wanted` itself if there is no such
/// adapter, or its GUID is random or that of another one, too.
pub fn lasting(sysfs: &Sysfs, wanted: &str) -> String {
    let Some(own) = guid(sysfs, wanted).filter(|_| !is_random(sysfs, wanted)) else {
        return wanted.to_string();
    };
    let all = sysfs.entries("/sys/class/infiniband");
    let same = all
        .iter()
        .filter(|path| guid(sysfs, &sysfs::name(path)).as_ref() == Some(&own));
    match same.count() {
        1 => own,
        _ => wanted.to_string(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::{fs, path::Path};

    /// Gives the adapter `name` a node GUID.
    pub fn put(root: &Path, name: &str, guid: &str) {
        let folder = root.join("sys/class/infiniband").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("node_guid"), format!("{guid}\n")).unwrap();
    }

    #[test]
    fn an_adapter_is_known_by_its_guid() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        put(root.path(), "rocep1s0", "506b:4b03:0000:a1b2");
        put(root.path(), "rocep2s0", "0000:0000:0000:0000");
        for wanted in [
            "rocep1s0",
            "0x506b4b030000a1b2",
            "506b4b030000A1B2",
            "506b:4b03:0000:a1b2",
        ] {
            assert!(is(&sysfs, wanted, "rocep1s0"), "{wanted}");
        }
        for wanted in ["rocep2s0", "mlx5_0", "0x506b4b030000a1b3", "0x506b"] {
            assert!(!is(&sysfs, wanted, "rocep1s0"), "{wanted}");
        }
        assert!(!is(&sysfs, "0x0000000000000000", "rocep2s0"));
    }

    #[test]
    fn a_guid_lasts_unless_two_adapters_have_it() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        put(root.path(), "rxe0", "506b:4b03:0000:a1b2");
        put(root.path(), "rxe1", "0000:0000:0000:0000");
        assert_eq!(lasting(&sysfs, "rxe0"), "0x506b4b030000a1b2");
        for name in ["rxe1", "mlx5_0", "0x506b4b030000a1b2"] {
            assert_eq!(lasting(&sysfs, name), name);
        }
        put(root.path(), "siw0", "506b:4b03:0000:a1b2");
        assert_eq!(lasting(&sysfs, "rxe0"), "rxe0");
    }

    #[test]
    fn a_guid_of_a_random_address_does_not_last() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        put(root.path(), "rxe0", "0200:00ff:fe00:0001");
        let ports = root
            .path()
            .join("sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs");
        fs::create_dir_all(&ports).unwrap();
        fs::write(ports.join("0"), "veth0\n").unwrap();
        let netdev = root.path().join("sys/class/net/veth0");
        fs::create_dir_all(&netdev).unwrap();
        for (kind, name) in [
            ("0", "0x020000fffe000001"),
            ("1", "rxe0"),
            ("3", "0x020000fffe000001"),
        ] {
            fs::write(netdev.join("addr_assign_type"), format!("{kind}\n")).unwrap();
            assert_eq!(lasting(&sysfs, "rxe0"), name, "{kind}");
        }
    }
}
