// SPDX-License-Identifier: GPL-2.0

//! `srp-target`: see `--help`.

use std::{io, path::PathBuf, process::ExitCode, sync::Arc};

use srp_target::{
    acl::ListFile,
    disk::Disk,
    fabric::Fabric,
    options::{Options, HELP, SCHEMA},
    program,
    scsi::Unit,
    status::Board,
    store::Use,
    target::Settings,
};

fn units(options: &Options, how: Use) -> io::Result<Vec<Arc<Unit>>> {
    let unit = |path: &PathBuf| {
        let disk = Disk::open(path, how)?;
        Ok(Arc::new(Unit::new(disk, options.ioc_guid)))
    };
    options.luns.iter().map(unit).collect()
}

fn run(options: &Options, board: Option<&Board>) -> io::Result<()> {
    // Threads inherit the signal mask, so block the signals first.
    let stop = verbs::os::signals()?;
    let units = units(options, options.how())?;
    let settings = Settings {
        id: options.port_id(),
        queue_depth: options.queue_depth,
        channels: options.channels,
    };
    let counts = [options.reactors, options.threads];
    let mut fabric = Fabric::new(settings, units, options.listen, counts)?;
    if let Some(file) = &options.allow {
        fabric.allow(ListFile::open(file)?);
    }
    program::ready(&format!("listens at {}", options.listen));
    fabric.run(&stop, board)?;
    drop(fabric);
    tracing::info!("ended");
    Ok(())
}

fn main() -> ExitCode {
    // A running target has its files, so the check only reads them.
    let check = |options: Options| {
        options.allow.as_deref().map(ListFile::open).transpose()?;
        units(&options, Use::Checking).map(|_| ())
    };
    let name = ("srp-target", HELP, SCHEMA);
    program::configured(name, Options::parse, check, |options, board| {
        run(&options, board.as_deref())
    })
}
