// SPDX-License-Identifier: GPL-2.0

//! Errors, their messages and exit statuses.

use crate::out::tell;
use std::{io, path::PathBuf};
use thiserror::Error;

/// The reason for the failure of a command.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel or the target refused the login, or the target did not respond.
    #[error("login failed: {0}")]
    Login(String),
    /// The command line or a file in targets.d is invalid.
    #[error("{0}")]
    Usage(String),
    /// No suitable RDMA port.
    #[error("{0}")]
    NoPort(String),
    /// Requires root.
    #[error("{0}: permission denied; srpctl must be run by root")]
    NotRoot(String),
    /// The driver is not loaded.
    #[error("the module ib_srp is not loaded{0}")]
    NoModule(String),
    /// No such session, host or file.
    #[error("{0}")]
    NotFound(String),
    /// A disk is in use.
    #[error("{0}")]
    Busy(String),
    /// `srpctl apply --check` would change something.
    #[error("{0}")]
    Differs(String),
    /// The operation did not finish in time.
    #[error("{0}")]
    Late(String),
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another program failed.
    #[error("{0}")]
    Program(String),
    /// The error of one of several targets.
    #[error("{name}: {error}")]
    Of { name: String, error: Box<Error> },
}

/// The values of [`Error::status`], for the manual page.
pub const STATUS: &str = "\
Exit status:
  0  success, or nothing to do
  1  the login failed, or another error
  2  invalid usage or option
  3  no RDMA port leads to the target
  4  not root
  5  the module ib_srp is not loaded
  6  there is no such session, file or explanation
  7  a disk is in use
  8  timed out
  9  apply --check: something differs from the files";

impl Error {
    /// Creates an [`Error::NotRoot`] if permission was denied, otherwise an [`Error::Io`].
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if source.kind() == io::ErrorKind::PermissionDenied {
            return Self::NotRoot(path.display().to_string());
        }
        Self::Io { path, source }
    }

    /// Returns the error with the name of its target.
    pub fn of(self, name: impl Into<String>) -> Self {
        let (name, error) = (name.into(), Box::new(self));
        Self::Of { name, error }
    }

    /// Returns the error, and prints one that came before it.
    pub fn after(self, before: Result) -> Result {
        if let Err(before) = before {
            tell!("{before}");
        }
        Err(self)
    }

    /// Returns whether a retry may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Login(_) | Self::NoPort(_))
    }

    pub fn status(&self) -> u8 {
        match self {
            Self::Login(_) | Self::Io { .. } | Self::Program(_) => 1,
            Self::Usage(_) => 2,
            Self::NoPort(_) => 3,
            Self::NotRoot(_) => 4,
            Self::NoModule(_) => 5,
            Self::NotFound(_) => 6,
            Self::Busy(_) => 7,
            Self::Late(_) => 8,
            Self::Differs(_) => 9,
            Self::Of { error, .. } => error.status(),
        }
    }
}

pub type Result<T = ()> = std::result::Result<T, Error>;
