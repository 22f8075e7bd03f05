// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::{collections::BTreeSet, ffi::OsString, net::SocketAddr, path::PathBuf};

use srp_target::{
    config::{Kind, Schema, Table},
    proto::{guid::IoClass, ids::PortId},
    store::Label,
    values::Values,
};

use crate::etcd::Cluster;

/// Size of a cache line, in bytes.
pub const LINE: u32 = 64 << 10;

/// The output of `--help`.
pub const HELP: &str = "\
wss ROLE [OPTION]... runs one role of a storage system until SIGTERM.

wss rs --number N --file FILE [--file FILE]... [OPTION]...
serves files or block devices. The first one is its object 0. Initiators that log in with
answers_from=ADDRESS:PORT of the RS get from it what no CE has in its cache.
  --number N             number of this RS
  --listen ADDRESS:PORT  where RDMA/CM listens (default 0.0.0.0:5557)
  --id-ext HEX           as for the SE
  --ioc-guid HEX         as for the SE
  --threads N            threads that read and write files, 1 to 64 (default 4)
  --etcd URL[,URL]...    as for the SE; the RS waits for etcd when it starts, and accepts no SE
                         that is older than the one in etcd
  --system NAME          as for the SE
  --etcd-ca, --etcd-cert, --etcd-key, --etcd-user, --etcd-password  as for the SE
  --key FILE             keys that all roles share: one a line, of 64 hexadecimal digits.
                         The first one proves this role, each of them proves others. Read again for
                         each connection. Give it to all roles of a system, or to none

wss format --number N --object N --file FILE [--size MIB] [OPTION]...
labels a file or block device as an object of an RS, which serves no other. A new file gets --size;
a file that has blocks keeps them, a block device all except those at its end.
  --number N             number of the RS
  --object N             number of the object: the place of its --file at the RS
  --size MIB             size of a new file, whose space is reserved
  --thin                 reserves no space, and unmapped blocks free theirs: writes may find the
                         file system full
  --relabel              takes a store of another object, with its blocks, or a block device with
                         data at its end, which is lost

wss se --rs ADDRESS:PORT [--rs ...] --lun N/OBJECT[+N/OBJECT]... [--lun ...] [OPTION]...
serves SRP initiators. Each --lun is a unit that consists of objects, given by the numbers of RS
and object; the first unit is LUN 0.
  --rs ADDRESS:PORT[,ADDRESS:PORT]...
                         an RS, which may be at one of several addresses; they are tried in turn
  --listen ADDRESS:PORT  where RDMA/CM listens (default 0.0.0.0:5555)
  --id-ext HEX           identifier extension (default 1)
  --ioc-guid HEX         GUID of the controller (default 1)
  --queue-depth N        credits of a channel, 2 to 1024 (default 64)
  --channels N           maximum number of channels of a session, 1 to 64 (default 16)
  --extent MIB           size of an extent, which one CE owns, 1 to 1048576 (default 64)
  --etcd URL[,URL]...    where etcd serves clients, such as https://10.0.0.1:2379. One SE of the
                         system holds a key there; others wait until it ends. An SE ends when its
                         lease of 5 s is in doubt. Without this option its epoch is the time of day.
                         Give it to all RS and SE of a system, or to none
  --system NAME          name of the system in etcd: letters, digits, - and _
  --etcd-ca FILE         CA of the certificate of etcd, in PEM; https:// needs it
  --etcd-cert FILE       certificate that proves this client to etcd, in PEM
  --etcd-key FILE        its key
  --etcd-user NAME       user of etcd, only with https://
  --etcd-password FILE   the user's password. These files are read again if etcd refuses the role
  --key FILE             as for the RS
  --allow FILE           initiators that may log in; see srp-target

