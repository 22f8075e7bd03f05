// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions, for packages.

use crate::{
    cli::{Cli, Generate},
    error::{Error, Result, STATUS},
};
use clap::{Command, CommandFactory};
use clap_complete::{generate_to, Shell};
use clap_mangen::Man;
use std::{fs, path::Path};

/// Writes all of them into one folder.
pub fn run(args: &Generate) -> Result {
    let folder = &args.folder;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(folder, &command)?;
    for shell in [Shell::Bash, Shell::Zsh] {
        generate_to(shell, &mut command, "srpctl", folder).map_err(|e| Error::io(folder, e))?;
    }
    Ok(())
}

/// `srpctl.8`, and `srpctl-connect.8` and so on.
fn pages(folder: &Path, command: &Command) -> Result {
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        pages(folder, part)?;
    }
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_string();
    let path = folder.join(format!("{name}.8"));
    let mut page = command
        .clone()
        .name(name)
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    if page.get_version().is_none() {
        page = page.version(env!("CARGO_PKG_VERSION"));
    }
    let man = Man::new(page).section("8").manual("SRP");
    let mut text = Vec::new();
    let io = |e| Error::io(&path, e);
    man.render_title(&mut text).map_err(io)?;
    man.render_name_section(&mut text).map_err(io)?;
    man.render_synopsis_section(&mut text).map_err(io)?;
    man.render_description_section(&mut text).map_err(io)?;
    man.render_options_section(&mut text).map_err(io)?;
    if command.get_subcommands().any(|part| !part.is_hide_set()) {
        man.render_subcommands_section(&mut text).map_err(io)?;
    }
    let status = STATUS.lines().skip(1).map(|line| {
        let (number, meaning) = line.trim_start().split_once("  ").unwrap_or((line, ""));
        format!(".TP\n{number}\n{meaning}\n")
    });
    let mut end = format!(".SH \"EXIT STATUS\"\n{}", status.collect::<String>());
    if command.get_name() == "connect" {
        end += FILES;
    }
    end += ".SH \"SEE ALSO\"\nsrpctl(8), srp_daemon(8), systemd.unit(5), fstab(5), multipath.conf(5)\n";
    text.extend_from_slice(end.as_bytes());
    fs::write(&path, text).map_err(io)
}

/// Of srpctl-connect(8), in roff.
const FILES: &str = "\
.SH FILES
.TP
.I /etc/srp/targets.d/NAME.conf
A target that is logged in at boot, by the service srp-connect@NAME, which srp-generator makes of each such file. Lines \
are `name = \"value\"`; numbers need no quotes, what is hexadecimal does; `#` begins a comment. Names are those of the \
options above with `_` instead of `-`: device, port, the login options, the timeouts. `initramfs = true` is for the target \
that the root file system is on: `update-initramfs -u` puts it into the initramfs, which sets up the network as the \
kernel's parameter ip= says and logs in; nobody logs out of it. A line that is not understood is \
named, and nothing is done.
.IP
At boot the login is tried for 60 seconds before remote file systems are mounted, then every few seconds beside the boot; \
when it succeeds, mounts that have failed are tried again. In fstab such a file system needs the option _netdev, and \
nofail if the machine is to boot without it. At shutdown the log-out comes after the file systems are unmounted.
.TP
.I /run/srp/hostN
Who has made the session: srpctl or initramfs. A session without such a file is srp_daemon's, or that of somebody else, \
and `srpctl disconnect --all` spares it.
";
