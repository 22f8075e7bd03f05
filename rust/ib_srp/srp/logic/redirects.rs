// SPDX-License-Identifier: GPL-2.0

//! Which redirections of a login are followed.

use core::fmt;

/// Maximum number of redirections per login.
pub const MAX_REDIRECTS: u8 = 3;

/// The redirections that one login has followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Redirects {
    prefix: u64,
    followed: u8,
}

/// Why a redirection is not followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotFollowed {
    /// The login has followed [`MAX_REDIRECTS`] already.
    TooMany,
    /// To another subnet, with this prefix.
    OtherSubnet(u64),
    /// To this partition, which our port is not in.
    OtherPartition(u16),
}

impl fmt::Display for NotFollowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "more than {MAX_REDIRECTS} redirects in one login"),
            Self::OtherSubnet(prefix) => {
                write!(f, "to subnet {prefix:016x}, which is not that of dgid")
            }
            Self::OtherPartition(pkey) => {
                write!(f, "to partition {pkey:04x}, which our port is not in")
            }
        }
    }
}

impl Redirects {
    /// Returns a login without redirections, which began at a port of the subnet with this prefix.
    pub const fn new(prefix: u64) -> Self {
        Self {
            prefix,
            followed: 0,
        }
    }

    /// Follows another redirection, to a port of the subnet with `prefix`, or of the same subnet if
    /// the target names none.
    ///
    /// # Errors
    ///
    /// If the redirection must not be followed. The login has then failed.
    pub const fn follow(self, prefix: Option<u64>) -> Result<Self, NotFollowed> {
        if self.followed >= MAX_REDIRECTS {
            return Err(NotFollowed::TooMany);
        }
        if let Some(other) = prefix {
            if other != self.prefix {
                return Err(NotFollowed::OtherSubnet(other));
            }
        }
        Ok(Self {
            prefix: self.prefix,
            followed: self.followed.saturating_add(1),
        })
    }
}
