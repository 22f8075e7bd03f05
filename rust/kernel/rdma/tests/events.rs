// SPDX-License-Identifier: GPL-2.0

//! Events of a device: those that the test reports to the core, and those that it passes to the
//! handler directly.
//!
//! The GID table of an rxe device may change during a test, when its network interface gets an
//! address.

use super::{
    check,
    check_eq,
    soft::Soft,
    suite, //
};
use crate::{
    bindings,
    rdma::device_event::{
        DeviceEvent,
        DeviceEventHandler,
        Registration, //
    },
    sync::{
        race::race,
        Completion, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// Time that a handler is delayed, in milliseconds.
const HOLD: Msecs = 200;
/// Time after which an event is considered lost, in milliseconds.
const NEVER: Msecs = 60_000;

/// An event as the handler receives it.
type Seen = (DeviceEvent, Option<u32>);

/// A handler that records its events.
#[pin_data]
struct Record {
    #[pin]
    seen: Mutex<KVec<Seen>>,
}

impl DeviceEventHandler for Record {
    fn device_event(&self, event: DeviceEvent, port: Option<u32>) {
        let kept = self.seen.lock().push((event, port), GFP_KERNEL);
        if kept.is_err() {
            pr_err!("no memory for an event\n");
        }
    }
}

impl Record {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { seen <- new_mutex!(KVec::new(), "Record::seen") }),
            GFP_KERNEL,
        )
    }

    fn clear(&self) {
        self.seen.lock().clear();
    }

    fn has(&self, event: Seen) -> bool {
        self.seen.lock().contains(&event)
    }

    /// Number of recorded events, without spontaneous ones.
    fn count(&self) -> usize {
        let seen = self.seen.lock();
        seen.iter()
            .filter(|(event, _)| *event != DeviceEvent::GidChange)
            .count()
    }
}

type Registered<T> = Pin<KBox<Registration<T>>>;

fn register<T: DeviceEventHandler>(soft: &Soft, handler: &Arc<T>) -> Result<Registered<T>> {
    settle();
    let device = soft.device.hold()?;
    KBox::pin_init(Registration::new(device, handler.clone()), GFP_KERNEL)
}

fn event(soft: &Soft, kind: bindings::ib_event_type, port: u32) -> bindings::ib_event {
    let mut event = bindings::ib_event {
        device: soft.device.as_raw(),
        event: kind,
        ..Default::default()
    };
    // SAFETY: The whole union is initialised.
    *unsafe { event.element.port_num.as_mut() } = port;
    event
}

/// Reports an event, as the driver of the device would.
pub(crate) fn report(soft: &Soft, kind: bindings::ib_event_type) {
    // SAFETY: The device is registered and has a port 1; the core copies the event.
    unsafe { bindings::ib_dispatch_event(&event(soft, kind, 1)) };
}

/// Waits until all reported events have been handled.
pub(crate) fn settle() {
    // SAFETY: The work queue lives as long as `ib_core`, and this does not run in one of its items.
    unsafe { bindings::__flush_workqueue(bindings::ib_wq) };
}

/// Calls the callback of a handler, as the core would.
pub(crate) fn call<T: DeviceEventHandler>(
    soft: &Soft,
    registration: &Registration<T>,
    kind: bindings::ib_event_type,
    port: u32,
) {
    let mut event = event(soft, kind, port);
    let handler = registration.as_raw();
    // SAFETY: The handler is registered.
    if let Some(callback) = unsafe { (*handler).handler } {
        // SAFETY: `callback` belongs to this handler, and the event to its device.
        unsafe { callback(handler, &mut event) };
    }
}

fn reported_events_reach_every_handler(soft: &Soft) -> Result {
    let (one, other) = (Record::new()?, Record::new()?);
    let _one = register(soft, &one)?;
    let _other = register(soft, &other)?;
    for (kind, seen) in [
        (
            bindings::ib_event_type_IB_EVENT_PORT_ERR,
            DeviceEvent::PortError,
        ),
        (
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
            DeviceEvent::PortActive,
        ),
        (
            bindings::ib_event_type_IB_EVENT_LID_CHANGE,
            DeviceEvent::LidChange,
        ),
        (
            bindings::ib_event_type_IB_EVENT_SM_CHANGE,
            DeviceEvent::SmChange,
        ),
    ] {
        for record in [&one, &other] {
            record.clear();
        }
        report(soft, kind);
        settle();
        for record in [&one, &other] {
            check!(record.has((seen, Some(1))));
            check_eq!(record.count(), 1);
        }
    }
    Ok(())
}

