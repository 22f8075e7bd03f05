// SPDX-License-Identifier: GPL-2.0

//! Queue pairs for management datagrams.

use std::{ffi::c_void, io, os::fd::RawFd, ptr::NonNull};

use crate::{
    check, ffi,
    ib_cm::{Mad, MAD},
    made,
    memory::{Buffer, Device},
};

/// Number of buffers in each direction.
const DEPTH: usize = 64;
/// A received datagram starts with room for a GRH.
const GRH: usize = 40;
const ROOM: usize = GRH + MAD;

/// The sender of a datagram, as the destination of a reply.
pub struct Sender {
    ah: NonNull<ffi::Ah>,
    qpn: u32,
    _device: Device,
}

impl Drop for Sender {
    fn drop(&mut self) {
        // SAFETY: The handle is from `shim_datagram`. A device copies the address when it posts.
        unsafe { ffi::shim_ah_free(self.ah.as_ptr()) };
    }
}

/// A queue pair at port 1 of a device for management datagrams. It works like queue pair 1, with
/// the same Q_Key.
pub struct Gsi {
    device: Device,
    // `drop` destroys these before the buffers are freed.
    qp: NonNull<ffi::Qp>,
    cq: NonNull<ffi::Cq>,
    wakeups: NonNull<ffi::CompChannel>,
    /// Each is posted, except between its completion and its next post.
    receives: Vec<Buffer>,
    sends: Vec<Buffer>,
    sent: usize,
}

impl Drop for Gsi {
    fn drop(&mut self) {
        // SAFETY: `open` created the queue pair. Afterwards the device accesses no buffer.
        unsafe { ffi::shim_rc_free(self.qp.as_ptr()) };
        // SAFETY: `open` created the completion queue; its queue pair is destroyed, and its events
        // are acknowledged when read.
        unsafe { ffi::shim_cq_free(self.cq.as_ptr()) };
        // SAFETY: `open` created the channel; its completion queue is destroyed.
        unsafe { ffi::shim_wakeups_free(self.wakeups.as_ptr()) };
    }
}

impl Gsi {
    /// Opens the device of this name, and a queue pair there.
    pub fn open(name: &str) -> io::Result<Self> {
        let device = Device::open(name)?;
        let (receives, sends) = (device.buffers(DEPTH, ROOM)?, device.buffers(DEPTH, MAD)?);
        let (context, pd) = (device.0.context.as_ptr(), device.0.pd.as_ptr());
        // SAFETY: The device is open.
        let wakeups = made(unsafe { ffi::shim_wakeups(context) })?;
        let free_wakeups = || {
            // SAFETY: The channel was created above, and no completion queue uses it.
            unsafe { ffi::shim_wakeups_free(wakeups.as_ptr()) }
        };
        let entries = 4 * DEPTH as i32;
        // SAFETY: The device and the channel are alive.
        let cq = made(unsafe { ffi::shim_cq(context, wakeups.as_ptr(), entries, 0) });
        let cq = cq.inspect_err(|_| free_wakeups())?;
        // SAFETY: The domain and the queue are alive.
        let qp = made(unsafe { ffi::shim_gsi(pd, cq.as_ptr(), DEPTH as u32) });
        let qp = qp.inspect_err(|_| {
            // SAFETY: The completion queue was created above and is unused.
            unsafe { ffi::shim_cq_free(cq.as_ptr()) };
            free_wakeups();
        })?;
        let mut this = Self {
            device,
            qp,
            cq,
            wakeups,
            receives,
            sends,
            sent: 0,
        };
        this.arm()?;
        for index in 0..DEPTH {
            this.post(index)?;
        }
        Ok(this)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        // SAFETY: `self` owns the queue pair.
        unsafe { ffi::shim_qpn(self.qp.as_ptr()) }
    }

    /// Descriptor that is readable when a datagram may have arrived.
    pub fn fd(&self) -> RawFd {
        // SAFETY: The channel lives as long as `self`.
        unsafe { ffi::shim_wakeups_fd(self.wakeups.as_ptr()) }
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: `self` owns the completion queue.
        check(unsafe { ffi::shim_arm(self.cq.as_ptr()) })?;
        Ok(())
    }

    fn post(&mut self, index: usize) -> io::Result<()> {
        let buffer = self.receives.get_mut(index);
        let buffer = buffer.ok_or(io::ErrorKind::InvalidInput)?;
        let (qp, lkey, memory) = (self.qp.as_ptr(), buffer.lkey(), buffer.part(0, ROOM)?);
        // SAFETY: `self` owns the queue pair and the buffer, and reads it only after the completion
        // of this receive, before the next post.
        check(unsafe { ffi::shim_receive(qp, index as u64, memory, ROOM as u32, lkey) })?;
        Ok(())
    }

    /// Returns all datagrams that have arrived, with their senders. Call it when the descriptor is
    /// readable.
    pub fn take(&mut self) -> io::Result<Vec<(Mad, Sender)>> {
        let mut token = 0;
        // SAFETY: The channel lives as long as `self`, and `token` is a local.
        while check(unsafe { ffi::shim_wakeup(self.wakeups.as_ptr(), &mut token) }).is_ok() {}
        self.arm()?;
        let mut all = Vec::new();
        while let Some((index, sender)) = self.poll()? {
            let Some(sender) = sender else { continue };
            let mut mad = [0; MAD];
            mad.copy_from_slice(&self.receives[index][GRH..]);
            all.push((Mad(mad), sender));
            self.post(index)?;
        }
        Ok(all)
    }

    /// Polls for a completion. Returns the index of its buffer, and the sender of a received
    /// datagram.
    fn poll(&mut self) -> io::Result<Option<(usize, Option<Sender>)>> {
        let mut out = ffi::Datagram {
            id: 0,
            back: std::ptr::null_mut(),
            qpn: 0,
        };
        let (cq, pd) = (self.cq.as_ptr(), self.device.0.pd.as_ptr());
        let receives = self.receives.iter_mut().map(|b| b.part(0, ROOM));
        let receives: Vec<*mut c_void> = receives.collect::<io::Result<_>>()?;
        let (list, count) = (receives.as_ptr(), receives.len() as u64);
        // SAFETY: All objects are alive, as are the `count` buffers in the list; `out` is a local.
        let n = unsafe { ffi::shim_datagram(cq, pd, list, count, &mut out) };
        if check(n)? == 0 {
            return Ok(None);
        }
        let sender = NonNull::new(out.back).map(|ah| Sender {
            ah,
            qpn: out.qpn,
            _device: self.device.clone(),
        });
        Ok(Some((out.id as usize, sender)))
    }

    /// Sends a datagram. Reuses the buffer of the 64th datagram before it.
    pub fn send(&mut self, mad: &Mad, to: &Sender) -> io::Result<()> {
        let index = self.sent % DEPTH;
        self.sent += 1;
        self.sends[index].copy_from_slice(&mad.0);
        let (qp, lkey) = (self.qp.as_ptr(), self.sends[index].lkey());
        let memory = self.sends[index].part(0, MAD)?;
        let (id, len) = ((DEPTH + index) as u64, MAD as u32);
        let (ah, qpn) = (to.ah.as_ptr(), to.qpn);
        // SAFETY: All objects are alive, and `self` owns the buffer.
        check(unsafe { ffi::shim_datagram_send(qp, id, memory, len, lkey, ah, qpn) })?;
        Ok(())
    }
}
