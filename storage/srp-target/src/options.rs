// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

use crate::{
    config::{Kind, Schema},
    proto::{guid::IoClass, ids::PortId},
    store::Use,
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
  --threads N            threads that read and write files, 1 to 64 (default 4)
  --allow FILE           initiators that may log in (default: all). A line has a port identifier of
                         32 hexadecimal digits, and maybe luns=0,2-5 and target=IDENTIFIER. Read
                         again for each login
  --config FILE          TOML file with options as keys, such as queue-depth = 64; options of the
                         command line take the place of those in the file
  --check                checks the options and files, and ends
  --status SOCKET        where srp-storage status reads what the process tells of itself
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
    /// Number of threads that execute commands.
    pub threads: usize,
    /// File of the initiators that may log in.
    pub allow: Option<PathBuf>,
}

/// Parses a value. The error names the option.
pub fn value<T: FromStr>(name: &str, text: &str, good: impl Fn(&T) -> bool) -> Result<T, String> {
    let value = text.parse().ok().filter(good);
    value.ok_or_else(|| format!("{name}: '{text}' is not what it can be"))
}

impl Options {
    /// Parses the arguments, without the program name. The error says what is wrong.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut this = Self {
            luns: Vec::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 5555)),
            id_ext: 1,
            ioc_guid: 1,
            read_only: false,
            shared: false,
            queue_depth: 64,
            channels: 16,
            threads: 4,
            allow: None,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let name = arg.to_string_lossy().into_owned();
            match name.as_str() {
                "--read-only" => {
                    this.read_only = true;
                    continue;
                }
                "--shared" => {
                    this.shared = true;
                    continue;
                }
                _ => {}
            }
            const NAMES: [&str; 8] = [
                "--lun",
                "--listen",
                "--id-ext",
                "--ioc-guid",
                "--queue-depth",
                "--channels",
                "--threads",
                "--allow",
            ];
            if !NAMES.contains(&name.as_str()) {
                return Err(format!("unknown option '{name}'"));
            }
            let next = args.next().ok_or_else(|| format!("{name} has no value"))?;
            if name == "--lun" {
                this.luns.push(next.into());
                continue;
            }
            if name == "--allow" {
                this.allow = Some(next.into());
                continue;
            }
            let text = next.to_string_lossy();
            let hex = || {
                let digits = text.strip_prefix("0x").unwrap_or(&text);
                u64::from_str_radix(digits, 16).map_err(|_| format!("{name}: '{text}' is no GUID"))
            };
            match name.as_str() {
                "--listen" => this.listen = value(&name, &text, |_| true)?,
                "--id-ext" => this.id_ext = hex()?,
                "--ioc-guid" => this.ioc_guid = hex()?,
                "--queue-depth" => {
                    this.queue_depth = value(&name, &text, |n| (2..=1024).contains(n))?
                }
                "--channels" => this.channels = value(&name, &text, |n| (1..=64).contains(n))?,
                _ => this.threads = value(&name, &text, |n| (1..=64).contains(n))?,
            }
        }
        if this.luns.is_empty() {
            return Err("there is no --lun".into());
        }
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
