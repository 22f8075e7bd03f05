// SPDX-License-Identifier: GPL-2.0

//! RDMA/CM connections, incoming and outgoing.

use std::{ffi::CString, io, os::fd::RawFd, ptr::NonNull, sync::Arc};

use crate::{
    check, ffi, made,
    memory::{Device, Hold},
};

/// Identifies a connection for its lifetime.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Key(usize);

impl Key {
    fn of(id: *mut ffi::CmId) -> Self {
        Self(id as usize)
    }
}

struct Channel(NonNull<ffi::EventChannel>);

// SAFETY: librdmacm may be called from any thread, and `shim_next` copies an event.
unsafe impl Send for Channel {}
// SAFETY: librdmacm does its own locking, and `shim_next` copies an event.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: The channel is from `shim_events`. No identifier uses it: each keeps a reference
        // to `self`.
        unsafe { ffi::shim_events_free(self.0.as_ptr()) };
    }
}

/// The source of connection manager events.
#[derive(Clone)]
pub struct Events(Arc<Channel>);

/// An event of the connection manager.
pub enum CmEvent {
    /// A connection request.
    Request(Incoming),
    /// The connection is established.
    Established(Key),
    /// The connection has ended or failed.
    Ended(Key),
    /// The address of an [`Outgoing`] is resolved: call [`Outgoing::route`].
    Address(Key),
    /// The route of an [`Outgoing`] is resolved: call [`crate::Connection::call`].
    Route(Key),
    /// The device of a connection, a listener or a [`Device`] is gone: drop that.
    Removed(Key),
}

impl Events {
    /// Creates an event channel.
    pub fn new() -> io::Result<Self> {
        // SAFETY: The function has no preconditions.
        let channel = made(unsafe { ffi::shim_events() })?;
        Ok(Self(Arc::new(Channel(channel))))
    }

    /// Descriptor that is readable when there is an event.
    pub fn fd(&self) -> RawFd {
        // SAFETY: The channel lives as long as `self`.
        unsafe { ffi::shim_events_fd(self.0 .0.as_ptr()) }
    }

    /// The next event; `None` if none is pending.
    pub fn next(&self) -> io::Result<Option<CmEvent>> {
        loop {
            let mut event = ffi::CmEvent {
                id: std::ptr::null_mut(),
                listener: std::ptr::null_mut(),
                what: 0,
                len: 0,
                depth: 0,
                data: [0; 256],
            };
            // SAFETY: The channel lives as long as `self`, and `event` is a local.
            let result = check(unsafe { ffi::shim_next(self.0 .0.as_ptr(), &mut event) });
            match result {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
                Ok(_) => {}
            }
            let key = Key::of(event.id);
            return Ok(Some(match (event.what, NonNull::new(event.id)) {
                (0, Some(id)) => CmEvent::Request(Incoming {
                    id: Id {
                        id,
                        events: self.clone(),
                    },
                    listener: Key::of(event.listener),
                    depth: event.depth.min(255) as u8,
                    data: event.data[..event.len as usize].to_vec(),
                }),
                (1, _) => CmEvent::Established(key),
                (2, _) => CmEvent::Ended(key),
                (3, _) => CmEvent::Address(key),
                (4, _) => CmEvent::Route(key),
                (5, _) => CmEvent::Removed(key),
                _ => continue,
            }));
        }
    }
}

/// An owned identifier of the connection manager.
pub(crate) struct Id {
    id: NonNull<ffi::CmId>,
    events: Events,
}

// SAFETY: librdmacm may be called from any thread; the identifier has one owner.
unsafe impl Send for Id {}

impl Id {
    pub(crate) fn as_ptr(&self) -> *mut ffi::CmId {
        self.id.as_ptr()
    }

    pub(crate) fn key(&self) -> Key {
        Key::of(self.as_ptr())
    }

    fn device<'a>(&self, known: impl IntoIterator<Item = &'a Device>) -> io::Result<Device> {
        // SAFETY: `self` owns the identifier.
        let context = NonNull::new(unsafe { ffi::shim_device(self.as_ptr()) });
        let context = context.ok_or(io::ErrorKind::NotFound)?;
        // A known device holds its context, so no other one is at the same address.
        if let Some(device) = known.into_iter().find(|d| d.0.context == context) {
            return Ok(device.clone());
        }
        let channel = self.events.0 .0.as_ptr();
        // SAFETY: `self` owns the identifier, and keeps the channel.
        let id = made(unsafe { ffi::shim_hold(channel, self.as_ptr()) })?;
        let events = self.events.clone();
        Device::new(context, Hold::Cm(Self { id, events }))
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: `self` owns the identifier, its events are acknowledged when read, and its queue
        // pair is destroyed.
        unsafe { ffi::shim_id_free(self.as_ptr()) };
    }
}

