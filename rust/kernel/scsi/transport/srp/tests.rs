// SPDX-License-Identifier: GPL-2.0

//! KUnit tests: a host without devices, and a connection that the test switches on and off.

use super::{
    super::super::tests::{
        count,
        no_disks::NoDisks,
        Alive,
        LIMITS, //
    },
    *, //
};
use kernel::sync::atomic::Relaxed;

static RECONNECT_DELAY: Atomic<i32> = Atomic::new(7);
static FAST_IO_FAIL_TMO: Atomic<i32> = Atomic::new(15);
static DEV_LOSS_TMO: Atomic<i32> = Atomic::new(600);

/// The connection of the port.
struct Wire {
    _alive: Alive,
    reachable: Atomic<bool>,
    terminations: Atomic<i32>,
}

impl Operations for Wire {
    fn rport_delete(_: ArcBorrow<'_, Self>) {}

    fn reconnect(this: ArcBorrow<'_, Self>) -> Result {
        match this.reachable.load(Relaxed) {
            true => Ok(()),
            false => Err(ETIMEDOUT),
        }
    }

    fn failed_reconnects(&self) -> u32 {
        0
    }

    fn terminate_io(this: ArcBorrow<'_, Self>) {
        this.terminations.add(1, Relaxed);
    }
}

fn host() -> Result<Arc<Host<NoDisks<Transport<Wire>>>>> {
    let transport = Arc::new(
        Transport::new(Defaults {
            reconnect_delay: &RECONNECT_DELAY,
            fast_io_fail_tmo: &FAST_IO_FAIL_TMO,
            dev_loss_tmo: &DEV_LOSS_TMO,
        })?,
        GFP_KERNEL,
    )?;
    NoDisks::host(&LIMITS, transport)
}

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, Error::to_errno)
}

/// A blocked port recovers; a removal ends a blocked port permanently.
fn lose_and_reconnect() -> Result<[i32; 6]> {
    let alive = count()?;
    let wire = Wire {
        _alive: Alive::new(&alive),
        reachable: Atomic::new(false),
        terminations: Atomic::new(0),
    };
    let wire = Arc::new(wire, GFP_KERNEL)?;
    let host = host()?;

    host.add(None)?;
    let rport = Rport::add(&host, &[0x5a; 16], wire.clone())?;
    let delay = rport.timeouts().reconnect_delay;
    rport.start_tl_fail_timers();
    if rport.is_running() {
        return Err(EBUSY);
    }
    let refused = errno(rport.reconnect());
    wire.reachable.store(true, Relaxed);
    let taken = errno(rport.reconnect());
    if !rport.is_running() {
        return Err(EPIPE);
    }
    rport.start_tl_fail_timers();
    rport.stop();
    host.remove();
    rport.stop();
    let terminations = wire.terminations.load(Relaxed);
    let late = errno(rport.reconnect());
    rport.start_tl_fail_timers();
    drop((wire, rport));
    Ok([
        delay,
        refused,
        taken,
        terminations,
        late,
        alive.load(Relaxed),
    ])
}

/// A host that is not added gets no port; dropping a port removes its host.
fn ports_and_their_hosts() -> Result<[i32; 4]> {
    let alive = count()?;
    let wire = || {
        let wire = Wire {
            _alive: Alive::new(&alive),
            reachable: Atomic::new(true),
            terminations: Atomic::new(0),
        };
        Arc::new(wire, GFP_KERNEL)
    };
    let early = errno(Rport::add(&host()?, &[0x5a; 16], wire()?));
    let removed = host()?;
    removed.add(None)?;
    removed.remove();
    let late = errno(Rport::add(&removed, &[0x5a; 16], wire()?));

    let host = host()?;
    host.add(None)?;
    let rport = Rport::add(&host, &[0x5a; 16], wire()?)?;
    rport.start_tl_fail_timers();
    drop(rport);
    let again = errno(host.while_added(|_| Ok(())));
    Ok([early, late, again, alive.load(Relaxed)])
}

#[kunit_tests(srp_scsi_transport)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_port_comes_back() {
        let wanted = [7, ETIMEDOUT.to_errno(), 0, 1, ENODEV.to_errno(), 0];
        assert_eq!(lose_and_reconnect(), Ok(wanted));
    }

    #[test]
    fn a_port_has_a_host() {
        let gone = ENODEV.to_errno();
        assert_eq!(ports_and_their_hosts(), Ok([gone, gone, gone, 0]));
    }
}