wss ce --member N --se ADDRESS:PORT [--se ...] --rs ADDRESS:PORT [--rs ...] [OPTION]...
caches blocks and sends the responses to initiators, which log in with answers_from=ADDRESS:PORT.
  --member N             number of this CE, unique in the system, not 0
  --se ADDRESS:PORT      an SE; the CE tries them in turn
  --rs ADDRESS:PORT[,ADDRESS:PORT]...
                         an RS, as for the SE; give all those of the SE
  --listen ADDRESS:PORT  where RDMA/CM listens (default 0.0.0.0:5556)
  --id-ext HEX           as for the SE
  --ioc-guid HEX         as for the SE
  --cache MIB            size of the cache, 4 to 65536 (default 64)
  --key FILE             as for the RS

All roles:
  --config FILE          TOML file with a table for each role, such as [rs], and options as keys,
                         such as threads = 4; [common] has keys of several roles. Options of the
                         command line take the place of those in the file
  --check                checks the options and files, and ends
  --status SOCKET        where srp-storage status reads the status of the process
";

/// The tables and keys of a file. Each key is an option of [`HELP`].
pub const SCHEMA: Schema = &[
    (
        "rs",
        &[
            ("number", Kind::Number),
            ("file", Kind::List),
            ("listen", Kind::Text),
            ("id-ext", Kind::Text),
            ("ioc-guid", Kind::Text),
            ("threads", Kind::Number),
            ("etcd", Kind::Joined),
            ("system", Kind::Text),
            ("etcd-ca", Kind::Text),
            ("etcd-cert", Kind::Text),
            ("etcd-key", Kind::Text),
            ("etcd-user", Kind::Text),
            ("etcd-password", Kind::Text),
            ("key", Kind::Text),
        ],
    ),
    (
        "se",
        &[
            ("rs", Kind::List),
            ("lun", Kind::List),
            ("listen", Kind::Text),
            ("id-ext", Kind::Text),
            ("ioc-guid", Kind::Text),
            ("queue-depth", Kind::Number),
            ("channels", Kind::Number),
            ("extent", Kind::Number),
            ("etcd", Kind::Joined),
            ("system", Kind::Text),
            ("etcd-ca", Kind::Text),
            ("etcd-cert", Kind::Text),
            ("etcd-key", Kind::Text),
            ("etcd-user", Kind::Text),
            ("etcd-password", Kind::Text),
            ("key", Kind::Text),
            ("allow", Kind::Text),
        ],
    ),
    (
        "ce",
        &[
            ("member", Kind::Number),
            ("se", Kind::List),
            ("rs", Kind::List),
            ("listen", Kind::Text),
            ("id-ext", Kind::Text),
            ("ioc-guid", Kind::Text),
            ("cache", Kind::Number),
            ("key", Kind::Text),
        ],
    ),
];

/// The options of `wss format`, which are in no file.
const FORMAT: Table = (
    "format",
    &[
        ("number", Kind::Number),
        ("object", Kind::Number),
        ("file", Kind::Text),
        ("size", Kind::Number),
        ("thin", Kind::Flag),
        ("relabel", Kind::Flag),
    ],
);

/// An etcd cluster and the name of the system in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct System {
    /// The cluster.
    pub etcd: Cluster,
    /// Name of the system.
    pub name: String,
}

