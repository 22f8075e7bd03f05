// SPDX-License-Identifier: GPL-2.0

//! Cables that move to another switch port, and adapters without power.

use super::*;
use crate::vfab::{
    changes::Changes,
    link::State, //
};

const SECOND: PortId = PortId { ca: 1, port: 1 };

fn state(fabric: &Fabric, id: PortId) -> Option<(State, u16)> {
    fabric.look(id, |port| (port.link.state(), port.lid()))
}

#[kunit_tests(vfab_cables)]
mod cases {
    use super::*;

    #[test]
    fn another_port_of_the_switch() -> Result {
        let mut testbed = Testbed::new()?;
        let net = testbed.net.clone();
        let fabric = &net.fabric;
        for (number, error) in [(0, EINVAL), (5, EINVAL), (1, EBUSY), (2, EBUSY)] {
            check_eq!(fabric.move_to(FIRST, number), Err(error));
        }
        exchange(&mut testbed, 1, 64)?;
        // No data passes the new port until a manager has activated it.
        fabric.move_to(FIRST, 4)?;
        check_eq!(fabric.switch_port(FIRST), 4);
        check_eq!(state(fabric, FIRST), Some((State::Init, 1)));
        check_eq!(fabric.news(), Some((FIRST, Changes::ERROR)));
        check_eq!(fabric.route(SECOND, 1), None);
        // The other cable can use the port that has become free.
        fabric.move_to(SECOND, 1)?;
        check_eq!(state(fabric, SECOND), Some((State::Init, 2)));
        manager::activate(fabric)?;
        check_eq!(fabric.route(SECOND, 1), Some(FIRST));
        check_eq!(fabric.route(FIRST, 2), Some(SECOND));
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 2, 64)?;
        // A cable that is unplugged stays unplugged.
        fabric.plug(FIRST, false);
        fabric.move_to(FIRST, 2)?;
        check_eq!(state(fabric, FIRST), Some((State::Down, 1)));
        fabric.plug(FIRST, true);
        manager::activate(fabric)?;
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 3, 64)
    }

    #[test]
    fn no_reference_keeps_an_adapter() -> Result {
        let mut testbed = Testbed::new()?;
        exchange(&mut testbed, 1, 64)?;
        let Testbed {
            a,
            b,
            registrations: [first, second],
            hcas: [one, two],
            net,
        } = testbed;
        drop(b);
        drop(second);
        drop(two);
        // The device name is free, although `a` was connected.
        drop(DmaDevice::new(c"ib_vfab_test", 1, 64)?);
        drop(a);
        drop(first);
        drop(one);
        drop(net);
        Ok(())
    }

    #[test]
    fn without_power() -> Result {
        let mut testbed = Testbed::new()?;
        let net = testbed.net.clone();
        let fabric = &net.fabric;
        fabric.power(FIRST.ca, false);
        check_eq!(state(fabric, FIRST), Some((State::Down, 0)));
        check_eq!(state(fabric, SECOND), Some((State::Active, 2)));
        fabric.plug(FIRST, false);
        fabric.plug(FIRST, true);
        check_eq!(state(fabric, FIRST), Some((State::Down, 0)));
        check_eq!(fabric.route(SECOND, 1), None);
        fabric.power(FIRST.ca, true);
        check_eq!(state(fabric, FIRST), Some((State::Init, 0)));
        manager::activate(fabric)?;
        testbed.again(&USUAL)?;
        exchange(&mut testbed, 1, 64)
    }
}
