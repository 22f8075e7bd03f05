// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use srp_target::{
    config::{Kind, Schema, Table},
    proto::{guid::IoClass, ids::PortId},
    values::Values,
};
use wss::{etcd::Cluster, options::System};

use crate::{
    coordinator::TTL,
    layout::{Size, NODES},
    node::least_log,
};

/// The output of `--help`.
pub const HELP: &str = "\
xorset ROLE [OPTION]... runs one role of a set of five nodes until SIGTERM. The set survives the
loss of any two nodes.

xorset format --number N --file FILE --stripes N [OPTION]...
creates the file of a node. It replaces an existing file, except one of a node or of wss.
  --number N             number of the node, 0 to 4
  --file FILE            the file or block device
  --stripes N            stripes of the set; each has twelve data cells, and four cells on each node
  --cell KIB             size of a cell, 1 to 64 (default 64)
  --log MIB              size of each half of the node's log, 1 to 4096 (default 32)
  --thin                 reserves no space for the file: writes may find the file system full

xorset node --file FILE --node ADDRESS:PORT (five times) --etcd ADDRESS:PORT [--etcd ...] [OPTION]...
serves the cells of one node.
  --number N             number of the node: a file of another one is refused
  --node ADDRESS:PORT    a node, in the order of their numbers; this node listens at its own address
  --etcd ADDRESS:PORT    where etcd serves clients; if it does not respond, the next one is used.
                         With TLS https://ADDRESS:PORT
  --set NAME             name of the set in etcd (default xorset)
  --etcd-ca FILE         CA of the certificate of etcd, in PEM; https:// needs it
  --etcd-cert FILE       certificate that proves this client to etcd, in PEM
  --etcd-key FILE        its key
  --etcd-user NAME       user of etcd, only with https://
  --etcd-password FILE   the user's password. These files are read again if etcd refuses the role
  --key FILE             keys that nodes and clients share: one a line, of 64
                         hexadecimal digits. The first one proves this role, each of them proves
                         others. Read again for each connection. Give it to all, or to none

xorset client --node ADDRESS:PORT (five times) --etcd ADDRESS:PORT [--etcd ...] [OPTION]...
exports the set as LUN 0 of an SRP target. One client has the set; others name it and wait until it
ends.
  --node, --etcd, --set, --key  as above
  --etcd-ca, --etcd-cert, --etcd-key, --etcd-user, --etcd-password  as above
  --allow FILE           initiators that may log in; see srp-target
  --listen ADDRESS:PORT  where RDMA/CM listens (default 0.0.0.0:5555)
  --id-ext HEX           identifier extension (default 1)
  --ioc-guid HEX         GUID of the controller (default 1)
  --queue-depth N        credits of a channel, 2 to 1024 (default 64)
  --channels N           maximum number of channels of a session, 1 to 64 (default 16)
  --pause MS             pause between stripes of a rebuild, 0 to 60000 (default 0)
  --lease SECONDS        time without etcd after which another client may take the set, 3 to 60
                         (default 3)

xorset rs --number N --node ADDRESS:PORT (five times) --etcd ADDRESS:PORT [--etcd ...]
--system NAME [OPTION]...
serves the set as object 0 of an RS of the storage system wss, in the place of a client. One process
has the set, and is the RS at its address; others wait until it ends.
  --node, --etcd, --set, --pause, --lease  as for a client
  --etcd-ca, --etcd-cert, --etcd-key, --etcd-user, --etcd-password  as above
  --number N             number of the RS
  --system NAME          name of the system of wss, whose SE is in the same etcd
  --listen ADDRESS:PORT  where RDMA/CM listens (default 0.0.0.0:5557)
  --id-ext, --ioc-guid HEX  as for the SE of wss
  --key FILE             keys that nodes, and the roles of wss, share

All roles:
  --config FILE          TOML file with the tables [node], [client] and [rs], and options as keys,
                         such as lease = 3; [common] has keys of several roles. Options of the
                         command line take the place of those in the file
  --check                checks the options and files, and ends
  --status SOCKET        where srp-storage status reads the status of the process
";

