// SPDX-License-Identifier: GPL-2.0

//! The adapters of the module, which can be removed and added.

use super::{
    control,
    fabric::Fabric,
    hca::{
        Attached,
        Hca, //
    },
    manager,
    params::Params,
    personality::{
        After,
        Personality,
        Reset,
        PERSONALITIES, //
    },
    qp::net::{
        Net,
        Running, //
    },
};
use crate::provider::{
    dma::DmaDevice,
    Registration, //
};
use core::fmt;
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    uaccess::UserSliceReader, //
};

/// A debugfs file of an adapter.
type Control = Pin<KBox<File<Arc<Hca>>>>;
/// A debugfs file for all adapters.
pub type DevicesFile = Pin<KBox<File<Arc<Devices>>>>;

/// An adapter, registered with `ib_core`. The fields are dropped in this order.
struct Device {
    _fault: Control,
    _port: Control,
    _queue_pairs: Control,
    _mads: Control,
    _regions: Control,
    _dir: Dir,
    _registration: Registration<Hca>,
    hca: Attached,
}

impl Device {
    /// Begins the removal by the driver.
    fn leaves(&self) {
        if let Some(outage) = self.hca.manner().begin_removal() {
            self.hca.goes(outage);
        }
    }
}

/// All adapters.
#[pin_data]
pub struct Devices {
    params: Params,
    dir: Dir,
    net: Arc<Net>,
    #[pin]
    all: Mutex<KVec<Place>>,
}

/// A slot for an adapter.
struct Place {
    device: Option<Device>,
    /// Personality of the current or last adapter.
    personality: &'static Personality,
}

impl Devices {
    /// Creates as many adapters as the parameters request. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`, or the error of `ib_core`.
    pub fn new(params: Params) -> Result<(Arc<Self>, Running)> {
        let running = Net::run(Fabric::new(params.devices, params.ports)?)?;
        if params.static_lids {
            manager::activate(&running.fabric)?;
        }
        let net = (*running).clone();
        let this = Arc::pin_init(
            pin_init!(Self {
                params,
                dir: Dir::new(c"ib_vfab"),
                net,
                all <- new_mutex!(KVec::new(), "vfab::Devices"),
            }),
            GFP_KERNEL,
        )?;
        for (number, personality) in (0..params.devices).zip(params.personalities) {
            let place = Place {
                device: Some(this.device(number, personality)?),
                personality,
            };
            this.all.lock().push(place, GFP_KERNEL)?;
        }
        Ok((this, running))
    }

    fn device(&self, number: u8, personality: &'static Personality) -> Result<Device> {
        let Params {
            ports,
            dma_bits,
            direct,
            gaps,
            static_lids,
            ..
        } = self.params;
        let dma = if u32::from(number) < direct {
            DmaDevice::direct(c"ib_vfab", number.into())?
        } else {
            DmaDevice::new(c"ib_vfab", number.into(), dma_bits)?
        };
        let hca = Hca::attached(
            number,
            ports,
            static_lids,
            gaps & 1 << number != 0,
            personality,
            dma,
            self.net.clone(),
        )?;
        let name = CString::try_from_fmt(fmt!("vfab{number}"))?;
        let registration = Registration::new(
            (*hca).clone(),
            &name,
            Fabric::guid(number),
            ports.into(),
            hca.dma(),
        )?;
        let dir = self.dir.subdir(&name);
        let fault = dir.read_write_callback_file(
            c"fault",
            (*hca).clone(),
            &control::show_faults,
            &control::set_fault,
        );
        let fault = KBox::pin_init(fault, GFP_KERNEL)?;
        let port = dir.read_write_callback_file(
            c"port",
            (*hca).clone(),
            &control::show_ports,
            &control::set_port,
        );
        let port = KBox::pin_init(port, GFP_KERNEL)?;
        let queue_pairs =
            dir.read_callback_file(c"qps", (*hca).clone(), &control::show_queue_pairs);
        let queue_pairs = KBox::pin_init(queue_pairs, GFP_KERNEL)?;
        let mads = dir.read_callback_file(c"mads", (*hca).clone(), &control::show_mads);
        let mads = KBox::pin_init(mads, GFP_KERNEL)?;
        let regions = dir.read_callback_file(c"regions", (*hca).clone(), &control::show_regions);
        let regions = KBox::pin_init(regions, GFP_KERNEL)?;
        Ok(Device {
            _fault: fault,
            _port: port,
            _queue_pairs: queue_pairs,
            _mads: mads,
            _regions: regions,
            _dir: dir,
            _registration: registration,
            hca,
        })
    }