/// The parsed command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Options {
    /// Label the store of an object.
    Format {
        /// Owner of the store.
        label: Label,
        /// The file or block device.
        file: PathBuf,
        /// Size of a new file in MiB.
        size: Option<u64>,
        /// Whether it may be of another object.
        again: bool,
    },
    /// An RS.
    Rs {
        /// Number of the RS.
        number: u32,
        /// Files of the objects.
        files: Vec<PathBuf>,
        /// Listening address.
        listen: SocketAddr,
        /// Target port identifier.
        id: [u8; 16],
        /// Number of threads for file I/O.
        threads: usize,
        /// The system in which to look up the SE.
        system: Option<System>,
        /// File of the shared keys.
        key: Option<PathBuf>,
    },
    /// An SE.
    Se {
        /// The addresses of each RS.
        stores: Vec<Vec<SocketAddr>>,
        /// The objects of each unit: RS and object.
        luns: Vec<Vec<(u32, u32)>>,
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
        /// Extent size in MiB.
        extent: u64,
        /// The system in which to register as the SE.
        system: Option<System>,
        /// File of the shared keys.
        key: Option<PathBuf>,
        /// File of the initiators that may log in.
        allow: Option<PathBuf>,
    },
    /// A CE.
    Ce {
        /// Number of the CE.
        member: u32,
        /// The candidates for the SE.
        se: Vec<SocketAddr>,
        /// The addresses of each RS.
        stores: Vec<Vec<SocketAddr>>,
        /// Listening address.
        listen: SocketAddr,
        /// Target port identifier.
        id: [u8; 16],
        /// Arena size in MiB.
        cache: usize,
        /// File of the shared keys.
        key: Option<PathBuf>,
    },
}

fn system(values: &mut Values, role: &str) -> Result<Option<System>, String> {
    let etcd = values.all("--etcd").pop().unwrap_or_default();
    let urls = etcd.to_string_lossy();
    let urls = urls.split(',').filter(|url| !url.is_empty());
    let urls: Vec<_> = urls.map(String::from).collect();
    match (Cluster::take(values, &urls)?, values.word("--system")?) {
        (None, None) => Ok(None),
        (Some(etcd), Some(name)) => Ok(Some(System { etcd, name })),
        _ => Err(format!("{role} needs both --etcd and --system")),
    }
}

/// The target port identifier of the system, and the GUID in it.
fn port(values: &mut Values) -> Result<([u8; 16], u64), String> {
    let (id_ext, guid) = (values.hex("--id-ext")?, values.hex("--ioc-guid")?);
    Ok((PortId::new(IoClass::Rev16a, id_ext, guid).0, guid))
}

/// Parses the addresses of each RS, like `10.0.0.1:1` or `10.0.0.1:1,10.0.0.2:1`.
fn stores(values: &mut Values) -> Result<Vec<Vec<SocketAddr>>, String> {
    let mut seen = BTreeSet::new();
    let mut one = |part: &str, all: &str| {
        let Ok(address) = part.parse() else {
            let of = if part == all {
                String::new()
            } else {
                format!(" of '{all}'")
            };
            return Err(format!("--rs: '{part}'{of} is not what it can be"));
        };
        match seen.insert(address) {
            true => Ok(address),
            false => Err(format!("--rs: {address} is there twice")),
        }
    };
    let mut store = |text: &OsString| {
        let all = text.to_string_lossy();
        all.split(',').map(|part| one(part, &all)).collect()
    };
    values.some("--rs")?.iter().map(&mut store).collect()
}