/// The tables and keys of a file. Each key is an option of [`HELP`].
pub const SCHEMA: Schema = &[
    (
        "node",
        &[
            ("number", Kind::Number),
            ("file", Kind::Text),
            ("node", Kind::List),
            ("etcd", Kind::List),
            ("set", Kind::Text),
            ("etcd-ca", Kind::Text),
            ("etcd-cert", Kind::Text),
            ("etcd-key", Kind::Text),
            ("etcd-user", Kind::Text),
            ("etcd-password", Kind::Text),
            ("key", Kind::Text),
        ],
    ),
    (
        "client",
        &[
            ("node", Kind::List),
            ("etcd", Kind::List),
            ("set", Kind::Text),
            ("etcd-ca", Kind::Text),
            ("etcd-cert", Kind::Text),
            ("etcd-key", Kind::Text),
            ("etcd-user", Kind::Text),
            ("etcd-password", Kind::Text),
            ("key", Kind::Text),
            ("allow", Kind::Text),
            ("listen", Kind::Text),
            ("id-ext", Kind::Text),
            ("ioc-guid", Kind::Text),
            ("queue-depth", Kind::Number),
            ("channels", Kind::Number),
            ("pause", Kind::Number),
            ("lease", Kind::Number),
        ],
    ),
    (
        "rs",
        &[
            ("number", Kind::Number),
            ("node", Kind::List),
            ("etcd", Kind::List),
            ("set", Kind::Text),
            ("system", Kind::Text),
            ("etcd-ca", Kind::Text),
            ("etcd-cert", Kind::Text),
            ("etcd-key", Kind::Text),
            ("etcd-user", Kind::Text),
            ("etcd-password", Kind::Text),
            ("key", Kind::Text),
            ("listen", Kind::Text),
            ("id-ext", Kind::Text),
            ("ioc-guid", Kind::Text),
            ("pause", Kind::Number),
            ("lease", Kind::Number),
        ],
    ),
];

/// The options of `xorset format`, which are in no file.
const FORMAT: Table = (
    "format",
    &[
        ("number", Kind::Number),
        ("file", Kind::Text),
        ("stripes", Kind::Number),
        ("cell", Kind::Number),
        ("log", Kind::Number),
        ("thin", Kind::Flag),
    ],
);

/// Addresses of the other processes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Set {
    /// The nodes.
    pub nodes: [SocketAddr; NODES],
    /// The etcd cluster.
    pub etcd: Cluster,
    /// Name of the set in etcd.
    pub name: String,
}

/// The parsed command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Options {
    /// Create the file of a node.
    Format {
        /// Number of the node.
        number: u8,
        /// The file.
        file: PathBuf,
        /// Size of the set.
        size: Size,
        /// Length of half of the log, in bytes.
        log: u64,
        /// Whether no space is reserved.
        thin: bool,
    },
    /// A node.
    Node {
        /// Number of the node, if the file must be of this one.
        number: Option<u8>,
        /// The file of the node.
        file: PathBuf,
        /// The other processes.
        set: Set,
        /// File of the shared keys.
        key: Option<PathBuf>,
    },
    /// The client.
    Client {
        /// The other processes.
        set: Set,
        /// Listening address.
        listen: SocketAddr,
        /// Target port identifier.
        id: [u8; 16],
        /// GUID.
        guid: u64,
        /// Number of credits per channel.
        queue_depth: u32,
        /// Maximum number of channels per session.
        channels: usize,
        /// Pause between rebuilt stripes, in milliseconds.
        pause: u64,
        /// Lifetime of the key in etcd, in milliseconds.
        lease: u64,
        /// File of the shared keys.
        key: Option<PathBuf>,
        /// File of the initiators that may log in.
        allow: Option<PathBuf>,
    },
    /// An RS of `wss`.
    Rs {
        /// Number of the RS.
        number: u32,
        /// The other processes of the set.
        set: Set,
        /// The system in which to look up the SE.
        system: Option<System>,
        /// Listening address.
        listen: SocketAddr,
        /// Target port identifier of the system.
        id: [u8; 16],
        /// Pause between rebuilt stripes, in milliseconds.
        pause: u64,
        /// Lifetime of the key in etcd, in milliseconds.
        lease: u64,
        /// File of the shared keys.
        key: Option<PathBuf>,
    },
}

