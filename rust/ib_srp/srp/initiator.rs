// SPDX-License-Identifier: GPL-2.0

//! The ports of all devices, each with a sysfs directory and sessions.

use super::{
    log::port_log,
    port::Port,
    session::{
        Queues,
        Session,
        LOGOUT_PATIENCE_MS, //
    },
    sessions::Sessions, //
};
use crate::{
    compat,
    net::SysfsTag,
    pm::SleepHandler,
    rdma::{
        client::Client,
        device::{
            Device,
            Health, //
        },
        device_event::{
            self,
            DeviceEvent,
            DeviceEventHandler, //
        }, //
    },
    scsi::transport::srp::Transport,
    sysfs::{
        AttributeGroup,
        Class,
        ClassDevice,
        Namespaced, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// Patience after a surprise removal: there is probably no path to the target. A target with a path
/// responds well within half of this time.
const UNPLUG_PATIENCE_MS: Msecs = 4_000;

/// The data that all ports share.
pub struct Initiator {
    class: Arc<Class<Arc<Sessions>>>,
    transport: Arc<Transport<Session>>,
    queues: Queues,
    all: Arc<AllPorts>,
}

/// The ports of all devices.
#[pin_data]
pub struct AllPorts {
    #[pin]
    list: Mutex<KVec<Arc<Sessions>>>,
}

impl AllPorts {
    /// Creates an empty list.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "AllPorts::list"),
            }),
            GFP_KERNEL,
        )
    }

    fn remove(&self, sessions: &Arc<Sessions>) {
        let mut list = self.list.lock();
        list.retain(|other| !Arc::ptr_eq(other, sessions));
    }

    /// Refuses new sessions at the existing ports, and asks all sessions to end.
    pub fn close(&self) {
        for sessions in &*self.list.lock() {
            sessions.close(LOGOUT_PATIENCE_MS);
        }
    }
}

impl SleepHandler for AllPorts {
    fn resumed(&self) {
        for sessions in &*self.list.lock() {
            sessions.each(Session::wake);
        }
    }
}

impl Initiator {
    /// Registers the class `infiniband_srp`. Its devices have the files of `attributes`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the C driver is loaded, `ENOMEM`.
    pub fn new(
        attributes: &'static AttributeGroup<ClassDevice<Arc<Sessions>>>,
        transport: Arc<Transport<Session>>,
        queues: Queues,
        all: Arc<AllPorts>,
    ) -> Result<Self> {
        Ok(Self {
            class: if compat::PORTS_IN_NAMESPACES {
                Class::in_namespaces(c"infiniband_srp", attributes)?
            } else {
                Class::new(c"infiniband_srp", attributes)?
            },
            transport,
            queues,
            all,
        })
    }
}

impl Namespaced for Arc<Sessions> {
    fn namespace(&self) -> SysfsTag<'_> {
        self.port().device().namespace()
    }
}

/// Handles the events of a device with these ports.
impl DeviceEventHandler for KVec<Arc<Sessions>> {
    fn device_event(&self, event: DeviceEvent, port: Option<u32>) {
        let concerned = |s: &&Arc<Sessions>| port.is_none_or(|number| s.port().number() == number);
        for sessions in self.iter().filter(concerned) {
            let changed = |moved| sessions.each(|session| session.port_changed(moved));
            match event {
                DeviceEvent::Fatal => sessions.fatal(),
                DeviceEvent::PortActive | DeviceEvent::GidChange => changed(false),
                // A restarted subnet manager may have moved the peer, too, which no event reports.
                DeviceEvent::LidChange
                | DeviceEvent::PkeyChange
                | DeviceEvent::SmChange
                | DeviceEvent::ClientReregister => changed(sessions.port().has_lids()),
                // The port may recover before a connection is lost; if not, the transport reports
                // the loss.
                DeviceEvent::PortError | DeviceEvent::Other(_) => {}
            }
        }
    }
}

/// Passes the events of a device on to its ports.
type PortEvents = device_event::Registration<KVec<Arc<Sessions>>>;

/// The ports of one device.
pub struct Ports {
    /// The patience of [`Session::remove`], in milliseconds.
    patience: Msecs,
    events: Option<Pin<KBox<PortEvents>>>,
    /// The sysfs directory of each port.
    folders: KVec<ClassDevice<Arc<Sessions>>>,
    all: Arc<AllPorts>,
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.events = None;
        for sessions in &self.folders {
            self.all.remove(sessions);
            sessions.close(self.patience);
        }
        while let Some(folder) = self.folders.pop() {
            let sessions = Arc::clone(&folder);
            // Waits for logins, which `close()` has ended.
            drop(folder);
            sessions.wait_empty();
        }
    }
}

impl Initiator {
    fn add_port(
        &self,
        device: &Device,
        number: u32,
        health: &Arc<Health>,
        to: &mut Ports,
    ) -> Result {
        let port = Port::new(device, number, health.clone())?;
        let sessions = Sessions::new(port, self.transport.clone(), self.queues.clone())?;
        to.folders.reserve(1, GFP_KERNEL)?;
        // List the port before its file for logins exists, so that every session gets closed.
        self.all.list.lock().push(sessions.clone(), GFP_KERNEL)?;
        let folder = ClassDevice::new(
            &self.class,
            device.parent(),
            fmt!("srp-{}-{}", format_args!("{}", device.name()), number),
            sessions.clone(),
        )
        .inspect_err(|_| self.all.remove(&sessions))?;
        Ok(to.folders.push(folder, GFP_KERNEL)?)
    }
}

impl Client for Initiator {
    const NAME: &'static CStr = c"srp";

    type Data = KBox<Ports>;

    fn add(&self, device: &Device, health: &Arc<Health>) -> Result<Self::Data> {
        let mut all = KBox::new(
            Ports {
                patience: LOGOUT_PATIENCE_MS,
                events: None,
                folders: KVec::new(),
                all: self.all.clone(),
            },
            GFP_KERNEL,
        )?;
        for number in device.ports() {
            // The other ports work without this one.
            if let Err(e) = self.add_port(device, number, health, &mut all) {
                pr_err!(
                    "{}:{number}: the port cannot be used: error {}\n",
                    format_args!("{}", device.name()),
                    e.to_errno()
                );
            }
        }
        let mut ports = KVec::with_capacity(all.folders.len(), GFP_KERNEL)?;
        for sessions in &all.folders {
            ports.push(Arc::clone(sessions), GFP_KERNEL)?;
        }
        let handler = Arc::new(ports, GFP_KERNEL)?;
        let registration = device_event::Registration::new(device.hold()?, handler);
        all.events = Some(KBox::pin_init(registration, GFP_KERNEL)?);
        Ok(all)
    }

    fn remove(&self, _: &Device, mut data: Self::Data, health: &Health) {
        if health.is_going() {
            data.patience = UNPLUG_PATIENCE_MS;
        }
        drop(data);
    }

    fn rename(&self, device: &Device, data: &Ports) {
        for folder in &data.folders {
            let port = folder.port();
            let result = folder.rename(fmt!(
                "srp-{}-{}",
                format_args!("{}", device.name()),
                port.number()
            ));
            if let Err(e) = result {
                port_log!(
                    pr_warn,
                    port,
                    "the sysfs directory keeps its old name: error {}",
                    e.to_errno()
                );
            }
        }
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
