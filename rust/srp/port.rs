// SPDX-License-Identifier: GPL-2.0

//! What there is for each port of an RDMA device: a folder in sysfs, and sessions.

use super::{
    connect::Plan,
    error::Lost,
    geometry::Geometry,
    session::{
        Key,
        Session,
        LOG_OUT_PATIENCE_MS, //
    },
    turns::Turns, //
};
use crate::{
    compat,
    net::Namespace,
    pm::SleepHandler,
    rdma::{
        client::Client,
        device::{
            Device,
            Name,
            Registered, //
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
    },
    workqueue::Handle, //
};
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::Msecs, //
};

/// When the device is pulled, there is probably no way to the target any more. One that has a way answers
/// well within half of this.
const UNPLUG_PATIENCE_MS: Msecs = 4_000;

/// The queues that sessions end on.
#[derive(Clone)]
pub struct Queues {
    /// Connections.
    pub ending: Handle,
    /// Disks, which wait for the former.
    pub removal: Handle,
    /// New connections, which wait for the network.
    pub reconnect: Handle,
}

/// What all ports share.
pub struct Initiator {
    class: Arc<Class<Arc<Port>>>,
    transport: Arc<Transport<Session>>,
    queues: Queues,
    all: Arc<AllPorts>,
}

/// The ports of all devices.
#[pin_data]
pub struct AllPorts {
    #[pin]
    list: Mutex<KVec<Arc<Port>>>,
}

impl AllPorts {
    /// None so far.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "AllPorts::list"),
            }),
            GFP_KERNEL,
        )
    }
}

impl AllPorts {
    /// Lets no more sessions begin at the ports there are, and asks all sessions to end.
    pub fn close(&self) {
        for port in &*self.list.lock() {
            port.close(LOG_OUT_PATIENCE_MS);
        }
    }
}

impl SleepHandler for AllPorts {
    fn suspending(&self) {}

    fn resumed(&self) {
        for port in &*self.list.lock() {
            port.wake();
        }
    }
}

