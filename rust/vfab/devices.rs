// SPDX-License-Identifier: GPL-2.0

//! The adapters of the module, which come and go.

use super::{
    control,
    fabric::Fabric,
    hca::{
        Attached,
        Hca, //
    },
    manager,
    params::Params,
    qp::net::{
        Net,
        Running, //
    },
};
use crate::rdma::provider::{
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
    uaccess::UserSliceReader, //
};

/// A file of an adapter.
type Control = Pin<KBox<File<Arc<Hca>>>>;

/// An adapter, known to `ib_core`. Its fields go in their order.
struct Device {
    _fault: Control,
    _port: Control,
    _queue_pairs: Control,
    _mads: Control,
    _regions: Control,
    _dir: Dir,
    _registration: Registration<Hca>,
    _attached: Attached,
}

/// All adapters.
#[pin_data]
pub struct Devices {
    params: Params,
    dir: Dir,
    net: Arc<Net>,
    #[pin]
    all: Mutex<KVec<Option<Device>>>,
}

impl Devices {
    /// So many as the parameters say. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`, and what `ib_core` says.
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
        for number in 0..params.devices {
            let device = this.device(number)?;
            this.all.lock().push(Some(device), GFP_KERNEL)?;
        }
        Ok((this, running))
    }

    fn device(&self, number: u8) -> Result<Device> {
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
            _attached: hca,
        })
    }

    /// The file that has adapters come and go.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn file(this: &Arc<Self>) -> Result<Pin<KBox<File<Arc<Self>>>>> {
        let file = this
            .dir
            .read_write_callback_file(c"devices", this.clone(), &show, &change);
        KBox::pin_init(file, GFP_KERNEL)
    }

    /// Takes all away.
    pub fn clear(&self) {
        let all = core::mem::take(&mut *self.all.lock());
        drop(all);
    }
}

fn show(devices: &Arc<Devices>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, device) in devices.all.lock().iter().enumerate() {
        let state = if device.is_some() { "there" } else { "removed" };
        writeln!(f, "{n} {state}")?;
    }
    Ok(())
}

/// `remove N`, `add N`: it goes in an orderly way and loses its power then.
fn change(devices: &Arc<Devices>, reader: &mut UserSliceReader) -> Result {
    control::line(reader, |text| {
        let mut words = text.split_ascii_whitespace();
        let what = words.next().ok_or(EINVAL)?;
        let number: u8 = words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
        let mut all = devices.all.lock();
        let place = all.get_mut(usize::from(number)).ok_or(ENODEV)?;
        match (what, place.is_some()) {
            ("remove", true) => {
                let device = place.take();
                drop(all);
                drop(device);
                // Unless it was added again meanwhile.
                let all = devices.all.lock();
                if all.get(usize::from(number)).is_some_and(Option::is_none) {
                    devices.net.fabric.power(number, false);
                }
            }
            ("add", false) => {
                *place = Some(devices.device(number)?);
                devices.net.fabric.power(number, true);
                drop(all);
                if devices.params.static_lids {
                    manager::activate(&devices.net.fabric)?;
                }
            }
            ("remove" | "add", _) => return Err(EEXIST),
            _ => return Err(EINVAL),
        }
        devices.net.attend();
        Ok(())
    })
}
