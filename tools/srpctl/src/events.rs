// SPDX-License-Identifier: GPL-2.0

//! `srpctl events`. A device event or a line of the kernel log triggers a look at sysfs; the events
//! are the differences between two looks. So a lost message loses no event.

use crate::{
    cli::Events,
    error::{Error, Result},
    event::Event,
    kernel_log::{KernelLog, Line},
    look::{Look, Watcher},
    out::{say, tell},
    signals::Signals,
    sysfs::Sysfs,
    uevent::{Uevent, Uevents},
};
use nix::{
    errno::Errno,
    poll::{poll, PollFd, PollFlags, PollTimeout},
    sys::signal::Signal,
};
use std::{
    io::stdout,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant, SystemTime},
};

/// Interval of the checks of all sessions, for changes without an event.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the checks of all disks, which may be thousands.
const DISKS: Duration = Duration::from_secs(30);
/// Minimum interval of the checks of all disks while events arrive.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of checks of all disks after an event. The event of a removal precedes its end.
const LOOKS: u32 = 3;

/// Prints what happens, until a signal arrives.
pub fn run(sysfs: &Sysfs, args: &Events) -> Result {
    let stop = Signals::take(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])
        .map_err(|e| Error::Program(format!("signals: {e}")))?;
    let sources = Sources {
        uevents: Uevents::listen()?,
        log: KernelLog::from_now(),
    };
    if sources.log.is_none() {
        tell!(
            "the kernel log cannot be read; of several losses within a second only the \
             last has its reason; root may read it"
        );
    }
    follow(sysfs, sources, stop.as_fd(), &mut |event| {
        match args.json {
            true => match serde_json::to_string(event) {
                Ok(text) => say!("{text}"),
                Err(e) => return Err(Error::Program(e.to_string())),
            },
            false => say!("{event}"),
        }
        Ok(())
    })
}

/// The sources of events.
struct Sources {
    uevents: Uevents,
    log: Option<KernelLog>,
}

/// The events since the last call.
struct News {
    lines: Vec<Line>,
    uevents: Vec<Uevent>,
    /// The disks may have changed.
    disks: bool,
}

impl Sources {
    fn take(&mut self) -> News {
        let (mut uevents, lost) = self.uevents.take();
        let subsystems = ["block", "scsi", "scsi_host", "srp_remote_ports"];
        uevents.retain(|event| subsystems.contains(&event.get("SUBSYSTEM")));
        // Partitions come and go with their disks.
        uevents.retain(|event| event.get("DEVTYPE") != "partition");
        News {
            lines: self.log.as_mut().map_or(Vec::new(), KernelLog::lines),
            disks: lost || !uevents.is_empty(),
            uevents,
        }
    }

    /// Waits for an event. Returns whether the program continues: `stop` is not readable, and `out`
    /// has a reader.
    fn wait(&self, stop: BorrowedFd<'_>, out: BorrowedFd<'_>, time: Duration) -> Result<bool> {
        let mut files = vec![
            PollFd::new(stop, PollFlags::POLLIN),
            PollFd::new(out, PollFlags::empty()),
            PollFd::new(self.uevents.as_fd(), PollFlags::POLLIN),
        ];
        let log = self.log.as_ref();
        files.extend(log.map(|log| PollFd::new(log.as_fd(), PollFlags::POLLIN)));
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        match poll(&mut files, time) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(e) => return Err(Error::Program(format!("poll: {e}"))),
        }
        let ended = |file: &PollFd<'_>, flags| file.revents().is_some_and(|r| r.intersects(flags));
        // A pipe without a reader has an error, and a socket hangs up.
        let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
        Ok(!ended(&files[0], PollFlags::POLLIN) && !ended(&files[1], closed))
    }
}

/// Passes the events to `emit` until `stop` is readable.
fn follow(
    sysfs: &Sysfs,
    mut sources: Sources,
    stop: BorrowedFd<'_>,
    emit: &mut dyn FnMut(&Event) -> Result,
) -> Result {
    let (mut watcher, start) = Watcher::new(Look::all(sysfs), SystemTime::now());
    emit(&start)?;
    let mut looked = Instant::now();
    let mut left = 0;
    loop {
        let time = if left > 0 { PAUSE } else { INTERVAL };
        if !sources.wait(stop, stdout().as_fd(), time)? {
            return Ok(());
        }
        let news = sources.take();
        if news.disks {
            left = LOOKS;
        }
        let paused = looked.elapsed() >= PAUSE;
        let disks = left > 0 && paused || looked.elapsed() >= DISKS;
        let now = match disks {
            true => Look::all(sysfs),
            false => Look::sessions(sysfs, &watcher),
        };
        if disks {
            looked = Instant::now();
            left = left.saturating_sub(1);
        }
        watcher.hear(&news.lines);
        for event in watcher.see(now, SystemTime::now()) {
            emit(&event)?;
        }
        for event in news.uevents.iter().filter_map(|e| watcher.path(sysfs, e)) {
            emit(&event)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::machine;
    use std::{fs, io::Write, os::unix::net::UnixStream, sync::mpsc, thread};

    #[test]
    fn what_happens_after_the_first_line_is_told_until_a_signal() {
        let folder = machine();
        let channels = folder.path().join("sys/class/scsi_host/host9/ch_count");
        let (stop, mut signal) = UnixStream::pair().unwrap();
        let (tell, told) = mpsc::channel();
        // The thread is not joined, so a missed signal fails the test and does not hang it.
        thread::spawn(move || {
            let sources = Sources {
                uevents: Uevents::listen().unwrap(),
                log: None,
            };
            let sysfs = Sysfs::below(folder.path());
            let end = follow(&sysfs, sources, stop.as_fd(), &mut |event| {
                tell.send(event.to_string()[25..].to_string()).unwrap();
                Ok(())
            });
            tell.send(format!("{end:?}")).unwrap();
        });
        let next = || told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(next(), "sessions: 2");
        fs::write(channels, "3\n").unwrap();
        assert!(next().ends_with(": channels: 3"));
        signal.write_all(b"x").unwrap();
        assert_eq!(next(), "Ok(())");
    }

    #[test]
    fn a_signal_ends_it() {
        thread::spawn(|| {
            let signals = Signals::take(&[Signal::SIGTERM]).unwrap();
            let sources = Sources {
                uevents: Uevents::listen().unwrap(),
                log: None,
            };
            let out = stdout();
            let wait = || sources.wait(signals.as_fd(), out.as_fd(), Duration::ZERO);
            assert!(wait().unwrap());
            nix::sys::signal::raise(Signal::SIGTERM).unwrap();
            assert!(!wait().unwrap());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_reader_that_closes_ends_it() {
        let sources = Sources {
            uevents: Uevents::listen().unwrap(),
            log: None,
        };
        let (stop, _signal) = UnixStream::pair().unwrap();
        let goes_on = |out: BorrowedFd<'_>| {
            let went_on = sources.wait(stop.as_fd(), out, Duration::ZERO);
            went_on.unwrap()
        };
        let (out, reader) = UnixStream::pair().unwrap();
        assert!(goes_on(out.as_fd()));
        drop(reader);
        assert!(!goes_on(out.as_fd()));
        let (reader, out) = nix::unistd::pipe().unwrap();
        assert!(goes_on(out.as_fd()));
        drop(reader);
        assert!(!goes_on(out.as_fd()));
    }
}
