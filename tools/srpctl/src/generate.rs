// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions for the packages.

use crate::{
    cli::{Cli, Generate},
    complete,
    error::{Error, Result, STATUS},
    manual, version,
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
    for (name, text) in manual::pages() {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| Error::io(&path, e))?;
    }
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
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    text.extend_from_slice(format!(".SH SYNOPSIS\n{usage}\n").as_bytes());
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
    end += &manual::examples(command.get_name());
    end += ".SH \"SEE ALSO\"\nsrpctl(8), targets.d(5), srp\\-connect@.service(8), srp_daemon(8), \
            multipath.conf(5)\n";
    text.extend_from_slice(end.as_bytes());
    fs::write(&path, text).map_err(io)
}

/// A section of srpctl-connect(8), in roff.
const FILES: &str = "\
.SH FILES
.TP
.I /etc/srp/targets.d/NAME.conf
A target to log in to at boot, see targets.d(5).
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
            let usage = format!("\n.SH SYNOPSIS\nsrpctl {}", name.replace('-', "\\-"));
            assert!(page.contains(&usage), "{name}");
            assert!(page.contains("\n.SH EXAMPLES\n.PP\n"), "{name}");
        }
        let page = fs::read_to_string(folder.path().join("targets.d.5")).unwrap();
        let version = format!("\"srpctl {}\"", version::OURS);
        assert!(page.starts_with(&format!(".TH targets.d 5 \"\" {version} ")));
        assert!(folder.path().join("srp-connect@.service.8").exists());
        assert!(folder.path().join("srpctl.8").exists());
        assert!(!folder.path().join("srpctl-generate.8").exists());
    }
}
