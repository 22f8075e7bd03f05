// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions, for packages.

use crate::{
    cli::{Cli, Generate},
    error::{Error, Result},
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
    let page = command.clone().name(name);
    let mut text = Vec::new();
    Man::new(page)
        .section("8")
        .manual("SRP")
        .render(&mut text)
        .and_then(|()| fs::write(&path, text))
        .map_err(|e| Error::io(path, e))
}