fn kinds_and_ports(soft: &Soft) -> Result {
    let record = Record::new()?;
    let registration = register(soft, &record)?;
    for kind in 0..30 {
        let seen = match kind {
            bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => Some((DeviceEvent::Fatal, None)),
            9 => Some((DeviceEvent::PortActive, Some(1))),
            10 => Some((DeviceEvent::PortError, Some(1))),
            11 => Some((DeviceEvent::LidChange, Some(1))),
            12 => Some((DeviceEvent::PkeyChange, Some(1))),
            13 => Some((DeviceEvent::SmChange, Some(1))),
            17 => Some((DeviceEvent::ClientReregister, Some(1))),
            18 => Some((DeviceEvent::GidChange, Some(1))),
            20.. => Some((DeviceEvent::Other(kind), None)),
            _ => None,
        };
        record.clear();
        call(soft, &registration, kind, 1);
        match seen {
            Some(seen) => check!(record.has(seen)),
            None => check!(record.count() == 0),
        }
    }
    // Ports that the device does not have.
    for port in [0, 2, u32::MAX] {
        record.clear();
        let kind = bindings::ib_event_type_IB_EVENT_PORT_ACTIVE;
        call(soft, &registration, kind, port);
        check!(record.has((DeviceEvent::PortActive, None)));
    }
    Ok(())
}

fn nothing_comes_after_the_drop(soft: &Soft) -> Result {
    let (gone, stays) = (Record::new()?, Record::new()?);
    let registration = register(soft, &gone)?;
    let _stays = register(soft, &stays)?;
    drop(registration);
    let before = gone.count();
    report(soft, bindings::ib_event_type_IB_EVENT_PORT_ACTIVE);
    settle();
    check!(stays.has((DeviceEvent::PortActive, Some(1))));
    check_eq!(gone.count(), before);
    check!(Arc::into_unique_or_drop(gone).is_some());
    Ok(())
}

/// A handler that waits in its callback.
#[pin_data]
struct Slow {
    #[pin]
    begun: Completion,
    #[pin]
    go: Completion,
    ended: Atomic<bool>,
}

impl DeviceEventHandler for Slow {
    fn device_event(&self, event: DeviceEvent, _port: Option<u32>) {
        if event != DeviceEvent::PortActive {
            return;
        }
        self.begun.complete_all();
        self.ended
            .store(self.go.wait_timeout(NEVER).is_ok(), Release);
    }
}

/// The drop of a registration during a callback.
#[pin_data]
struct Scene {
    handler: Arc<Slow>,
    #[pin]
    registration: Mutex<Option<Registered<Slow>>>,
    #[pin]
    dropped: Completion,
    /// Whether the drop returned while the handler was waiting.
    early: Atomic<bool>,
    /// Whether the handler had ended when the drop returned.
    ended: Atomic<bool>,
}

impl Scene {
    fn end_registration(&self) {
        let registration = self.registration.lock().take();
        drop(registration);
        self.ended.store(self.handler.ended.load(Acquire), Release);
        self.dropped.complete_all();
    }

    fn hold_up(&self) {
        let early = self.dropped.wait_timeout(HOLD).is_ok();
        self.early.store(early, Release);
        self.handler.go.complete_all();
    }
}

fn drop_waits_for_the_handler(soft: &Soft) -> Result {
    let handler = Arc::pin_init(
        pin_init!(Slow {
            begun <- Completion::new(),
            go <- Completion::new(),
            ended: Atomic::new(false),
        }),
        GFP_KERNEL,
    )?;
    let registration = register(soft, &handler)?;
    let held = handler.clone();
    let scene = Arc::pin_init(
        pin_init!(Scene {
            handler: held,
            registration <- new_mutex!(Some(registration), "Scene::registration"),
            dropped <- Completion::new(),
            early: Atomic::new(false),
            ended: Atomic::new(false),
        }),
        GFP_KERNEL,
    )?;
    report(soft, bindings::ib_event_type_IB_EVENT_PORT_ACTIVE);
    handler.begun.wait_timeout(NEVER)?;
    race(&scene, &[Scene::end_registration, Scene::hold_up])?;
    check!(!scene.early.load(Acquire));
    check!(scene.ended.load(Acquire));
    drop(scene);
    check!(Arc::into_unique_or_drop(handler).is_some());
    Ok(())
}

macro_rules! suites {
    ($($suite:ident $module:ident $kind:expr),*) => {
        $(
            suite!($suite, $module, $kind, [
                reported_events_reach_every_handler,
                kinds_and_ports,
                nothing_comes_after_the_drop,
                drop_waits_for_the_handler,
            ]);
        )*
    };
}

suites!(
    srp_events_rxe rxe crate::rdma::tests::soft::Kind::Rxe,
    srp_events_siw siw crate::rdma::tests::soft::Kind::Siw
);