/// A listening port, until it is dropped.
pub struct Listener {
    id: Id,
}

impl Listener {
    /// Listens at an address and TCP port (a number). Returns the error of the failed system call.
    pub fn new(events: &Events, address: &str, port: &str) -> io::Result<Self> {
        let address = CString::new(address)?;
        let port = CString::new(port)?;
        let channel = events.0 .0.as_ptr();
        // SAFETY: The channel lives as long as `events`, both strings until the call returns.
        let id = made(unsafe { ffi::shim_listen(channel, address.as_ptr(), port.as_ptr(), 64) })?;
        Ok(Self {
            id: Id {
                id,
                events: events.clone(),
            },
        })
    }

    /// Identifies the listener in [`Incoming::listener`].
    pub fn key(&self) -> Key {
        self.id.key()
    }
}

/// A connection request. Drop rejects it without private data.
pub struct Incoming {
    pub(crate) id: Id,
    listener: Key,
    /// Number of RDMA READs that the peer can serve at once.
    pub(crate) depth: u8,
    data: Vec<u8>,
}

impl Incoming {
    /// Moves the connection to another source, which returns its later events. Fails if the device
    /// is gone. The events that [`Events::next`] has returned are handled: it waits for no other
    /// thread.
    pub fn migrate(mut self, to: &Events) -> io::Result<Self> {
        let channel = to.0 .0.as_ptr();
        // SAFETY: `self` owns the identifier, and `to` keeps the channel.
        check(unsafe { ffi::shim_migrate(self.id.as_ptr(), channel) })?;
        self.id.events = to.clone();
        Ok(self)
    }

    /// Key of the connection in later events.
    pub fn key(&self) -> Key {
        self.id.key()
    }

    /// Key of the listener that the request arrived at.
    pub fn listener(&self) -> Key {
        self.listener
    }

    /// Returns the private data, at most 256 bytes. The transport may have padded it.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Rejects the request with at most 148 bytes of private data.
    pub fn reject(self, data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `self` owns the identifier, and `data` has `len` bytes.
        check(unsafe { ffi::shim_reject(self.id.as_ptr(), data.as_ptr().cast(), len) })?;
        Ok(())
    }

    /// Returns the device that the request arrived at: one of `known`, or a new one.
    pub fn device<'a>(&self, known: impl IntoIterator<Item = &'a Device>) -> io::Result<Device> {
        self.id.device(known)
    }
}

/// Timeout of address and route resolution in milliseconds.
const RESOLVE: i32 = 2000;

/// An outgoing connection. First its address is resolved, then its route; then it connects.
pub struct Outgoing {
    pub(crate) id: Id,
}

impl Outgoing {
    /// Starts to resolve an address and TCP port (a number). [`CmEvent::Address`] or
    /// [`CmEvent::Ended`] follows.
    pub fn new(events: &Events, address: &str, port: &str) -> io::Result<Self> {
        let address = CString::new(address)?;
        let port = CString::new(port)?;
        let (channel, address, port) = (events.0 .0.as_ptr(), address.as_ptr(), port.as_ptr());
        // SAFETY: The channel lives as long as `events`, both strings until the call returns.
        let id = made(unsafe { ffi::shim_resolve(channel, address, port, RESOLVE) })?;
        Ok(Self {
            id: Id {
                id,
                events: events.clone(),
            },
        })
    }

    /// Key of the connection in later events.
    pub fn key(&self) -> Key {
        self.id.key()
    }

    /// Starts to resolve the route. [`CmEvent::Route`] or [`CmEvent::Ended`] follows.
    pub fn route(&self) -> io::Result<()> {
        // SAFETY: `self` owns the identifier.
        check(unsafe { ffi::shim_route(self.id.as_ptr(), RESOLVE) })?;
        Ok(())
    }

    /// Returns the device of the route: one of `known`, or a new one.
    pub fn device<'a>(&self, known: impl IntoIterator<Item = &'a Device>) -> io::Result<Device> {
        self.id.device(known)
    }
}
