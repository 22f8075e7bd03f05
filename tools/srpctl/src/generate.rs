// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions, for packages.

use crate::{
    cli::{Cli, Generate},
    error::{Error, Result},
};
use clap::CommandFactory;
use clap_complete::{generate_to, Shell};

/// Writes all of them into one folder.
pub fn run(args: &Generate) -> Result {
    let folder = &args.folder;
    let mut command = Cli::command();
    command.build();
    clap_mangen::generate_to(command.clone(), folder).map_err(|e| Error::io(folder, e))?;
    for shell in [Shell::Bash, Shell::Zsh] {
        generate_to(shell, &mut command, "srpctl", folder).map_err(|e| Error::io(folder, e))?;
    }
    Ok(())
}
