// SPDX-License-Identifier: GPL-2.0

//! Management datagrams (MADs) through `/dev/infiniband/umadN`: requests to the agents behind queue
//! pair 1 of another port, and their replies. The interface is `rdma/ib_user_mad.h` of Linux.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// Length of a MAD in bytes.
pub const LEN: usize = 256;
/// A MAD. The kernel fills in half of the transaction ID, bytes 8 to 16.
pub type Mad = [u8; LEN];

/// Length of `struct ib_user_mad_hdr`.
const HEADER: usize = 64;
/// `IB_QP1_QKEY`.
const QP1_QKEY: u32 = 0x8001_0000;
/// Time until the kernel repeats a request, in milliseconds, and number of repetitions.
const TIMEOUT_MS: u32 = 1000;
const RETRIES: u32 = 4;
/// Bound of the search for the way to a GID, and time between two tries.
const RESOLVE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Bound of the wait for a reply or the kernel's report that there is none, in milliseconds.
const BOUND_MS: u16 = 10_000;

/// `struct ib_user_mad_reg_req`.
#[repr(C)]
#[derive(Default)]
pub struct Registration {
    id: u32,
    method_mask: [u32; 4],
    qpn: u8,
    mgmt_class: u8,
    mgmt_class_version: u8,
    oui: [u8; 3],
    rmpp_version: u8,
}

nix::ioctl_none!(enable_pkey, 0x1b, 3);
nix::ioctl_readwrite!(register_agent, 0x1b, 1, Registration);

/// The way to another port, through a global route header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Index of the source GID on the port of the file.
    pub gid_index: u8,
    /// GID of the destination.
    pub dgid: [u8; 16],
}

/// An agent that sends requests of one management class.
pub struct Agent {
    file: File,
    id: u32,
    last: u32,
}

impl Agent {
    /// Opens a umad file, and registers for replies of version 1 of a management class.
    ///
    /// # Errors
    ///
    /// Those of open(2) and of the ioctls: `EINVAL` if the port does not have the class.
    pub fn open(path: &Path, class: u8) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: The descriptor is open, and the ioctl has no argument.
        unsafe { enable_pkey(file.as_raw_fd()) }?;
        let mut request = Registration {
            qpn: 1,
            mgmt_class: class,
            mgmt_class_version: 1,
            ..Registration::default()
        };
        // SAFETY: The descriptor is open, and `request` has the layout of the kernel's structure.
        unsafe { register_agent(file.as_raw_fd(), &mut request) }?;
        Ok(Self {
            file,
            id: request.id,
            last: 0,
        })
    }

    /// Sends a request, and returns the reply. Waits up to 16 s.
    ///
    /// # Errors
    ///
    /// `TimedOut` if there is no reply, `InvalidData` if it is shorter than a MAD, and the errors
    /// of the kernel, as `EHOSTUNREACH` if there is no way to the GID.
    pub fn ask(&mut self, route: &Route, mut request: Mad) -> io::Result<Mad> {
        self.last = self.last.wrapping_add(1);
        request[8..16].copy_from_slice(&u64::from(self.last).to_be_bytes());
        let packet = [&header(self.id, route)[..], &request[..]].concat();
        // The kernel resolves the GID first, which fails while the local address is new.
        let end = Instant::now() + RESOLVE;
        while let Err(e) = self.file.write_all(&packet) {
            let kind = e.kind();
            if !matches!(kind, ErrorKind::TimedOut | ErrorKind::HostUnreachable)
                || Instant::now() > end
            {
                return Err(e);
            }
            sleep(PAUSE);
        }
        loop {
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(BOUND_MS))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut packet = [0; HEADER + LEN];
            let len = self.file.read(&mut packet)?;
            let (header, mad) = packet.split_at(HEADER);
            // A reply to an earlier request is ignored.
            if mad[12..16] != self.last.to_be_bytes() {
                continue;
            }
            let status = i32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
            if status != 0 {
                return Err(io::Error::from_raw_os_error(status));
            }
            let reply = mad[..len.saturating_sub(HEADER)].try_into();
            return reply.map_err(|_| io::ErrorKind::InvalidData.into());
        }
    }
}

/// Returns the `struct ib_user_mad_hdr` of a request.
fn header(id: u32, route: &Route) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&id.to_ne_bytes());
    header[8..12].copy_from_slice(&TIMEOUT_MS.to_ne_bytes());
    header[12..16].copy_from_slice(&RETRIES.to_ne_bytes());
    header[20..24].copy_from_slice(&1u32.to_be_bytes());
    header[24..28].copy_from_slice(&QP1_QKEY.to_be_bytes());
    // There is a global route header, with an index, a hop limit and a GID.
    header[32..35].copy_from_slice(&[1, route.gid_index, 64]);
    header[36..52].copy_from_slice(&route.dgid);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_structures_are_those_of_the_kernel() {
        assert_eq!(size_of::<Registration>(), 28);
        assert_eq!(offset_of!(Registration, mgmt_class), 21);
        assert_eq!(offset_of!(Registration, rmpp_version), 26);
        let route = Route {
            gid_index: 3,
            dgid: *b"0123456789abcdef",
        };
        let header = header(7, &route);
        let mut wanted = [0; HEADER];
        wanted[..4].copy_from_slice(&7u32.to_ne_bytes());
        wanted[8..12].copy_from_slice(&1000u32.to_ne_bytes());
        wanted[12..16].copy_from_slice(&4u32.to_ne_bytes());
        wanted[20..28].copy_from_slice(&[0, 0, 0, 1, 0x80, 1, 0, 0]);
        wanted[32..36].copy_from_slice(&[1, 3, 64, 0]);
        wanted[36..52].copy_from_slice(b"0123456789abcdef");
        assert_eq!(header, wanted);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let found = Agent::open(Path::new("/nonexistent/umad0"), 6);
        assert_eq!(found.err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
    }
}
