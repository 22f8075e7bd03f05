// SPDX-License-Identifier: GPL-2.0

//! `odd-target`: see `--help`.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

mod carrier;
mod ib;

use std::{
    fs::{self, File},
    io::{self, Read},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use odd_target::orders::{Order, HELP};
use srp_target::{disk::Disk, program, scsi::Unit, store::Use};

use carrier::Carrier;

/// Size of a unit in bytes, and the number of units that `luns` can show.
const DISK: u64 = 16 << 20;
const UNITS: usize = 8;

/// The addresses of the target.
enum Endpoint {
    /// By RDMA/CM: the address for commands, and that for responses.
    Rdma(SocketAddr, SocketAddr),
    /// By the InfiniBand CM: names and devices.
    Ib(Vec<(String, String)>),
}

fn parse(args: Vec<std::ffi::OsString>) -> Result<Endpoint, String> {
    let args: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
    let args: Vec<&str> = args.iter().map(|a| &**a).collect();
    match args[..] {
        ["ib", ref agents @ ..] if !agents.is_empty() => {
            let agent = |p: &&str| match p.split_once(':') {
                Some((name, device)) => Ok((name.into(), device.into())),
                None => Err(format!("'{p}' is no NAME:DEVICE")),
            };
            Ok(Endpoint::Ib(
                agents.iter().map(agent).collect::<Result<_, _>>()?,
            ))
        }
        [address, port, answers] => {
            let wrong = |what: &str| format!("'{what}' is wrong");
            let ip: IpAddr = address.parse().map_err(|_| wrong(address))?;
            let at = |port: &str| {
                let port = port.parse().map_err(|_| wrong(port))?;
                Ok::<_, String>(SocketAddr::new(ip, port))
            };
            Ok(Endpoint::Rdma(at(port)?, at(answers)?))
        }
        _ => Err("needs ADDRESS PORT ANSWERS, or ib NAME:DEVICE...".into()),
    }
}

/// Logs a line with the time in seconds since `begin`.
fn say(begin: Instant, what: &str) {
    println!("{:.6} {what}", begin.elapsed().as_secs_f64());
}

/// A unit of zeros in a file that nothing else can open.
fn unit(number: usize) -> io::Result<Arc<Unit>> {
    let name = format!("odd-target-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    File::create_new(&path)?.set_len(DISK)?;
    let disk = Disk::open(&path, Use::Alone);
    fs::remove_file(&path)?;
    Ok(Arc::new(Unit::new(disk?, 0)))
}

/// The lines of standard input.
struct Lines {
    file: File,
    bytes: Vec<u8>,
}

impl Lines {
    /// The complete lines after a read; `None` at the end of the file.
    fn read(&mut self) -> io::Result<Option<Vec<String>>> {
        let mut more = [0; 4096];
        let n = self.file.read(&mut more)?;
        if n == 0 {
            return Ok(None);
        }
        self.bytes.extend_from_slice(&more[..n]);
        let end = self
            .bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.bytes.drain(..end).collect();
        let lines = String::from_utf8_lossy(&lines);
        Ok(Some(lines.lines().map(String::from).collect()))
    }
}

fn run(endpoint: Endpoint) -> io::Result<()> {
    let begin = Instant::now();
    let units = (0..UNITS).map(unit).collect::<io::Result<_>>()?;
    let mut carrier = match endpoint {
        Endpoint::Rdma(commands, answers) => Carrier::rdma(begin, units, commands, answers)?,
        Endpoint::Ib(agents) => Carrier::ib(begin, units, &agents)?,
    };
    let mut orders = Lines {
        file: io::stdin().as_fd().try_clone_to_owned()?.into(),
        bytes: Vec::new(),
    };
    say(begin, "listens");
    let mut timeout = -1;
    loop {
        let mut fds = vec![orders.file.as_raw_fd()];
        fds.extend(carrier.fds());
        let ready = verbs::os::wait(&fds, timeout)?;
        timeout = carrier.turn()?;
        if ready.first() != Some(&true) {
            continue;
        }
        let Some(lines) = orders.read()? else {
            return Ok(());
        };
        for line in lines {
            let good = Order::parse(&line).is_some_and(|order| carrier.told(order));
            say(
                begin,
                &format!("{} {line}", if good { "did" } else { "FAILED:" }),
            );
        }
        timeout = 0;
    }
}

fn main() -> ExitCode {
    program::main("odd-target", HELP, parse, run)
}
