// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use crate::{
    config::{Kind, Schema},
    proto::{guid::IoClass, ids::PortId},
    store::Use,
    values::Values,
};

/// The output of `--help`.
pub const HELP: &str = "\
srp-target --lun FILE [--lun FILE]... [OPTION]...
exports files or block devices by SRP until SIGTERM. The first one is LUN 0.

  --listen ADDRESS:PORT  where RDMA/CM listens ([::1]:5555 for IPv6; default 0.0.0.0:5555)
  --id-ext HEX           identifier extension (default 1)
  --ioc-guid HEX         GUID of the controller (default 1)
  --read-only            write-protects all units
  --shared               other targets may have the files, too, if they have this option
  --queue-depth N        credits of a channel, 2 to 1024 (default 64)
  --channels N           maximum number of channels of a session, 1 to 64 (default 16)
  --reactors N           threads that serve channels, 1 to 64 (default: one for each CPU, at most
                         8). Channels go to them in turn. Each has a part of the 512 MiB per adapter
                         for messages and data
  --threads N            threads of each reactor that read and write files, 1 to 64 (default 4)
  --allow FILE           initiators that may log in (default: all). A line has a port identifier of
                         32 hexadecimal digits, and maybe luns=0,2-5 and target=IDENTIFIER. Read
                         again for each login
  --config FILE          TOML file with options as keys, such as queue-depth = 64; options of the
                         command line take the place of those in the file
  --check                checks the options and files, and ends
  --status SOCKET        where srp-storage status reads the status of the process
";

/// The keys of a file. Each is an option of [`HELP`].
pub const SCHEMA: Schema = &[(
    "",
    &[
        ("lun", Kind::List),
        ("listen", Kind::Text),
        ("id-ext", Kind::Text),
        ("ioc-guid", Kind::Text),
        ("read-only", Kind::Flag),
        ("shared", Kind::Flag),
        ("queue-depth", Kind::Number),
        ("channels", Kind::Number),
        ("reactors", Kind::Number),
        ("threads", Kind::Number),
        ("allow", Kind::Text),
    ],
)];

/// The parsed command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// The files, by LUN.
    pub luns: Vec<PathBuf>,
    /// Listening address.
    pub listen: SocketAddr,
    /// Identifier extension.
    pub id_ext: u64,
    /// GUID of the I/O controller.
    pub ioc_guid: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether other targets may have the files, too.
    pub shared: bool,
    /// Number of credits per channel.
    pub queue_depth: u32,
    /// Maximum number of channels per session.
    pub channels: usize,
    /// Number of threads that serve channels.
    pub reactors: usize,
    /// Number of threads of each reactor that execute commands.
    pub threads: usize,
    /// File of the initiators that may log in.
    pub allow: Option<PathBuf>,
}

impl Options {
    /// Parses the arguments, without the program name. The error says what is wrong.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut values = Values::new("a target", SCHEMA[0].1, args)?;
        let this = Self {
            luns: values
                .some("--lun")?
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            listen: values.listen(5555)?,
            id_ext: values.hex("--id-ext")?,
            ioc_guid: values.hex("--ioc-guid")?,
            read_only: values.flag("--read-only"),
            shared: values.flag("--shared"),
            queue_depth: values.queue_depth()?,
            channels: values.channels()?,
            reactors: values.reactors()?,
            threads: values.threads()?,
            allow: values.file("--allow"),
        };
        if this.luns.len() > 256 {
            return Err(format!("{} LUNs are more than 256", this.luns.len()));
        }
        Ok(this)
    }

    /// Returns how the files are opened.
    pub fn how(&self) -> Use {
        match (self.read_only, self.shared) {
            (true, _) => Use::Reading,
            (false, true) => Use::Shared,
            (false, false) => Use::Alone,
        }
    }

    /// Returns the target port identifier.
    pub fn port_id(&self) -> [u8; 16] {
        PortId::new(IoClass::Rev16a, self.id_ext, self.ioc_guid).0
    }
}