    /// Creates the file that adds and removes adapters, and the file that lists the personalities.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn files(this: &Arc<Self>) -> Result<[DevicesFile; 2]> {
        let devices = this
            .dir
            .read_write_callback_file(c"devices", this.clone(), &show, &change);
        let devices = KBox::pin_init(devices, GFP_KERNEL)?;
        let personalities =
            this.dir
                .read_callback_file(c"personalities", this.clone(), &show_personalities);
        Ok([devices, KBox::pin_init(personalities, GFP_KERNEL)?])
    }

    /// Removes all adapters.
    pub fn clear(&self) {
        let all = core::mem::take(&mut *self.all.lock());
        for Place { device, .. } in &all {
            if let Some(device) = device {
                device.leaves();
            }
        }
        drop(all);
    }

    /// Removes an adapter, as if its driver were unbound, and switches the adapter off.
    fn remove(&self, number: u8) -> Result {
        let device = self.taken(number)?;
        device.leaves();
        self.unregister(number, device);
        Ok(())
    }

    /// Takes an adapter out of its slot.
    fn taken(&self, number: u8) -> Result<Device> {
        let mut all = self.all.lock();
        let place = all.get_mut(usize::from(number)).ok_or(ENODEV)?;
        place.device.take().ok_or(EEXIST)
    }

    /// Unregisters an adapter that was taken out of its slot, and switches it off unless the slot
    /// has another one.
    fn unregister(&self, number: u8, device: Device) {
        let unplugged = device.hca.is_unplugged();
        drop(device);
        let fabric = &self.net.fabric;
        let all = self.all.lock();
        for id in fabric.ports().filter(|id| unplugged && id.ca == number) {
            fabric.plug(id, true);
        }
        if all
            .get(usize::from(number))
            .is_some_and(|place| place.device.is_none())
        {
            fabric.power(number, false);
        }
    }

    /// Adds an adapter, with the given personality or the last one of the slot.
    fn add(&self, number: u8, personality: Option<&'static Personality>) -> Result {
        let mut all = self.all.lock();
        let place = all.get_mut(usize::from(number)).ok_or(ENODEV)?;
        if place.device.is_some() {
            return Err(EEXIST);
        }
        let personality = personality.unwrap_or(place.personality);
        place.device = Some(self.device(number, personality)?);
        place.personality = personality;
        self.net.fabric.power(number, true);
        drop(all);
        if self.params.static_lids {
            manager::activate(&self.net.fabric)?;
        }
        Ok(())
    }

    /// Resets an adapter as its personality specifies.
    fn reset(&self, number: u8) -> Result {
        let all = self.all.lock();
        let place = all.get(usize::from(number)).ok_or(ENODEV)?;
        let hca = (*place.device.as_ref().ok_or(ENODEV)?.hca).clone();
        drop(all);
        let Reset { pause, after, .. } = hca.manner().personality.reset;
        hca.goes(hca.manner().begin_reset());
        sleep(pause);
        match after {
            After::Another(away) => {
                drop(hca);
                let device = self.taken(number)?;
                self.unregister(number, device);
                sleep(away);
                self.add(number, None)
            }
            After::Nothing => Ok(()),
        }
    }
}

fn sleep(ms: u32) {
    fsleep(Delta::from_millis(ms.into()));
}

fn show(devices: &Arc<Devices>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, place) in devices.all.lock().iter().enumerate() {
        let state = if place.device.is_some() {
            "there"
        } else {
            "removed"
        };
        writeln!(f, "{n} {state} {}", place.personality.name)?;
    }
    Ok(())
}

fn show_personalities(_: &Arc<Devices>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for personality in PERSONALITIES {
        let regions = &personality.regions;
        let gaps = u8::from(regions.gaps);
        writeln!(
            f,
            "{} pages {} gaps {gaps}",
            personality.name, regions.pages
        )?;
    }
    Ok(())
}

/// Executes `remove N`, `add N [PERSONALITY]`, `reset N`.
fn change(devices: &Arc<Devices>, reader: &mut UserSliceReader) -> Result {
    control::line(reader, |text| {
        let mut words = text.split_ascii_whitespace();
        let what = words.next().ok_or(EINVAL)?;
        let number: u8 = words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
        match (what, words.next()) {
            ("remove", None) => devices.remove(number)?,
            ("add", None) => devices.add(number, None)?,
            ("add", Some(name)) => devices.add(number, Some(Personality::named(name)?))?,
            ("reset", None) => devices.reset(number)?,
            _ => return Err(EINVAL),
        }
        devices.net.attend();
        Ok(())
    })
}
