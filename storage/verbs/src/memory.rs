// SPDX-License-Identifier: GPL-2.0

//! Devices and registered memory.

use std::{
    alloc::{alloc_zeroed, dealloc, Layout},
    ffi::{c_char, c_void, CStr, CString},
    io,
    ops::{Deref, DerefMut},
    os::fd::RawFd,
    ptr::NonNull,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
};

use crate::{
    check,
    cm::{Id, Key},
    ffi, made,
};

/// An RDMA device with a protection domain. It lives as long as anything created on it.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) context: NonNull<ffi::Context>,
    pub(crate) pd: NonNull<ffi::Pd>,
    pub(crate) wakeups: NonNull<ffi::CompChannel>,
    name: String,
    /// File descriptor for asynchronous events.
    troubles: RawFd,
    /// Number of RDMA READs that a queue pair issues at once.
    pub(crate) depth: u8,
    registered: AtomicUsize,
    /// Dropped after `drop` has destroyed everything else.
    hold: Hold,
}

/// The owner of a device's open context.
pub(crate) enum Hold {
    /// An identifier of the device: librdmacm closes its context when the device is removed and its
    /// last identifier is destroyed. Its key identifies the event of the removal.
    Cm(Id),
    /// The context is our own.
    Opened(#[allow(dead_code)] Context),
    /// The owner of the context and of `wakeups`: this is only a further domain.
    First(Device),
}

/// A context of `shim_open`.
pub(crate) struct Context(NonNull<ffi::Context>);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: The context is from `shim_open`, and all objects in it are destroyed: each keeps
        // a clone of the device.
        unsafe { ffi::shim_close(self.0.as_ptr()) };
    }
}

// SAFETY: Verbs may be called from any thread; the objects live until the last clone is dropped.
unsafe impl Send for Inner {}
// SAFETY: ibverbs does its own locking; the objects live until the last clone is dropped.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if !matches!(self.hold, Hold::First(_)) {
            // SAFETY: The channel is from `shim_wakeups`. Its completion queues are destroyed: each
            // keeps a clone of the device, or of a domain that does.
            unsafe { ffi::shim_wakeups_free(self.wakeups.as_ptr()) };
        }
        // SAFETY: The domain is from `shim_pd`. Its regions and queue pairs are destroyed: each
        // keeps a clone of the device.
        unsafe { ffi::shim_pd_free(self.pd.as_ptr()) };
    }
}

/// An asynchronous event of a device, with the text of the library.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// A port has come up or gone down. Connections go on, or end by their own timeouts.
    Port(u32, String),
    /// The connection with the queue pair of this number is broken.
    Pair(u32, String),
    /// The completion queue of the connection with this token is broken.
    Queue(u64, String),
    /// The device is broken or removed: drop it and all its connections.
    Fatal(String),
}

