// SPDX-License-Identifier: GPL-2.0

//! `srpctl watch`.

use crate::{
    cli::Watch,
    error::{Error, Result},
    list,
    out::say,
    session::Session,
    statistics::Statistics,
    sysfs::{self, Sysfs},
};
use ratatui::{
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    layout::Constraint,
    style::{Style, Stylize},
    widgets::{Row, Table},
    DefaultTerminal,
};
use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

/// Sums of /sys/class/block/<disk>/stat over the session's disks.
#[derive(Clone, Copy, Debug, Default)]
struct Io {
    reads: u64,
    writes: u64,
    read_sectors: u64,
    write_sectors: u64,
    milliseconds: u64,
    in_flight: u64,
}

impl Io {
    fn of(sysfs: &Sysfs, session: &Session) -> Self {
        let mut sum = Self::default();
        for disk in &session.disks {
            let text = sysfs::text(sysfs.path(format!("/sys/class/block/{}/stat", disk.name)))
                .unwrap_or_default();
            let numbers: Vec<u64> = text
                .split_whitespace()
                .map_while(|word| word.parse().ok())
                .collect();
            let [reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, in_flight, ..] =
                numbers[..]
            else {
                continue;
            };
            sum.reads += reads;
            sum.writes += writes;
            sum.read_sectors += read_sectors;
            sum.write_sectors += write_sectors;
            sum.milliseconds += read_ms + write_ms;
            sum.in_flight += in_flight;
        }
        sum
    }
}

/// A snapshot of one session.
struct Sample {
    session: Session,
    io: Io,
    statistics: Statistics,
    credits: Option<String>,
}

/// A snapshot of all sessions.
struct Look {
    at: Instant,
    samples: Vec<Sample>,
}

impl Look {
    fn now(sysfs: &Sysfs) -> Self {
        let samples = Session::all(sysfs).into_iter().map(|session| Sample {
            io: Io::of(sysfs, &session),
            statistics: Statistics::of(sysfs, session.host),
            credits: sysfs::text(session.folder(sysfs).join("req_lim")),
            session,
        });
        Self {
            at: Instant::now(),
            samples: samples.collect(),
        }
    }

    /// Returns a line per session with its activity since `before`.
    fn lines(&self, before: &Self) -> Vec<[String; HEAD.len()]> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        let old: BTreeMap<u32, &Sample> =
            before.samples.iter().map(|s| (s.session.host, s)).collect();
        let lines = self.samples.iter().map(|sample| {
            let was = old
                .get(&sample.session.host)
                .map(|old| old.io)
                .unwrap_or_default();
            let io = sample.io;
            // The sum decreases if a disk is removed.
            let per_second = |now: u64, was: u64| now.saturating_sub(was) as f64 / seconds;
            let done = io.reads.saturating_sub(was.reads) + io.writes.saturating_sub(was.writes);
            let latency = match done {
                0 => "-".into(),
                _ => format!(
                    "{:.2}",
                    io.milliseconds.saturating_sub(was.milliseconds) as f64 / done as f64
                ),
            };
            let megabytes = |now, was| format!("{:.1}", per_second(now, was) * 512.0 / 1e6);
            [
                sample.session.name(),
                sample.session.label(),
                sample.session.state.clone(),
                format!("{:.0}", per_second(io.reads, was.reads)),
                format!("{:.0}", per_second(io.writes, was.writes)),
                megabytes(io.read_sectors, was.read_sectors),
                megabytes(io.write_sectors, was.write_sectors),
                latency,
                io.in_flight.to_string(),
                sample.credits.clone().unwrap_or_else(|| "-".into()),
                ways(
                    &sample.statistics,
                    old.get(&sample.session.host).map(|old| &old.statistics),
                ),
                sample.statistics.sum("connections_lost").to_string(),
            ]
        });
        lines.collect()
    }
}

const HEAD: [&str; 12] = [
    "HOST",
    "TARGET",
    "STATE",
    "READ/S",
    "WRITE/S",
    "READ MB/S",
    "WRITE MB/S",
    "MS",
    "IN FLIGHT",
    "CREDITS",
    "WAY",
    "LOST",
];

/// Data paths of commands, by the names of their counters.
const WAYS: [&str; 4] = ["none", "immediate", "static", "dynamic"];