impl Initiator {
    /// Registers the class `infiniband_srp`, whose folders have the files of `attributes`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the C driver is loaded, `ENOMEM`.
    pub fn new(
        attributes: &'static AttributeGroup<ClassDevice<Arc<Port>>>,
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

impl Namespaced for Arc<Port> {
    fn namespace(&self) -> &Namespace {
        self.device.namespace()
    }
}

struct Sessions {
    list: KVec<Arc<Session>>,
    /// The port goes: no more logins.
    closed: bool,
}

/// One port of an RDMA device.
#[pin_data]
pub struct Port {
    device: Registered,
    number: u32,
    transport: Arc<Transport<Session>>,
    queues: Queues,
    /// Before [`Session`]'s locks. Under it work is only queued, but for a resume, which waits for a test of a connection
    /// that is under way.
    #[pin]
    sessions: Mutex<Sessions>,
    /// A session has gone from the list.
    #[pin]
    gone: CondVar,
}

/// How a port is called in the log.
pub struct PortName(Name, u32);

impl core::fmt::Display for PortName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl Port {
    fn new(device: &Device, number: u32, initiator: &Initiator) -> Result<Arc<Self>> {
        let device = device.hold()?;
        Arc::pin_init(
            pin_init!(Self {
                device,
                number,
                transport: initiator.transport.clone(),
                queues: initiator.queues.clone(),
                sessions <- new_mutex!(
                    Sessions {
                        list: KVec::new(),
                        closed: false,
                    },
                    "Port::sessions"
                ),
                gone <- new_condvar!("Port::gone"),
            }),
            GFP_KERNEL,
        )
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of the port on its device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How it is called in the log.
    pub fn name(&self) -> PortName {
        PortName(self.device.name(), self.number)
    }

    /// The SRP transport of the SCSI hosts.
    pub fn transport(&self) -> &Arc<Transport<Session>> {
        &self.transport
    }

    /// Makes a session and puts it on the list. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one with this key, `ENODEV` if the port goes, `ENOMEM`.
    pub fn begin(
        self: &Arc<Self>,
        key: Key,
        plan: Plan,
        geometry: Geometry,
    ) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        let turns = match sessions
            .list
            .iter()
            .find(|s| s.nexus.plan.way.is_like(&plan.way))
        {
            Some(other) => other.nexus.turns.clone(),
            None => Turns::new()?,
        };
        let session = Session::new(self, key, plan, geometry, self.queues.clone(), turns)?;
        if sessions.closed {
            return Err(ENODEV);
        }
        if let Some(other) = sessions.list.iter().find(|other| other.key() == key) {
            let what = if other.is_ending() {
                "the session that ends at"
            } else {
                "already logged in at"
            };
            pr_info!(
                "{}: login refused: {what} {}\n",
                format_args!("{}", self.name()),
                format_args!("{}", session.target())
            );
            return Err(EEXIST);
        }
        sessions.list.push(session.clone(), GFP_KERNEL)?;
        Ok(session)
    }

    /// Takes a session that has ended off the list.
    pub fn forget(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        sessions.list.retain(|other| !Arc::ptr_eq(other, session));
        drop(sessions);
        self.gone.notify_all();
    }

    /// Something happened that may have brought the network back: sessions that wait to reconnect do
    /// it now.
    fn kick(&self) {
        for session in &self.sessions.lock().list {
            session.retry_now();
        }
    }

    /// See [`Session::wake`].
    fn wake(&self) {
        for session in &self.sessions.lock().list {
            session.wake();
        }
    }

    /// The device does nothing any more.
    fn fatal(&self, event: DeviceEvent) {
        for session in &self.sessions.lock().list {
            session.fail(Lost::Device(event));
        }
    }

    /// Lets no more sessions begin, and asks those there are to end.
    fn close(&self, patience: Msecs) {
        let mut sessions = self.sessions.lock();
        sessions.closed = true;
        for session in &sessions.list {
            session.remove(patience);
        }
    }

    /// Waits until all sessions have ended. Sleeps.
    fn wait_empty(&self) {
        let mut sessions = self.sessions.lock();
        while !sessions.list.is_empty() {
            self.gone.wait(&mut sessions);
        }
    }

    /// Waits until this session has ended; for a login that failed. Sleeps.
    pub fn wait_gone(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        while sessions
            .list
            .iter()
            .any(|other| Arc::ptr_eq(other, session))
        {
            self.gone.wait(&mut sessions);
        }
    }
}

/// Takes the events of a device.
struct Watch {
    ports: KVec<Arc<Port>>,
}

impl DeviceEventHandler for Watch {
    fn device_event(&self, event: DeviceEvent, port: Option<u32>) {
        let concerned = |p: &&Arc<Port>| port.is_none_or(|number| p.number == number);
        for port in self.ports.iter().filter(concerned) {
            match event {
                DeviceEvent::Fatal => port.fatal(event),
                DeviceEvent::PortActive
                | DeviceEvent::LidChange
                | DeviceEvent::PkeyChange
                | DeviceEvent::SmChange
                | DeviceEvent::ClientReregister
                | DeviceEvent::GidChange => port.kick(),
                // The port may come back before anything is lost; the transport will say so if not.
                DeviceEvent::PortError | DeviceEvent::Other(_) => {}
            }
        }
    }
}

/// The ports of one device.
pub struct Ports {
    /// See [`Session::remove`].
    patience: Msecs,
    events: Option<Pin<KBox<device_event::Registration<Watch>>>>,
    ports: KVec<Arc<Port>>,
    folders: KVec<ClassDevice<Arc<Port>>>,
    all: Arc<AllPorts>,
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.events = None;
        let ours = |port: &mut Arc<Port>| self.ports.iter().any(|own| Arc::ptr_eq(own, port));
        self.all.list.lock().retain(|port| !ours(port));
        for port in &self.ports {
            port.close(self.patience);
        }
        // Waits for logins, which the above has ended.
        self.folders.clear();
        for port in &self.ports {
            port.wait_empty();
        }
    }
}

impl Initiator {
    fn add_port(&self, device: &Device, number: u32, to: &mut Ports, watch: &mut Watch) -> Result {
        let port = Port::new(device, number, self)?;
        to.folders.reserve(1, GFP_KERNEL)?;
        to.ports.reserve(1, GFP_KERNEL)?;
        watch.ports.reserve(1, GFP_KERNEL)?;
        // Before there is a file to log in by: what is here will be closed.
        self.all.list.lock().push(port.clone(), GFP_KERNEL)?;
        to.ports.push(port.clone(), GFP_KERNEL)?;
        let folder = ClassDevice::new(
            &self.class,
            device.parent(),
            fmt!("srp-{}-{}", format_args!("{}", device.name()), number),
            port.clone(),
        )
        .inspect_err(|_| {
            to.ports.pop();
            let mut list = self.all.list.lock();
            list.retain(|other| !Arc::ptr_eq(other, &port));
        })?;
        to.folders.push(folder, GFP_KERNEL)?;
        watch.ports.push(port, GFP_KERNEL)?;
        Ok(())
    }
}

impl Client for Initiator {
    const NAME: &'static CStr = c"srp";

    type Data = KBox<Ports>;

    fn add(&self, device: &Device) -> Result<Self::Data> {
        let mut all = KBox::new(
            Ports {
                patience: LOG_OUT_PATIENCE_MS,
                events: None,
                ports: KVec::new(),
                folders: KVec::new(),
                all: self.all.clone(),
            },
            GFP_KERNEL,
        )?;
        let mut watch = Watch { ports: KVec::new() };
        for number in device.ports() {
            // The other ports can do without it.
            if let Err(e) = self.add_port(device, number, &mut all, &mut watch) {
                pr_err!(
                    "{}:{}: the port cannot be used: {}\n",
                    format_args!("{}", device.name()),
                    number,
                    e.to_errno()
                );
            }
        }
        let watch = Arc::new(watch, GFP_KERNEL)?;
        let events = device_event::Registration::new(device.hold()?, watch);
        all.events = Some(KBox::pin_init(events, GFP_KERNEL)?);
        Ok(all)
    }

    fn remove(&self, _: &Device, mut data: Self::Data, unplugged: bool) {
        if unplugged {
            data.patience = UNPLUG_PATIENCE_MS;
        }
        drop(data);
    }

    fn rename(&self, device: &Device, data: &Ports) {
        for (port, folder) in data.ports.iter().zip(&data.folders) {
            let result = folder.rename(fmt!(
                "srp-{}-{}",
                format_args!("{}", device.name()),
                port.number
            ));
            if let Err(e) = result {
                pr_warn!(
                    "{}: the folder in sysfs keeps its old name: {}\n",
                    format_args!("{}", port.name()),
                    e.to_errno()
                );
            }
        }
    }
}

#[cfg(SRP_KUNIT)]
pub(in crate::srp) mod tests;