/// Copies a string of the library.
///
/// # Safety
///
/// `text` is a string of C that does not change.
unsafe fn text_of(text: *const c_char) -> String {
    // SAFETY: The caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

impl Device {
    pub(crate) fn new(context: NonNull<ffi::Context>, hold: Hold) -> io::Result<Self> {
        // SAFETY: `hold` keeps `context` open.
        let troubles = check(unsafe { ffi::shim_async_fd(context.as_ptr()) })?;
        // SAFETY: `hold` keeps `context` open.
        let depth = check(unsafe { ffi::shim_depth(context.as_ptr()) })?;
        // SAFETY: `hold` keeps `context` open.
        let name = unsafe { ffi::shim_name(context.as_ptr()) };
        // SAFETY: The name lives as long as the context.
        let name = unsafe { text_of(name) };
        // SAFETY: `hold` keeps `context` open.
        let wakeups = made(unsafe { ffi::shim_wakeups(context.as_ptr()) })?;
        // SAFETY: `hold` keeps `context` open.
        let pd = made(unsafe { ffi::shim_pd(context.as_ptr()) });
        let pd = pd.inspect_err(|_| {
            // SAFETY: The channel was created above and is unused.
            unsafe { ffi::shim_wakeups_free(wakeups.as_ptr()) }
        })?;
        Ok(Self(Arc::new(Inner {
            context,
            pd,
            wakeups,
            name,
            troubles,
            depth: depth.clamp(1, 255) as u8,
            registered: AtomicUsize::new(0),
            hold,
        })))
    }

    /// The same device with another protection domain. Keys of memory that is registered with it
    /// are invalid on queue pairs of all other domains.
    pub fn domain(&self) -> io::Result<Self> {
        let first = self.first();
        let (context, wakeups) = (first.0.context, first.0.wakeups);
        // SAFETY: `first` keeps the device open.
        let pd = made(unsafe { ffi::shim_pd(context.as_ptr()) })?;
        Ok(Self(Arc::new(Inner {
            context,
            pd,
            wakeups,
            name: first.0.name.clone(),
            troubles: first.0.troubles,
            depth: first.0.depth,
            registered: AtomicUsize::new(0),
            hold: Hold::First(first.clone()),
        })))
    }

    /// The owner of the context.
    fn first(&self) -> &Self {
        match &self.0.hold {
            Hold::First(first) => first,
            Hold::Cm(_) | Hold::Opened(_) => self,
        }
    }

    /// Counts the registered bytes of all domains.
    fn count(&self) -> &AtomicUsize {
        &self.first().0.registered
    }

    /// Opens a device by its name. Fails with ENODEV if there is none.
    pub fn open(name: &str) -> io::Result<Self> {
        let name = CString::new(name)?;
        // SAFETY: The string lives until the call returns.
        let context = made(unsafe { ffi::shim_open(name.as_ptr()) })?;
        Self::new(context, Hold::Opened(Context(context)))
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns whether both are the same device, in any domain.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.first().0, &other.first().0)
    }

    /// Returns whether both are the same open device, also if they are from different sources.
    pub fn shares(&self, other: &Self) -> bool {
        self.0.context == other.0.context
    }

    /// Key of the device in [`crate::CmEvent::Removed`], if it is from a connection.
    pub fn key(&self) -> Option<Key> {
        match &self.first().0.hold {
            Hold::Cm(id) => Some(id.key()),
            Hold::Opened(_) | Hold::First(_) => None,
        }
    }

    /// File descriptor, readable while [`Device::trouble`] has an event.
    pub fn trouble_fd(&self) -> RawFd {
        self.0.troubles
    }

    /// The next asynchronous event. Fails if the device is gone.
    pub fn trouble(&self) -> io::Result<Option<Trouble>> {
        loop {
            let mut event = ffi::AsyncEvent {
                text: std::ptr::null(),
                token: 0,
                what: 0,
                number: 0,
            };
            // SAFETY: The device is open, and `event` is a local.
            match check(unsafe { ffi::shim_async(self.0.context.as_ptr(), &mut event) }) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                result => result?,
            };
            // SAFETY: The library returns a static string for every event.
            let text = unsafe { text_of(event.text) };
            return Ok(Some(match event.what {
                0 => Trouble::Port(event.number, text),
                1 => Trouble::Pair(event.number, text),
                2 => Trouble::Queue(event.token, text),
                3 => Trouble::Fatal(text),
                _ => continue,
            }));
        }
    }

    /// LID and GID of port 1.
    pub fn port(&self) -> io::Result<(u16, [u8; 16])> {
        let (mut lid, mut gid) = (0, [0; 16]);
        let context = self.0.context.as_ptr();
        // SAFETY: The device is open, and the results are locals.
        check(unsafe { ffi::shim_port(context, &mut lid, gid.as_mut_ptr()) })?;
        Ok((lid, gid))
    }

    /// Index of a partition in the P_Key table of port 1. Fails with ENOENT if it is not there.
    pub(crate) fn partition(&self, pkey: u16) -> io::Result<i32> {
        // SAFETY: The device is open.
        check(unsafe { ffi::shim_partition(self.0.context.as_ptr(), pkey) })
    }

    /// Descriptor that is readable when a connection has completions.
    pub fn fd(&self) -> RawFd {
        // SAFETY: The channel lives as long as `self`.
        unsafe { ffi::shim_wakeups_fd(self.0.wakeups.as_ptr()) }
    }

    /// The token of a connection with completions; `None` if there is none. Fails if the device is
    /// gone; its descriptor is readable from then on.
    pub fn wakeup(&self) -> io::Result<Option<u64>> {
        let mut token = 0;
        // SAFETY: The channel lives as long as `self`, and `token` is a local.
        match check(unsafe { ffi::shim_wakeup(self.0.wakeups.as_ptr(), &mut token) }) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            result => result.map(|_| Some(token)),
        }
    }

    /// Length of all registered buffers of the device, in bytes.
    pub fn registered(&self) -> usize {
        self.count().load(Ordering::Relaxed)
    }

    /// Allocates `count` zeroed buffers of `len` bytes in one memory region.
    pub fn buffers(&self, count: usize, len: usize) -> io::Result<Vec<Buffer>> {
        let all = count.checked_mul(len).filter(|n| *n > 0);
        let layout = all.and_then(|n| Layout::from_size_align(n, 4096).ok());
        let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: The size of the layout is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        let pd = self.0.pd.as_ptr();
        // SAFETY: The memory has this size, and lives until the region is deregistered.
        let mr = unsafe { ffi::shim_register(pd, memory.as_ptr().cast(), layout.size(), 0) };
        let Some(mr) = NonNull::new(mr) else {
            let error = io::Error::last_os_error();
            // SAFETY: The memory was allocated above with this layout.
            unsafe { dealloc(memory.as_ptr(), layout) };
            return Err(error);
        };
        // SAFETY: The region was registered above.
        let lkey = unsafe { ffi::shim_lkey(mr.as_ptr()) };
        let region = Arc::new(Region {
            memory,
            layout,
            mr,
            lkey,
            device: self.clone(),
        });
        self.count().fetch_add(layout.size(), Ordering::Relaxed);
        let buffer = |i| Buffer {
            region: Arc::clone(&region),
            at: i * len,
            len,
        };
        Ok((0..count).map(buffer).collect())
    }
}

