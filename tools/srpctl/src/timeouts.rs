// SPDX-License-Identifier: GPL-2.0

//! The timeouts of a lost connection: `reconnect_delay`, `fast_io_fail_tmo` and `dev_loss_tmo` of
//! scsi_transport_srp.

use crate::{
    cli::TIMEOUTS,
    error::{Error, Result},
    session::Session,
    sysfs::{self, Sysfs},
};
use std::{fs, path::Path};

/// Maximum of `fast_io_fail_tmo`, and of `dev_loss_tmo` if `fast_io_fail_tmo` is off, in seconds:
/// SCSI_DEVICE_BLOCK_MAX_TIMEOUT.
const BLOCK_MAX: u32 = 600;

/// Timeouts in seconds, or `None` for off, in the order of [`TIMEOUTS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts([Option<u32>; 3]);

impl Default for Timeouts {
    /// Returns the driver's defaults.
    fn default() -> Self {
        Self([Some(10), Some(15), Some(600)])
    }
}

impl Timeouts {
    /// Returns the module parameters, which apply to new sessions.
    pub fn of_module(sysfs: &Sysfs) -> Self {
        Self::of(&sysfs.path("/sys/module/ib_srp/parameters"))
    }

    /// Returns the timeouts of a session.
    pub fn of_session(sysfs: &Sysfs, session: &Session) -> Self {
        Self::of(&Session::remote_port(sysfs, session.host))
    }

    /// Reads the files of a directory; defaults stand for those that it does not have.
    fn of(folder: &Path) -> Self {
        let mut all = Self::default();
        for (place, (name, _)) in all.0.iter_mut().zip(TIMEOUTS) {
            if let Some(value) = sysfs::text(folder.join(name)).and_then(|text| parse(&text)) {
                *place = value;
            }
        }
        all
    }

    /// Returns `reconnect_delay`, `fast_io_fail_tmo` and `dev_loss_tmo`.
    pub fn seconds(&self) -> [Option<u32>; 3] {
        self.0
    }

