// SPDX-License-Identifier: GPL-2.0

//! Says what a command waits for, if that takes long.

use crate::out::tell;
use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::MetadataExt,
    sync::{
        mpsc::{channel, RecvTimeoutError},
        Mutex,
    },
    thread,
    time::Duration,
};

/// Time after which a wait is reported.
pub const SILENCE: Duration = Duration::from_secs(1);

/// The waits that were reported. A repeated login waits for the same again.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the result of `work`. If it takes long, says that the command waits for `what`, but not
/// to the journal: a unit that repeats its login would fill it.
pub fn waiting<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let journal = env::var("JOURNAL_STREAM").unwrap_or_default();
    match is(&journal, "/proc/self/fd/2") {
        true => work(),
        false => after(SILENCE, || say(what), work),
    }
}

/// Returns whether a file is the stream that systemd names, as `DEVICE:INODE`. A program that a
/// unit has started may have another standard error, and the variable.
fn is(stream: &str, path: &str) -> bool {
    let file = fs::metadata(path);
    file.is_ok_and(|file| format!("{}:{}", file.dev(), file.ino()) == stream)
}

/// Says once that the command waits for `what`.
pub fn say(what: &str) {
    let new = SAID.lock().map(|mut said| said.insert(what.to_string()));
    if new.unwrap_or(true) {
        tell!("waiting for {what}");
    }
}

/// Calls `say` if `work` takes longer than `silence`.
fn after<T>(silence: Duration, say: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (done, wait) = channel::<()>();
    thread::scope(|scope| {
        let watch = move || {
            if wait.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        };
        // Without a thread the work is done in silence.
        let _ = thread::Builder::new().spawn_scoped(scope, watch);
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn only_the_file_that_is_named_is_the_journal() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let data = fs::metadata(path).unwrap();
        let stream = format!("{}:{}", data.dev(), data.ino());
        assert!(is(&stream, path) && !is("", path) && !is("", "/nonexistent"));
        assert!(!is(&stream, "/dev/null"));
    }

    #[test]
    fn only_a_long_wait_is_reported() {
        let short = Duration::from_millis(20);
        for (silence, work, wanted) in [(short, short * 20, true), (short * 500, short, false)] {
            let said = AtomicBool::new(false);
            let say = || said.store(true, Ordering::SeqCst);
            let result = after(silence, say, || {
                thread::sleep(work);
                7
            });
            assert_eq!(result, 7);
            assert_eq!(said.load(Ordering::SeqCst), wanted, "{silence:?}");
        }
    }
}
