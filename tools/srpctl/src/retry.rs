// SPDX-License-Identifier: GPL-2.0

//! Repeats an action until it succeeds or its time is over.

use crate::{error::Result, out::tell};
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Delay after the first attempt. It doubles, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Calls `attempt` until it succeeds, has failed permanently, or `seconds` have passed.
pub fn retry<T>(seconds: u64, attempt: impl Fn() -> Result<T>) -> Result<T> {
    let end = Instant::now().checked_add(Duration::from_secs(seconds));
    let mut pause = PAUSE;
    let mut said = String::new();
    loop {
        match attempt() {
            Err(error) if error.may_pass() && end.is_none_or(|end| Instant::now() < end) => {
                let why = error.to_string();
                // Log each reason once.
                if why != said {
                    tell!("{why}; trying again");
                    said = why;
                }
                sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::cell::Cell;

    #[test]
    fn only_what_may_pass_is_retried() {
        let calls = Cell::new(0);
        let mut result = retry(u64::MAX, || {
            calls.set(calls.get() + 1);
            match calls.get() {
                1 => Err(Error::NoPort("none".into())),
                _ => Ok(()),
            }
        });
        assert!(result.is_ok() && calls.get() == 2);
        result = retry(60, || Err(Error::Usage("wrong".into())));
        assert_eq!(result.unwrap_err().status(), 2);
        result = retry(0, || Err(Error::Login("away".into())));
        assert_eq!(result.unwrap_err().status(), 1);
    }
}