struct Region {
    memory: NonNull<u8>,
    layout: Layout,
    mr: NonNull<ffi::Mr>,
    lkey: u32,
    device: Device,
}

// SAFETY: The memory is accessed only through buffers, which do not overlap.
unsafe impl Send for Region {}
// SAFETY: The memory is accessed only through buffers, which do not overlap.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        let registered = self.device.count();
        registered.fetch_sub(self.layout.size(), Ordering::Relaxed);
        // SAFETY: The region is from `shim_register`. No queue pair uses it, because posted buffers
        // keep a reference.
        unsafe { ffi::shim_deregister(self.mr.as_ptr()) };
        // SAFETY: The memory was allocated with this layout, and no buffer in it is left.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Registered memory. The device accesses it while it is posted, otherwise only its owner.
pub struct Buffer {
    region: Arc<Region>,
    at: usize,
    len: usize,
}

impl Buffer {
    /// Returns whether the buffer is registered in the protection domain of this device.
    pub fn is_in(&self, domain: &Device) -> bool {
        Arc::ptr_eq(&self.region.device.0, &domain.0)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.region.lkey
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: `buffers` placed the whole buffer inside of the region.
        unsafe { self.region.memory.as_ptr().add(self.at) }
    }

    /// Address of a part of the buffer, for a work request.
    pub(crate) fn part(&mut self, at: usize, len: usize) -> io::Result<*mut c_void> {
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: The part is inside of the buffer. No reference is created: other parts may
        // already be posted.
        Ok(unsafe { self.start().add(at) }.cast())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: The memory is initialized, `buffers` made no other buffer for it, and it is not
        // posted, as posting takes ownership.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: The memory is initialized, `buffers` made no other buffer for it, and it is not
        // posted, as posting takes ownership.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

struct Bytes {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: The bytes are only copied, never borrowed.
unsafe impl Send for Bytes {}
// SAFETY: The bytes are only copied, never borrowed.
unsafe impl Sync for Bytes {}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: The memory was allocated with this layout. No registration is left: each keeps a
        // clone.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Memory that peers may access at any time. It is never borrowed. Its bytes are
/// copied, and a copy is inconsistent if a peer writes at the same time.
#[derive(Clone)]
pub struct Arena(Arc<Bytes>);

impl Arena {
    /// Allocates `len` zeroed bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, 4096)
            .ok()
            .filter(|l| l.size() > 0);
        let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: The size of the layout is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(Arc::new(Bytes { memory, layout })))
    }

    /// Address of a part of the arena.
    fn part(&self, at: usize, len: usize) -> io::Result<*mut u8> {
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.0.layout.size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: The part is inside of the allocation.
        Ok(unsafe { self.0.memory.as_ptr().add(at) })
    }

    /// Copies bytes within the arena. Fails if a range exceeds the arena.
    pub fn copy(&self, from: usize, to: usize, len: usize) -> io::Result<()> {
        let (from, to) = (self.part(from, len)?, self.part(to, len)?);
        // SAFETY: Both ranges are inside of the allocation, which lives as long as `self` and is
        // never borrowed.
        unsafe { std::ptr::copy(from, to, len) };
        Ok(())
    }
}

/// An arena registered with a device.
pub struct Mapped {
    arena: Arena,
    mr: NonNull<ffi::Mr>,
    lkey: u32,
    rkey: u32,
    _device: Device,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for Mapped {}
// SAFETY: ibverbs does its own locking.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: The region is from `shim_register`. No connection uses it: each keeps a
        // reference.
        unsafe { ffi::shim_deregister(self.mr.as_ptr()) };
    }
}

