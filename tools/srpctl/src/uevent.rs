// SPDX-License-Identifier: GPL-2.0

//! The kernel's device events.

use crate::error::{Error, Result};
use nix::{
    errno::Errno,
    sys::socket::{
        bind, recvfrom, setsockopt, socket, sockopt, AddressFamily, NetlinkAddr, SockFlag,
        SockProtocol, SockType,
    },
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// The multicast group of the kernel's own events; group 2 has those of udev.
const KERNEL: u32 = 1;
/// Receive buffer in bytes. A login at a target with 1,024 disks causes some 5,000 events.
const BUFFER: usize = 16 << 20;
/// Longest event: UEVENT_BUFFER_SIZE of the kernel, and the path before it.
const LONGEST: usize = 8192;

/// The variables of an event, such as `ACTION` and `SUBSYSTEM`.
#[derive(Debug, Default)]
pub struct Uevent(BTreeMap<String, String>);

impl Uevent {
    /// Parses `ACTION@PATH`, followed by `NAME=VALUE`, each with a NUL at its end.
    pub fn parse(message: &[u8]) -> Self {
        let text = String::from_utf8_lossy(message);
        let pairs = text.split('\0').filter_map(|part| part.split_once('='));
        Self(pairs.map(|(n, v)| (n.to_string(), v.to_string())).collect())
    }

    /// Returns a variable; empty if the event does not have it.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// A socket that receives device events.
pub struct Uevents(OwnedFd);

impl Uevents {
    /// Receives the events from now on.
    pub fn listen() -> Result<Self> {
        let listen = || -> nix::Result<OwnedFd> {
            let socket = socket(
                AddressFamily::Netlink,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::NetlinkKObjectUEvent,
            )?;
            // Only root may exceed the system's limit.
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)
                .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &BUFFER))?;
            bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL))?;
            Ok(socket)
        };
        listen()
            .map(Self)
            .map_err(|e| Error::Program(format!("device events of the kernel: {e}")))
    }

    /// Returns the events that have arrived, and whether some of them are lost.
    pub fn take(&self) -> (Vec<Uevent>, bool) {
        let (mut events, mut lost) = (Vec::new(), false);
        let mut message = [0; LONGEST];
        loop {
            match recvfrom::<NetlinkAddr>(self.0.as_raw_fd(), &mut message) {
                // Programs can send to this socket, too. The kernel has port 0.
                Ok((length, from)) if from.is_some_and(|from| from.pid() == 0) => {
                    events.push(Uevent::parse(&message[..length]));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => lost = true,
                Err(_) => return (events, lost),
            }
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{getsockname, sendto, MsgFlags};
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn an_event_has_variables() {
        let event = Uevent::parse(
            b"change@/devices/virtual/block/dm-0\0ACTION=change\0SUBSYSTEM=block\0\
              DM_PATH=8:16\0DM_NAME=a=b\0",
        );
        assert_eq!(event.get("ACTION"), "change");
        assert_eq!(event.get("DM_NAME"), "a=b");
        assert_eq!(event.get("change@/devices/virtual/block/dm-0"), "");
        assert_eq!(event.get("SIZE"), "");
    }

    #[test]
    fn the_events_of_the_kernel_are_taken_without_a_wait() {
        let events = Uevents::listen().unwrap();
        let to: NetlinkAddr = getsockname(events.0.as_raw_fd()).unwrap();
        let program = Uevents::listen().unwrap();
        // Only root may send.
        let message = b"add@/made-up\0SUBSYSTEM=made-up\0";
        match sendto(program.0.as_raw_fd(), message, &to, MsgFlags::empty()) {
            Ok(_) | Err(Errno::EPERM) => {}
            Err(e) => panic!("{e}"),
        }
        let (tell, told) = mpsc::channel();
        // The thread is not joined, so a wait fails the test and does not hang it.
        thread::spawn(move || tell.send(events.take()));
        let (found, lost) = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!lost);
        let of_program = |event: &Uevent| event.get("SUBSYSTEM") == "made-up";
        assert!(!found.iter().any(of_program));
    }
}