/// Parses objects like `1/0+2/0`.
fn objects(text: &str) -> Result<Vec<(u32, u32)>, String> {
    let one = |part: &str| {
        let (store, object) = part.split_once('/')?;
        Some((store.parse().ok()?, object.parse().ok()?))
    };
    let all: Option<Vec<_>> = text.split('+').map(one).collect();
    all.ok_or_else(|| format!("--lun: '{text}' is no list of RS/OBJECT"))
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
        let any = |_: &u32| true;
        let this = match role.as_str() {
            "format" => Self::Format {
                label: Label {
                    number: values.needed("--number", any)?,
                    object: values.needed("--object", any)?,
                    thin: values.flag("--thin"),
                },
                file: values.needed_file("--file")?,
                size: values.one("--size", |n| (1..=1 << 30).contains(n))?,
                again: values.flag("--relabel"),
            },
            "rs" => Self::Rs {
                number: values.needed("--number", any)?,
                files: values
                    .some("--file")?
                    .into_iter()
                    .map(PathBuf::from)
                    .collect(),
                listen: values.listen(5557)?,
                id: port(&mut values)?.0,
                threads: values.threads()?,
                system: system(&mut values, &role)?,
                key: values.file("--key"),
            },
            "se" => {
                let (id, guid) = port(&mut values)?;
                let luns = values.some("--lun")?;
                let luns: Result<Vec<_>, _> = luns
                    .iter()
                    .map(|text| objects(&text.to_string_lossy()))
                    .collect();
                Self::Se {
                    stores: stores(&mut values)?,
                    luns: luns?,
                    listen: values.listen(5555)?,
                    id,
                    guid,
                    queue_depth: values.queue_depth()?,
                    channels: values.channels()?,
                    extent: values
                        .one("--extent", |n| (1..=1 << 20).contains(n))?
                        .unwrap_or(64),
                    system: system(&mut values, &role)?,
                    key: values.file("--key"),
                    allow: values.file("--allow"),
                }
            }
            _ => Self::Ce {
                member: values.needed("--member", |n| *n != 0)?,
                se: values.addresses("--se")?,
                stores: stores(&mut values)?,
                listen: values.listen(5556)?,
                id: port(&mut values)?.0,
                cache: values
                    .one("--cache", |n| (4..=1 << 16).contains(n))?
                    .unwrap_or(64),
                key: values.file("--key"),
            },
        };
        if let Self::Se { luns, .. } = &this {
            let mut all: Vec<_> = luns.iter().flatten().collect();
            all.sort_unstable();
            if let Some(twice) = all.windows(2).find(|w| w[0] == w[1]) {
                let (store, object) = twice[0];
                return Err(format!("--lun: {store}/{object} is there twice"));
            }
            if luns.len() > 256 {
                return Err(format!("{} LUNs are more than 256", luns.len()));
            }
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn roles() {
        let Options::Rs {
            number,
            files,
            listen,
            threads,
            system: None,
            key: None,
            ..
        } = parse("rs --number 3 --file /a --file /b --listen 10.0.0.1:7").unwrap()
        else {
            panic!();
        };
        assert_eq!((number, files.len(), listen.port(), threads), (3, 2, 7, 4));
        let Options::Se {
            stores,
            luns,
            guid,
            extent,
            ..
        } = parse(
            "se --rs 10.0.0.1:1,10.0.0.3:1 --rs 10.0.0.2:1 --lun 1/0+2/0 --lun 2/1 --ioc-guid cd --extent 1",
        )
        .unwrap()
        else {
            panic!();
        };
        let counts: Vec<_> = stores.iter().map(Vec::len).collect();
        assert_eq!((&counts[..], guid, extent), (&[2, 1][..], 0xcd, 1));
        assert_eq!(stores[0][1], SocketAddr::from(([10, 0, 0, 3], 1)));
        assert_eq!(luns, [vec![(1, 0), (2, 0)], vec![(2, 1)]]);
        let Options::Ce {
            member, se, cache, ..
        } = parse("ce --member 2 --se 10.0.0.1:1 --se 10.0.0.2:3 --rs 10.0.0.1:2 --cache 4")
            .unwrap()
        else {
            panic!();
        };
        let ports: Vec<_> = se.iter().map(SocketAddr::port).collect();
        assert_eq!((member, &ports[..], cache), (2, &[1, 3][..], 4));
        for role in ["rs --number 1 --file /a", "se --rs 10.0.0.1:1 --lun 1/0"] {
            let line =
                format!("{role} --etcd http://10.0.0.1:2379,http://[fe80::1]:1/ --system a-1");
            let (Options::Rs { system, .. } | Options::Se { system, .. }) = parse(&line).unwrap()
            else {
                panic!();
            };
            let system = system.unwrap();
            assert_eq!((system.etcd.at.len(), system.name.as_str()), (2, "a-1"));
            assert_eq!(system.etcd.at[1].port(), 1);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, wanted) in [
            ("", "there is no role"),
            ("xe", "'xe' is no role"),
            ("rs --file /a", "rs needs --number"),
            ("rs --number 1", "rs needs --file"),
            ("rs --number 1 --file", "--file has no value"),
            (
                "rs --number x --file /a",
                "--number: 'x' is not what it can be",
            ),
            (
                "rs --number 1 --file /a --cache 9",
                "rs has no option '--cache'",
            ),
            ("se --rs 10.0.0.1:1", "se needs --lun"),
            ("se --lun 1/0", "se needs --rs"),
            (
                "se --rs 10.0.0.1 --lun 1/0",
                "--rs: '10.0.0.1' is not what it can be",
            ),
            (
                "se --rs 10.0.0.1:1,x:1 --lun 1/0",
                "--rs: 'x:1' of '10.0.0.1:1,x:1' is not what it can be",
            ),
            (
                "ce --member 1 --se 10.0.0.1:1 --rs 10.0.0.1:1,,10.0.0.2:1",
                "--rs: '' of '10.0.0.1:1,,10.0.0.2:1' is not what it can be",
            ),
            (
                "se --rs 10.0.0.1:1,10.0.0.1:1 --lun 1/0",
                "--rs: 10.0.0.1:1 is there twice",
            ),
            (
                "se --rs 10.0.0.1:1,10.0.0.2:1 --rs 10.0.0.2:1 --lun 1/0",
                "--rs: 10.0.0.2:1 is there twice",
            ),
            (
                "se --rs 10.0.0.1:1 --lun 1",
                "--lun: '1' is no list of RS/OBJECT",
            ),
            (
                "se --rs 10.0.0.1:1 --lun 1/0 --lun 1/0",
                "--lun: 1/0 is there twice",
            ),
            (
                "se --rs 10.0.0.1:1 --lun 1/0 --id-ext z",
                "--id-ext: 'z' is no GUID",
            ),
            (
                "ce --member 0 --se 10.0.0.1:1 --rs 10.0.0.1:2",
                "--member: '0' is not what it can be",
            ),
            ("ce --member 1 --rs 10.0.0.1:2", "ce needs --se"),
            (
                "rs --number 1 --file /a --system a",
                "rs needs both --etcd and --system",
            ),
            (
                "rs --number 1 --file /a --etcd http://10.0.0.1 --system a",
                "--etcd: 'http://10.0.0.1' is no http://ADDRESS:PORT or https://ADDRESS:PORT",
            ),
            (
                "rs --number 1 --file /a --etcd-ca f",
                "--etcd-ca needs https:// in --etcd",
            ),
            (
                "rs --number 1 --file /a --etcd https://10.0.0.1:1 --system a",
                "https:// in --etcd needs --etcd-ca",
            ),
            (
                "rs --number 1 --file /a --etcd https://10.0.0.1:1,http://10.0.0.2:1 --system a",
                "--etcd: all of its URLs are https://, or none",
            ),
            (
                "rs --number 1 --file /a --etcd https://10.0.0.1:1 --etcd-ca f --etcd-cert g",
                "--etcd-cert needs --etcd-key",
            ),
            (
                "rs --number 1 --file /a --etcd https://10.0.0.1:1 --etcd-ca f --etcd-password g",
                "--etcd-password needs --etcd-user",
            ),
            (
                "rs --number 1 --file /a --etcd http://10.0.0.1:1 --etcd-user g",
                "--etcd-user needs https:// in --etcd",
            ),
            (
                "rs --number 1 --file /a --etcd http://10.0.0.1:1 --system a/b",
                "--system: 'a/b' is not what it can be",
            ),
        ] {
            assert_eq!(parse(line), Err(wanted.into()), "{line}");
        }
    }

    #[test]
    fn keys_are_options_and_the_example_is_right() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/wss.toml");
        srp_target::config::check_roles(("wss", HELP, SCHEMA), example, Options::parse);
    }
}
