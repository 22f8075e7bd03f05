// SPDX-License-Identifier: GPL-2.0

//! `srpctl watch`.

use crate::{
    cli::Watch,
    error::{Error, Result},
    list, out,
    session::Session,
    signals::Signals,
    statistics::Statistics,
    sysfs::{self, Sysfs},
};
use nix::sys::signal::Signal;
use ratatui::{
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Style, Stylize},
    widgets::{Row, Table},
    DefaultTerminal, Frame,
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
            let table = list::plain(&HEAD, now.lines(&before)).trim_fmt();
            if !out::write(format_args!("{table}\n")) {
                break;
            }
            before = now;
        }
        return Ok(());
    }
    let signals = Signals::take(&[Signal::SIGTERM, Signal::SIGHUP])
        .map_err(|e| Error::Program(format!("signals: {e}")))?;
    let mut terminal = ratatui::try_init()
        .map_err(|e| Error::Program(format!("no terminal: {e}; --count needs none")))?;
    let result = until_quit(sysfs, interval, &signals, &mut terminal);
    ratatui::restore();
    result.map_err(|e| Error::Program(format!("terminal: {e}")))
}

/// Maximum time until a signal is noticed.
const SLICE: Duration = Duration::from_millis(200);

fn until_quit(
    sysfs: &Sysfs,
    interval: Duration,
    signals: &Signals,
    terminal: &mut DefaultTerminal,
) -> std::io::Result<()> {
    let mut before = Look::now(sysfs);
    let mut lines = before.lines(&before);
    let mut first = 0;
    loop {
        let page = terminal.size()?.height.saturating_sub(2).max(1).into();
        first = first.min(lines.len().saturating_sub(page));
        terminal.draw(|frame| draw(frame, &lines, first))?;
        let left = (before.at + interval).saturating_duration_since(Instant::now());
        if event::poll(left.min(SLICE))? {
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') => return Ok(()),
                    KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => return Ok(()),
                    KeyCode::Down => first += 1,
                    KeyCode::Up => first = first.saturating_sub(1),
                    KeyCode::PageDown => first += page,
                    KeyCode::PageUp => first = first.saturating_sub(page),
                    _ => {}
                },
                Event::Resize(..) => terminal.autoresize()?,
                _ => {}
            }
        }
        if signals.came() {
            return Ok(());
        }
        if before.at.elapsed() >= interval {
            let now = Look::now(sysfs);
            lines = now.lines(&before);
            before = now;
        }
    }
}

/// Draws the lines from `first`, and a footer with the keys.
fn draw(frame: &mut Frame<'_>, lines: &[[String; HEAD.len()]], first: usize) {
    let [body, foot] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let rows = usize::from(body.height).saturating_sub(1);
    let shown = &lines[first.min(lines.len())..];
    frame.render_widget(table(shown, body.width.into()), body);
    let text = if rows < lines.len() {
        let last = lines.len().min(first + rows);
        format!(
            "{} to {last} of {}, arrow keys scroll, q quits",
            first + 1,
            lines.len()
        )
    } else {
        "q quits".into()
    };
    frame.render_widget(text.dim(), foot);
}

/// Columns to omit on a narrow terminal, in this order.
const SPARE: [&str; 6] = [
    "WAY",
    "CREDITS",
    "IN FLIGHT",
    "LOST",
    "WRITE MB/S",
    "READ MB/S",
];
/// Minimum width of the column TARGET, which is truncated.
const TARGET_WIDTH: usize = 12;
/// Space between two columns.
const SPACE: u16 = 1;

fn table(lines: &[[String; HEAD.len()]], width: usize) -> Table<'_> {
    let widest = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.chain([HEAD[column].len()]).max().unwrap_or(0)
    };
    let mut columns: Vec<(usize, usize)> = (0..HEAD.len()).map(|c| (c, widest(c))).collect();
    let others = |columns: &[(usize, usize)]| -> usize {
        let other = columns
            .iter()
            .filter(|(column, _)| HEAD[*column] != "TARGET");
        let spaces = usize::from(SPACE) * (columns.len() - 1);
        other.map(|(_, width)| width).sum::<usize>() + spaces
    };
    for name in SPARE {
        if others(&columns) + TARGET_WIDTH > width {
            columns.retain(|(column, _)| HEAD[*column] != name);
        }
    }
    let rest = width.saturating_sub(others(&columns));
    for (column, width) in &mut columns {
        if HEAD[*column] == "TARGET" {
            *width = rest.min(*width);
        }
    }
    let rows = lines.iter().map(|line| {
        let row = Row::new(columns.iter().map(|(column, _)| line[*column].as_str()));
        match line[2].as_str() {
            "running" => row,
            _ => row.style(Style::new().red()),
        }
    });
    let widths = columns.iter().map(|(_, width)| *width);
    let widths = widths.map(|width| Constraint::Length(width.try_into().unwrap_or(u16::MAX)));
    let head = columns.iter().map(|(column, _)| HEAD[*column]);
    Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().bold()))
        .column_spacing(SPACE)
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

    /// Returns the lines of a screen.
    fn screen(width: u16, height: u16, sessions: usize, first: usize) -> Vec<String> {
        let now = look(Instant::now(), 5, "fail-fast");
        let lines = vec![now.lines(&now)[0].clone(); sessions];
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &lines, first)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..height)
            .map(|y| line(y).trim_end().to_string())
            .collect()
    }

    #[test]
    fn fits_a_terminal() {
        let wide = screen(140, 4, 1, 0);
        assert!(
            wide[0].starts_with("HOST  TARGET STATE     READ/S WRITE/S "),
            "{wide:?}"
        );
        assert!(wide[0].ends_with("WAY LOST"), "{wide:?}");
        assert!(
            wide[1].starts_with("host7 disk1  fail-fast 0      0 "),
            "{wide:?}"
        );
        assert_eq!(wide[3], "q quits");
        let narrow = screen(80, 4, 1, 0);
        assert_eq!(
            narrow[0],
            "HOST  TARGET STATE     READ/S WRITE/S READ MB/S WRITE MB/S MS LOST"
        );
        assert!(
            narrow[1].starts_with("host7 disk1  fail-fast 0 "),
            "{narrow:?}"
        );
        let tiny = screen(45, 4, 1, 0);
        assert_eq!(tiny[0], "HOST  TARGET STATE     READ/S WRITE/S MS");
        screen(1, 1, 1, 0);
    }

    #[test]
    fn each_session_can_be_reached() {
        let first = screen(80, 10, 30, 0);
        assert_eq!(first[9], "1 to 8 of 30, arrow keys scroll, q quits");
        let last = screen(80, 10, 30, 22);
        assert_eq!(last[9], "23 to 30 of 30, arrow keys scroll, q quits");
        assert!(last[8].starts_with("host7 "), "{last:?}");
    }

    #[test]
    fn a_signal_ends_it() {
        let signals = Signals::take(&[Signal::SIGTERM, Signal::SIGHUP]).unwrap();
        assert!(!signals.came());
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        assert!(signals.came());
    }
}
