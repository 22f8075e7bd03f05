// SPDX-License-Identifier: GPL-2.0

//! The outages of an adapter, and the events that the adapter reports.

use super::{
    super::personality::{
        Outage,
        Told, //
    },
    Hca, //
};
use crate::provider::event;
use kernel::sync::atomic::Relaxed;

impl Hca {
    /// Takes the device out of service as `outage` specifies. May sleep.
    pub fn goes(&self, outage: &Outage) {
        if outage.stops {
            self.qps.each(|qp| qp.stops());
        }
        for told in outage.told {
            match told {
                Told::DeviceFatal => self.target.dispatch(event::Kind::DEVICE_FATAL, 1),
                Told::PortErr => {
                    self.unplugged.store(true, Relaxed);
                    self.plug(false);
                }
                Told::QpFatal => self.qps.each(|qp| qp.tells_fatal()),
            }
        }
    }

    /// Ends an outage. May sleep.
    #[cfg(SRP_KUNIT)]
    pub fn is_back(&self) {
        self.manner.end();
        if self.is_unplugged() {
            self.unplugged.store(false, Relaxed);
            self.plug(true);
        }
    }

    /// Whether an outage has taken the links of the ports down.
    pub fn is_unplugged(&self) -> bool {
        self.unplugged.load(Relaxed)
    }

    /// Plugs in or unplugs the cables of all ports.
    fn plug(&self, plugged: bool) {
        for id in self.ids() {
            self.fabric().plug(id, plugged);
        }
        self.net.attend();
    }
}