    /// Returns a phrase for each of the wanted timeouts that a session does not have.
    pub fn differing(
        sysfs: &Sysfs,
        session: &Session,
        wanted: &[(&'static str, String)],
    ) -> Vec<String> {
        let folder = Session::remote_port(sysfs, session.host);
        let phrase = |(name, wanted): &(&'static str, String)| {
            let present = sysfs::text(folder.join(name))?;
            (parse(&present) != parse(wanted)).then(|| format!("{name} is {present}, not {wanted}"))
        };
        wanted.iter().filter_map(phrase).collect()
    }

    /// Applies changes. Returns [`Error::Usage`] if a value or the combination is invalid.
    pub fn with(mut self, changes: &[(&'static str, String)]) -> Result<Self> {
        for (name, text) in changes {
            let value = parse(text).ok_or_else(|| {
                Error::Usage(format!(
                    "'{name}={text}': must be a number of seconds, or off"
                ))
            })?;
            for (place, (known, _)) in self.0.iter_mut().zip(TIMEOUTS) {
                if known == *name {
                    *place = value;
                }
            }
        }
        self.check()?;
        Ok(self)
    }

    /// Checks the timeouts by the rules of scsi_transport_srp.
    fn check(&self) -> Result {
        let [reconnect_delay, fast_io_fail_tmo, dev_loss_tmo] = self.0;
        let bad = |why: &str| Err(Error::Usage(why.to_string()));
        match (reconnect_delay, fast_io_fail_tmo, dev_loss_tmo) {
            (Some(0), ..) => bad("reconnect_delay: must be 1 or more, or off"),
            (None, None, None) => {
                bad("reconnect_delay, fast_io_fail_tmo and dev_loss_tmo cannot all be off")
            }
            (_, Some(fast), _) if fast > BLOCK_MAX => {
                bad("fast_io_fail_tmo: must be at most 600, or off")
            }
            (_, None, Some(loss)) if loss > BLOCK_MAX => {
                bad("dev_loss_tmo: must be at most 600 while fast_io_fail_tmo is off")
            }
            (_, Some(fast), Some(loss)) if fast >= loss => Err(Error::Usage(format!(
                "fast_io_fail_tmo ({fast}) must be less than dev_loss_tmo ({loss})"
            ))),
            _ => Ok(()),
        }
    }

    /// Sets the timeouts of a session. Each write must leave a valid combination, so the order
    /// depends on the current values.
    pub fn set(&self, sysfs: &Sysfs, session: &Session) -> Result {
        let folder = Session::remote_port(sysfs, session.host);
        let mut left: Vec<(&str, Option<u32>)> =
            TIMEOUTS.iter().map(|(name, _)| *name).zip(self.0).collect();
        loop {
            let before = left.len();
            let mut failed = None;
            left.retain(|(name, value)| {
                let path = folder.join(name);
                let text = value.map_or("off".into(), |seconds| seconds.to_string());
                if sysfs::text(&path).as_deref() == Some(&text) {
                    return false;
                }
                match fs::write(&path, &text) {
                    Ok(()) => false,
                    Err(e) => {
                        failed = Some(Error::io(path, e));
                        true
                    }
                }
            });
            match failed {
                None => return Ok(()),
                Some(error) if left.len() == before => return Err(error),
                Some(_) => {}
            }
        }
    }
}

/// Parses a value from sysfs. Module parameters use -1 for off.
fn parse(text: &str) -> Option<Option<u32>> {
    match text {
        "off" | "-1" => Some(None),
        _ => text
            .parse()
            .ok()
            .filter(|n| *n <= i32::MAX as u32)
            .map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(changes: &[(&'static str, &str)]) -> Result<Timeouts> {
        let changes: Vec<_> = changes.iter().map(|(n, v)| (*n, v.to_string())).collect();
        Timeouts::default().with(&changes)
    }

    #[test]
    fn what_the_transport_class_refuses_is_refused() {
        for (changes, said) in [
            (
                vec![("reconnect_delay", "0")],
                "reconnect_delay: must be 1 or more, or off",
            ),
            (
                vec![("dev_loss_tmo", "15")],
                "fast_io_fail_tmo (15) must be less than dev_loss_tmo (15)",
            ),
            (
                vec![("fast_io_fail_tmo", "x")],
                "'fast_io_fail_tmo=x': must be a number of seconds, or off",
            ),
            (
                vec![("fast_io_fail_tmo", "off"), ("dev_loss_tmo", "601")],
                "dev_loss_tmo: must be at most 600 while fast_io_fail_tmo is off",
            ),
            (
                vec![
                    ("fast_io_fail_tmo", "off"),
                    ("dev_loss_tmo", "off"),
                    ("reconnect_delay", "off"),
                ],
                "reconnect_delay, fast_io_fail_tmo and dev_loss_tmo cannot all be off",
            ),
        ] {
            let error = with(&changes).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.status()), (said, 2));
        }
        assert_eq!(
            with(&[("dev_loss_tmo", "off")]).unwrap().0,
            [Some(10), Some(15), None]
        );
        assert!(with(&[("dev_loss_tmo", "2147483648")]).is_err());
    }

    #[test]
    fn the_infinity_of_multipath_stays() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let infinity = with(&[("dev_loss_tmo", "2147483647")]).unwrap();
        assert_eq!(infinity.0[2], Some(2147483647));
        let folder = root.path().join("sys/module/ib_srp/parameters");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("dev_loss_tmo"), "2147483647\n").unwrap();
        let with = Timeouts::of_module(&sysfs).with(&[("fast_io_fail_tmo", "7".into())]);
        assert_eq!(with.unwrap().0, [Some(10), Some(7), Some(2147483647)]);
    }

    #[test]
    fn what_a_session_has_differently_is_named() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let session = Session::default();
        let folder = Session::remote_port(&sysfs, session.host);
        fs::create_dir_all(&folder).unwrap();
        for (name, value) in [
            ("reconnect_delay", "10"),
            ("fast_io_fail_tmo", "off"),
            ("dev_loss_tmo", "600"),
        ] {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let differs = |changes: &[(&'static str, &str)]| {
            let changes: Vec<_> = changes.iter().map(|(n, v)| (*n, v.to_string())).collect();
            Timeouts::differing(&sysfs, &session, &changes)
        };
        assert_eq!(
            differs(&[("fast_io_fail_tmo", "-1"), ("dev_loss_tmo", "600")]),
            [""; 0]
        );
        assert_eq!(
            differs(&[("fast_io_fail_tmo", "5"), ("dev_loss_tmo", "60")]),
            [
                "fast_io_fail_tmo is off, not 5",
                "dev_loss_tmo is 600, not 60"
            ]
        );
        let own = Timeouts::of_session(&sysfs, &session);
        assert_eq!(own.0, [Some(10), None, Some(600)]);
    }
}