impl Options {
    /// Parses the arguments, without the program name. The error says what is wrong.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let role = args.next().ok_or("there is no role")?;
        let role = role.to_string_lossy().into_owned();
        let mut tables = SCHEMA.iter().chain([&FORMAT]);
        let Some((_, keys)) = tables.find(|table| table.0 == role) else {
            return Err(format!("'{role}' is no role"));
        };
        let mut values = Values::new(&role, keys, args)?;
        if role == "format" {
            let number = values.needed("--number", |n| usize::from(*n) < NODES)?;
            let cell: u16 = values
                .one("--cell", |n| (1..=64).contains(n))?
                .unwrap_or(64);
            let size = Size {
                cell: cell * 2,
                stripes: values.needed("--stripes", |n| (1..1 << 32).contains(n))?,
            };
            let log = values.one("--log", |n| (1..=4096).contains(n))?;
            let (log, least) = (log.unwrap_or(32u64) << 20, least_log(&size));
            if log < least {
                return Err(format!(
                    "--log: cells of {cell} KiB need {} MiB",
                    least.div_ceil(1 << 20)
                ));
            }
            return Ok(Self::Format {
                number,
                file: values.needed_file("--file")?,
                size,
                log,
                thin: values.flag("--thin"),
            });
        }
        let nodes = values.addresses("--node")?;
        let urls = values.all("--etcd");
        let urls: Vec<_> = urls.iter().map(|u| u.to_string_lossy().into()).collect();
        let etcd = Cluster::take(&mut values, &urls)?;
        let count = nodes.len();
        let set = Set {
            nodes: nodes
                .try_into()
                .map_err(|_| format!("there are {count} --node, not {NODES}"))?,
            etcd: etcd.ok_or_else(|| format!("{role} needs --etcd"))?,
            name: values.word("--set")?.unwrap_or_else(|| "xorset".into()),
        };
        let key = values.file("--key");
        if role == "node" {
            return Ok(Self::Node {
                number: values.one("--number", |n| usize::from(*n) < NODES)?,
                file: values.needed_file("--file")?,
                set,
                key,
            });
        }
        let (id_ext, guid) = (values.hex("--id-ext")?, values.hex("--ioc-guid")?);
        let id = PortId::new(IoClass::Rev16a, id_ext, guid).0;
        let lease = values.one("--lease", |n| (TTL / 1000..=60).contains(n))?;
        let lease = lease.map_or(TTL, |seconds| seconds * 1000);
        let pause = values.one("--pause", |n| *n <= 60_000)?.unwrap_or(0);
        if role == "rs" {
            let etcd = set.etcd.clone();
            let name = values.word("--system")?.ok_or("rs needs --system")?;
            return Ok(Self::Rs {
                number: values.needed("--number", |_| true)?,
                set,
                system: Some(System { etcd, name }),
                listen: values.listen(5557)?,
                id,
                pause,
                lease,
                key,
            });
        }
        Ok(Self::Client {
            set,
            listen: values.listen(5555)?,
            id,
            guid,
            queue_depth: values.queue_depth()?,
            channels: values.channels()?,
            pause,
            lease,
            key,
            allow: values.file("--allow"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_is_wrong_is_named() {
        let nodes = "--node 10.0.1.2:5560 --node 10.0.2.2:5560 --node 10.0.3.2:5560 --node 10.0.4.2:5560 --node 10.0.5.2:5560";
        let client = parse(&format!(
            "client {nodes} --etcd 10.0.0.2:2379 --set a-b --lease 5"
        ))
        .unwrap();
        let Options::Client {
            set, listen, lease, ..
        } = client
        else {
            panic!()
        };
        assert_eq!(
            (set.name.as_str(), set.nodes[4].port(), listen.port(), lease),
            ("a-b", 5560, 5555, 5000)
        );
        assert!(parse(&format!("node --file f {nodes} --etcd 10.0.0.2:2379")).is_ok());
        let format = parse("format --number 4 --file f --stripes 10 --cell 4 --log 2").unwrap();
        let size = Size {
            cell: 8,
            stripes: 10,
        };
        assert!(
            matches!(format, Options::Format { number: 4, log, size: s, .. } if log == 2 << 20 && s == size)
        );
        let client = format!("client {nodes}");
        let all = |options: &str| format!("{client} --etcd 10.0.0.2:2379 {options}");
        let (lease, set) = (all("--lease 2"), all("--set a/b"));
        let rs = format!("rs {nodes} --etcd 10.0.0.2:2379");
        let set_rs = format!("{rs} --system one");
        let Ok(Options::Rs {
            number: 7,
            system: Some(system),
            listen,
            ..
        }) = parse(&format!("{set_rs} --number 7"))
        else {
            panic!()
        };
        assert_eq!((system.name.as_str(), listen.port()), ("one", 5557));
        let secure = format!("{client} --etcd https://10.0.0.2:2379");
        for (line, why) in [
            ("", "there is no role"),
            ("disk", "'disk' is no role"),
            ("node --listen x", "node has no option '--listen'"),
            ("node --file", "--file has no value"),
            ("format --number 5", "--number: '5' is not what it can be"),
            ("format --number 1", "format needs --stripes"),
            ("format --number 1 --stripes 1", "format needs --file"),
            (
                "format --number 1 --file f --stripes 1 --log 4",
                "--log: cells of 64 KiB need 21 MiB",
            ),
            ("client --node 10.0.1.2:5560", "there are 1 --node, not 5"),
            (rs.as_str(), "rs needs --system"),
            (set_rs.as_str(), "rs needs --number"),
            (client.as_str(), "client needs --etcd"),
            (secure.as_str(), "https:// in --etcd needs --etcd-ca"),
            (lease.as_str(), "--lease: '2' is not what it can be"),
            (set.as_str(), "--set: 'a/b' is not what it can be"),
        ] {
            assert_eq!(parse(line), Err(why.to_string()), "{line}");
        }
    }

    #[test]
    fn keys_are_options_and_the_example_is_right() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/xorset.toml");
        srp_target::config::check_roles(("xorset", HELP, SCHEMA), example, Options::parse);
    }
}