impl Mapped {
    /// RDMA address of the arena, for peers.
    pub fn va(&self) -> u64 {
        self.arena.0.memory.as_ptr() as u64
    }

    /// rkey of the arena.
    pub fn key(&self) -> u32 {
        self.rkey
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Address of a part of the arena, for a work request.
    pub(crate) fn part(&self, at: usize, len: usize) -> io::Result<*mut c_void> {
        Ok(self.arena.part(at, len)?.cast())
    }
}

impl Device {
    /// Registers an arena for the connections of the domain. If `remote`, their peers may access
    /// it.
    pub fn map(&self, arena: &Arena, remote: bool) -> io::Result<Arc<Mapped>> {
        let (memory, len) = (arena.0.memory.as_ptr().cast(), arena.0.layout.size());
        let pd = self.0.pd.as_ptr();
        // SAFETY: The memory has this size, and lives until the region is deregistered.
        let mr = made(unsafe { ffi::shim_register(pd, memory, len, remote.into()) })?;
        // SAFETY: The region was registered above.
        let lkey = unsafe { ffi::shim_lkey(mr.as_ptr()) };
        // SAFETY: The region was registered above.
        let rkey = unsafe { ffi::shim_rkey(mr.as_ptr()) };
        Ok(Arc::new(Mapped {
            arena: arena.clone(),
            mr,
            lkey,
            rkey,
            _device: self.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of rdma-core, which are those of the kernel.
    const IB: i32 = 0;
    const IWARP: i32 = 1;
    const LOCAL_WRITE: i32 = 1;
    const REMOTE_WRITE: i32 = 2;
    const REMOTE_READ: i32 = 4;

    #[test]
    fn an_iwarp_peer_writes_what_is_read_from_it() {
        let access = |transport, remote| {
            // SAFETY: The function has no preconditions.
            unsafe { ffi::shim_access(transport, remote) }
        };
        assert_eq!(access(IB, 0), LOCAL_WRITE);
        assert_eq!(access(IWARP, 0), LOCAL_WRITE | REMOTE_WRITE);
        for transport in [IB, IWARP] {
            let all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
            assert_eq!(access(transport, 1), all);
        }
    }
}
