// SPDX-License-Identifier: GPL-2.0

//! Says what a command waits for, if that takes long.

use crate::out::tell;
use std::{
    collections::BTreeSet,
    sync::{
        mpsc::{channel, RecvTimeoutError},
        Mutex,
    },
    thread,
    time::Duration,
};

/// Time after which a wait is reported.
pub const SILENCE: Duration = Duration::from_secs(1);

/// What has been reported. A unit repeats its login, and its journal has each line once.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the result of `work`. If it takes long, says that the command waits for `what`.
pub fn waiting<T>(what: &str, work: impl FnOnce() -> T) -> T {
    after(SILENCE, || say(what), work)
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
        scope.spawn(move || {
            if wait.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        });
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
