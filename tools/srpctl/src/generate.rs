// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions for the packages.

use crate::{
    cli::{Cli, Generate},
    complete,
    error::{Error, Result, STATUS},
    version,
};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::{fs, path::Path};

/// Writes the manual pages and the completions to a directory.
pub fn run(args: &Generate) -> Result {
    let folder = &args.folder;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(folder, &command)?;
    complete::scripts(folder)
}

/// Writes `srpctl.8`, `srpctl-connect.8` and so on.
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
        page = page.version(version::OURS);
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

/// A section of srpctl-connect(8), in roff.
const FILES: &str = "\
.SH FILES
.TP
.I /etc/srp/targets.d/NAME.conf
A target to log in to at boot. srp-generator creates the service srp-connect@NAME for each such \
file. Lines are `name = \"value\"`; numbers need no quotes, hexadecimal values do; `#` begins a \
comment. Names are those of the options above with `_` instead of `-`: device, port, the login \
options, the timeouts. dest may have a host name, which each login looks up. `onboot = false` \
leaves the login to `srpctl connect`. \
`initramfs = true` is for the target of the root file system: \
`update-initramfs -u` copies it to the initramfs, which sets up the network as the kernel's \
parameter ip= says and logs in; this session is never logged out. An invalid line is reported, and \
nothing is done; `update-initramfs` and `dracut` then fail.
.IP
At boot the login is retried for 60 seconds before remote file systems are mounted, then every few \
seconds while the boot continues; when it succeeds, failed mounts are retried. When the session is \
gone later, because of dev_loss_tmo, the adapter or the module, srp-restore.timer has the service \
log in again, until `srpctl disconnect`. In fstab such a \
file system needs the option _netdev, and nofail if the machine must boot without it. At shutdown \
the logout follows after the file systems are unmounted.
.TP
.I /run/srp/hostN
The program that created the session: srpctl or initramfs. A session without such a file was \
created by srp_daemon or another program, and `srpctl disconnect --all` does not end it.
.TP
.I /run/srp/*.lock
Held while a login or a logout goes on.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn generated() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        run(&Generate {
            folder: folder.path().into(),
        })
        .unwrap();
        folder
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = generated();
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|part| !part.is_hide_set());
        for name in visible.map(Command::get_name) {
            let page = fs::read_to_string(folder.path().join(format!("srpctl-{name}.8"))).unwrap();
            assert!(page.contains(&format!(".TH srpctl-{name} 8")), "{name}");
        }
        assert!(folder.path().join("srpctl.8").exists());
        assert!(!folder.path().join("srpctl-generate.8").exists());
    }
}
