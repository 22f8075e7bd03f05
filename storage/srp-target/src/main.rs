// SPDX-License-Identifier: GPL-2.0

//! `srp-target`: see `--help`.

use std::{io, process::ExitCode, sync::Arc};

use srp_target::{
    acl::ListFile,
    disk::Disk,
    fabric::Fabric,
    options::{Options, HELP},
    program,
    scsi::Unit,
    target::{Settings, Target},
};

fn run(options: &Options) -> io::Result<()> {
    // Threads inherit the signal mask, so block the signals first.
    let stop = verbs::os::signals()?;
    let mut units = Vec::new();
    for path in &options.luns {
        let disk = Disk::open(path, options.read_only)?;
        units.push(Arc::new(Unit::new(disk, options.ioc_guid)));
    }
    let settings = Settings {
        id: options.port_id(),
        queue_depth: options.queue_depth,
        channels: options.channels,
    };
    let target = Target::new(settings, units.clone());
    let mut fabric = Fabric::new(target, options.listen, options.threads)?;
    if let Some(file) = &options.allow {
        fabric.allow(ListFile::open(file)?);
    }
    println!("listens at {}", options.listen);
    fabric.run(&stop)?;
    drop(fabric);
    println!("ended");
    Ok(())
}

fn main() -> ExitCode {
    program::main("srp-target", HELP, Options::parse, |options| run(&options))
}
