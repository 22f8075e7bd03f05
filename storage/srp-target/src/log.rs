// SPDX-License-Identifier: GPL-2.0

//! Lines for the log: an event is its message. The journal gets the level as a priority
//! (sd-daemon(3)), so that `journalctl -p warning` shows what went wrong.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{
        format::{FormatEvent, FormatFields, Writer},
        FmtContext,
    },
    registry::LookupSpan,
};

struct Lines {
    journal: bool,
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.journal {
            write!(to, "<{}>", priority(*event.metadata().level()))?;
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// Begins to write events to the standard output.
pub fn begin() {
    let lines = Lines {
        // systemd sets it for a service whose output goes to the journal.
        journal: std::env::var_os("JOURNAL_STREAM").is_some(),
    };
    // Fails if there is already a subscriber, which then gets the events.
    let _ = tracing_subscriber::fmt()
        .with_ansi(false)
        .event_format(lines)
        .try_init();
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_journal_gets_priorities() {
        let all = Arc::new(Mutex::new(Vec::new()));
        for journal in [false, true] {
            let to = Arc::clone(&all);
            let lines = tracing_subscriber::fmt()
                .with_ansi(false)
                .event_format(Lines { journal })
                .with_writer(move || Sink(Arc::clone(&to)))
                .finish();
            tracing::subscriber::with_default(lines, || {
                tracing::error!("it fails: {}", 7);
                tracing::warn!("it is lost");
                tracing::info!("ended");
            });
        }
        let text = String::from_utf8(all.lock().unwrap().clone()).unwrap();
        let plain = "it fails: 7\nit is lost\nended\n";
        let journal = "<3>it fails: 7\n<4>it is lost\n<6>ended\n";
        assert_eq!(text, format!("{plain}{journal}"));
    }
}