/// Formats the percentage of commands on each data path since `was`.
fn ways(now: &Statistics, was: Option<&Statistics>) -> String {
    let share = WAYS.map(|way| {
        let name = format!("way_{way}");
        let now = now.sum(&name);
        now - was.map_or(0, |was| was.sum(&name)).min(now)
    });
    let all: u64 = share.iter().sum();
    if all == 0 {
        return "-".into();
    }
    let words = WAYS.iter().zip(share).filter(|(_, count)| *count > 0);
    let words = words.map(|(way, count)| format!("{way} {} %", (count * 100 + all / 2) / all));
    words.collect::<Vec<_>>().join(", ")
}

/// Shows the activity of the sessions.
pub fn run(sysfs: &Sysfs, args: &Watch) -> Result {
    let interval = Duration::from_secs(args.interval.into());
    if let Some(count) = args.count {
        let mut before = Look::now(sysfs);
        for _ in 0..count {
            sleep(interval);
            let now = Look::now(sysfs);
            say!("{}", list::plain(&HEAD, now.lines(&before)).trim_fmt());
            before = now;
        }
        return Ok(());
    }
    let mut terminal = ratatui::try_init()
        .map_err(|e| Error::Program(format!("no terminal: {e}; --count needs none")))?;
    let result = until_quit(sysfs, interval, &mut terminal);
    ratatui::restore();
    result.map_err(|e| Error::Program(format!("terminal: {e}")))
}

fn until_quit(
    sysfs: &Sysfs,
    interval: Duration,
    terminal: &mut DefaultTerminal,
) -> std::io::Result<()> {
    let mut before = Look::now(sysfs);
    let mut lines = before.lines(&before);
    loop {
        terminal.draw(|frame| frame.render_widget(table(&lines), frame.area()))?;
        let end = before.at + interval;
        while event::poll(end.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.code == KeyCode::Char('q') => return Ok(()),
                Event::Key(key)
                    if key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL =>
                {
                    return Ok(());
                }
                Event::Resize(..) => terminal.autoresize()?,
                _ => {}
            }
        }
        let now = Look::now(sysfs);
        lines = now.lines(&before);
        before = now;
    }
}

fn table(lines: &[[String; HEAD.len()]]) -> Table<'_> {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        let widest = cells.chain([HEAD[column].len()]).max().unwrap_or(0);
        Constraint::Length(u16::try_from(widest).unwrap_or(u16::MAX))
    };
    let rows = lines.iter().map(|line| {
        let row = Row::new(line.iter().map(String::as_str));
        match line[2].as_str() {
            "running" => row,
            _ => row.style(Style::new().red()),
        }
    });
    Table::new(rows, (0..HEAD.len()).map(width))
        .header(Row::new(HEAD).style(Style::new().bold()))
        .column_spacing(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::{backend::TestBackend, Terminal};

    fn look(at: Instant, reads: u64, state: &str) -> Look {
        let session = Session {
            host: 7,
            state: state.into(),
            target: Some("disk1".into()),
            ..Session::default()
        };
        let statistics = Statistics(
            [
                ("way_static".into(), vec![reads, 0]),
                ("way_none".into(), vec![1, 0]),
            ]
            .into(),
        );
        let io = Io {
            reads,
            read_sectors: reads * 8,
            milliseconds: reads * 2,
            ..Io::default()
        };
        Look {
            at,
            samples: vec![Sample {
                session,
                io,
                statistics,
                credits: Some("62 61".into()),
            }],
        }
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let start = Instant::now();
        let before = look(start, 1000, "running");
        let now = look(start + Duration::from_secs(2), 3000, "blocked");
        let expected = [
            "host7",
            "disk1",
            "blocked",
            "1000",
            "0",
            "4.1",
            "0.0",
            "2.00",
            "0",
            "62 61",
            "static 100 %",
            "0",
        ];
        assert_eq!(now.lines(&before), [expected.map(str::to_string)]);
        // Rates start from zero if a host number is reused.
        assert_eq!(before.lines(&now)[0][3], "0");
        assert_eq!(before.lines(&before)[0][7], "-");
    }

    #[test]
    fn fits_a_terminal() {
        let now = look(Instant::now(), 5, "running");
        let mut terminal = Terminal::new(TestBackend::new(140, 3)).unwrap();
        let lines = now.lines(&now);
        terminal
            .draw(|frame| frame.render_widget(table(&lines), frame.area()))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String { (0..140).map(|x| buffer[(x, y)].symbol()).collect() };
        assert!(
            line(0).starts_with("HOST   TARGET  STATE    READ/S  WRITE/S  "),
            "{}",
            line(0)
        );
        assert!(
            line(1).starts_with("host7  disk1   running  0       0  "),
            "{}",
            line(1)
        );
    }
}
